//! What destroying several together takes and gives back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use marram_device::{Device, MemoryDevice};
use marram_store::{DatasetName, Source, Store};
use std::sync::Arc;
use support::{content, new_pool, noise, open, put, root, section};

fn source(text: &str) -> Source {
    text.parse().unwrap()
}

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
