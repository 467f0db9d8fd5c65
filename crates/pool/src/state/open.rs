//! The opening of a pool: what is known in memory, from its superblock on.

use crate::base::error::Error;
use crate::base::order::{self, Mutex, RwLock};
use crate::io::{At, Media};
use crate::log::{self, IntentLog, LoggedMerge};
use crate::memtable::dataset::Dataset;
use crate::memtable::dirty::DirtyCounters;
use crate::memtable::dirty_datasets::DirtyDatasets;
use crate::memtable::item_cache::ItemCache;
use crate::memtable::settings::Settings;
use crate::space::SpaceMap;
use crate::state::bitmaps::{Committed, malformed};
use crate::state::forks::Forks;
use crate::state::ledger::Ledger;
use crate::state::options::OpenOptions;
use crate::state::records::{Reclaims, Records, Transactions};
use crate::state::superblocks::newest_superblock;
use crate::state::waiting_merges::{WaitingMerge, WaitingMerges};
use crate::state::work::Work;
use crate::state::{State, Turns};
use crate::tree;
use bytes::Bytes;
use marram_device::Device;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::operation::OPERATION_NUMBERS_MAX;
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_format::space::{
    ReclaimRecord, SUMMARY_ZONES, Tail, dataset_key, reclaim_key, summary_key, transaction_key,
};
use marram_format::superblock::Superblock;
use marram_format::transaction::{TransactionRecord, TransactionState};
use marram_store::{Key, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock};

/// One part in so many of the cache is for inodes and names.
const ITEM_CACHE_PART: usize = 8;

/// What a device says of grains is reported in bytes, too: there are no more than these.
const GRAINS_MAX: u64 = u64::MAX / GRAIN_BYTES;

/// Opens the pool that lies on devices.
///
/// # Errors
/// As for `Pool::open`.
pub(crate) fn open(
    devices: Vec<Arc<dyn Device>>,
    options: OpenOptions,
) -> std::result::Result<State, Error> {
    let [device] = &devices[..] else {
        let reason = "this version opens pools on one device: name exactly one";
        return Err(Error::Unsupported(reason.to_owned()));
    };
    if options.skip_log && !options.read_only {
        let reason = "a pool is opened without its intent log for reading only: going on from \
                      there would lose what was synced";
        return Err(Error::Unsupported(reason.to_owned()));
    }
    let superblock = newest_superblock(device.as_ref())?;
    check_size(device.as_ref(), &superblock)?;
    if superblock.allocated_grains > GRAINS_MAX {
        return Err(malformed("how much is in use".to_owned()).into());
    }
    if !options.read_only
        && let Some(reason) = superblock.write_obstacle()
    {
        return Err(Error::TooNew { device: device.name(), reason });
    }
    let tail = superblock.tail.clone();
    start(devices, options, superblock, tail)
}

/// Sets up what is known in memory from a superblock.
pub(crate) fn start(
    devices: Vec<Arc<dyn Device>>,
    options: OpenOptions,
    superblock: Superblock,
    tail: Option<Pointer>,
) -> std::result::Result<State, Error> {
    let item_cache_bytes = options.cache_bytes / ITEM_CACHE_PART;
    let item_cache = Arc::new(ItemCache::new(item_cache_bytes));
    let media = Media::new(devices, options.cache_bytes - item_cache_bytes);
    media.set_epoch(superblock.group.0);
    let size_bytes = superblock.devices.first().map_or(0, |device| device.size_bytes);
    let root = superblock.pool_tree.as_ref().map(Pointer::encode);
    let records = read_records(&media, root.as_ref())?;
    let space = read_space(&media, root.as_ref(), size_bytes / GRAIN_BYTES, tail.as_ref())?;
    let dirty_datasets = Arc::<DirtyDatasets>::default();
    let datasets = datasets_of(&records, options.read_only, (&dirty_datasets, &item_cache))?;
    let mut known = Records::default();
    known.apply(records.into_iter().map(|(id, record)| (id, Some(record))).collect());
    known.set_reclaims(Arc::new(read_reclaims(&media, root.as_ref())?));
    let transactions = read_transactions(&media, root.as_ref())?;
    begin_doubt(&transactions, &datasets);
    known.set_transactions(Arc::new(transactions));
    let (log, replayed) = match superblock.intent_log.as_ref().filter(|_| !options.skip_log) {
        None => (OnceLock::new(), log::Replayed::default()),
        Some(pointer) => {
            let (log, replayed) =
                IntentLog::open(&media, &superblock, pointer, &datasets).map_err(Error::Log)?;
            (OnceLock::from(log), replayed)
        }
    };
    let next_dataset = AtomicU64::new(superblock.next_dataset);
    let dirty = DirtyCounters::new(replayed.dirty, log::first_freeze(&replayed));
    let merges = merges_of(replayed.merges, &datasets, &known)?;
    let state = State {
        media,
        options: options.within_bounds(),
        turns: Turns::default(),
        datasets: RwLock::new(order::DATASETS, datasets),
        dirty_datasets,
        forks: Forks::default(),
        merges,
        item_cache,
        records: RwLock::new(order::RECORDS, Arc::new(known)),
        gauge: space.gauge(),
        space: Mutex::new(order::SPACE, space),
        superblock: Mutex::new(order::SUPERBLOCK, superblock),
        next_dataset,
        size_bytes: Mutex::new(order::SIZE, size_bytes),
        health: Mutex::new(order::HEALTH, None),
        dirty,
        ledger: Ledger::default(),
        next_expiry_seconds: AtomicI64::new(i64::MIN),
        log,
        replayed_frames: replayed.frames,
        work: Work::default(),
    };
    begin_logging(&state);
    state.sum_reservations();
    Ok(state)
}

/// The merges that the intent log has wait again, until a commit takes them in.
fn merges_of(
    logged: Vec<LoggedMerge>,
    datasets: &BTreeMap<u64, Arc<Dataset>>,
    known: &Records,
) -> Result<WaitingMerges> {
    let merges = WaitingMerges::default();
    for merge in logged {
        let is_live = |record: &&Arc<DatasetRecord>| record.state == DatasetState::Live;
        let live = known.get(merge.dataset).filter(is_live);
        let Some((dataset, live)) = datasets.get(&merge.dataset).zip(live) else {
            let reason = format!("a merge in the intent log is into {}, no dataset", merge.dataset);
            return Err(malformed(reason));
        };
        merges.add(WaitingMerge::of_logged(merge, Arc::clone(dataset), Arc::clone(live)));
    }
    merges.note_durable(merges.added());
    Ok(merges)
}

/// What is prepared is in doubt until it is decided.
fn begin_doubt(transactions: &Transactions, datasets: &BTreeMap<u64, Arc<Dataset>>) {
    let prepared =
        transactions.values().filter(|record| record.state == TransactionState::Prepared);
    let parts = prepared.flat_map(|record| &record.datasets);
    parts.filter_map(|part| datasets.get(&part.dataset)).for_each(|it| it.doubt.begin());
}

/// From now on datasets keep in mind what the intent log does not have, if there is one.
fn begin_logging(state: &State) {
    if state.log.get().is_some() && !state.options.read_only {
        let datasets = state.datasets.read();
        let writable = datasets.values().filter(|dataset| dataset.writable);
        writable.for_each(|dataset| dataset.begin_logging());
    }
}

fn check_size(device: &dyn Device, superblock: &Superblock) -> std::result::Result<(), Error> {
    let found_bytes = device.size()?;
    let needed_bytes = superblock.devices.first().map_or(0, |device| device.size_bytes);
    if superblock.devices.len() != 1 {
        let reason = format!("the pool has {} devices, not one", superblock.devices.len());
        return Err(Error::Unsupported(reason));
    }
    if found_bytes >= needed_bytes {
        return Ok(());
    }
    Err(Error::TooSmall {
        device: device.name(),
        found_bytes,
        needed_bytes,
        reason: "the end of the pool is cut off; bring back the whole file or device".to_owned(),
    })
}

/// All that are not being destroyed.
fn datasets_of(
    records: &BTreeMap<u64, DatasetRecord>,
    read_only: bool,
    shared: (&Arc<DirtyDatasets>, &Arc<ItemCache>),
) -> Result<BTreeMap<u64, Arc<Dataset>>> {
    let known = records.values().filter(|record| record.state != DatasetState::Destroying);
    let open =
        |record: &DatasetRecord| Ok((record.id, Arc::new(dataset_of(record, read_only, shared)?)));
    known.map(open).collect()
}

pub(crate) fn dataset_of(
    record: &DatasetRecord,
    read_only: bool,
    (dirty_datasets, item_cache): (&Arc<DirtyDatasets>, &Arc<ItemCache>),
) -> Result<Dataset> {
    let settings = Settings::new(&record.properties)?;
    let writable = record.state == DatasetState::Live && !read_only;
    let root = record.root.as_ref().map(Pointer::encode);
    Ok(Dataset::new(record, root, settings, writable, (dirty_datasets.clone(), item_cache.clone())))
}

fn read_records(media: &Media, root: Option<&Bytes>) -> Result<BTreeMap<u64, DatasetRecord>> {
    let mut records = BTreeMap::new();
    let mut wrong: Option<String> = None;
    let at = At { media, epoch: media.epoch() };
    tree::scan(&at, root, dataset_key(0), dataset_key(u64::MAX), &mut |found| {
        match DatasetRecord::decode(&found.value) {
            Ok(record) if record.referenced_grains.max(record.dead_grains) > GRAINS_MAX => {
                wrong = Some("it has more than can be counted in bytes".to_owned());
            }
            Ok(record) => {
                records.insert(found.key.offset, record);
            }
            Err(error) => wrong = Some(error.to_string()),
        }
        wrong.is_none()
    })?;
    match wrong {
        None => Ok(records),
        Some(reason) => Err(malformed(format!("a dataset's record: {reason}"))),
    }
}

fn read_reclaims(media: &Media, root: Option<&Bytes>) -> Result<Reclaims> {
    let mut reclaims = Reclaims::new();
    let mut wrong: Option<String> = None;
    let at = At { media, epoch: media.epoch() };
    tree::scan(&at, root, reclaim_key(0), reclaim_key(u64::MAX), &mut |found| {
        match ReclaimRecord::decode(&found.value) {
            Ok(record) => {
                reclaims.insert(found.key.offset, record);
            }
            Err(error) => wrong = Some(error.to_string()),
        }
        wrong.is_none()
    })?;
    match wrong {
        None => Ok(reclaims),
        Some(reason) => Err(malformed(format!("a dead list in reclaim: {reason}"))),
    }
}

fn read_transactions(media: &Media, root: Option<&Bytes>) -> Result<Transactions> {
    let mut transactions = Transactions::new();
    let mut wrong: Option<String> = None;
    let at = At { media, epoch: media.epoch() };
    let (first, last) = (transaction_key(0), transaction_key(u64::MAX));
    tree::scan(&at, root, first, last, &mut |found| {
        match TransactionRecord::decode(&found.value) {
            Ok(_) if found.key.offset >= OPERATION_NUMBERS_MAX => {
                wrong = Some(format!("the entry {} is none of the log", found.key.offset));
            }
            Ok(record) => {
                transactions.insert(found.key.offset, record);
            }
            Err(error) => wrong = Some(error.to_string()),
        }
        wrong.is_none()
    })?;
    match wrong {
        None => Ok(transactions),
        Some(reason) => Err(malformed(format!("a transaction over two pools: {reason}"))),
    }
}

fn read_space(
    media: &Media,
    root: Option<&Bytes>,
    total_grains: u64,
    tail: Option<&Pointer>,
) -> Result<SpaceMap> {
    let mut free = Vec::new();
    let at = At { media, epoch: media.epoch() };
    let last = Key { offset: u64::MAX, ..summary_key(0, 0) };
    tree::scan(&at, root, summary_key(0, 0), last, &mut |found| {
        let first = found.key.offset * SUMMARY_ZONES;
        for (zone, count) in (first..).zip(found.value.chunks_exact(4)) {
            free.push((zone, u32::from_le_bytes([count[0], count[1], count[2], count[3]])));
        }
        true
    })?;
    let mut space = SpaceMap::with_summary(total_grains, &free);
    if let Some(tail) = tail {
        let bytes = media.block(&tail.encode(), media.epoch())?;
        let tail = Tail::decode(&bytes).map_err(|error| malformed(format!("the tail: {error}")))?;
        space.replay(&tail, &Committed { media, root: root.cloned() })?;
    }
    Ok(space)
}
