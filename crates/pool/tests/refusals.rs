//! What a full pool does to refuse: it makes a commit only where that could make room, and then
//! always.

use crate::support::{content, new_pool, noise, put, remove, root, section};
use marram_pool::Pool;
use marram_store::{Admission, Batch, Block, DatasetName, Error, Item, Key, Store, View};
use std::collections::BTreeMap;
use std::sync::Arc;

const BLOCK: usize = 100_000;

/// Writes blocks, then ever smaller values, until nothing fits any more.
fn fill(live: &dyn View) -> u64 {
    let mut count = 0;
    while put(live, section(count, 0), noise(count, BLOCK)).is_ok() {
        count += 1;
    }
    let mut more = 0;
    while put_value(live, section(1 << 40, more), 100, Admission::Ordinary).is_ok() {
        more += 1;
    }
    count
}

fn put_value(
    live: &dyn View,
    key: Key,
    len: usize,
    admission: Admission,
) -> marram_store::Result<()> {
    let mut batch = Batch { admission, ..Batch::new() };
    batch.put(key, Item::plain(noise(key.offset, len)));
    live.apply(batch)
}

/// A pool with some small items, filled by blocks; and how many those are.
fn full_pool(small: u64) -> (Arc<Pool>, Arc<dyn View>, u64) {
    let (_memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    for number in 0..small {
        let key = section(1 << 41, number);
        put_value(&*live, key, 100, Admission::Ordinary).expect("an empty pool has space");
    }
    let count = fill(&*live);
    pool.commit().expect("what was taken can be committed");
    (pool, live, count)
}

#[test]
fn refusals_between_small_changes_make_no_commits() {
    let (pool, live, _) = full_pool(50);
    let before = pool.status().group;
    for round in 0..5000 {
        // What frees is taken, also by a full pool.
        put_value(&*live, section(1 << 41, round % 50), 100, Admission::Freeing).unwrap();
        let refused = put(&*live, section(1 << 42, round), noise(round, BLOCK));
        assert_eq!(refused, Err(Error::NoSpace));
    }
    let commits = pool.status().group - before;
    assert!(commits <= 2, "{commits} commits for 5000 refusals");
    live.sync().unwrap();
    pool.commit().unwrap();
}

#[test]
fn changes_of_the_same_leaves_do_not_each_make_a_nearly_full_pool_commit() {
    let (pool, live, count) = full_pool(200);
    // Room for some keys that each rewrite a leaf of their own, by far not for all.
    for number in 0..4 {
        remove(&*live, section(number, 0)).unwrap();
    }
    pool.commit().unwrap();
    let before = pool.status().group;
    for round in 0..4000 {
        let key = section(1 << 41, round % 200);
        put_value(&*live, key, 100, Admission::Ordinary).expect("there is room for it");
    }
    let commits = pool.status().group - before;
    assert!(commits <= 4, "{commits} commits for 4000 changes of 200 keys");
    pool.commit().unwrap();
    assert_eq!(content(&*live, section(count - 1, 0)), Some(noise(count - 1, BLOCK)));
}

#[test]
fn what_removing_overwriting_and_unsharing_free_is_found_at_once() {
    let (_pool, live, count) = full_pool(1);
    let mut seed = 0;
    let mut fits = || {
        seed += 1;
        put(&*live, section(1 << 42, seed), noise(seed, BLOCK)).is_ok()
    };
    assert!(!fits());
    (0..3).for_each(|number| remove(&*live, section(number, 0)).unwrap());
    assert!(fits(), "what was removed");
    while fits() {}
    for number in 3..6 {
        let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
        batch.put(section(number, 0), Item::plain(Vec::new()));
        live.apply(batch).unwrap();
    }
    assert!(fits(), "what was overwritten");
    // Two items refer to each of these blocks: they are free when both are gone.
    for number in 10..14 {
        let item = live.get(section(number, 0)).unwrap().unwrap();
        let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
        batch.put(section(number, 0), item.clone()).put(section(number, 1), item);
        live.apply(batch).unwrap();
    }
    live.commit().unwrap();
    while fits() {}
    (10..14).for_each(|number| remove(&*live, section(number, 0)).unwrap());
    assert!(!fits(), "the other items have them still");
    (10..14).for_each(|number| remove(&*live, section(number, 1)).unwrap());
    assert!(fits(), "what two items referred to");
    assert_eq!(content(&*live, section(count - 1, 0)), Some(noise(count - 1, BLOCK)));
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }
}

/// A pool near its end, what its dataset has, and how often it refused.
struct NearlyFull {
    pool: Arc<Pool>,
    live: Arc<dyn View>,
    dice: Dice,
    known: BTreeMap<Key, u64>,
    snapshots: Vec<String>,
    refusals: u64,
    by_chance: u64,
}

/// The content under a key.
fn bytes_of(seed: u64) -> Vec<u8> {
    noise(seed, 1 + (seed % 7 * 9_000) as usize)
}

impl NearlyFull {
    fn batch(&mut self) -> (Batch<'static>, BTreeMap<Key, u64>) {
        let admission = match self.dice.below(8) {
            0 => Admission::Accepted,
            _ => Admission::Ordinary,
        };
        let mut batch = Batch { admission, ..Batch::new() };
        let mut changes = BTreeMap::new();
        for _ in 0..=self.dice.below(5) {
            let key = section(self.dice.below(4000), self.dice.below(3));
            let seed = self.dice.below(1 << 40);
            batch.put(key, Item::with_block(Vec::new(), Block::fresh(bytes_of(seed))));
            changes.insert(key, seed);
        }
        (batch, changes)
    }

    fn removal(&mut self) {
        let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
        let from = section(self.dice.below(4000), 0);
        let keys: Vec<Key> = self.known.range(from..).map(|(key, _)| *key).take(3).collect();
        for key in keys {
            batch.remove(key);
            self.known.remove(&key);
        }
        self.live.apply(batch).expect("a full pool can be emptied");
    }

    fn change(&mut self) {
        let state = self.dice.0;
        let (batch, changes) = self.batch();
        let mut applied = self.live.apply(batch);
        if applied == Err(Error::NoSpace) {
            self.refusals += 1;
            self.pool.commit().expect("what was taken can be committed");
            self.dice.0 = state;
            let (again, _) = self.batch();
            applied = self.live.apply(again);
            self.by_chance += u64::from(applied.is_ok());
        }
        match applied {
            Ok(()) => self.known.extend(changes),
            Err(error) => assert_eq!(error, Error::NoSpace),
        }
    }

    fn step(&mut self) {
        match self.dice.below(40) {
            0 => {
                let name = format!("s{}", self.dice.below(1 << 30));
                if self.pool.snapshot(&DatasetName::root(), &name).is_ok() {
                    self.snapshots.push(format!("root@{name}"));
                }
            }
            1 | 2 if !self.snapshots.is_empty() => {
                let which = self.dice.below(self.snapshots.len() as u64) as usize;
                let source = self.snapshots.remove(which).parse().expect("a name");
                self.pool.destroy(&source, false).expect("a full pool lets snapshots go");
            }
            3 => self.pool.commit().expect("what was taken can be committed"),
            4 => self.live.sync().expect("what was taken can be synced"),
            5..15 => self.removal(),
            _ => self.change(),
        }
    }
}

#[test]
fn no_batch_is_refused_that_a_commit_would_have_made_room_for() {
    for seed in 1..=4 {
        let (_memory, pool) = new_pool(32, &[]);
        let live = root(&pool);
        let (known, snapshots) = (BTreeMap::new(), Vec::new());
        let dice = Dice(seed);
        let (refusals, by_chance) = (0, 0);
        let mut it = NearlyFull { pool, live, dice, known, snapshots, refusals, by_chance };
        (0..2000).for_each(|_| it.step());
        assert!(it.refusals > 50, "{} refusals: the pool was hardly ever full", it.refusals);
        // Nodes that are written anew may be shorter then: a refusal does not wait for that.
        assert!(it.by_chance * 50 <= it.refusals, "{} of {}", it.by_chance, it.refusals);
        for (key, seed) in &it.known {
            assert_eq!(content(&*it.live, *key), Some(bytes_of(*seed)));
        }
        for source in &it.snapshots {
            it.pool.destroy(&source.parse().unwrap(), false).unwrap();
        }
        while !it.known.is_empty() {
            it.removal();
        }
        it.pool.commit().unwrap();
        while it.pool.reclaim_step().unwrap() {}
        assert!(it.pool.status().allocated_bytes < 2 << 20);
    }
}
