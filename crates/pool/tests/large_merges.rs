//! Large merges need the space that their commit takes, not a leaf for each key that they change.

use crate::support::{content, new_pool, noise, put, remove, root, section, source, view};
use marram_pool::{Author, Pool};
use marram_store::{
    Admission, Batch, Block, DatasetName, EphemeralSnapshots, Error, Item, Key, MergeInto,
    MergedFrom, OperationLog, Properties, Store, View,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where the names of new files are.
const DIRECTORY: u64 = 1 << 40;
/// The first of the new files.
const FILES: u64 = 1 << 20;

/// A pool with a fork, in which operations can be taken back.
fn forked(mebibytes: usize) -> (Pool, Arc<dyn View>) {
    let (_memory, pool) = new_pool(mebibytes, &[]);
    let pool = pool.acting_for(Author { user: Some(1000), command: "marram test".to_owned() });
    let live = root(&pool);
    fill(&*live, 200, |number, batch| {
        let block = Block::fresh(noise(number, 60_000));
        batch.put(section(number, 0), Item::with_block("60000", block));
    });
    pool.fork(&DatasetName::root(), &"f".parse().unwrap(), 1).unwrap();
    (pool, live)
}

/// Applies what is put into batches by numbers, in pieces, and commits it.
fn fill(live: &dyn View, count: u64, put: impl Fn(u64, &mut Batch<'_>)) {
    for first in (0..count).step_by(200) {
        let mut batch = Batch::new();
        (first..count.min(first + 200)).for_each(|number| put(number, &mut batch));
        live.apply(batch).unwrap();
    }
    live.commit().unwrap();
}

/// An inode and its name.
fn put_file(batch: &mut Batch<'_>, number: u64) {
    batch.put(section(FILES + number, 0), Item::plain(noise(number, 130)));
    batch.put(Key::new(DIRECTORY, 9, number.wrapping_mul(0x9e37_79b9_7f4a_7c15)), {
        Item::plain(noise(number, 40))
    });
}

/// Merges a batch that is made with the fork's state beside it.
fn merge<'a>(
    pool: &Pool,
    live: &dyn View,
    make: impl FnOnce(&dyn View) -> Batch<'a>,
) -> Result<(), Error> {
    merge_keeping(None, pool, live, make)
}

fn merge_keeping<'a>(
    keep: Option<&str>,
    pool: &Pool,
    live: &dyn View,
    make: impl FnOnce(&dyn View) -> Batch<'a>,
) -> Result<(), Error> {
    let (dataset, fork) = (DatasetName::root(), source("f"));
    let read = pool.ephemeral_snapshot(&fork.dataset, "merge").unwrap();
    let batch = make(&*pool.open(&read).unwrap());
    let merged = MergedFrom {
        dataset: &dataset,
        fork: &fork,
        read: &read,
        keep,
        root_object: 1,
        base: None,
        moves_base: false,
        may_wait: false,
    };
    let done = pool.apply_merge(live, batch, &merged);
    pool.discard_ephemeral(&read);
    done.map(|_| ())
}

fn empty_files(numbers: std::ops::Range<u64>) -> Batch<'static> {
    let mut batch = Batch::new();
    numbers.for_each(|number| put_file(&mut batch, number));
    batch
}

#[test]
fn ten_thousand_new_empty_files_fit_a_small_pool() {
    let (pool, live) = forked(256);
    merge(&pool, &*live, |_| empty_files(0..10_000)).expect("there is room");
    assert!(live.get(section(FILES + 9_999, 0)).unwrap().is_some());
    pool.commit().unwrap();
}

#[test]
fn thousands_of_files_are_taken_away_again_by_a_small_pool() {
    let (pool, live) = forked(256);
    merge(&pool, &*live, |_| empty_files(0..10_000)).expect("there is room");
    let removing = || {
        let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
        for edit in empty_files(0..10_000).edits {
            batch.remove(edit.key());
        }
        batch
    };
    assert_eq!(live.dry_run(removing()), Ok(()));
    merge(&pool, &*live, |_| removing()).expect("there is room");
    assert!(live.get(section(FILES + 9_999, 0)).unwrap().is_none());
    assert_eq!(pool.list_trash().unwrap().len(), 4, "both can be undone");
}

#[test]
fn merges_that_fit_only_one_by_one_are_refused_and_nothing_that_is_kept_goes() {
    let (pool, live) = forked(64);
    let two: DatasetName = "two".parse().unwrap();
    pool.create(&two, &Properties::default()).unwrap();
    pool.fork(&two, &"g".parse().unwrap(), 1).unwrap();
    merge(&pool, &*live, |_| empty_files(0..100)).expect("there is room");
    let kept = pool.list_trash().unwrap().len();
    let blocks = pool.status().free_bytes * 6 / 10 / 61_440;
    let content = || {
        let mut batch = Batch::new();
        for number in 0..blocks {
            let block = Block::fresh(noise(number, 60_000));
            batch.put(section(FILES + number, 0), Item::with_block("60000", block));
        }
        batch
    };
    let (names, forks) = ([DatasetName::root(), two], [source("f"), source("g")]);
    let into = [live, view(&pool, "two")];
    let read = forks.each_ref().map(|it| pool.ephemeral_snapshot(&it.dataset, "merge").unwrap());
    let merged = [0, 1].map(|at: usize| MergedFrom {
        dataset: &names[at],
        fork: &forks[at],
        read: &read[at],
        keep: None,
        root_object: 1,
        base: None,
        moves_base: false,
        may_wait: false,
    });
    let merge = |at: usize| MergeInto { view: &*into[at], batch: content(), merged: &merged[at] };
    let store: &dyn Store = &pool;
    assert_eq!(store.apply_merges(vec![merge(0), merge(1)]), Err(Error::NoSpace));
    assert_eq!(pool.list_trash().unwrap().len(), kept, "nothing was let go of for it");
    assert_eq!(store.apply_merges(vec![merge(1)]), Ok(()));
    for read in &read {
        pool.discard_ephemeral(read);
    }
}

#[test]
fn what_waits_elsewhere_is_committed_and_does_not_refuse_a_merge() {
    let (pool, live) = forked(256);
    pool.create(&"other".parse().unwrap(), &Properties::default()).unwrap();
    let other = view(&pool, "other");
    for view in [&live, &other] {
        for number in 0..600 {
            let mut batch = Batch::new();
            batch.put(section((1 << 30) + number * 7, 0), Item::plain(noise(number, 100)));
            view.apply(batch).unwrap();
        }
    }
    let dry_run = live.dry_run(empty_files(0..10_000));
    assert_eq!(dry_run, Ok(()));
    merge(&pool, &*live, |_| empty_files(0..10_000)).expect("there is room");
    assert!(other.get(section(1 << 30, 0)).unwrap().is_some());
}

#[test]
fn thousands_of_new_files_with_adopted_content_fit_a_small_pool() {
    let (pool, live) = forked(256);
    let fork = view(&pool, "f");
    fill(&*fork, 4_000, |number, batch| {
        let block = Block::fresh(noise(number, 6_000));
        batch.put(section(FILES + number, 1), Item::with_block("6000", block));
    });
    let adopted = |read: &dyn View| {
        let mut batch = Batch::new();
        for number in 0..4_000 {
            put_file(&mut batch, number);
            let key = section(FILES + number, 1);
            let item = read.get(key).unwrap().unwrap();
            let block = live.adopt(read, item.block.as_ref().unwrap()).unwrap();
            batch.put(key, Item::with_block("6000", block));
        }
        batch
    };
    merge(&pool, &*live, adopted).expect("there is room");
    let key = section(FILES + 3_999, 1);
    assert_eq!(content(&*live, key), Some(noise(3_999, 6_000)));
}

#[test]
fn merges_until_the_pool_is_full_leave_what_is_kept_back() {
    let (pool, live) = forked(64);
    let mut next = 0;
    let mut size = 4_000;
    while size >= 100 {
        let group = pool.status().group;
        match merge(&pool, &*live, |_| empty_files(next..next + size)) {
            Ok(()) => next += size,
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                assert!(live.get(section(FILES + next, 0)).unwrap().is_none());
                assert!(pool.status().group <= group + 20, "few commits for a refusal");
                size /= 2;
            }
        }
        let status = pool.status();
        let free = status.total_bytes - status.allocated_bytes;
        assert!(free >= status.reserved_bytes / 8 * 7, "{free} bytes are left after {next} files");
    }
    assert!(next > 8_000, "{next} files");
    for number in 0..200 {
        remove(&*live, section(number, 0)).expect("removing always works");
        let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
        batch.remove(section(FILES + number * 11, 0));
        live.apply(batch).expect("removing always works");
    }
    live.sync().unwrap();
    pool.commit().expect("what was taken can be committed");
}

/// One item for the others, so that there is something to undo.
fn small_merge(pool: &Pool, live: &dyn View) {
    merge(pool, live, |_| empty_files(0..1)).expect("there is room");
    assert_eq!(pool.list_trash().unwrap().len(), 2, "the states before and after it");
}

#[test]
fn a_snapshot_for_whoever_asks_comes_with_a_large_merge_too() {
    let (pool, live) = forked(256);
    merge_keeping(Some("before"), &pool, &*live, |_| empty_files(0..10_000)).expect("room");
    assert!(view(&pool, "root@before").get(section(FILES, 0)).unwrap().is_none());
    assert!(live.get(section(FILES, 0)).unwrap().is_some());
    assert_eq!(pool.list_trash().unwrap().len(), 2, "it can be undone");
}

#[test]
fn a_hopeless_merge_costs_neither_a_commit_nor_what_is_kept_for_an_undo() {
    let (pool, live) = forked(64);
    small_merge(&pool, &*live);
    let large_content = || {
        let mut batch = Batch::new();
        for number in 0..700 {
            let block = Block::fresh(noise(number, 100_000));
            batch.put(section(FILES + number, 1), Item::with_block("100000", block));
        }
        batch
    };
    let refused = [large_content as fn() -> Batch<'static>, || empty_files(0..120_000)];
    for (number, make) in refused.into_iter().enumerate() {
        // Something waits for a commit, which gives nothing back.
        let key = section((1 << 30) + number as u64, 0);
        live.apply(with_value(key, 100)).unwrap();
        let group = pool.status().group;
        assert_eq!(live.dry_run(make()), Err(Error::NoSpace));
        assert_eq!(merge(&pool, &*live, |_| make()), Err(Error::NoSpace));
        assert_eq!(pool.status().group, group, "a commit for nothing");
        assert_eq!(pool.list_trash().unwrap().len(), 2, "an undo is gone for nothing");
    }
}

fn with_value(key: Key, len: usize) -> Batch<'static> {
    let mut batch = Batch::new();
    batch.put(key, Item::plain(noise(key.object, len)));
    batch
}

#[test]
fn a_merge_all_over_a_nearly_full_pool_has_what_a_commit_gives_back() {
    let (pool, live) = forked(64);
    // Some leaves have seven of these each.
    let values = |number| section((1 << 30) + number, 0);
    fill(&*live, 800, |number, batch| {
        batch.put(values(number), Item::plain(noise(number, 4_000)));
    });
    pool.create(&"other".parse().unwrap(), &Properties::default()).unwrap();
    let other = view(&pool, "other");
    let blocks = (0..).take_while(|n| put(&*other, section(*n, 0), noise(*n, 100_000)).is_ok());
    let blocks = blocks.count() as u64;
    (0..6).for_each(|number| remove(&*other, section(number, 0)).unwrap());
    pool.commit().unwrap();
    small_merge(&pool, &*live);
    (6..30).for_each(|number| remove(&*other, section(number, 0)).unwrap());
    let mut batch = Batch::new();
    for number in (0..800).step_by(12) {
        batch.put(values(number), Item::plain(noise(number + 1, 4_000)));
    }
    merge(&pool, &*live, |_| batch).expect("what was removed makes room");
    assert_eq!(live.get(values(12)).unwrap().unwrap().value, noise(13, 4_000));
    assert_eq!(pool.list_trash().unwrap().len(), 4, "both can be undone");
    assert_eq!(content(&*other, section(blocks - 1, 0)), Some(noise(blocks - 1, 100_000)));
}

#[test]
fn a_large_merge_that_makes_no_sense_is_told_so_and_not_that_there_is_no_space() {
    let (pool, live) = forked(256);
    let block = live.get(section(1, 0)).unwrap().unwrap().block;
    let mut batch = empty_files(0..10_000);
    // A second reference, without the first one put anew.
    batch.put(section(FILES, 1), Item { value: "60000".into(), block });
    let error = merge(&pool, &*live, |_| batch).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    merge(&pool, &*live, |_| empty_files(0..10_000)).expect("the pool goes on");
}

/// What is removed is the snapshot's alone then; the last commit does not show it yet.
#[test]
fn what_is_kept_for_an_undo_goes_for_a_writer_who_has_just_removed_much() {
    let (_memory, plain) = new_pool(64, &[("compression", "off")]);
    let pool = plain.acting_for(Author { user: Some(1000), command: "marram test".to_owned() });
    let live = root(&pool);
    (0..50).for_each(|number| put(&*live, section(number, 0), noise(number, 1 << 20)).unwrap());
    pool.fork(&DatasetName::root(), &"f".parse().unwrap(), 1).unwrap();
    small_merge(&pool, &*live);
    plain.destroy(&source("f"), false).unwrap();
    while plain.reclaim_step().unwrap() {}
    pool.commit().unwrap();
    (0..20).for_each(|number| remove(&*live, section(number, 0)).unwrap());
    let mut batch = Batch::new();
    for number in 100..110 {
        let block = Block::fresh(noise(number, 1 << 20));
        batch.put(section(number, 0), Item::with_block("", block));
    }
    assert_eq!(live.apply(batch), Ok(()));
    pool.commit().unwrap();
    assert_eq!(content(&*live, section(109, 0)), Some(noise(109, 1 << 20)));
}

#[test]
fn a_merge_that_nobody_can_look_at_costs_nothing_that_is_kept_for_an_undo() {
    let (pool, live) = forked(256);
    small_merge(&pool, &*live);
    let is_over = AtomicBool::new(false);
    let merged = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..100_000).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                let changed = live.apply(with_value(section((1 << 30) + number % 50, 0), 40));
                changed.expect("there is room");
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let merged = merge(&pool, &*live, |_| empty_files(1..10_000));
        is_over.store(true, Ordering::Relaxed);
        merged
    });
    assert!(matches!(merged, Ok(()) | Err(Error::InUse { .. })), "{merged:?}");
    assert!(pool.list_trash().unwrap().len() >= 2, "an undo is gone for nothing");
}
