//! Forks in memory: what their beginning and their end cost, what a crash leaves of them, and that
//! their space comes back.

use crate::support::hooked::HookedDevice;
use crate::support::{
    content, create_on, names, new_pool, noise, put, remove, root, section, view,
};
use marram_device::{Device, MemoryDevice};
use marram_pool::{OpenOptions, Pool};
use marram_store::{
    Batch, DatasetName, EphemeralSnapshots, Error, Item, Key, Source, Store, View, VolatileForks,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn fork(id: &str) -> DatasetName {
    DatasetName::of_transaction(id).expect("a valid id")
}

fn begin(pool: &Pool, id: &str) -> Arc<dyn View> {
    begin_fork(pool, id).expect("it begins");
    view(pool, &format!("tx:{id}"))
}

fn begin_fork(pool: &Pool, id: &str) -> marram_store::Result<()> {
    let store: &dyn Store = pool;
    store.begin_fork(&DatasetName::root(), &fork(id), 1)
}

fn end(pool: &Pool, id: &str) {
    let store: &dyn Store = pool;
    store.end_fork(&fork(id)).expect("it ends");
}

/// A pool on a device that counts.
fn counted(mebibytes: usize) -> (Arc<HookedDevice>, Arc<Pool>) {
    let hooked = HookedDevice::new(MemoryDevice::new(mebibytes << 20));
    let device: Arc<dyn Device> = hooked.clone();
    create_on(&device, &[]);
    let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it opens");
    pool.commit().expect("it commits");
    (hooked, pool)
}

fn free_bytes(pool: &Pool) -> u64 {
    root(pool).space().free_bytes
}

/// The pool as a crash of now leaves it.
fn crashed(memory: &MemoryDevice) -> Arc<Pool> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
    Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it opens after a crash")
}

/// Commits, and gives back what is left over.
fn settle(pool: &Pool) {
    pool.commit().expect("it commits");
    while pool.reclaim_step().expect("space comes back") {}
    pool.commit().expect("it commits");
}

#[test]
fn begin_and_end_write_nothing_whatever_waits() {
    let (device, pool) = counted(64);
    let parent = root(&pool);
    put(&*parent, section(2, 0), noise(1, 100_000)).unwrap();
    let before = device.counts();
    let free = free_bytes(&pool);
    for round in 0..10 {
        let view = begin(&pool, &format!("{round}"));
        assert_eq!(content(&*view, section(2, 0)), Some(noise(1, 100_000)));
        put(&*view, section(3, 0), noise(round, 50_000)).unwrap();
        remove(&*view, section(2, 0)).unwrap();
        drop(view);
        end(&pool, &format!("{round}"));
    }
    assert_eq!(device.counts(), before, "neither a write nor a flush");
    assert_eq!(free_bytes(&pool), free, "and nothing of them waits any more");
    pool.commit().unwrap();
    assert_eq!(names(&pool), ["root"]);
}

#[test]
fn begin_and_end_read_nothing_however_large_the_tree_is() {
    let (device, pool) = counted(64);
    for number in 0..20_000 {
        put(&*root(&pool), section(number, 0), noise(number, 10)).unwrap();
    }
    pool.commit().unwrap();
    drop(pool);
    let device_again: Arc<dyn Device> = device.clone();
    let pool = Pool::open(vec![device_again], OpenOptions::new(|| 0)).unwrap();
    let parent = root(&pool);
    let mut took = Vec::new();
    for round in 0..30 {
        put(&*parent, section(30_000 + round, 0), noise(round, 1000)).unwrap();
        let (reads, counts, from) = (device.reads(), device.counts(), Instant::now());
        begin_fork(&pool, "a").unwrap();
        end(&pool, "a");
        took.push(from.elapsed());
        assert_eq!((device.reads(), device.counts()), (reads, counts), "round {round}");
    }
    took.sort();
    // Without optimization, beside other tests; what is measured without is 0.1 ms at most.
    assert!(took[0] < Duration::from_millis(5), "{took:?}");
}

#[test]
fn a_commit_that_passes_makes_records_and_their_end_needs_no_commit_of_its_own() {
    let (device, pool) = counted(64);
    let parent = root(&pool);
    put(&*parent, section(2, 0), noise(1, 100_000)).unwrap();
    let view = begin(&pool, "a");
    put(&*view, section(3, 0), noise(2, 300_000)).unwrap();
    put(&*parent, section(2, 0), noise(3, 100_000)).unwrap();
    let before = device.counts();
    pool.commit().unwrap();
    assert_eq!(device.counts().1 - before.1, 2, "one commit has both moments");
    assert_eq!(content(&*view, section(2, 0)), Some(noise(1, 100_000)));
    assert_eq!(content(&*view, section(3, 0)), Some(noise(2, 300_000)));
    drop(view);
    let before = device.counts();
    end(&pool, "a");
    assert_eq!(device.counts(), before);
    put(&*parent, section(4, 0), noise(4, 1000)).unwrap();
    pool.commit().unwrap();
    assert_eq!(device.counts().1 - before.1, 2, "it goes with a commit for something else");
    assert!(!pool.reclaim_step().unwrap(), "nothing is left to be given back");
    assert_eq!(content(&*parent, section(2, 0)), Some(noise(3, 100_000)));
}

#[test]
fn all_space_comes_back() {
    let (_memory, pool) = new_pool(64, &[]);
    let parent = root(&pool);
    put(&*parent, section(2, 0), noise(1, 200_000)).unwrap();
    settle(&pool);
    let free = free_bytes(&pool);
    for round in 0..5_u64 {
        let view = begin(&pool, "a");
        for number in 0..20 {
            put(&*view, section(3, number), noise(number, 100_000)).unwrap();
            if number == 10 {
                pool.commit().unwrap();
            }
        }
        remove(&*view, section(2, 0)).unwrap();
        if round % 2 == 0 {
            pool.commit().unwrap();
        }
        drop(view);
        end(&pool, "a");
        settle(&pool);
    }
    let lost = free.saturating_sub(free_bytes(&pool));
    assert!(lost < 64 << 10, "{lost} bytes are lost");
    assert_eq!(content(&*parent, section(2, 0)), Some(noise(1, 200_000)));
}

#[test]
fn a_crash_leaves_nothing_or_a_fork_that_goes() {
    for spilled in [false, true] {
        let (memory, pool) = new_pool(64, &[]);
        let parent = root(&pool);
        put(&*parent, section(2, 0), noise(1, 100_000)).unwrap();
        settle(&pool);
        let free = free_bytes(&pool);
        put(&*parent, section(4, 0), noise(4, 5_000)).unwrap();
        let view = begin(&pool, "a");
        put(&*view, section(3, 0), noise(2, 3 << 20)).unwrap();
        put(&*parent, section(5, 0), noise(5, 5_000)).unwrap();
        if spilled {
            pool.commit().unwrap();
        }
        put(&*view, section(3, 1), noise(3, 50_000)).unwrap();
        put(&*parent, section(6, 0), noise(6, 5_000)).unwrap();
        parent.sync().unwrap();
        let after = crashed(&memory);
        for object in 4..7 {
            let synced = content(&*root(&after), section(object, 0));
            assert_eq!(synced, Some(noise(object, 5_000)), "{spilled}: what was synced is there");
        }
        assert_eq!(names(&after).iter().any(|name| name == "tx:a"), spilled);
        if spilled {
            let left: Source = "tx:a".parse().unwrap();
            after.destroy(&left, false).unwrap();
        }
        settle(&after);
        assert_eq!(names(&after), ["root"]);
        let lost = free.saturating_sub(free_bytes(&after));
        assert!(lost < 128 << 10, "{spilled}: {lost} bytes are lost");
    }
}

#[test]
fn a_full_pool_ends_them() {
    let (device, pool) = counted(32);
    let parent = root(&pool);
    put(&*parent, section(2, 0), noise(1, 100_000)).unwrap();
    let view = begin(&pool, "a");
    let mut written = 0;
    let full = loop {
        match put(&*view, section(3, written), noise(written, 100_000)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, Error::NoSpace);
    assert!(written > 50, "{written}");
    let refused = put(&*parent, section(4, 0), noise(4, 100_000));
    assert_eq!(refused, Err(Error::NoSpace));
    drop(view);
    let before = device.counts();
    end(&pool, "a");
    assert_eq!(device.counts(), before);
    // The space comes back as soon as somebody needs it.
    for number in 0..written / 2 {
        put(&*parent, section(4, number), noise(number, 100_000)).unwrap();
    }
    pool.commit().unwrap();
    assert_eq!(content(&*parent, section(2, 0)), Some(noise(1, 100_000)));
}

#[test]
fn one_that_begins_beside_a_commit_follows_it() {
    let hooked = HookedDevice::new(MemoryDevice::new(64 << 20));
    let device: Arc<dyn Device> = hooked.clone();
    create_on(&device, &[]);
    let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it opens");
    let parent = root(&pool);
    put(&*parent, section(2, 0), noise(1, 100_000)).unwrap();
    let inside = Arc::clone(&pool);
    hooked.before_a_write(move || {
        // Another thread: this one has the turn to commit.
        let begun = std::thread::spawn(move || {
            let view = begin(&inside, "a");
            put(&*view, section(3, 0), noise(2, 50_000)).unwrap();
            put(&*root(&inside), section(2, 0), noise(3, 100_000)).unwrap();
        });
        begun.join().unwrap();
    });
    pool.commit().unwrap();
    for round in 0..3 {
        let view = view(&pool, "tx:a");
        assert_eq!(content(&*view, section(2, 0)), Some(noise(1, 100_000)), "{round}");
        assert_eq!(content(&*view, section(3, 0)), Some(noise(2, 50_000)), "{round}");
        assert_eq!(content(&*parent, section(2, 0)), Some(noise(3, 100_000)), "{round}");
        put(&*parent, section(4, round), noise(4, 10_000)).unwrap();
        pool.commit().unwrap();
    }
    end(&pool, "a");
    settle(&pool);
    assert_eq!(names(&pool), ["root"]);
}

#[test]
fn giving_space_back_commits_nothing_for_forks_and_one_commit_takes_all_that_have_ended() {
    let (device, pool) = counted(64);
    for id in ["a", "b"] {
        let view = begin(&pool, id);
        put(&*view, section(3, 0), noise(2, 50_000)).unwrap();
        pool.commit().unwrap();
    }
    end(&pool, "a");
    end(&pool, "b");
    let other = begin(&pool, "c");
    put(&*other, section(3, 0), noise(3, 50_000)).unwrap();
    let before = device.counts();
    assert!(!pool.reclaim_step().unwrap());
    assert_eq!(device.counts(), before, "neither a write nor a flush");
    drop(other);
    end(&pool, "c");
    pool.commit().unwrap();
    assert_eq!(device.counts().1 - before.1, 2, "one commit for both, though nothing else waits");
    pool.commit().unwrap();
    assert_eq!(device.counts().1 - before.1, 2, "and none when they are gone");
}

#[test]
fn a_name_is_that_of_the_one_that_has_not_ended() {
    let (_memory, pool) = new_pool(64, &[]);
    put(&*root(&pool), section(2, 0), noise(1, 5_000)).unwrap();
    let view = begin(&pool, "a");
    put(&*view, section(3, 0), noise(2, 5_000)).unwrap();
    pool.commit().unwrap();
    drop(view);
    end(&pool, "a");
    let again = begin(&pool, "a");
    assert_eq!(content(&*again, section(3, 0)), None);
    put(&*again, section(3, 0), noise(3, 5_000)).unwrap();
    for _ in 0..2 {
        pool.commit().unwrap();
        assert_eq!(content(&*view_of(&pool, "a"), section(3, 0)), Some(noise(3, 5_000)));
    }
    drop(again);
    end(&pool, "a");
    settle(&pool);
    assert_eq!(names(&pool), ["root"]);
}

fn view_of(pool: &Pool, id: &str) -> Arc<dyn View> {
    view(pool, &format!("tx:{id}"))
}

#[test]
fn what_a_commit_has_written_since_is_no_change() {
    let (_memory, pool) = new_pool(64, &[]);
    let parent = root(&pool);
    put(&*parent, section(2, 0), noise(1, 5_000)).unwrap();
    let view = begin(&pool, "a");
    put(&*view, section(3, 0), noise(2, 5_000)).unwrap();
    let kept = pool.present_state(&fork("a"), "merge").unwrap().expect("it is kept");
    let base = pool.report(&Source::live(fork("a"))).unwrap().origin.expect("it has a base");
    let changed = || {
        let mut keys = Vec::new();
        pool.changes(&base, &kept, Key::MIN, &mut |change| {
            keys.push(change.key);
            true
        })
        .map(|()| keys)
    };
    assert_eq!(changed(), Ok(vec![section(3, 0)]));
    pool.commit().unwrap();
    assert_eq!(changed(), Ok(vec![section(3, 0)]), "what was waiting is the same block");
    pool.discard_ephemeral(&kept);
}

/// Values of so many bytes, in leaves of their own.
fn put_values(
    view: &dyn View,
    keys: impl Iterator<Item = u64>,
    seed: u64,
) -> marram_store::Result<()> {
    let mut batch = Batch::new();
    for key in keys {
        batch.put(section(key, 0), Item::plain(noise(seed + key, 2_000)));
    }
    view.apply(batch)
}

#[test]
fn what_was_taken_beside_many_of_them_on_a_nearly_full_pool_can_be_committed() {
    for left in [6, 10, 16, 24, 32] {
        let (_memory, pool) = new_pool(32, &[]);
        let parent = root(&pool);
        (0..50).for_each(|part| put_values(&*parent, part * 20..part * 20 + 20, 1).unwrap());
        pool.commit().unwrap();
        let mut filled = 0;
        while put(&*parent, section(10_000 + filled, 0), noise(filled, 100_000)).is_ok() {
            filled += 1;
        }
        pool.commit().unwrap();
        (0..left)
            .for_each(|last| remove(&*parent, section(10_000 + filled - 1 - last, 0)).unwrap());
        pool.commit().unwrap();
        let mut taken = 0;
        for round in 0..24 {
            let begun = begin_fork(&pool, &format!("{round}"));
            let keys = (0..6).map(|leaf| leaf * 150);
            if begun.and_then(|()| put_values(&*parent, keys, 7 * round)).is_err() {
                break;
            }
            taken += 1;
        }
        let committed = pool.commit();
        assert_eq!(committed, Ok(()), "{left}: after {taken} of them");
        (0..24).filter_map(|id| fork_if(&pool, id)).for_each(|id| end(&pool, &id));
        settle(&pool);
        assert_eq!(names(&pool), ["root"]);
    }
}

fn fork_if(pool: &Pool, id: u64) -> Option<String> {
    let id = id.to_string();
    pool.report(&Source::live(fork(&id))).ok().map(|_| id)
}

fn begin_in(pool: &Pool, outer: &str, id: &str) -> Arc<dyn View> {
    let store: &dyn Store = pool;
    store.begin_fork(&fork(outer), &fork(id), 1).expect("it begins");
    view(pool, &format!("tx:{id}"))
}

/// Whatever the order of ids and of commits: forks in forks go with one commit, and nothing of them
/// stays; what a crash leaves of them goes in one step.
#[test]
fn forks_in_forks_give_all_their_space_back() {
    for names_go_down in [false, true] {
        let memory = Arc::new(MemoryDevice::new(64 << 20));
        let device: Arc<dyn Device> = memory.clone();
        create_on(&device, &[]);
        let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it opens");
        put(&*root(&pool), section(2, 0), noise(1, 100_000)).unwrap();
        settle(&pool);
        let free = free_bytes(&pool);
        let ids = if names_go_down { ["3", "2", "1"] } else { ["1", "2", "3"] };
        let outer = begin(&pool, ids[0]);
        put(&*outer, section(3, 0), noise(3, 200_000)).unwrap();
        let inner = begin_in(&pool, ids[0], ids[1]);
        put(&*inner, section(3, 0), noise(4, 300_000)).unwrap();
        let innermost = begin_in(&pool, ids[1], ids[2]);
        put(&*outer, section(3, 0), noise(5, 200_000)).unwrap();
        put(&*innermost, section(4, 0), noise(6, 200_000)).unwrap();
        pool.commit().unwrap();
        let left = crashed(&memory);
        destroy_leftovers(&left, ids);
        settle(&left);
        assert_eq!(names(&left), ["root"]);
        assert_eq!(free_bytes(&left), free, "after a crash");
        drop((outer, inner, innermost));
        ids.iter().rev().for_each(|id| end(&pool, id));
        put(&*root(&pool), section(2, 0), noise(7, 100_000)).unwrap();
        settle(&pool);
        assert_eq!(names(&pool), ["root"]);
        assert_eq!(free_bytes(&pool), free, "after their end");
        assert_eq!(content(&*root(&pool), section(2, 0)), Some(noise(7, 100_000)));
    }
}

/// As the next daemon destroys them: together.
fn destroy_leftovers(pool: &Pool, ids: [&str; 3]) {
    let left: Vec<Source> = ids.iter().map(|id| Source::live(fork(id))).collect();
    pool.destroy_together(&left, false).expect("all go in one step");
}
