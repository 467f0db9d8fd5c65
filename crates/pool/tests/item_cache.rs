//! Inodes, names and counters are answered from memory where they can be: whatever was changed,
//! committed, rolled back or lost in between, the answers are those of a plain map.

use crate::support::{new_pool, root, view};
use bytes::Bytes;
use marram_device::{Device, MemoryDevice};
use marram_pool::{OpenOptions, Pool};
use marram_store::{Batch, Counter, DatasetName, Item, Key, Lineage, Store, View, kind};
use std::collections::BTreeMap;
use std::sync::Arc;

type Expected = BTreeMap<Key, Bytes>;

/// How often values repeat a text of some 40 bytes: the longest are longer than what is kept.
const LENGTHS: [usize; 4] = [1, 1, 5, 14];

/// A sequence that looks random and is the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }
}

/// One of few inodes, names in few stretches, or counters.
fn some_key(dice: &mut Dice) -> Key {
    match dice.below(5) {
        0 | 1 => Key::new(2 + dice.below(20), kind::INODE, 0),
        2 | 3 => Key::new(2 + dice.below(4), kind::ENTRY, (dice.below(5) << 8) | dice.below(3)),
        _ => Key::new(0, kind::USAGE, dice.below(20)),
    }
}

/// A batch of a few edits, on the store and on the map.
fn change(dice: &mut Dice, view: &dyn View, expected: &mut Expected) {
    let mut batch = Batch::new();
    let mut changed: Vec<Key> = Vec::new();
    for _ in 0..=dice.below(4) {
        let key = some_key(dice);
        if changed.contains(&key) {
            continue;
        }
        changed.push(key);
        let is_counter = key.kind == kind::USAGE;
        match dice.below(4) {
            0 => {
                batch.remove(key);
                expected.remove(&key);
            }
            _ if is_counter => {
                let by = Counter([dice.below(9).cast_signed() - 4, 1]);
                batch.add(key, by, Counter::UNLIMITED);
                let before = expected
                    .get(&key)
                    .map_or(Counter::default(), |value| Counter::decode(value).unwrap());
                match before.add(key, by, Counter::UNLIMITED).unwrap().encode() {
                    Some(value) => expected.insert(key, value),
                    None => expected.remove(&key),
                };
            }
            _ => {
                let text = format!("{key:?} {}", dice.below(1000));
                // In its place, beside it, and not kept.
                let value = Bytes::from(text.repeat(LENGTHS[dice.below(4) as usize]));
                batch.put(key, Item::plain(value.clone()));
                expected.insert(key, value);
            }
        }
    }
    view.apply(batch).unwrap();
}

fn scanned(view: &dyn View, from: Key, to: Key) -> Vec<(Key, Bytes)> {
    let mut found = Vec::new();
    view.scan(from, to, &mut |key, item| {
        found.push((key, item.value.clone()));
        true
    })
    .unwrap();
    found
}

fn range(expected: &Expected, from: Key, to: Key) -> Vec<(Key, Bytes)> {
    expected.range(from..=to).map(|(key, value)| (*key, value.clone())).collect()
}

/// Looks one thing up.
fn ask(dice: &mut Dice, view: &dyn View, expected: &Expected) {
    let key = some_key(dice);
    match dice.below(8) {
        0..4 => {
            let found = view.get(key).unwrap().map(|item| item.value);
            assert_eq!(found.as_ref(), expected.get(&key), "{key:?}");
        }
        4..6 => {
            let from = Key { offset: key.offset & !255, ..key };
            let to = Key { offset: key.offset | 255, ..key };
            assert_eq!(scanned(view, from, to), range(expected, from, to), "{key:?}");
        }
        6 => {
            let to = Key { offset: u64::MAX, ..key };
            let last = view.last(key, to).unwrap().map(|(key, item)| (key, item.value));
            assert_eq!(last, range(expected, key, to).pop(), "{key:?}");
        }
        _ => {
            let all = range(expected, key, Key::MAX);
            assert_eq!(scanned(view, key, Key::MAX), all, "{key:?}");
        }
    }
}

/// The pool as a power cut leaves it, when everything that was written has arrived.
fn after_a_crash(memory: &MemoryDevice, cache_bytes: usize) -> (Arc<MemoryDevice>, Arc<Pool>) {
    let memory = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
    let device: Arc<dyn Device> = memory.clone();
    let options = OpenOptions { cache_bytes, ..OpenOptions::new(|| 0) };
    (memory, Pool::open(vec![device], options).unwrap())
}

fn history(seed: u64, cache_bytes: usize) {
    let (memory, _) = new_pool(64, &[]);
    let (mut memory, mut pool) = after_a_crash(&memory, cache_bytes);
    let mut live = root(&pool);
    let mut dice = Dice(seed);
    let mut expected = all_of(&*live);
    let mut kept: Option<(String, Expected)> = None;
    for round in 0..1000 {
        match (dice.below(120), &kept) {
            (0, _) => live.commit().unwrap(),
            (1, _) => live.sync().unwrap(),
            (2, _) => {
                let tag = format!("at-{round}");
                pool.snapshot(&DatasetName::root(), &tag).unwrap();
                kept = Some((format!("root@{tag}"), expected.clone()));
            }
            (3, Some((name, state))) => {
                pool.rollback(&name.parse().unwrap(), &format!("before-{round}")).unwrap();
                expected.clone_from(state);
            }
            (4, _) => {
                live.sync().unwrap();
                (memory, pool) = after_a_crash(&memory, cache_bytes);
                live = root(&pool);
                assert_eq!(all_of(&*live), expected, "what was synced");
            }
            (5, Some((name, state))) => {
                let snapshot = view(&pool, name);
                (0..20).for_each(|_| ask(&mut dice, &*snapshot, state));
            }
            (6..50, _) => change(&mut dice, &*live, &mut expected),
            _ => ask(&mut dice, &*live, &expected),
        }
    }
    assert_eq!(all_of(&*live), expected);
}

fn all_of(view: &dyn View) -> Expected {
    scanned(view, Key::MIN, Key::MAX).into_iter().collect()
}

#[test]
fn answers_are_those_of_a_map() {
    for seed in 0..3 {
        history(seed, 64 << 20);
    }
}

#[test]
fn also_where_there_is_room_for_little_or_nothing() {
    for seed in 10..12 {
        history(seed, 64 << 10);
        history(seed, 0);
    }
}
