//! What a dry run expects of random merges is never less than what their commits write.

use crate::admission::cost::least_cost;
use crate::{Author, CreateOptions, OpenOptions, Pool, create};
use marram_device::{Device, MemoryDevice};
use marram_store::{
    Batch, Block, DatasetName, EphemeralSnapshots, Item, Key, MergedFrom, OperationLog, Properties,
    Source, Store, View, kind,
};
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, MaxSteps, Runner};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Objects that items are of.
const OBJECTS: u64 = 9_000;
/// The slots of the two rings of superblocks that a commit writes.
const SUPERBLOCKS_BYTES: u64 = 2 * 4096;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }

    /// Bytes that do not compress.
    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

fn key(object: u64, offset: u64) -> Key {
    Key::new(object, kind::SECTION, offset)
}

fn source(text: &str) -> Source {
    text.parse().expect("a name")
}

fn new_pool() -> Arc<Pool> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20));
    let options = CreateOptions {
        label: "test".to_owned(),
        properties: Properties::default(),
        pool_id: [7; 16],
        secret: 7,
        now_seconds: 1,
    };
    create(std::slice::from_ref(&device), &options).expect("the device works");
    Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it was made just now")
}

/// A pool whose free space is single grains between blocks of items, and its fork.
fn fragmented(pool: &Pool, dice: &mut Dice) {
    let live = pool.open(&source("root")).expect("it is there");
    for first in (0..OBJECTS).step_by(300) {
        let mut batch = Batch::new();
        for object in first..first + 300 {
            let len = 2_000 + dice.below(2_000);
            let block = Block::fresh(dice.bytes(len));
            batch.put(key(object, 0), Item::with_block("n", block));
        }
        live.apply(batch).expect("there is room");
    }
    live.commit().expect("the device works");
    for first in (0..OBJECTS).step_by(300) {
        let mut batch = Batch::new();
        (first..first + 300).filter(|object| object % 3 == 0).for_each(|object| {
            batch.remove(key(object, 0));
        });
        live.apply(batch).expect("there is room");
    }
    live.commit().expect("the device works");
    pool.fork(&DatasetName::root(), &"f".parse().expect("a name"), 1).expect("it is made");
}

/// New content of the fork; returns the items that have it, or nothing if the pool is full.
fn write_fork(fork: &dyn View, dice: &mut Dice) -> Option<Vec<Key>> {
    let mut batch = Batch::new();
    let mut keys = BTreeMap::new();
    for _ in 0..150 {
        let key = key(dice.below(OBJECTS), dice.below(3));
        let len = 1_100 + dice.below(9_000);
        keys.insert(key, Item::with_block("n", Block::fresh(dice.bytes(len))));
    }
    for (key, item) in &keys {
        batch.put(*key, item.clone());
    }
    fork.apply(batch).ok()?;
    fork.commit().expect("the device works");
    Some(keys.into_keys().collect())
}

/// Items of all kinds, new, changed and removed.
fn random_batch(
    (live, read): (&dyn View, &dyn View),
    forked: &[Key],
    dice: &mut Dice,
) -> Batch<'static> {
    let mut edits: BTreeMap<Key, Option<Item>> = BTreeMap::new();
    let (count, spread) = (70 + dice.below(4_000), 1 + dice.below(OBJECTS));
    let first = dice.below(OBJECTS);
    let kinds = 1 + dice.below(6);
    for _ in 0..count {
        let key = key((first + dice.below(spread)) % OBJECTS, dice.below(4));
        let len = dice.below(600);
        let item = match dice.below(kinds) {
            0 => Some(Item::plain(dice.bytes(len))),
            1 | 2 => None,
            3 => Some(Item::with_block("n", Block::fresh(dice.bytes(20 * len)))),
            _ => {
                // A second reference, for which the first one is put anew.
                let shared = live.get(key).expect("the device works");
                let Some(item) = shared.filter(|item| item.block.is_some()) else { continue };
                edits.insert(key, Some(item.clone()));
                edits.insert(Key { offset: key.offset + 100, ..key }, Some(item));
                continue;
            }
        };
        edits.insert(key, item);
    }
    if dice.below(2) == 0 {
        for key in forked {
            let item = read.get(*key).expect("the device works").expect("it was put");
            let block = live.adopt(read, &item.block.expect("it has one")).expect("it is stored");
            let item = Item::with_block("n", block);
            edits.insert(*key, Some(item.clone()));
            if dice.below(4) == 0 {
                edits.insert(Key { offset: key.offset + 200, ..*key }, Some(item));
            }
        }
    }
    let mut batch = Batch::new();
    for (key, item) in edits {
        match item {
            Some(item) => batch.put(key, item),
            None => batch.remove(key),
        };
    }
    batch
}

/// Makes a merge, if there is room for it: what was expected, and what its commit has written.
fn expected_and_taken(
    plain: &Pool,
    pool: &Pool,
    (live, read): (&dyn View, &Source),
    batch: Batch<'_>,
) -> Option<(u64, u64)> {
    pool.commit().expect("the device works");
    let inner = &plain.session.state;
    let root = {
        let open = inner.datasets.read();
        let live = open.values().filter(|known| known.writable);
        live.min_by_key(|known| known.id).cloned().expect("it is open")
    };
    let expected = super::dry_run_commit(inner, &root, &batch).expect("the device works");
    let expected = expected.expect("nothing is patched");
    assert!(least_cost(&batch) <= expected, "the least for {expected}");
    let written = || inner.media.counters.written_bytes.load(Ordering::Relaxed);
    let (before, group) = (written(), pool.status().group);
    let (dataset, fork) = (DatasetName::root(), source("f"));
    let merged = MergedFrom {
        dataset: &dataset,
        fork: &fork,
        read,
        keep: None,
        root_object: 1,
        base: None,
        moves_base: false,
        may_wait: false,
    };
    pool.apply_merge(live, batch, &merged).ok()?;
    let taken = written() - before - SUPERBLOCKS_BYTES;
    (pool.status().group == group + 1).then_some((expected, taken))
}

fn merge_at_random(seed: u64) {
    let mut dice = Dice(seed);
    let plain = new_pool();
    fragmented(&plain, &mut dice);
    let keeping = plain.acting_for(Author { user: Some(1), command: "marram test".to_owned() });
    let (live, fork) = (plain.open(&source("root")), plain.open(&source("f")));
    let (live, fork) = (live.expect("it is there"), fork.expect("it is there"));
    let name = source("f");
    let mut merges = 0;
    for round in 0..40 {
        let Some(forked) = write_fork(&*fork, &mut dice) else { break };
        let pool = if dice.below(2) == 0 { &*plain } else { &keeping };
        let read = pool.ephemeral_snapshot(&name.dataset, "merge").expect("the device works");
        let state = pool.open(&read).expect("it is kept");
        let batch = random_batch((&*live, &*state), &forked, &mut dice);
        let merged = expected_and_taken(&plain, pool, (&*live, &read), batch);
        pool.discard_ephemeral(&read);
        if let Some((expected, taken)) = merged {
            merges += 1;
            assert!(taken <= expected, "seed {seed}, round {round}: {taken} for {expected}");
        }
    }
    assert!(merges >= 8, "only {merges} merges were made at once");
}

#[test]
fn no_commit_of_a_merge_takes_more_than_its_dry_run() {
    let mut config = Config::default();
    config.max_steps = MaxSteps::None;
    for seed in 0..4 {
        let scheduler = RandomScheduler::new_from_seed(seed, 1);
        Runner::new(scheduler, config.clone()).run(move || merge_at_random(seed));
    }
}

/// Each of so many leaves has so many items as here.
const FULL_LEAVES: u64 = 60;
const LEAF_ITEMS: u64 = 300;
/// What an item of these leaves has; with its key they fill one.
const LEAF_VALUE_BYTES: u64 = 80;

/// Leaves that are small because pointers are shorter than they can be are put together with their
/// neighbours, which nothing else would have changed.
fn merge_into_every_other_leaf() {
    let mut dice = Dice(7);
    let pool = new_pool();
    let live = pool.open(&source("root")).expect("it is there");
    let mut batch = Batch::new();
    for object in 0..FULL_LEAVES * LEAF_ITEMS {
        batch.put(key(object, 0), Item::plain(dice.bytes(LEAF_VALUE_BYTES)));
    }
    pool.fork(&DatasetName::root(), &"f".parse().expect("a name"), 1).expect("it is made");
    let name = source("f");
    let read = pool.ephemeral_snapshot(&name.dataset, "merge").expect("the device works");
    // All at once, so that leaves are equally full.
    expected_and_taken(&pool, &pool, (&*live, &read), batch).expect("there is room");
    let mut batch = Batch::new();
    for first in (0..FULL_LEAVES).step_by(2).map(|leaf| leaf * LEAF_ITEMS) {
        (first..first + 250).for_each(|object| {
            batch.remove(key(object, 0));
        });
        for object in first + 250..first + 258 {
            let block = Block::fresh(dice.bytes(4096));
            batch.put(key(object, 1), Item::with_block("4096", block));
        }
    }
    let merged = expected_and_taken(&pool, &pool, (&*live, &read), batch);
    pool.discard_ephemeral(&read);
    let (expected, taken) = merged.expect("there is room");
    // Each of them was put together with its neighbour, which is one of two nodes now.
    let content = FULL_LEAVES / 2 * 8 * 4096;
    assert!(taken > content + FULL_LEAVES * 24_000, "{taken}");
    assert!(taken <= expected, "{taken} for {expected}");
}

#[test]
fn a_merge_whose_leaves_are_joined_takes_no_more_than_its_dry_run() {
    let mut config = Config::default();
    config.max_steps = MaxSteps::None;
    Runner::new(RandomScheduler::new_from_seed(1, 1), config).run(merge_into_every_other_leaf);
}
