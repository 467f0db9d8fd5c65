//! A power cut at any moment while a pool is made, grown or given another label: all of it has
//! happened then, or nothing.

use crate::support::{content, create_on, noise, open, put, root, section};
use marram_device::{Device, Error, MemoryDevice, Result};
use marram_pool::{CreateOptions, Error as PoolError, OpenOptions, Pool, create, probe};
use marram_store::Properties;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const POOL_BYTES: usize = 32 << 20;
const GROWN_BYTES: usize = 40 << 20;

/// Takes so many writes and flushes, and nothing from then on.
struct CutDevice {
    memory: MemoryDevice,
    flushed: Mutex<Vec<u8>>,
    left: AtomicU64,
}

impl CutDevice {
    fn new(memory: MemoryDevice) -> Arc<CutDevice> {
        let flushed = Mutex::new(memory.snapshot());
        Arc::new(CutDevice { memory, flushed, left: AtomicU64::new(u64::MAX) })
    }

    fn cut_after(&self, steps: u64) {
        self.left.store(steps, Ordering::Relaxed);
    }

    /// What is left if all that was written has arrived, and if only what was flushed has.
    fn left_behind(&self) -> [Arc<dyn Device>; 2] {
        [self.memory.snapshot(), self.flushed.lock().clone()]
            .map(|bytes| Arc::new(MemoryDevice::from_bytes(bytes)) as Arc<dyn Device>)
    }

    fn pass(&self) -> Result<()> {
        let less = |left: u64| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let refused = || Error::Unusable { device: self.name(), reason: "no power".to_owned() };
        left.map(|_| ()).map_err(|_| refused())
    }
}

impl Device for CutDevice {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn size(&self) -> Result<u64> {
        self.memory.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.pass()?;
        self.memory.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.pass()?;
        *self.flushed.lock() = self.memory.snapshot();
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.memory.discard(offset, len)
    }
}

fn options() -> CreateOptions {
    CreateOptions {
        label: "new".to_owned(),
        properties: Properties::default(),
        pool_id: [8; 16],
        secret: 8,
        now_seconds: 2,
    }
}

/// Whether there is a pool, in which all can be done; else there is none.
fn is_whole(left: &Arc<dyn Device>) -> bool {
    match Pool::open(vec![left.clone()], OpenOptions::new(|| 0)) {
        Ok(pool) => {
            put(&*root(&pool), section(1, 0), noise(1, 9_000)).expect("there is space");
            pool.close().expect("memory does not fail");
            assert_eq!(content(&*root(&open(left)), section(1, 0)), Some(noise(1, 9_000)));
            true
        }
        Err(PoolError::NoPool { .. }) => {
            assert_eq!(probe(&**left).expect("it can be read"), None);
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn there_is_a_whole_pool_or_none() {
    let older = MemoryDevice::new(POOL_BYTES);
    let device = CutDevice::new(older);
    create_on(&(device.clone() as Arc<dyn Device>), &[]);
    let older = device.memory.snapshot();
    let mut found = [0, 0];
    for steps in 0.. {
        let device = CutDevice::new(MemoryDevice::from_bytes(older.clone()));
        device.cut_after(steps);
        let is_done = create(&[device.clone() as Arc<dyn Device>], &options()).is_ok();
        for left in device.left_behind() {
            let is_whole = is_whole(&left);
            assert!(is_whole || !is_done, "after {steps} steps");
            found[usize::from(is_whole)] += 1;
        }
        if is_done {
            break;
        }
    }
    assert!(found[0] > 1 && found[1] > 3, "{found:?}");
}

/// Cuts the power in the middle of something that is done to a pool of `bytes`; `state` is whether
/// it has been done.
#[track_caller]
fn assert_whole(bytes: &[u8], act: impl Fn(&Pool) -> bool, state: impl Fn(&Pool) -> (String, u64)) {
    let pristine: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(bytes.to_vec()));
    let before = state(&open(&pristine));
    assert!(act(&open(&pristine)), "it can be done");
    let after = state(&open(&pristine));
    assert_ne!(before, after);
    for steps in 0.. {
        let device = CutDevice::new(MemoryDevice::from_bytes(bytes.to_vec()));
        let pool = open(&(device.clone() as Arc<dyn Device>));
        device.cut_after(steps);
        let is_done = act(&pool);
        for left in device.left_behind() {
            let pool = open(&left);
            let found = state(&pool);
            assert!(found == after || (found == before && !is_done), "after {steps}: {found:?}");
            assert_eq!(content(&*root(&pool), section(1, 0)), Some(noise(1, 9_000)));
            assert!(act(&pool) && state(&pool) == after, "it can be done again");
        }
        if is_done {
            break;
        }
    }
}

#[test]
fn what_is_cut_off_below_its_superblocks_is_no_empty_device() {
    let memory = Arc::new(MemoryDevice::new(POOL_BYTES));
    let device: Arc<dyn Device> = memory.clone();
    create_on(&device, &[]);
    let bytes = memory.snapshot();
    for kept in [1 << 20, 600_000, 70_000, 4096] {
        let left: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(bytes[..kept].to_vec()));
        let is_cut = |error: &PoolError| matches!(error, PoolError::TooSmall { .. });
        match probe(&*left) {
            Err(error) => assert!(is_cut(&error), "{error}"),
            Ok(found) => assert!(found.is_some() && is_cut(&refusal(&left)), "of {kept} bytes"),
        }
    }
    let nothing = MemoryDevice::from_bytes(vec![0; 70_000]);
    assert_eq!(probe(&nothing).expect("it can be read"), None);
}

fn refusal(left: &Arc<dyn Device>) -> PoolError {
    Pool::open(vec![left.clone()], OpenOptions::new(|| 0)).expect_err("it is cut off")
}

#[test]
fn a_pool_has_grown_or_not_and_has_one_label_or_the_other() {
    let memory = Arc::new(MemoryDevice::new(POOL_BYTES));
    let device: Arc<dyn Device> = memory.clone();
    create_on(&device, &[]);
    let pool = open(&device);
    put(&*root(&pool), section(1, 0), noise(1, 9_000)).expect("there is space");
    pool.close().expect("memory does not fail");
    let state = |pool: &Pool| (pool.status().label, pool.status().total_bytes);
    assert_whole(&memory.snapshot(), |pool| pool.set_label("other").is_ok(), state);
    memory.grow(GROWN_BYTES);
    assert_whole(&memory.snapshot(), |pool| pool.grow().is_ok(), state);
}
