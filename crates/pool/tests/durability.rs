//! What a pool has after it was opened again, and after a crash.

mod support;

use marram_device::{Device, MemoryDevice};
use marram_store::Store;
use std::sync::Arc;
use support::{content, new_pool, noise, open, put, remove, root, section, view};

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
    let list = pool.list().unwrap();
    let unique: Vec<u64> =
        list.iter().map(|report| pool.unique_bytes(&report.source).unwrap()).collect();
    assert!(unique[0] >= 32_768 && unique[1] >= 32_768, "{list:?}");
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
