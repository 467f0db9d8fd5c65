//! Automatic snapshots: what goes for a full pool, and what a crash leaves of those that go.

use crate::support::hooked::HookedDevice;
use crate::support::{
    content, create_on, names, new_pool, noise, open, put, root, section, source, view,
};
use marram_device::{Device, MemoryDevice};
use marram_pool::Pool;
use marram_store::{DatasetName, Error, Holds, Source, Store};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Blocks of a file that each snapshot has for itself.
const BLOCKS: u64 = 24;
const BLOCK_BYTES: usize = 128 << 10;

fn automatic(second: u64) -> String {
    format!("auto:2026-11-24T15:00:{second:02}Z")
}

fn write_all(pool: &Pool, version: u64) {
    let live = root(pool);
    for block in 0..BLOCKS {
        put(&*live, section(1 + block, 0), noise(version * 1000 + block, BLOCK_BYTES)).unwrap();
    }
}

fn assert_whole(pool: &Pool, snapshot: &str, version: u64) {
    let view = view(pool, &format!("root@{snapshot}"));
    for block in 0..BLOCKS {
        let expected = noise(version * 1000 + block, BLOCK_BYTES);
        assert!(content(&*view, section(1 + block, 0)) == Some(expected), "{snapshot}: {block}");
    }
}

/// A snapshot of each name, in which nothing is as in another.
fn take(pool: &Pool, snapshots: &[&str]) {
    for (version, name) in snapshots.iter().enumerate() {
        write_all(pool, version as u64);
        pool.snapshot(&DatasetName::root(), name).unwrap();
    }
    write_all(pool, 99);
    pool.commit().unwrap();
}

#[test]
fn a_full_pool_lets_go_of_the_oldest_automatic_snapshots_but_the_newest_and_of_no_others() {
    let (_, pool) = new_pool(64, &[]);
    let (held, second, third, newest) = (automatic(1), automatic(2), automatic(3), automatic(4));
    take(&pool, &[&held, "mine", &second, "auto:mine", &third, &newest]);
    pool.hold(&source(&format!("root@{held}")), "audit").unwrap();
    let all = names(&pool).len();
    let live = root(&pool);
    let mut object = 1 << 30;
    let error = loop {
        match put(&*live, section(object, 0), noise(object, BLOCK_BYTES)) {
            Ok(()) => object += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace), "{error}");
    let left: BTreeSet<String> = names(&pool).into_iter().collect();
    assert_eq!(left.len(), all - 2, "{left:?}");
    for gone in [second, third] {
        assert!(!left.contains(&format!("root@{gone}")), "{left:?}");
    }
    for (name, version) in [(held.as_str(), 0), ("mine", 1), ("auto:mine", 3), (&newest, 5)] {
        assert_whole(&pool, name, version);
    }
    assert!(pool.operations().unwrap().is_empty());
}

#[test]
fn a_crash_while_they_go_leaves_all_of_them_or_none_and_the_others_whole() {
    let device = HookedDevice::new(MemoryDevice::new(48 << 20));
    let seam: Arc<dyn Device> = device.clone();
    create_on(&seam, &[]);
    let pool = open(&seam);
    let of = |second| automatic(second);
    take(&pool, &[&of(1), "mine", &of(2), &of(3), &of(4)]);
    let before: BTreeSet<String> = names(&pool).into_iter().collect();
    let goes: Vec<Source> =
        [1, 2, 3].map(|second| source(&format!("root@{}", of(second)))).to_vec();
    let images: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    device.before_flushes({
        let (images, device) = (Arc::clone(&images), Arc::clone(&device));
        move || {
            images.lock().push(device.memory.snapshot());
            Ok(())
        }
    });
    pool.destroy_together(&goes, false).unwrap();
    while pool.reclaim_step().unwrap() {}
    pool.commit().unwrap();
    device.before_flushes(|| Ok(()));
    let after: BTreeSet<String> = names(&pool).into_iter().collect();
    assert_eq!(before.len() - after.len(), goes.len());

    let images = std::mem::take(&mut *images.lock());
    let mut seen = [0, 0];
    for image in images {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(image));
        let again = open(&device);
        let left: BTreeSet<String> = names(&again).into_iter().collect();
        assert!(left == before || left == after, "{left:?}");
        seen[usize::from(left == after)] += 1;
        while again.reclaim_step().unwrap() {}
        again.commit().unwrap();
        assert_whole(&again, "mine", 1);
        assert_whole(&again, &of(4), 4);
        // What is left to be taken goes by the next turn.
        if left == before {
            again.destroy_together(&goes, false).unwrap();
            while again.reclaim_step().unwrap() {}
            assert_whole(&again, "mine", 1);
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}
