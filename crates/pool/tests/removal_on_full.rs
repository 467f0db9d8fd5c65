//! Many at the same time on a full pool: a batch that frees space is never refused, and all that
//! was taken can be committed.

use crate::support::hooked::HookedDevice;
use crate::support::{create_on, new_pool, noise, open, put, remove, root, section};
use marram_device::{Device, MemoryDevice};
use marram_pool::Pool;
use marram_store::{
    Admission, Batch, Block, DatasetName, Error, Item, Lineage, Properties, Store, View,
};
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const THREADS: u64 = 8;
const ROUNDS: u64 = 12;
/// Batches of one remover, and keys of each: a few of them need all that is kept back.
const BATCHES: u64 = 12;
const KEYS: u64 = 80;
/// Content that lies beside its item.
const SMALL: usize = 100;
const LARGE: usize = 1 << 20;

fn filler(number: u64) -> marram_store::Key {
    section(1 << 40, number)
}

/// Writes blocks until none fits any more; returns how many did.
fn fill(live: &dyn View, seed: u64, len: usize, admission: Admission) -> u64 {
    for number in 0.. {
        let mut batch = Batch { admission, ..Batch::new() };
        let block = Block::fresh(noise(seed + number, len));
        batch.put(section(1 << 40 | len as u64, number), Item::with_block(Vec::new(), block));
        match live.apply(batch) {
            Ok(()) => {}
            Err(Error::NoSpace) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a pool has an end")
}

fn put_many(live: &dyn View, remover: u64, from: u64) {
    let mut batch = Batch::new();
    for number in from..from + KEYS {
        let block = Block::fresh(noise(number, SMALL));
        batch.put(section(remover, number), Item::with_block(Vec::new(), block));
    }
    live.apply(batch).expect("an empty pool has space");
}

fn remove_many(live: &dyn View, remover: u64, from: u64) -> marram_store::Result<()> {
    let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
    for number in from..from + KEYS {
        batch.remove(section(remover, number));
    }
    live.apply(batch)
}

/// Has so many threads do something at the same time.
fn side_by_side(act: impl Fn(u64) + Sync) {
    let start = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (act, start) = (&act, &start);
            scope.spawn(move || {
                start.wait();
                act(thread);
            });
        }
    });
}

#[test]
fn removals_side_by_side_are_never_refused() {
    for round in 0..ROUNDS {
        let (_memory, pool) = new_pool(32, &[]);
        let live = root(&pool);
        for remover in 0..THREADS {
            (0..BATCHES).for_each(|batch| put_many(&*live, remover, batch * KEYS));
        }
        fill(&*live, round << 20, 90_000, Admission::Ordinary);
        if round % 2 == 1 {
            fill(&*live, round << 20, 9_000, Admission::Accepted);
        }
        pool.commit().expect("what was taken can be committed");
        side_by_side(|remover| {
            for batch in 0..BATCHES {
                let removed = remove_many(&*live, remover, batch * KEYS);
                assert_eq!(removed, Ok(()), "batch {batch} of remover {remover}, round {round}");
            }
        });
        pool.commit().expect("what was taken can be committed");
    }
}

#[test]
fn writers_side_by_side_do_not_take_the_same_space() {
    for round in 0..ROUNDS {
        let (_memory, pool) = new_pool(32, &[]);
        let live = root(&pool);
        let admission = [Admission::Ordinary, Admission::Accepted][round as usize % 2];
        let before = fill(&*live, round << 20, 90_000, Admission::Ordinary);
        assert!(before > 100, "only {before} blocks fit");
        (0..20).for_each(|number| {
            remove(&*live, section(1 << 40 | 90_000, number)).expect("it can be emptied");
        });
        pool.commit().expect("what was taken can be committed");
        side_by_side(|writer| {
            let written = fill(&*live, writer << 32 | round, LARGE - writer as usize, admission);
            assert!(written < 30, "{written} blocks of 1 MiB");
        });
        pool.commit().expect("what was taken can be committed");
        for number in 20..before {
            let removed = remove(&*live, section(1 << 40 | 90_000, number));
            assert_eq!(removed, Ok(()), "block {number}, round {round}");
        }
        pool.commit().expect("what was taken can be committed");
    }
}

/// Where all wait as long as it is shut.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_shut: bool,
    waiting: usize,
}

impl Gate {
    fn shut(&self, is_shut: bool) {
        self.state.lock().is_shut = is_shut;
        self.changed.notify_all();
    }

    /// Waits until somebody waits for it.
    fn await_arrival(&self) {
        self.changed.wait_while(&mut self.state.lock(), |state| state.waiting == 0);
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.is_shut);
        state.waiting -= 1;
    }
}

/// How long writers are given to come to where they wait. If one is slower it only waits less.
const ARRIVAL: Duration = Duration::from_millis(200);

/// Another dataset goes back to where it was; no batch is applied meanwhile.
fn roll_back(pool: &Pool) {
    pool.rollback(&"other@s".parse().expect("a name"), "before").expect("it goes back");
}

#[test]
fn what_waited_to_be_applied_leaves_room_to_remove() {
    let (hooked, gate) = (HookedDevice::new(MemoryDevice::new(64 << 20)), Arc::<Gate>::default());
    let passed = Arc::clone(&gate);
    hooked.before_flushes(move || {
        passed.pass();
        Ok(())
    });
    let device: Arc<dyn Device> = hooked;
    create_on(&device, &[]);
    let pool = open(&device);
    let other: DatasetName = "other".parse().expect("a name");
    pool.create(&other, &Properties::default()).expect("it is made");
    pool.snapshot(&other, "s").expect("it is taken");
    let live = root(&pool);
    let count = fill(&*live, 1, 90_000, Admission::Ordinary);
    (0..20).for_each(|number| {
        remove(&*live, section(1 << 40 | 90_000, number)).expect("it can be emptied");
    });
    pool.commit().expect("what was taken can be committed");
    let written = Mutex::new(0);
    gate.shut(true);
    std::thread::scope(|scope| {
        scope.spawn(|| roll_back(&pool));
        gate.await_arrival();
        for writer in 0..THREADS {
            let (live, written) = (&live, &written);
            scope.spawn(move || {
                let put = put(&**live, filler(writer), noise(writer, LARGE));
                *written.lock() += u64::from(put.is_ok());
            });
        }
        std::thread::sleep(ARRIVAL);
        gate.shut(false);
    });
    let written = *written.lock();
    assert!((1..=2).contains(&written), "{written} blocks of 1 MiB fit where one does");
    pool.commit().expect("what was taken can be committed");
    for number in 20..count {
        let removed = remove(&*live, section(1 << 40 | 90_000, number));
        assert_eq!(removed, Ok(()), "block {number}");
    }
    pool.commit().expect("what was taken can be committed");
    assert!(pool.status().allocated_bytes < 6 << 20);
}
