//! `posix` on a pool on a device in memory.

use super::interrupted::InterruptedView;
use super::{Backing, StoreHome, mount, text};
use marram_check::{CheckOptions, Finding};
use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_sim::{HistoryClock, Home, HomeResult, pattern};
use marram_store::{DatasetName, Properties, Source, Store, View};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::sync::Arc;

/// Size of the device; only what is written takes memory.
const DEVICE_BYTES: usize = 1 << 30;
/// Bytes that a full pool has left at the start.
const LEFT_BYTES: u64 = 1 << 20;
/// Size of the blocks that fill it.
const BALLAST_BLOCK_BYTES: usize = 64 << 10;
/// Size of a device that fills up.
const SMALL_DEVICE_BYTES: usize = 33 << 20;

struct OnDevice {
    device: Arc<dyn Device>,
    /// Always there but while it is opened again.
    pool: Option<Arc<Pool>>,
    /// Commit in the middle of operations, as this seed decides.
    interrupts: Option<u64>,
}

/// Properties of the root dataset; the seed of a history chooses one line.
const PROPERTIES: &[&[(&str, &str)]] = &[
    &[],
    &[("recordsize", "4K"), ("compression", "zstd:1")],
    &[("recordsize", "1M"), ("checksum", "blake3")],
    &[("recordsize", "16K"), ("compression", "off")],
    &[("compression", "zle")],
    &[("recordsize", "64K"), ("compression", "gzip:1")],
    &[("recordsize", "32K"), ("compression", "lzo")],
];

/// An empty file system on a new pool in memory, with small caches and no commits but those that
/// the history asks for. The seed chooses properties.
pub fn pool_home(seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    new_pool_home(Arc::new(MemoryDevice::new(DEVICE_BYTES)), seed, clock)
}

/// As [`pool_home`], with commits in the middle of operations.
pub fn busy_pool_home(seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    drop(new_pool_home(Arc::clone(&device), seed, Arc::clone(&clock))?);
    let mut backing = OnDevice { device, pool: None, interrupts: Some(seed) };
    backing.open()?;
    Ok(Box::new(StoreHome::new(backing, clock)?))
}

/// As [`pool_home`], on a small device that another dataset has filled up to a little.
pub fn full_pool_home(seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    full_pool_home_on(Arc::new(MemoryDevice::new(SMALL_DEVICE_BYTES)), seed, clock)
}

fn full_pool_home_on(
    device: Arc<dyn Device>,
    seed: u64,
    clock: Arc<HistoryClock>,
) -> HomeResult<Box<dyn Home>> {
    drop(new_pool_home(Arc::clone(&device), seed, Arc::clone(&clock))?);
    let mut backing = OnDevice { device, pool: None, interrupts: None };
    backing.open()?;
    let ballast: Source = "ballast".parse().map_err(text)?;
    backing.store().create(&ballast.dataset, &Properties::default()).map_err(text)?;
    fill(&*mount(backing.view(&ballast)?, &clock)?).map_err(text)?;
    Ok(Box::new(StoreHome::new(backing, clock)?))
}

/// As [`busy_pool_home`], sharing equal content before each commit that the history asks for.
pub fn dedup_pool_home(seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    drop(new_pool_home(Arc::clone(&device), seed, Arc::clone(&clock))?);
    deduplicating(device, Some(seed), clock)
}

/// As [`dedup_pool_home`], on a device that another dataset has filled up to a little.
pub fn dedup_full_pool_home(seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SMALL_DEVICE_BYTES));
    drop(full_pool_home_on(Arc::clone(&device), seed, Arc::clone(&clock))?);
    deduplicating(device, None, clock)
}

fn deduplicating(
    device: Arc<dyn Device>,
    interrupts: Option<u64>,
    clock: Arc<HistoryClock>,
) -> HomeResult<Box<dyn Home>> {
    let mut backing = OnDevice { device, pool: None, interrupts };
    backing.open()?;
    backing.pool().set_property(&DatasetName::root(), "dedup", Some("on")).map_err(text)?;
    Ok(Box::new(StoreHome::new(backing, clock)?.deduplicating()))
}

/// As [`busy_pool_home`], defragmenting after each commit that the history asks
/// for.
pub fn defragmenting_pool_home(seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    drop(new_pool_home(Arc::clone(&device), seed, Arc::clone(&clock))?);
    let mut backing = OnDevice { device, pool: None, interrupts: Some(seed) };
    backing.open()?;
    Ok(Box::new(StoreHome::new(backing, clock)?.rewriting()))
}

/// As [`defragmenting_pool_home`], on a device that another dataset has filled up to a little.
pub fn defragmenting_full_pool_home(
    seed: u64,
    clock: Arc<HistoryClock>,
) -> HomeResult<Box<dyn Home>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SMALL_DEVICE_BYTES));
    drop(full_pool_home_on(Arc::clone(&device), seed, Arc::clone(&clock))?);
    let mut backing = OnDevice { device, pool: None, interrupts: None };
    backing.open()?;
    Ok(Box::new(StoreHome::new(backing, clock)?.rewriting()))
}

/// Puts a file of noise into a file system until only [`LEFT_BYTES`] are left.
fn fill(files: &dyn FileSystem) -> marram_vfs::Result<()> {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o600, device: 0 };
    let nobody = Caller { uid: 0, gid: 0 };
    let ino = files.create(nobody, Ino::ROOT, Name::new(b"ballast")?, node)?.ino;
    let mut number = 0;
    while files.space()?.free_bytes > LEFT_BYTES {
        let noise = pattern(3 * number + 2, BALLAST_BLOCK_BYTES);
        let offset = number * BALLAST_BLOCK_BYTES as u64;
        files.write(ino, offset, &noise, WriteOptions::default())?;
        number += 1;
    }
    files.sync_all()
}

/// As [`pool_home`], on a device of the caller's.
pub fn new_pool_home(
    device: Arc<dyn Device>,
    seed: u64,
    clock: Arc<HistoryClock>,
) -> HomeResult<Box<dyn Home>> {
    let chosen = PROPERTIES[(seed % PROPERTIES.len() as u64) as usize];
    let properties = chosen.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let options = CreateOptions {
        label: "history".to_owned(),
        properties: Properties(properties.collect()),
        pool_id: [7; 16],
        secret: 7,
        now_seconds: 1_700_000_000,
    };
    create(&[Arc::clone(&device)], &options).map_err(text)?;
    open_pool_home(device, clock)
}

/// The file system in a pool that exists, once the offline verifier has found nothing in it.
pub fn open_pool_home(
    device: Arc<dyn Device>,
    clock: Arc<HistoryClock>,
) -> HomeResult<Box<dyn Home>> {
    let mut backing = OnDevice { device, pool: None, interrupts: None };
    backing.verify(false)?;
    backing.open()?;
    Ok(Box::new(StoreHome::new(backing, clock)?))
}

impl OnDevice {
    fn open(&mut self) -> HomeResult<()> {
        let options = OpenOptions {
            cache_bytes: 1 << 20,
            dirty_bytes_max: usize::MAX / 4,
            reclaim_pointers_max: 1,
            ..OpenOptions::new(|| 0)
        };
        let pool = Pool::open(vec![Arc::clone(&self.device)], options).map_err(text)?;
        self.pool = Some(pool);
        Ok(())
    }

    /// The offline verifier finds nothing.
    fn verify(&self, read_data: bool) -> HomeResult<()> {
        let mut findings = String::new();
        let mut note = |finding: Finding| findings += &format!("\n  {finding:?}");
        let options = CheckOptions { read_data, snapshots: true };
        marram_check::check(&*self.device, &options, &mut note).map_err(text)?;
        if findings.is_empty() { Ok(()) } else { Err(format!("the verifier finds:{findings}")) }
    }

    fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("the pool is open between calls")
    }
}

impl Backing for OnDevice {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.pool()) as Arc<dyn Store>
    }

    fn view(&self, source: &Source) -> HomeResult<Arc<dyn View>> {
        let view = self.pool().open(source).map_err(text)?;
        let Some(seed) = self.interrupts.filter(|_| view.writable()) else {
            return Ok(view);
        };
        let pool = Arc::clone(self.pool());
        Ok(Arc::new(InterruptedView::new(view, seed, Box::new(move || pool.commit()))))
    }

    fn commit(&mut self, _count: u64) -> HomeResult<()> {
        self.pool().commit().map_err(text)
    }

    /// Every other time without the formality of closing.
    fn reopen(&mut self, count: u64) -> HomeResult<()> {
        if count.is_multiple_of(2) {
            self.pool().close().map_err(text)?;
        } else {
            self.pool().commit().map_err(text)?;
        }
        self.pool = None;
        self.verify(false)?;
        self.open()
    }

    /// In the middle of operations, or before it says that there is no space, to get back what
    /// was freed.
    fn commits_by_itself(&self) -> bool {
        let small = self.device.size().is_ok_and(|bytes| bytes < DEVICE_BYTES as u64);
        small || self.interrupts.is_some()
    }

    fn can_crash(&self) -> bool {
        true
    }

    fn crash(&mut self) -> HomeResult<()> {
        self.pool = None;
        self.verify(false)?;
        self.open()
    }

    fn check(&mut self) -> HomeResult<()> {
        while self.pool().reclaim_step().map_err(text)? {}
        self.pool().commit().map_err(text)?;
        let status = self.pool().status();
        if !status.damage.is_empty() {
            return Err(format!("damage where none was done: {:?}", status.damage));
        }
        self.verify(true)
    }
}
