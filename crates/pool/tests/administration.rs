//! Snapshots, clones and destruction while others go on beside them, and what is refused.

use crate::support::hooked::HookedDevice;
use crate::support::{content, create_on, new_pool, noise, open, put, root, section, view};
use marram_device::{Device, MemoryDevice};
use marram_pool::Pool;
use marram_store::{DatasetName, Error, Properties, Store, View};
use std::sync::Arc;
use std::thread;

/// A pool with a clone, whose next sync goes into the log.
fn pool_with_clone() -> (Arc<HookedDevice>, Arc<Pool>) {
    let device = HookedDevice::new(MemoryDevice::new(64 << 20));
    let seam: Arc<dyn Device> = device.clone();
    create_on(&seam, &[]);
    let pool = open(&seam);
    put(&*root(&pool), section(1, 0), noise(1, 5_000)).unwrap();
    pool.snapshot(&"root".parse().unwrap(), "s").unwrap();
    pool.clone_snapshot(&"root@s".parse().unwrap(), &"c".parse().unwrap()).unwrap();
    (device, pool)
}

fn crashed(device: &HookedDevice) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::from_bytes(device.memory.snapshot()))
}

#[test]
fn a_dataset_that_is_written_while_it_is_to_be_destroyed_stays() {
    let (device, pool) = pool_with_clone();
    let clone: Arc<dyn View> = view(&pool, "c");
    put(&*root(&pool), section(2, 0), noise(2, 5_000)).unwrap();
    device.before_a_write({
        let live = root(&pool);
        move || {
            // In a thread of its own: a destruction holds locks that may not be held before a sync.
            let work = || {
                put(&*clone, section(3, 0), noise(3, 5_000)).unwrap();
                live.sync().unwrap();
            };
            std::thread::scope(|scope| scope.spawn(work).join().expect("the work ends in order"));
            drop(clone);
        }
    });
    let destroyed = pool.destroy(&"c".parse().unwrap(), false);
    assert!(matches!(destroyed, Err(Error::InUse { .. })), "{destroyed:?}");
    pool.commit().unwrap();
    let again = open(&crashed(&device));
    assert_eq!(content(&*root(&again), section(2, 0)), Some(noise(2, 5_000)));
    assert_eq!(content(&*view(&again, "c"), section(3, 0)), Some(noise(3, 5_000)));
}

/// Bytes that the device was given.
fn written_bytes(pool: &Pool) -> u64 {
    pool.status().devices[0].written_bytes
}

#[test]
fn what_is_refused_is_refused_before_anything_is_written() {
    let (_, pool) = pool_with_clone();
    put(&*root(&pool), section(2, 0), noise(2, 5_000)).unwrap();
    let _open = view(&pool, "c");
    let before = (written_bytes(&pool), pool.status().group);
    assert!(content(&*root(&pool), section(1, 0)).is_some());
    let cached = pool.status().cache_bytes;
    let (root_name, c) = ("root".parse().unwrap(), "c".parse().unwrap());
    let refusals = [
        pool.snapshot(&root_name, "s"),
        pool.snapshot(&"none".parse().unwrap(), "s"),
        pool.create(&c, &Properties::default()),
        pool.clone_snapshot(&"root@s".parse().unwrap(), &c),
        pool.clone_snapshot(&"root@none".parse().unwrap(), &"d".parse().unwrap()),
        pool.set_property(&"none".parse().unwrap(), "compression", Some("off")),
        pool.destroy(&"c".parse().unwrap(), false).map(|_| ()),
        pool.destroy(&"root@s".parse().unwrap(), false).map(|_| ()),
        pool.destroy(&"root".parse().unwrap(), false).map(|_| ()),
    ];
    assert!(refusals.iter().all(Result::is_err), "{refusals:?}");
    assert_eq!((written_bytes(&pool), pool.status().group), before);
    assert!(cached > 0 && pool.status().cache_bytes == cached, "the cache was emptied");
}

#[test]
fn a_snapshot_that_is_taken_beside_a_destruction_goes_with_it_or_is_refused() {
    for _ in 0..30 {
        let (device, pool) = pool_with_clone();
        put(&*root(&pool), section(2, 0), noise(2, 500_000)).unwrap();
        let names = thread::scope(|scope| {
            let taking = scope.spawn(|| pool.snapshot(&"c".parse().unwrap(), "late"));
            pool.destroy(&"c".parse().unwrap(), false).unwrap();
            let _taken_before_or_refused = taking.join().unwrap();
            pool.list().unwrap().len()
        });
        assert_eq!(names, 2, "the root dataset and its snapshot are left");
        while pool.reclaim_step().unwrap() {}
        assert_eq!(open(&crashed(&device)).list().unwrap().len(), 2);
    }
}

#[test]
fn a_pool_that_could_not_grow_has_its_old_size() {
    let (memory, pool) = new_pool(64, &[]);
    drop(pool);
    let bytes = [memory.snapshot(), vec![0; 64 << 20]].concat();
    let device = HookedDevice::new(MemoryDevice::from_bytes(bytes));
    device.set_size(64 << 20);
    let pool = open(&(device.clone() as Arc<dyn Device>));
    let before = pool.status().total_bytes;
    device.set_size(128 << 20);
    device.fail_flushes(true);
    pool.grow().unwrap_err();
    let status = pool.status();
    assert_eq!((status.total_bytes, status.devices[0].size_bytes), (before, 64 << 20));
    device.fail_flushes(false);
    let pool = open(&(device.clone() as Arc<dyn Device>));
    assert_eq!(pool.grow().unwrap(), 128 << 20);
    assert_eq!(pool.status().total_bytes, before + (64 << 20));
}

#[test]
fn whether_names_fold_is_chosen_once() {
    let (_, pool) = new_pool(64, &[]);
    let folding: DatasetName = "folding".parse().unwrap();
    let on = Properties([("casefold".to_owned(), "on".to_owned())].into());
    pool.create(&folding, &on).unwrap();
    let told = |name: &DatasetName| pool.properties(name).unwrap()["casefold"].0.clone();
    assert_eq!((told(&folding), told(&DatasetName::root())), ("on".to_owned(), "off".to_owned()));
    for value in [Some("off"), Some("on"), None] {
        let refused = pool.set_property(&folding, "casefold", value).unwrap_err();
        assert!(refused.to_string().contains("when a dataset is made"), "{refused}");
    }
    pool.snapshot(&folding, "s").unwrap();
    let clone: DatasetName = "clone".parse().unwrap();
    pool.clone_snapshot(&"folding@s".parse().unwrap(), &clone).unwrap();
    assert_eq!(told(&clone), "on");
}
