//! A pool that runs full: refuses in time, keeps what it has, and can always be emptied.

use crate::support::{content, new_pool, noise, open, put, remove, root, section};
use marram_pool::Pool;
use marram_store::{Admission, Batch, Block, Error, Item, Key, Store, View};

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
    pool.commit().unwrap();
    assert!(pool.status().allocated_bytes < 2 << 20);
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

/// A value without a block, that does not compress.
fn put_value(view: &dyn View, key: Key, seed: u64, len: usize) -> marram_store::Result<()> {
    let mut batch = Batch::new();
    batch.put(key, Item::plain(noise(seed, len)));
    view.apply(batch)
}

fn put_as(view: &dyn View, key: Key, len: usize, admission: Admission) -> marram_store::Result<()> {
    let mut batch = Batch { admission, ..Batch::new() };
    batch.put(key, Item::with_block(Vec::new(), Block::fresh(noise(key.object, len))));
    view.apply(batch)
}

/// Applies until there is no space; returns how often it went well.
fn fill(mut apply: impl FnMut(u64) -> marram_store::Result<()>) -> u64 {
    let mut count = 0;
    loop {
        match apply(count) {
            Ok(()) => count += 1,
            Err(Error::NoSpace) => return count,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Both ways of making things durable.
fn sync_all_ways(pool: &Pool, live: &dyn View) {
    live.sync().expect("what was taken can be made durable");
    pool.commit().expect("what was taken can be committed");
}

#[test]
fn what_was_taken_can_be_made_durable_whatever_filled_the_pool() {
    for len in [40, 700, 3000] {
        let (_memory, pool) = new_pool(40, &[]);
        let live = root(&pool);
        let count = fill(|number| put_value(&*live, section(number, 0), number, len));
        sync_all_ways(&pool, &*live);
        // Each edit of what lies far apart rewrites a leaf of its own.
        for round in 1..4 {
            let step = 97 * round;
            fill(|number| match number < count {
                true => put_value(&*live, section(number * step % count, 0), number + 1, len),
                false => Err(Error::NoSpace),
            });
            sync_all_ways(&pool, &*live);
        }
        for number in 0..count {
            remove(&*live, section(number, 0)).expect("a full pool can be emptied");
        }
        sync_all_ways(&pool, &*live);
        assert!(pool.status().allocated_bytes < 2 << 20);
    }
}

#[test]
fn edits_of_many_leaves_are_refused_before_they_are_too_many() {
    let (_memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    let mut count = 0;
    while pool.status().free_bytes > 4 << 20 {
        for _ in 0..50 {
            put_value(&*live, section(count, 0), count, 3500).unwrap();
            count += 1;
        }
        pool.commit().unwrap();
    }
    for seed in 1..4 {
        // One edit in each leaf.
        fill(|number| match number * 7 < count {
            true => put_value(&*live, section(number * 7, 0), number + seed, 3500),
            false => Err(Error::NoSpace),
        });
        sync_all_ways(&pool, &*live);
    }
}

#[test]
fn data_that_was_accepted_has_space_kept_back_for_it() {
    const LEN: usize = 50_000;
    let (memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    let ordinary = fill(|number| put_as(&*live, section(number, 0), LEN, Admission::Ordinary));
    let accepted = fill(|number| put_as(&*live, section(number, 1), LEN, Admission::Accepted));
    let kept_back = pool.status().reserved_bytes;
    assert!(accepted * LEN as u64 > kept_back / 3, "{accepted} of {kept_back} bytes");
    sync_all_ways(&pool, &*live);
    for number in 0..accepted {
        assert_eq!(content(&*live, section(number, 1)), Some(noise(number, LEN)));
    }
    for number in 0..ordinary {
        remove(&*live, section(number, 0)).expect("freeing goes on when accepting no longer does");
        if number % 100 == 0 {
            sync_all_ways(&pool, &*live);
        }
    }
    sync_all_ways(&pool, &*live);
    drop((live, pool));
    let device: std::sync::Arc<dyn marram_device::Device> = memory;
    let again = open(&device);
    assert_eq!(content(&*root(&again), section(0, 1)), Some(noise(0, LEN)));
}

#[test]
fn snapshots_of_a_full_pool_can_be_destroyed_and_files_removed_under_them() {
    let (_memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    let name = "root".parse().unwrap();
    let mut kept = Vec::new();
    let mut count = 0;
    for round in 0..4_u64 {
        let end = if round == 3 { u64::MAX } else { count + 120 };
        while count < end && put(&*live, section(count, 0), noise(count, 100_000)).is_ok() {
            count += 1;
        }
        pool.snapshot(&name, &format!("s{round}")).expect("a snapshot takes next to nothing");
        kept.push(format!("root@s{round}"));
    }
    assert_eq!(put(&*live, section(count, 0), noise(0, 100_000)), Err(Error::NoSpace));
    for number in 0..count {
        remove(&*live, section(number, 0)).expect("removing works under snapshots");
        if number % 50 == 0 {
            sync_all_ways(&pool, &*live);
        }
    }
    for source in kept.iter().rev() {
        pool.destroy(&source.parse().unwrap(), false).expect("snapshots can be destroyed");
        while pool.reclaim_step().expect("space can be given back") {}
    }
    assert!(pool.status().allocated_bytes < 4 << 20, "{}", pool.status().allocated_bytes);
    put(&*live, section(1, 0), noise(5, 1 << 20)).unwrap();
    sync_all_ways(&pool, &*live);
}
