//! The free space that is reported while something waits for a commit. Content counts once, however
//! many items refer to it, and not at all when none does any more.

use crate::support;
use crate::support::{content, new_pool, noise, put, remove, root, section};
use marram_pool::Pool;
use marram_store::{Batch, Block, Error, Item, Key, Store, View};

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: usize = 128 << 10;
const BLOCKS: u64 = 64;
/// The content of one object.
const OBJECT_BYTES: u64 = BLOCKS * BLOCK_BYTES as u64;
/// What the items of all clones may take.
const ITEMS_BYTES: u64 = 3 * MIB / 2;

fn write(live: &dyn View, object: u64) {
    for number in 0..BLOCKS {
        let content = noise(object * 1000 + number, BLOCK_BYTES);
        put(live, section(object, number), content).unwrap();
    }
}

/// All blocks of an object become those of another one too, in one batch.
fn share(live: &dyn View, from: u64, to: u64, blocks: u64) -> marram_store::Result<()> {
    let mut batch = Batch::new();
    for number in 0..blocks {
        let item: Item = live.get(section(from, number)).unwrap().unwrap();
        batch.put(section(from, number), item.clone());
        batch.put(section(to, number), item);
    }
    live.apply(batch)
}

fn remove_all(live: &dyn View, objects: std::ops::RangeInclusive<u64>) {
    for object in objects {
        (0..BLOCKS).for_each(|number| remove(live, section(object, number)).unwrap());
    }
}

/// How much less is reported free than there was.
fn taken(pool: &Pool, before: u64) -> u64 {
    before - pool.status().free_bytes
}

#[test]
fn clones_of_what_was_just_written_take_no_space() {
    let (_memory, pool) = new_pool(256, &[]);
    let live = root(&pool);
    pool.commit().unwrap();
    let status = pool.status();
    let (before, group) = (status.free_bytes, status.group);
    write(&*live, 1);
    for clone in 2..=11 {
        share(&*live, 1, clone, BLOCKS).unwrap();
    }
    assert_eq!(pool.status().group, group, "nothing was committed meanwhile");
    let range = OBJECT_BYTES..OBJECT_BYTES + ITEMS_BYTES;
    assert!(range.contains(&taken(&pool, before)), "{} waits", taken(&pool, before));
    pool.commit().unwrap();
    assert!(range.contains(&taken(&pool, before)), "{} is in use", taken(&pool, before));
    assert_eq!(content(&*live, section(11, 5)), Some(noise(1005, BLOCK_BYTES)));
    remove_all(&*live, 1..=11);
    pool.commit().unwrap();
    assert!(taken(&pool, before) < MIB / 4, "{} is left", taken(&pool, before));
}

#[test]
fn what_goes_before_it_was_written_is_free_at_once() {
    let (_memory, pool) = new_pool(256, &[]);
    let live = root(&pool);
    pool.commit().unwrap();
    let (before, group) = (pool.status().free_bytes, pool.status().group);
    for _ in 0..5 {
        write(&*live, 1);
    }
    let told = taken(&pool, before);
    assert!((OBJECT_BYTES..OBJECT_BYTES + ITEMS_BYTES).contains(&told), "{told} waits");
    remove_all(&*live, 1..=1);
    assert!(taken(&pool, before) < MIB / 4, "{} waits", taken(&pool, before));
    assert_eq!(pool.status().group, group, "nothing was committed meanwhile");
    pool.commit().unwrap();
    assert!(taken(&pool, before) < MIB / 4, "{} is left", taken(&pool, before));
}

#[test]
fn a_nearly_full_pool_takes_clones_of_what_was_just_written() {
    const MANY: u64 = 320;
    let (_memory, pool) = new_pool(64, &[("compression", "off")]);
    let live = root(&pool);
    for number in 0..MANY {
        put(&*live, section(1, number), noise(number, BLOCK_BYTES)).unwrap();
    }
    let before = pool.status().free_bytes;
    assert!(before < 20 * MIB, "{before} are free");
    for clone in 2..=11 {
        let shared = share(&*live, 1, clone, MANY);
        assert_eq!(shared, Ok(()), "clone {clone} with {} free", pool.status().free_bytes);
    }
    pool.commit().unwrap();
    assert!(taken(&pool, before) < 4 * MIB, "{} were taken", taken(&pool, before));
}

#[test]
fn a_dataset_at_its_quota_takes_clones_of_what_was_just_written() {
    let (_memory, pool) = new_pool(128, &[]);
    pool.create(&"d".parse().unwrap(), &quota_of("12M")).unwrap();
    let live = support::view(&pool, "d");
    write(&*live, 1);
    for clone in 2..=6 {
        share(&*live, 1, clone, BLOCKS).unwrap();
    }
    pool.commit().unwrap();
    assert!(put(&*live, section(9, 0), vec![1; 1 << 20]).is_ok());
}

/// Whether there was no space for a change. What has been written cannot be patched.
fn is_refused(changed: marram_store::Result<()>) -> bool {
    match changed {
        Ok(()) | Err(Error::NotFresh) => false,
        Err(Error::NoSpace) => true,
        Err(error) => panic!("{error}"),
    }
}

/// A key that is chosen by `number`: few keys, so that most of them have something.
fn key_of(number: u64) -> Key {
    section(1 + number % 5, number / 5 % 80)
}

#[test]
fn a_full_pool_commits_clones_and_patches_of_what_was_just_written() {
    for seed in 1..=3_u64 {
        let (_memory, pool) = new_pool(32, &[("compression", "off")]);
        let live = root(&pool);
        let (mut state, mut refused) = (seed * 7919, 0);
        let mut below = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % end
        };
        for step in 0..1200 {
            let (key, other) = (key_of(below(400)), key_of(below(400)));
            let found = live.get(key).unwrap();
            let applied = match (below(8), found) {
                (0..3, _) => put(&*live, key, noise(step, 1 + below(500_000) as usize)),
                (3..5, Some(item)) if key != other => {
                    let mut batch = Batch::new();
                    batch.put(key, item.clone()).put(other, item);
                    live.apply(batch)
                }
                (5, Some(_)) => {
                    let data = noise(step, 5000);
                    let mut batch = Batch::new();
                    batch.patch(key, bytes::Bytes::new(), 0, &data);
                    live.apply(batch)
                }
                (6, _) => remove(&*live, key),
                _ => Ok(()),
            };
            refused += u64::from(is_refused(applied));
            if below(40) == 0 {
                pool.commit().expect("what was taken can be committed");
            }
        }
        pool.commit().expect("what was taken can be committed");
        assert!(refused > 50, "seed {seed}: {refused} refused");
    }
}

/// Each of them would need a copy of the whole block, for which nobody has looked for space.
#[test]
fn a_nearly_full_pool_commits_what_it_has_taken_of_patches_of_clones() {
    const CLONES: u64 = 24;
    let (_memory, pool) = new_pool(64, &[("compression", "off")]);
    let live = root(&pool);
    let mut number = 0;
    while pool.status().free_bytes > 9 * MIB {
        put(&*live, section(1, number), noise(number, 1 << 20)).unwrap();
        number += 1;
    }
    pool.commit().unwrap();
    put(&*live, section(2, 0), noise(7, 1 << 20)).unwrap();
    for clone in 3..3 + CLONES {
        share(&*live, 2, clone, 1).unwrap();
    }
    let data = noise(8, 4096);
    let mut batch = Batch::new();
    for clone in 3..3 + CLONES {
        batch.patch(section(clone, 0), bytes::Bytes::new(), 0, &data);
    }
    let _taken_or_not = is_refused(live.apply(batch));
    pool.commit().expect("what was taken can be committed");
}

fn quota_of(size: &str) -> marram_store::Properties {
    marram_store::Properties([("quota".to_owned(), size.to_owned())].into_iter().collect())
}

#[test]
fn patches_are_told_as_what_the_block_has_become() {
    let (_memory, pool) = new_pool(128, &[]);
    let live = root(&pool);
    pool.commit().unwrap();
    let before = pool.status().free_bytes;
    let block = Block::fresh(noise(1, 1000));
    let mut batch = Batch::new();
    batch.put(section(1, 0), Item::with_block("", block));
    live.apply(batch).unwrap();
    for round in 0..100_usize {
        let data = noise(round as u64, 10_000);
        let mut batch = Batch::new();
        batch.patch(section(1, 0), bytes::Bytes::new(), round * 8000, &data);
        live.apply(batch).unwrap();
    }
    let told = taken(&pool, before);
    assert!((802_000..802_000 + 8192).contains(&told), "{told} waits");
    pool.commit().unwrap();
    assert!(taken(&pool, before).abs_diff(told) < 128 << 10);
}
