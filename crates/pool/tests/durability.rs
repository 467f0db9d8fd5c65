//! What a pool has after it was opened again, and after a crash.

use crate::support::{content, create_on, new_pool, noise, open, put, remove, root, section, view};
use marram_device::{Device, Error, MemoryDevice};
use marram_format::superblock::DATA_START_BYTES;
use marram_store::{SpaceUsage, Store};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn reopened(memory: &MemoryDevice) -> Arc<marram_pool::Pool> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
    open(&device)
}

#[test]
fn a_crash_leads_back_to_the_last_commit() {
    let (memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    put(&*live, section(5, 0), b"first".to_vec()).unwrap();
    put(&*live, section(5, 100_000), noise(1, 100_000)).unwrap();
    live.sync().unwrap();
    put(&*live, section(5, 0), b"second".to_vec()).unwrap();
    remove(&*live, section(5, 100_000)).unwrap();
    let crashed = reopened(&memory);
    assert_eq!(content(&*root(&crashed), section(5, 0)), Some(b"first".to_vec()));
    assert_eq!(content(&*root(&crashed), section(5, 100_000)), Some(noise(1, 100_000)));
    pool.close().unwrap();
    let closed = reopened(&memory);
    assert_eq!(content(&*root(&closed), section(5, 0)), Some(b"second".to_vec()));
    assert_eq!(content(&*root(&closed), section(5, 100_000)), None);
}

#[test]
fn many_commits_with_reopening_in_between_lose_nothing_and_leak_nothing() {
    let (memory, pool) = new_pool(64, &[]);
    drop(pool);
    let device: Arc<dyn Device> = memory;
    let mut allocated = Vec::new();
    for round in 0..30_u64 {
        let pool = open(&device);
        let live = root(&pool);
        for object in 0..20 {
            let key = section(object, round % 3 * 1000);
            put(&*live, key, noise(round * 100 + object, 20_000)).unwrap();
        }
        live.sync().unwrap();
        for object in 0..20 {
            let key = section(object, round % 3 * 1000);
            assert_eq!(content(&*live, key), Some(noise(round * 100 + object, 20_000)));
        }
        allocated.push(pool.status().allocated_bytes);
        pool.close().unwrap();
    }
    assert_eq!(allocated[5], allocated[29], "the same content takes the same space");
}

#[test]
fn all_space_comes_back_when_everything_is_removed() {
    let (_memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    put(&*live, section(0, 1), b"x".to_vec()).unwrap();
    pool.commit().unwrap();
    let empty = pool.status().allocated_bytes;
    for object in 0..200 {
        put(&*live, section(object, 7), noise(object, 50_000)).unwrap();
    }
    pool.snapshot(&"root".parse().unwrap(), "full").unwrap();
    pool.clone_snapshot(&"root@full".parse().unwrap(), &"copy".parse().unwrap()).unwrap();
    for object in 0..200 {
        remove(&*live, section(object, 7)).unwrap();
        put(&*view(&pool, "copy"), section(object, 7), noise(object + 1, 60_000)).unwrap();
    }
    pool.snapshot(&"copy".parse().unwrap(), "later").unwrap();
    assert!(pool.destroy(&"root@full".parse().unwrap(), false).is_err(), "it has a clone");
    pool.destroy(&"copy".parse().unwrap(), false).unwrap();
    pool.destroy(&"root@full".parse().unwrap(), false).unwrap();
    while pool.reclaim_step().unwrap() {}
    assert_eq!(pool.status().allocated_bytes, empty);
}

#[test]
fn a_snapshot_and_its_clone_and_the_live_tree_go_their_own_ways() {
    let (memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    put(&*live, section(1, 0), noise(1, 30_000)).unwrap();
    pool.snapshot(&"root".parse().unwrap(), "one").unwrap();
    put(&*live, section(1, 0), noise(2, 30_000)).unwrap();
    pool.clone_snapshot(&"root@one".parse().unwrap(), &"copy".parse().unwrap()).unwrap();
    put(&*view(&pool, "copy"), section(1, 0), noise(3, 30_000)).unwrap();
    pool.close().unwrap();
    let pool = reopened(&memory);
    for (source, seed) in [("root@one", 1), ("root", 2), ("copy", 3)] {
        assert_eq!(content(&*view(&pool, source), section(1, 0)), Some(noise(seed, 30_000)));
    }
    let usage = pool.usage(false).unwrap();
    let unique: Vec<u64> = usage.holders.iter().map(|holder| holder.unique_bytes).collect();
    assert!(unique[0] >= 32_768 && unique[1] >= 32_768, "{usage:?}");
}

#[test]
fn a_commit_that_is_refused_leaves_nothing_behind_for_the_next_one() {
    let (memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    pool.snapshot(&"root".parse().unwrap(), "taken").unwrap();
    for round in 0..6_u64 {
        for object in 0..300 {
            put(&*live, section(object, round), vec![1; 50]).unwrap();
        }
        assert!(pool.snapshot(&"root".parse().unwrap(), "taken").is_err());
        for object in (0..300).step_by(2) {
            remove(&*live, section(object, round)).unwrap();
            put(&*live, section(object, 100), noise(object + round, 3000)).unwrap();
        }
        live.sync().unwrap();
        let again = reopened(&memory);
        for object in (0..300).step_by(2) {
            for home in [&pool, &again] {
                let found = root(home);
                assert_eq!(content(&*found, section(object, round)), None);
                assert_eq!(
                    content(&*found, section(object, 100)),
                    Some(noise(object + round, 3000))
                );
            }
        }
    }
}

#[test]
fn growth_is_remembered() {
    let (memory, pool) = new_pool(64, &[]);
    let before = pool.status().total_bytes;
    memory.grow(200 << 20);
    assert_eq!(pool.grow().unwrap(), 200 << 20);
    assert_eq!(pool.status().total_bytes, before + (136 << 20));
    let live = root(&pool);
    for object in 0..100 {
        put(&*live, section(object, 0), noise(object, 1 << 20)).unwrap();
    }
    live.sync().unwrap();
    let again = reopened(&memory);
    assert_eq!(again.status().total_bytes, before + (136 << 20));
    assert_eq!(content(&*root(&again), section(99, 0)), Some(noise(99, 1 << 20)));
}

/// A device whose host keeps in its cache what is written, until it is flushed.
struct CachedDevice {
    cache: MemoryDevice,
    medium: Mutex<Vec<u8>>,
    /// Flushes that the daemon lives to see.
    flushes_left: AtomicU64,
}

impl CachedDevice {
    fn new() -> Arc<CachedDevice> {
        let cache = MemoryDevice::new(32 << 20);
        let medium = Mutex::new(cache.snapshot());
        Arc::new(CachedDevice { cache, medium, flushes_left: AtomicU64::new(u64::MAX) })
    }

    /// What a power cut leaves.
    fn cut(&self) -> MemoryDevice {
        MemoryDevice::from_bytes(self.medium.lock().clone())
    }

    /// What a power cut leaves if the host has written back all but superblocks.
    fn cut_with_blocks(&self) -> MemoryDevice {
        let (mut left, cache) = (self.medium.lock().clone(), self.cache.snapshot());
        let start = usize::try_from(DATA_START_BYTES).expect("it is small");
        left[start..].copy_from_slice(&cache[start..]);
        MemoryDevice::from_bytes(left)
    }

    fn live_to_see(&self, flushes: u64) {
        self.flushes_left.store(flushes, Ordering::Relaxed);
    }
}

impl Device for CachedDevice {
    fn name(&self) -> String {
        self.cache.name()
    }

    fn size(&self) -> marram_device::Result<u64> {
        self.cache.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> marram_device::Result<()> {
        self.cache.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> marram_device::Result<()> {
        self.cache.write(offset, buffer)
    }

    fn flush(&self) -> marram_device::Result<()> {
        let less = |left: u64| left.checked_sub(1);
        let left = self.flushes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if left.is_err() {
            let reason = "the daemon is killed meanwhile".to_owned();
            return Err(Error::Unusable { device: self.name(), reason });
        }
        *self.medium.lock() = self.cache.snapshot();
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> marram_device::Result<()> {
        self.cache.discard(offset, len)
    }
}

/// A daemon is killed while it flushes for the last time, and the next one finds what was written
/// in the cache of the host. Whatever a sync or a commit of that one says is durable must be so.
#[track_caller]
fn assert_durable_after_a_kill(by_log: bool, secure: impl Fn(&marram_pool::Pool)) {
    let device = CachedDevice::new();
    let shared: Arc<dyn Device> = device.clone();
    create_on(&shared, &[]);
    let killed = open(&shared);
    put(&*root(&killed), section(1, 0), noise(1, 9_000)).expect("there is space");
    root(&killed).sync().expect("it is durable");
    put(&*root(&killed), section(2, 0), noise(2, 9_000)).expect("there is space");
    match by_log {
        true => {
            device.live_to_see(0);
            assert!(root(&killed).sync().is_err());
        }
        false => {
            device.live_to_see(1);
            assert!(killed.commit().is_err());
        }
    }
    drop(killed);
    device.live_to_see(u64::MAX);
    let next = open(&shared);
    assert_eq!(next.status().replayed_frames, u64::from(by_log));
    assert_eq!(content(&*root(&next), section(2, 0)), Some(noise(2, 9_000)));
    secure(&next);
    let left: Arc<dyn Device> = Arc::new(device.cut());
    assert_eq!(content(&*root(&open(&left)), section(2, 0)), Some(noise(2, 9_000)));
}

#[test]
fn a_sync_makes_durable_what_a_killed_daemon_had_only_written() {
    for by_log in [true, false] {
        assert_durable_after_a_kill(by_log, |pool| root(pool).sync().unwrap());
    }
}

#[test]
fn so_does_a_commit_with_nothing_in_it() {
    for by_log in [true, false] {
        assert_durable_after_a_kill(by_log, |pool| pool.commit().unwrap());
        assert_durable_after_a_kill(by_log, |pool| pool.close().unwrap());
    }
}

/// A commit may use what the state has freed that the pool was opened with, so that state must be
/// on the medium before anything is written.
#[test]
fn nothing_is_written_where_a_state_was_that_a_power_cut_may_leave() {
    for flushes in [0, 1] {
        let device = CachedDevice::new();
        let shared: Arc<dyn Device> = device.clone();
        create_on(&shared, &[]);
        let killed = open(&shared);
        let fill = |pool: &marram_pool::Pool, seed: u64| {
            for object in 0..40 {
                put(&*root(pool), section(object, 0), noise(seed + object, 100_000)).unwrap();
            }
        };
        fill(&killed, 0);
        killed.commit().expect("it is durable");
        fill(&killed, 100);
        device.live_to_see(1);
        assert!(killed.commit().is_err());
        drop(killed);
        device.live_to_see(flushes);
        let next = open(&shared);
        fill(&next, 200);
        assert!(next.commit().is_err());
        let left: Arc<dyn Device> = Arc::new(device.cut_with_blocks());
        let found = root(&open(&left));
        for object in 0..40 {
            let expected = noise(100 * flushes + object, 100_000);
            assert_eq!(content(&*found, section(object, 0)), Some(expected), "{object}");
        }
    }
}
