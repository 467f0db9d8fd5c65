//! What destroying several together takes and gives back.

use crate::support::{
    content, create_on, new_pool, noise, open, put, remove, root, section, source,
};
use marram_device::{Device, MemoryDevice};
use marram_pool::{OpenOptions, Pool};
use marram_store::{DatasetName, Error, Holds, Source, SpaceUsage, Store};
use std::sync::Arc;

/// Bytes of a block of these tests, of which each takes a grain.
const BLOCK_BYTES: usize = 4000;
const GRAIN_BYTES: u64 = 4096;

#[test]
fn bases_that_follow_each_other_go_without_what_goes_on_from_them() {
    let (memory, pool) = new_pool(64, &[]);
    let (base, live) = (source("root@fork:a"), DatasetName::root());
    put(&*root(&pool), section(1, 0), noise(1, 50_000)).unwrap();
    pool.fork(&live, &"a".parse().unwrap(), 1).unwrap();
    pool.hold(&base, "kept").unwrap();
    pool.destroy(&source("a"), false).unwrap();
    pool.release(&base, "kept").unwrap();
    put(&*root(&pool), section(2, 0), noise(2, 50_000)).unwrap();
    pool.fork(&live, &"b".parse().unwrap(), 1).unwrap();
    put(&*root(&pool), section(3, 0), noise(3, 50_000)).unwrap();
    pool.sync().unwrap();
    let gone = pool.destroy(&source("b"), false).unwrap();
    assert_eq!(gone.sources, [source("b"), source("root@fork:a"), source("root@fork:b")]);
    eprintln!("{gone:?}");
    assert!(gone.freed_bytes < 100_000, "{gone:?}");
    while pool.reclaim_step().unwrap() {}
    // Space that was given back by mistake is used again, sooner or later.
    for round in 0..200 {
        put(&*root(&pool), section(4, 0), noise(round, 500_000)).unwrap();
        pool.commit().unwrap();
    }
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
    let again = open(&device);
    for seed in 1..4 {
        assert_eq!(content(&*root(&again), section(seed, 0)), Some(noise(seed, 50_000)), "{seed}");
    }
}

/// Pointers that one commit of these tests reclaims; and what is longer by what one chunk has.
const RECLAIMED: usize = 100;
const RECLAIMED_MAX: u64 = 300;

fn reclaiming_pool(mebibytes: usize) -> (Arc<MemoryDevice>, Arc<Pool>) {
    let memory = Arc::new(MemoryDevice::new(mebibytes << 20));
    let device: Arc<dyn Device> = memory.clone();
    create_on(&device, &[]);
    let options = OpenOptions { reclaim_pointers_max: RECLAIMED, ..OpenOptions::new(|| 0) };
    (memory, Pool::open(vec![device], options).unwrap())
}

/// A snapshot alone has so many blocks; the live dataset has none of them any more.
fn snapshot_of_much(pool: &Pool, blocks: u64) -> Source {
    let live = root(pool);
    for object in 1..=blocks {
        put(&*live, section(object, 0), noise(object, BLOCK_BYTES)).unwrap();
    }
    pool.snapshot(&DatasetName::root(), "much").unwrap();
    for object in 1..=blocks {
        remove(&*live, section(object, 0)).unwrap();
    }
    pool.commit().unwrap();
    source("root@much")
}

#[test]
fn what_a_snapshot_alone_had_comes_back_in_steps_of_bounded_size() {
    let (memory, pool) = reclaiming_pool(64);
    let much = snapshot_of_much(&pool, 2000);
    let promised = pool.destroy(&much, false).unwrap().freed_bytes;
    assert!(promised >= 2000 * GRAIN_BYTES);
    let leaving = |pool: &Pool| pool.usage(true).unwrap().leaving_bytes;
    let mut left = leaving(&pool);
    assert!(left + RECLAIMED_MAX * GRAIN_BYTES >= promised, "{left} of {promised} are left");
    let mut steps = 0;
    while pool.reclaim_step().unwrap() {
        let now = leaving(&pool);
        assert!(now + RECLAIMED_MAX * GRAIN_BYTES >= left, "{left}, then {now}");
        left = now;
        steps += 1;
        if steps == 5 {
            // The next open of the pool after a crash goes on where it was left.
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
            let again = open(&device);
            assert_eq!(leaving(&again), left);
            while again.reclaim_step().unwrap() {}
            assert_eq!(leaving(&again), 0);
        }
    }
    assert!(steps >= 2000 / usize::try_from(RECLAIMED_MAX).unwrap(), "{steps} steps");
    assert_eq!(leaving(&pool), 0);
}

#[test]
fn who_finds_no_space_takes_what_waits_to_be_given_back() {
    let (_memory, pool) = reclaiming_pool(64);
    let much = snapshot_of_much(&pool, 6000);
    let live = root(&pool);
    let mut object = 10_000;
    while put(&*live, section(object, 0), noise(object, 200_000)).is_ok() {
        object += 1;
    }
    let refused = put(&*live, section(1, 0), noise(1, 200_000));
    assert_eq!(refused, Err(Error::NoSpace));
    let promised = pool.destroy(&much, false).unwrap().freed_bytes;
    assert!(promised >= 6000 * GRAIN_BYTES);
    let mut written = 0;
    while put(&*live, section(object, 0), noise(object, 200_000)).is_ok() {
        object += 1;
        written += 200_000;
    }
    assert!(written * 10 > promised * 9, "{written} of {promised}");
    pool.commit().unwrap();
    assert_eq!(content(&*live, section(object - 1, 0)), Some(noise(object - 1, 200_000)));
}
