//! A pool that runs full: refuses in time, keeps what it has, and can always be emptied.

mod support;

use marram_store::Error;
use support::{content, new_pool, noise, put, remove, root, section};

#[test]
fn a_full_pool_refuses_new_content_and_can_be_emptied() {
    let (_memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    let mut written = 0;
    let refused = loop {
        match put(&*live, section(written, 0), noise(written, 100_000)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, Error::NoSpace);
    assert!(written > 400, "only {written} blocks of 100,000 bytes fit 64 MiB");
    live.sync().unwrap();
    assert!(pool.status().free_bytes < 1 << 20);
    for object in 0..written {
        assert_eq!(content(&*live, section(object, 0)), Some(noise(object, 100_000)));
    }
    for object in 0..written {
        remove(&*live, section(object, 0)).unwrap();
    }
    live.sync().unwrap();
    assert!(pool.status().allocated_bytes < 1 << 20);
    put(&*live, section(1, 0), noise(5, 1 << 20)).unwrap();
    live.sync().unwrap();
}

#[test]
fn space_that_was_freed_a_moment_ago_can_be_used() {
    let (_memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    for round in 0..20 {
        for object in 0..40 {
            put(&*live, section(object, 0), noise(round + object, 1 << 20)).unwrap();
        }
        for object in 0..40 {
            remove(&*live, section(object, 0)).unwrap();
        }
    }
}
