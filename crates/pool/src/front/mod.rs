//! An open pool.

pub(crate) mod create;
mod label;
pub(crate) mod status;

use crate::Error;
use crate::admission::shortage::Look;
use crate::base::order::{self, Condvar, Mutex, RwLock};
use crate::front::create::newest_superblock;
use crate::io::{At, Media};
use crate::log::{self, IntentLog};
use crate::memtable::dataset::Dataset;
use crate::memtable::dirty_datasets::Touched;
use crate::memtable::item_cache::RecentItems;
use crate::snapshots::{Author, Passing, entry};
use crate::space::{Gauge, SpaceMap, ZoneSource};
use crate::state::records::{Records, Sifting};
use crate::state::settings::Settings;
use crate::tree;
use bytes::Bytes;
use marram_device::Device;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::operation::OperationKind;
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_format::space::{
    SUMMARY_ZONES, SiftingRecord, Tail, ZONE_BITMAP_BYTES, dataset_key, sifting_key, summary_key,
    zone_key,
};
use marram_format::superblock::Superblock;
use marram_store::{Damage, Key, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One part in so many of the cache is for inodes and names.
const RECENT_PART: usize = 8;

/// Pointers of dead lists that one commit sifts at most, unless whoever opens a pool says
/// otherwise: some 7 MiB of lists.
const SIFT_POINTERS_MAX: usize = 100_000;

/// What a device says of grains is told in bytes, too: there are no more than these.
const GRAINS_MAX: u64 = u64::MAX / GRAIN_BYTES;

/// How a pool is to be opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Change nothing, not even to heal.
    pub read_only: bool,
    /// Show what the last group commit holds, and do not read the intent log: for a log that
    /// cannot be replayed. Only with `read_only`, as a pool that went on from there would lose what
    /// was synced since.
    pub skip_log: bool,
    /// Bytes of memory for nodes and blocks that were read, and for inodes and names that were
    /// asked for lately.
    pub cache_bytes: usize,
    /// Bytes of unwritten content that start a commit; twice as many make writers wait for it.
    pub dirty_bytes_max: usize,
    /// Threads that compress and checksum during a commit.
    pub threads: usize,
    /// Pointers of dead lists that one commit sifts at most, to give back what destroyed snapshots
    /// had.
    pub sift_pointers_max: usize,
    /// The present time, in seconds since 1970.
    pub now_seconds: Arc<dyn Fn() -> i64 + Send + Sync>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            skip_log: false,
            cache_bytes: 64 << 20,
            dirty_bytes_max: 64 << 20,
            threads: 1,
            sift_pointers_max: SIFT_POINTERS_MAX,
            now_seconds: Arc::new(|| 0),
        }
    }
}

/// An open pool. Dropping it loses what has not been committed, as a crash would.
pub struct Pool {
    pub(crate) inner: Arc<Inner>,
    /// For whom this handle acts, see [`Pool::acting_for`].
    pub(crate) author: Option<Arc<Author>>,
    /// The operation that a merge through this handle takes back; 0 is none.
    pub(crate) undoes: u64,
}

/// What the views of a pool share.
///
/// Locks are taken in the order that stands in `base/order.rs`. None but the log's writer and
/// `committing` is held while a device works, except `space` while a bitmap is read, which only a
/// commit does.
pub(crate) struct Inner {
    pub(crate) media: Media,
    pub(crate) threads: usize,
    pub(crate) sift_pointers_max: usize,
    pub(crate) now_seconds: Arc<dyn Fn() -> i64 + Send + Sync>,
    pub(crate) read_only: bool,
    dirty_bytes_max: u64,
    /// Held by the one who lets datasets come or go: nothing is opened meanwhile.
    pub(crate) administering: Mutex<()>,
    /// Held by the one who commits.
    pub(crate) committing: Mutex<()>,
    /// Held for reading while a batch applies; for writing while a commit freezes, and while one
    /// that takes a dataset back is made.
    pub(crate) gate: RwLock<()>,
    pub(crate) datasets: RwLock<BTreeMap<u64, Arc<Dataset>>>,
    pub(crate) touched: Arc<Touched>,
    pub(crate) recent: Arc<RecentItems>,
    /// Shared with whoever looks at one [moment](crate::views::pinned_commit).
    pub(crate) records: RwLock<Arc<Records>>,
    /// States that are compared.
    pub(crate) passing: Passing,
    pub(crate) space: Mutex<SpaceMap>,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) size_bytes: Mutex<u64>,
    /// Why the pool takes no more changes, if so.
    pub(crate) health: Mutex<Option<String>>,
    /// See [`Dirty`](crate::memtable::dirty::Dirty), as of the two below.
    pub(crate) dirty_bytes: AtomicU64,
    pub(crate) dirty_content_bytes: AtomicU64,
    pub(crate) dirty_edits: AtomicU64,
    /// What batches need that have found space and are not among what is dirty yet, in bytes.
    pub(crate) admitted_bytes: Mutex<u64>,
    /// What the last [look for space](crate::admission::shortage) found.
    pub(crate) last_look: Mutex<Option<Look>>,
    /// What is kept free for datasets with a reservation, in bytes.
    pub(crate) kept_free_bytes: AtomicU64,
    /// What is promised to whoever writes through open views, in bytes.
    pub(crate) promised_bytes: AtomicU64,
    /// When to look next for something that was kept for an undo and whose time is over.
    pub(crate) next_expiry_seconds: AtomicI64,
    /// Batches applied since the pool was opened.
    pub(crate) batches: AtomicU64,
    /// Number of the last freeze; it changes while no batch is under way.
    pub(crate) freezes: AtomicU64,
    /// The intent log; a pool of format 1.0 has none.
    pub(crate) log: OnceLock<IntentLog>,
    pub(crate) replayed_frames: u64,
    pub(crate) work: Mutex<bool>,
    pub(crate) work_arrived: Condvar,
}

/// Bytes that an edit without content is taken to occupy in memory.
const EDIT_MEMORY_BYTES: u64 = 256;

impl Pool {
    /// Opens a pool. After a crash too there is nothing to repair: the newest superblock leads to
    /// everything, and the intent log has what was synced since.
    ///
    /// Opening writes nothing and flushes nothing, so that it does not wait for what a device has
    /// still to write. What was replayed is in memory and still in the log; the next commit takes
    /// it in, and no sync uses the log before.
    ///
    /// # Errors
    /// No pool, a newer one, a device that is cut off or fails; a log that cannot be replayed.
    pub fn open(
        devices: Vec<Arc<dyn Device>>,
        options: OpenOptions,
    ) -> std::result::Result<Arc<Pool>, Error> {
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
        Pool::start(devices, options, superblock, tail)
    }

    /// Sets up what is known in memory from a superblock.
    pub(crate) fn start(
        devices: Vec<Arc<dyn Device>>,
        options: OpenOptions,
        superblock: Superblock,
        tail: Option<Pointer>,
    ) -> std::result::Result<Arc<Pool>, Error> {
        let recent_bytes = options.cache_bytes / RECENT_PART;
        let recent = Arc::new(RecentItems::new(recent_bytes));
        let media = Media::new(devices, options.cache_bytes - recent_bytes);
        media.set_epoch(superblock.group.0);
        let size_bytes = superblock.devices.first().map_or(0, |device| device.size_bytes);
        let root = superblock.pool_tree.as_ref().map(Pointer::encode);
        let records = read_records(&media, root.as_ref())?;
        let space = read_space(&media, root.as_ref(), size_bytes / GRAIN_BYTES, tail.as_ref())?;
        let touched = Arc::<Touched>::default();
        let datasets = datasets_of(&records, options.read_only, (&touched, &recent))?;
        let mut known = Records::default();
        known.apply(records.into_iter().map(|(id, record)| (id, Some(record))).collect());
        known.set_sifting(Arc::new(read_sifting(&media, root.as_ref())?));
        let (log, replayed) = match superblock.intent_log.as_ref().filter(|_| !options.skip_log) {
            None => (OnceLock::new(), log::Replayed::default()),
            Some(pointer) => {
                let (log, replayed) =
                    IntentLog::open(&media, &superblock, pointer, &datasets).map_err(Error::Log)?;
                (OnceLock::from(log), replayed)
            }
        };
        let inner = Inner {
            media,
            threads: options.threads.max(1),
            sift_pointers_max: options.sift_pointers_max.max(1),
            now_seconds: options.now_seconds,
            read_only: options.read_only,
            dirty_bytes_max: options.dirty_bytes_max as u64,
            administering: Mutex::new(order::ADMINISTERING, ()),
            committing: Mutex::new(order::COMMITTING, ()),
            gate: RwLock::new(order::GATE, ()),
            datasets: RwLock::new(order::DATASETS, datasets),
            touched,
            recent,
            records: RwLock::new(order::RECORDS, Arc::new(known)),
            passing: Passing::default(),
            gauge: space.gauge(),
            space: Mutex::new(order::SPACE, space),
            superblock: Mutex::new(order::SUPERBLOCK, superblock),
            size_bytes: Mutex::new(order::SIZE, size_bytes),
            health: Mutex::new(order::HEALTH, None),
            dirty_bytes: AtomicU64::new(replayed.dirty.memory_bytes),
            dirty_content_bytes: AtomicU64::new(replayed.dirty.content_bytes),
            dirty_edits: AtomicU64::new(replayed.dirty.edits),
            admitted_bytes: Mutex::new(order::ADMITTED, 0),
            last_look: Mutex::new(order::LAST_LOOK, None),
            kept_free_bytes: AtomicU64::new(0),
            promised_bytes: AtomicU64::new(0),
            next_expiry_seconds: AtomicI64::new(i64::MIN),
            batches: AtomicU64::new(0),
            freezes: AtomicU64::new(log::first_freeze(&replayed)),
            log,
            replayed_frames: replayed.frames,
            work: Mutex::new(order::WORK, false),
            work_arrived: Condvar::new(),
        };
        inner.begin_logging();
        inner.sum_reservations();
        Ok(Arc::new(Pool { inner: Arc::new(inner), author: None, undoes: 0 }))
    }

    /// Makes everything durable that was applied before.
    ///
    /// # Errors
    /// A device that fails; from then on the pool takes no changes.
    pub fn commit(&self) -> Result<()> {
        self.inner.commit()
    }

    /// Gives back a piece of what was destroyed, or lets go of what was kept for an undo until now;
    /// returns whether there is more to do.
    ///
    /// # Errors
    /// As for [`Pool::commit`].
    pub fn reclaim_step(&self) -> Result<bool> {
        if self.inner.read_only {
            return Ok(false);
        }
        Ok(self.inner.let_go_of_expired()? | self.inner.give_back_step()?)
    }

    /// Waits until enough is dirty for a commit to be worth it, at most for `timeout`; returns
    /// whether that is so.
    pub fn wait_for_work(&self, timeout: Duration) -> bool {
        let mut work = self.inner.work.lock();
        if !*work {
            self.inner.work_arrived.wait_for(&mut work, timeout);
        }
        std::mem::take(&mut *work)
    }

    /// Wakes whoever waits in [`Pool::wait_for_work`].
    pub fn wake(&self) {
        self.inner.announce_work();
    }

    /// Uses the space that the device has got since; returns its size in bytes. If there is none,
    /// nothing is done.
    ///
    /// # Errors
    /// A device that has shrunk or fails.
    pub fn grow(&self) -> std::result::Result<u64, Error> {
        let inner = &self.inner;
        let author = self.author.as_ref();
        let turn = inner.begin_operation(author)?;
        let device = &inner.media.devices()[0];
        let found_bytes = device.size()? / GRAIN_BYTES * GRAIN_BYTES;
        let size_bytes = *inner.size_bytes.lock();
        if found_bytes < size_bytes {
            return Err(Error::TooSmall {
                device: device.name(),
                found_bytes,
                needed_bytes: size_bytes,
                reason: "a pool cannot shrink; give the device its size back".to_owned(),
            });
        }
        if found_bytes == size_bytes {
            return Ok(found_bytes);
        }
        let sizes = [size_bytes, found_bytes].map(|bytes| bytes.to_string());
        let entry = entry(OperationKind::Grow, 0, &[&sizes[0], &sizes[1]]);
        *inner.size_bytes.lock() = found_bytes;
        let grown = turn.commit(Some(&mut |commit| {
            let committed = commit.pool.committed();
            commit.pool.space.lock().grow(found_bytes / GRAIN_BYTES, &committed)?;
            commit.enter(author, entry.clone()).map(|_| ())
        }));
        if grown.is_err() {
            *inner.size_bytes.lock() = size_bytes;
        }
        grown?;
        Ok(found_bytes)
    }

    /// Commits what is left. The pool can be dropped then without a loss.
    ///
    /// # Errors
    /// As for [`Pool::commit`].
    pub fn close(&self) -> Result<()> {
        if self.inner.read_only { Ok(()) } else { self.inner.commit() }
    }
}

/// Bitmaps as the last commit has them.
pub(crate) struct Committed<'a> {
    media: &'a Media,
    root: Option<Bytes>,
}

impl ZoneSource for Committed<'_> {
    fn bitmap(&self, zone: u64) -> Result<Option<[u8; ZONE_BITMAP_BYTES]>> {
        let at = At { media: self.media, epoch: self.media.epoch() };
        match tree::get(&at, self.root.as_ref(), zone_key(0, zone))? {
            None => Ok(None),
            Some(found) => match <[u8; ZONE_BITMAP_BYTES]>::try_from(&found.value[..]) {
                Ok(bitmap) => Ok(Some(bitmap)),
                Err(_) => Err(malformed(format!("the bitmap of zone {zone}"))),
            },
        }
    }
}

impl Inner {
    /// Datasets that may have something that waits for a commit, in order of their ids.
    pub(crate) fn touched_datasets(&self) -> Vec<Arc<Dataset>> {
        let datasets = self.datasets.read();
        let touched = self.touched.ids().into_iter();
        let known = touched.filter_map(|id| datasets.get(&id).cloned());
        known.filter(|dataset| dataset.writable).collect()
    }

    /// Bitmaps as the last commit has them.
    pub(crate) fn committed(&self) -> Committed<'_> {
        let root = self.superblock.lock().pool_tree.as_ref().map(Pointer::encode);
        Committed { media: &self.media, root }
    }

    /// From now on datasets keep in mind what the intent log does not have, if there is one.
    fn begin_logging(&self) {
        if self.log.get().is_some() && !self.read_only {
            let datasets = self.datasets.read();
            let writable = datasets.values().filter(|dataset| dataset.writable);
            writable.for_each(|dataset| dataset.begin_logging());
        }
    }

    /// Whether the pool takes changes at all.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(marram_store::Error::ReadOnly("the pool is open read-only".to_owned()));
        }
        match &*self.health.lock() {
            None => Ok(()),
            Some(reason) => Err(marram_store::Error::ReadOnly(format!(
                "the pool takes no more changes since an error: {reason}"
            ))),
        }
    }

    /// Bytes of memory that wait to be committed.
    pub(crate) fn dirty_memory_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Acquire)
            + self.dirty_edits.load(Ordering::Acquire) * EDIT_MEMORY_BYTES
    }

    /// After a batch: lets the one who commits know when it is time, and makes writers that are
    /// far ahead of it commit themselves.
    pub(crate) fn throttle(&self) -> Result<()> {
        let dirty = self.dirty_memory_bytes();
        if dirty >= self.dirty_bytes_max {
            self.announce_work();
        }
        if dirty >= 2 * self.dirty_bytes_max { self.commit() } else { Ok(()) }
    }

    pub(crate) fn announce_work(&self) {
        *self.work.lock() = true;
        self.work_arrived.notify_all();
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

fn malformed(what: String) -> marram_store::Error {
    marram_store::Error::Damaged(Damage {
        what: "the pool's own tree",
        place: what,
        reason: "it has the wrong form".to_owned(),
    })
}

/// All that are not being destroyed.
fn datasets_of(
    records: &BTreeMap<u64, DatasetRecord>,
    read_only: bool,
    shared: (&Arc<Touched>, &Arc<RecentItems>),
) -> Result<BTreeMap<u64, Arc<Dataset>>> {
    let known = records.values().filter(|record| record.state != DatasetState::Destroying);
    let open =
        |record: &DatasetRecord| Ok((record.id, Arc::new(dataset_of(record, read_only, shared)?)));
    known.map(open).collect()
}

pub(crate) fn dataset_of(
    record: &DatasetRecord,
    read_only: bool,
    (touched, recent): (&Arc<Touched>, &Arc<RecentItems>),
) -> Result<Dataset> {
    let settings = Settings::new(&record.properties)?;
    let writable = record.state == DatasetState::Live && !read_only;
    let root = record.root.as_ref().map(Pointer::encode);
    Ok(Dataset::new(record, root, settings, writable, (touched.clone(), recent.clone())))
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

fn read_sifting(media: &Media, root: Option<&Bytes>) -> Result<Sifting> {
    let mut sifting = Sifting::new();
    let mut wrong: Option<String> = None;
    let at = At { media, epoch: media.epoch() };
    tree::scan(&at, root, sifting_key(0), sifting_key(u64::MAX), &mut |found| {
        match SiftingRecord::decode(&found.value) {
            Ok(record) => {
                sifting.insert(found.key.offset, record);
            }
            Err(error) => wrong = Some(error.to_string()),
        }
        wrong.is_none()
    })?;
    match wrong {
        None => Ok(sifting),
        Some(reason) => Err(malformed(format!("a list that is sifted: {reason}"))),
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

impl std::fmt::Debug for Pool {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let superblock = self.inner.superblock.lock();
        write!(out, "Pool {:?} at group {}", superblock.label, superblock.group)
    }
}
