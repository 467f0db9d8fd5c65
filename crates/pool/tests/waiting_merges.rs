//! Merges of transactions that wait in memory: those that come together share a commit, and each is
//! there with its entry in the log of operations, or not at all.

use crate::support::hooked::HookedDevice;
use crate::support::{acting, content, create_on, new_pool, noise, open, put, root, section, view};
use crate::undo::{cut_everywhere, last};
use marram_device::{Device, MemoryDevice};
use marram_format::operation::OperationKind as Kind;
use marram_pool::{OpenOptions, Pool, Reversal};
use marram_store::{
    Applied, Batch, Block, DatasetName, Error, Item, MergedFrom, OperationLog, Source, Store,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A transaction that writes the file of its number, up to its merge.
fn merge(pool: &Pool, number: u64) -> Result<Applied, Error> {
    let store: &dyn Store = pool;
    let name = DatasetName::of_transaction(&number.to_string())?;
    store.begin_fork(&DatasetName::root(), &name, 1)?;
    put(&*view(pool, name.as_str()), section(number, 0), noise(number, 6_000))?;
    let read = store.present_state(&name, "merge")?.expect("little waits in it");
    let mut batch = Batch::new();
    let block = Block::fresh(noise(number, 6_000));
    batch.put(section(number, 0), Item::with_block("6000", block));
    let merged = MergedFrom {
        dataset: &DatasetName::root(),
        fork: &Source::live(name.clone()),
        read: &read,
        keep: None,
        root_object: 1,
        base: None,
        moves_base: false,
        may_wait: true,
    };
    let applied = store.apply_merge(&*root(pool), batch, &merged);
    store.discard_snapshot(&read);
    store.end_fork(&name)?;
    applied
}

fn has(pool: &Pool, number: u64) -> bool {
    content(&*root(pool), section(number, 0)) == Some(noise(number, 6_000))
}

fn merges(pool: &Pool) -> Vec<u64> {
    let operations = pool.operations().unwrap().into_iter();
    operations.filter(|it| it.record.kind == Kind::Merge).map(|it| it.number).collect()
}

/// The pool as a power cut of now leaves it.
fn crashed(memory: &MemoryDevice) -> Arc<Pool> {
    open(&(Arc::new(MemoryDevice::from_bytes(memory.snapshot())) as Arc<dyn Device>))
}

#[test]
fn those_that_come_together_share_a_commit() {
    let hooked = HookedDevice::new(MemoryDevice::new(64 << 20));
    let device: Arc<dyn Device> = hooked.clone();
    create_on(&device, &[]);
    let pool = acting(&Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap());
    pool.commit().unwrap();
    let flushes = || hooked.counts().1;
    let before = flushes();
    for number in 2..10 {
        assert_eq!(merge(&pool, number), Ok(Applied::Waits));
        assert!(has(&pool, number), "all see it at once");
    }
    assert_eq!(flushes(), before);
    pool.settle_merges().unwrap();
    assert_eq!(flushes(), before + 2);
    pool.settle_merges().unwrap();
    assert_eq!(flushes(), before + 2, "nothing waits any more");
    assert_eq!(merges(&pool).len(), 8);
    for (number, entry) in (2..).zip(merges(&pool)) {
        let kept = |which: &str| view(&pool, &format!("root@undo:{entry}:{which}"));
        let there = |which: &str, number| content(&*kept(which), section(number, 0)).is_some();
        assert_eq!([there("before", number), there("after", number)], [false, true]);
        assert_eq!([there("before", number - 1), there("after", number + 1)], [number > 2, false]);
    }
    // Each is taken back by itself.
    let entry = merges(&pool)[3];
    let expected = Reversal::Merge {
        dataset: DatasetName::root(),
        base: format!("root@undo:{entry}:after").parse().unwrap(),
        back_to: format!("root@undo:{entry}:before").parse().unwrap(),
        root_object: 1,
        moved_base: false,
        rest: None,
    };
    assert_eq!(pool.reversal(Some(entry)).unwrap(), (entry, expected));
}

/// A pool of which frames of the intent log may have merges, and have room for them.
fn pool_that_logs_merges(device: &Arc<dyn Device>) -> Pool {
    create_on(device, &[]);
    let pool = acting(&Pool::open(vec![device.clone()], OpenOptions::new(|| 5_000)).unwrap());
    merge(&pool, 100).unwrap();
    pool.settle_merges().unwrap();
    pool
}

#[test]
fn one_flush_makes_those_that_come_together_durable_with_their_entries() {
    let hooked = HookedDevice::new(MemoryDevice::new(64 << 20));
    let device: Arc<dyn Device> = hooked.clone();
    let pool = pool_that_logs_merges(&device);
    let before = hooked.counts().1;
    for number in 2..6 {
        assert_eq!(merge(&pool, number), Ok(Applied::Waits));
        put(&*root(&pool), section(10 + number, 0), noise(number, 3_000)).unwrap();
    }
    pool.settle_merges().unwrap();
    assert_eq!(hooked.counts().1, before + 1);

    // Mounted for reading: the log has them, and nothing can be taken back yet.
    let image = || Arc::new(MemoryDevice::from_bytes(hooked.memory.snapshot()));
    let open = |options| Pool::open(vec![image() as Arc<dyn Device>], options).unwrap();
    let options = OpenOptions { read_only: true, ..OpenOptions::new(|| 9_000) };
    let shown = open(options);
    let entries = shown.operations().unwrap();
    assert_eq!(entries.len(), 5);
    assert!(entries.iter().all(|it| it.step == (it.number..=it.number)));
    assert!(entries[1..].iter().all(|it| it.record.seconds == 5_000 && it.obstacle.is_some()));

    // Mounted again: each has its entry, its time, and its states before and after.
    let crash = acting(&open(OpenOptions::new(|| 9_000)));
    let numbers = merges(&crash);
    assert_eq!(numbers, entries.iter().map(|it| it.number).collect::<Vec<_>>());
    for (number, entry) in (2..).zip(&numbers[1..]) {
        let kept = |which: &str| view(&crash, &format!("root@undo:{entry}:{which}"));
        let there = |which: &str, number| content(&*kept(which), section(number, 0)).is_some();
        assert_eq!([there("before", number), there("after", number)], [false, true]);
        let beside = [there("before", 10 + number), there("after", 9 + number)];
        assert_eq!(beside, [false, number > 2]);
    }
    let last = last(&crash).record;
    assert_eq!((last.seconds, last.kept_until_seconds), (5_000, 9_000 + 3_600));
    assert_eq!((last.user, last.command.as_str()), (1000, "marram test"));
    assert_eq!(crash.reversal(None).unwrap().0, numbers[4]);
}

#[test]
fn a_crash_between_frames_leaves_the_first_of_them_each_with_its_entry() {
    let memory = Arc::new(MemoryDevice::new(64 << 20));
    let device: Arc<dyn Device> = memory.clone();
    drop(pool_that_logs_merges(&device));
    let work = |pool: &Pool| {
        // What was replayed leaves no room for a frame before this.
        let _may_be_cut = pool.commit();
        for number in 2..6 {
            let _may_be_cut = merge(pool, number);
            let _may_be_cut = put(&*root(pool), section(10 + number, 0), noise(1, 3_000));
            if number % 2 == 1 {
                let _may_be_cut = pool.settle_merges();
            }
        }
        let _may_be_cut = root(pool).sync();
        let _may_be_cut = merge(pool, 6);
        let _may_be_cut = pool.settle_merges();
        let _may_be_cut = pool.commit();
    };
    let cuts = cut_everywhere(&memory, &work, &|pool| {
        let there: Vec<bool> = (2..7).map(|number| has(pool, number)).collect();
        let count = there.iter().filter(|is_there| **is_there).count();
        assert!(there[..count].iter().all(|is_there| *is_there), "{there:?}");
        let entries = merges(pool);
        assert_eq!(entries.len(), 1 + count);
        for (number, entry) in (2..).zip(&entries[1..]) {
            let before = view(pool, &format!("root@undo:{entry}:before"));
            assert_eq!(content(&*before, section(number, 0)), None);
        }
    });
    assert!(cuts > 8, "{cuts}");
}

#[test]
fn a_crash_leaves_the_first_of_them_each_with_its_entry() {
    let (memory, pool) = new_pool(64, &[]);
    pool.commit().unwrap();
    drop(pool);
    let work = |pool: &Pool| {
        for number in 2..6 {
            let _may_be_cut = merge(pool, number);
            let _may_be_cut = put(&*root(pool), section(10 + number, 0), noise(1, 3_000));
        }
        let _may_be_cut = pool.settle_merges();
    };
    let cuts = cut_everywhere(&memory, &work, &|pool| {
        let there: Vec<bool> = (2..6).map(|number| has(pool, number)).collect();
        let count = there.iter().filter(|is_there| **is_there).count();
        assert!(there[..count].iter().all(|is_there| *is_there), "{there:?}");
        assert_eq!(merges(pool).len(), count);
    });
    assert!(cuts > 2, "{cuts}");
}

#[test]
fn while_one_waits_a_sync_brings_its_entry_too() {
    let (memory, pool) = new_pool(64, &[]);
    let pool = acting(&pool);
    put(&*root(&pool), section(1, 0), noise(1, 3_000)).unwrap();
    root(&pool).sync().unwrap();
    merge(&pool, 2).unwrap();
    put(&*root(&pool), section(1, 0), noise(3, 3_000)).unwrap();
    let crash = crashed(&memory);
    assert!(!has(&crash, 2) && merges(&crash).is_empty());
    root(&pool).sync().unwrap();
    let crash = crashed(&memory);
    assert!(has(&crash, 2));
    assert_eq!(content(&*root(&crash), section(1, 0)), Some(noise(3, 3_000)));
    assert_eq!(merges(&crash).len(), 1);
}

#[test]
fn who_asks_for_the_log_or_keeps_a_state_meets_those_that_wait() {
    let (memory, pool) = new_pool(64, &[]);
    let pool = acting(&pool);
    merge(&pool, 2).unwrap();
    assert_eq!(last(&pool).record.kind, Kind::Merge);
    assert_eq!(merges(&crashed(&memory)).len(), 1);
    merge(&pool, 3).unwrap();
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    assert!(content(&*view(&pool, "root@s"), section(3, 0)).is_some());
    let kinds: Vec<_> = pool.operations().unwrap().iter().map(|it| it.record.kind).collect();
    assert_eq!(kinds, [Kind::Merge, Kind::Merge, Kind::Snapshot]);
}

#[test]
fn nobody_waits_for_one_that_does_not_come() {
    let (_memory, pool) = new_pool(64, &[]);
    let pool = acting(&pool);
    let other = pool.expecting_merge();
    merge(&pool, 2).unwrap();
    // It is expected, and waited for in vain.
    pool.settle_merges().unwrap();
    merge(&pool, 3).unwrap();
    drop(other);
    pool.settle_merges().unwrap();
    assert_eq!(merges(&pool).len(), 2);
}

#[test]
fn more_than_a_commit_has_moments_for_are_several_commits() {
    let (memory, pool) = new_pool(64, &[]);
    let pool = acting(&pool);
    for number in 2..80 {
        merge(&pool, number).unwrap();
    }
    pool.settle_merges().unwrap();
    let crash = crashed(&memory);
    assert!((2..80).all(|number| has(&crash, number)));
    assert_eq!(merges(&crash).len(), 78);
}

#[test]
fn what_comes_while_a_device_is_slow_shares_a_commit() {
    const THREADS: u64 = 8;
    let hooked = HookedDevice::new(MemoryDevice::new(64 << 20));
    let device: Arc<dyn Device> = hooked.clone();
    create_on(&device, &[]);
    let pool = acting(&Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap());
    pool.commit().unwrap();
    hooked.before_flushes(|| {
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    });
    let before = hooked.counts().1;
    // As a file system that is held still.
    let held = Mutex::new(());
    std::thread::scope(|scope| {
        for number in 2..2 + THREADS {
            let expecting = pool.expecting_merge();
            let held = &held;
            scope.spawn(move || {
                let applied = {
                    let _one_at_a_time = held.lock().unwrap();
                    merge(&expecting, number).unwrap()
                };
                assert_eq!(applied, Applied::Waits);
                expecting.settle_merges().unwrap();
                assert!(has(&expecting, number));
            });
        }
    });
    let flushes = hooked.counts().1 - before;
    assert!(flushes < THREADS, "{flushes} flushes");
    assert_eq!(merges(&pool).len() as u64, THREADS);
}

#[test]
fn after_a_failed_flush_the_log_is_that_of_the_last_commit() {
    let hooked = HookedDevice::new(MemoryDevice::new(64 << 20));
    let device: Arc<dyn Device> = hooked.clone();
    create_on(&device, &[]);
    let pool = acting(&Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap());
    merge(&pool, 2).unwrap();
    pool.settle_merges().unwrap();
    merge(&pool, 3).unwrap();
    hooked.fail_flushes(true);
    assert!(pool.settle_merges().is_err());
    assert!(pool.settle_merges().is_err(), "it never is");
    assert_eq!(merges(&pool).len(), 1);
}
