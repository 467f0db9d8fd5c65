//! The tree against an ordered map: random bulk changes, and what each update drops.

use super::{Change, Differing, NodeSink, NodeSource, PruneSink, Pruned};
use super::{changes, get, last, prune, scan, update};
use bytes::Bytes;
use marram_format::key::Key;
use marram_format::node::Node;
use marram_store::Result;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Nodes in memory; a pointer is a number.
#[derive(Default)]
struct Memory {
    nodes: BTreeMap<u64, Arc<Node>>,
    next: u64,
    dropped_blocks: Vec<Bytes>,
    pruned_blocks: usize,
    /// Nodes stay, as they do where a snapshot has them.
    keeps_old: bool,
    reads: Cell<usize>,
}

fn number(pointer: &Bytes) -> u64 {
    u64::from_le_bytes(pointer[..8].try_into().unwrap())
}

impl NodeSource for Memory {
    fn node(&self, pointer: &Bytes) -> Result<Arc<Node>> {
        self.reads.set(self.reads.get() + 1);
        Ok(self.nodes[&number(pointer)].clone())
    }
}

impl NodeSink for Memory {
    fn write_node(&mut self, node: Bytes) -> Result<Bytes> {
        self.next += 1;
        self.nodes.insert(self.next, Arc::new(Node::decode(node).unwrap()));
        let mut pointer = vec![7; 60];
        pointer[..8].copy_from_slice(&self.next.to_le_bytes());
        Ok(Bytes::from(pointer))
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn drop_node(&mut self, pointer: &Bytes) -> Result<()> {
        if !self.keeps_old {
            assert!(self.nodes.remove(&number(pointer)).is_some(), "a node is dropped once");
        }
        Ok(())
    }

    fn drop_block(&mut self, pointer: Bytes) {
        self.dropped_blocks.push(pointer);
    }
}

impl PruneSink for Memory {
    fn is_older(&self, _pointer: &Bytes) -> Result<bool> {
        Ok(false)
    }

    fn node_goes(&mut self, pointer: &Bytes) -> Result<()> {
        self.drop_node(pointer)
    }

    fn block_goes(&mut self, _key: Key, _pointer: &Bytes) -> Result<()> {
        self.pruned_blocks += 1;
        Ok(())
    }
}

/// A small generator, so that a failure replays.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

fn random_key(random: &mut Random) -> Key {
    Key::new(random.below(50), u8::try_from(random.below(4)).unwrap(), random.below(200))
}

fn all(memory: &Memory, root: Option<&Bytes>, from: Key, to: Key) -> Vec<(Key, Bytes)> {
    let mut found = Vec::new();
    scan(memory, root, from, to, &mut |item| {
        found.push((item.key, item.value));
        true
    })
    .unwrap();
    found
}

fn random_changes(random: &mut Random, most: u64, grow: bool) -> BTreeMap<Key, Change> {
    let count = random.below(most) + 1;
    (0..count)
        .map(|_| {
            let key = random_key(random);
            let remove = random.below(10) < if grow { 2 } else { 8 };
            let len = usize::try_from(random.below(700)).unwrap();
            let value = Bytes::from(vec![u8::try_from(random.below(256)).unwrap(); len]);
            let pointer = (random.below(2) == 0).then(|| Bytes::from(vec![1; 50]));
            (key, Change { key, item: (!remove).then_some((value, pointer)) })
        })
        .collect()
}

#[test]
fn bulk_updates_keep_up_with_an_ordered_map() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let mut memory = Memory::default();
        let mut expected: BTreeMap<Key, (Bytes, Option<Bytes>)> = BTreeMap::new();
        let mut root = None;
        for round in 0..60 {
            let most = [3, 200, 3000][usize::try_from(random.below(3)).unwrap()];
            let changes = random_changes(&mut random, most, round % 20 < 12);
            let mut dropped = 0;
            for (key, change) in &changes {
                let old = match &change.item {
                    Some(item) => expected.insert(*key, item.clone()),
                    None => expected.remove(key),
                };
                dropped += usize::from(old.is_some_and(|(_, pointer)| pointer.is_some()));
            }
            let changes: Vec<Change> = changes.into_values().collect();
            root = update(&mut memory, 9, root.as_ref(), &changes).unwrap();
            assert_eq!(std::mem::take(&mut memory.dropped_blocks).len(), dropped);
            compare(&memory, root.as_ref(), &expected, &mut random);
        }
        assert_eq!(reachable(&memory, root.as_ref()), memory.nodes.len(), "nothing leaks");
    }
}

fn compare(
    memory: &Memory,
    root: Option<&Bytes>,
    expected: &BTreeMap<Key, (Bytes, Option<Bytes>)>,
    random: &mut Random,
) {
    let items: Vec<_> = expected.iter().map(|(key, (value, _))| (*key, value.clone())).collect();
    assert_eq!(all(memory, root, Key::MIN, Key::MAX), items);
    for _ in 0..20 {
        let (a, b) = (random_key(random), random_key(random));
        let (from, to) = (a.min(b), a.max(b));
        let found = get(memory, root, a).unwrap().map(|found| (found.value, found.pointer));
        assert_eq!(found.as_ref(), expected.get(&a));
        let between: Vec<_> =
            expected.range(from..=to).map(|(key, (value, _))| (*key, value.clone())).collect();
        assert_eq!(all(memory, root, from, to), between);
        let greatest = last(memory, root, from, to).unwrap().map(|found| found.key);
        assert_eq!(greatest, between.last().map(|(key, _)| *key));
    }
}

fn reachable(memory: &Memory, root: Option<&Bytes>) -> usize {
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<Bytes> = root.cloned().into_iter().collect();
    while let Some(pointer) = waiting.pop() {
        seen.insert(number(&pointer));
        if let Node::Branch(branch) = &*memory.node(&pointer).unwrap() {
            waiting.extend((0..branch.len()).map(|index| branch.pointer(index)));
        }
    }
    seen.len()
}

#[test]
fn pruning_in_steps_gives_back_every_node_and_block_once() {
    let mut random = Random(77);
    let mut memory = Memory::default();
    let changes: Vec<Change> =
        random_changes(&mut random, 1, true).into_values().chain([]).collect();
    let mut root = update(&mut memory, 1, None, &changes).unwrap();
    let changes: BTreeMap<Key, Change> = (0..20_000)
        .map(|index| {
            let key = Key::new(100 + index / 7, 5, index);
            let item = (Bytes::from(vec![1; 100]), Some(Bytes::from(vec![2; 60])));
            (key, Change { key, item: Some(item) })
        })
        .collect();
    let changes: Vec<Change> = changes.into_values().collect();
    root = update(&mut memory, 1, root.as_ref(), &changes).unwrap();
    let root = root.unwrap();
    let mut from = Key::MIN;
    let mut steps = 0;
    while let Pruned::Before(key) = prune(&mut memory, &root, from, &mut 10).unwrap() {
        assert!(key > from);
        from = key;
        steps += 1;
    }
    assert!(steps > 5);
    assert!(memory.nodes.is_empty());
    assert!(memory.pruned_blocks >= 20_000);
}

type Items = BTreeMap<Key, (Bytes, Option<Bytes>)>;

/// What two ordered maps differ in from a key on.
fn expected_changes(before: &Items, after: &Items, from: Key) -> Vec<(Key, bool, bool)> {
    let keys: BTreeSet<Key> = before.keys().chain(after.keys()).copied().collect();
    keys.range(from..)
        .filter(|key| before.get(key) != after.get(key))
        .map(|key| (*key, before.contains_key(key), after.contains_key(key)))
        .collect()
}

fn found_changes(
    memory: &Memory,
    trees: (Option<&Bytes>, Option<&Bytes>),
    from: Key,
) -> Vec<(Key, bool, bool)> {
    let mut found = Vec::new();
    changes(memory, trees, from, &mut |Differing { before, after }| {
        let key = before.as_ref().or(after.as_ref()).map(|item| item.key).unwrap();
        found.push((key, before.is_some(), after.is_some()));
        true
    })
    .unwrap();
    found
}

#[test]
fn changes_are_those_of_ordered_maps_whatever_shape_the_trees_have() {
    for seed in 0..6 {
        let mut random = Random(seed + 100);
        let mut memory = Memory { keeps_old: true, ..Memory::default() };
        let mut states: Vec<(Option<Bytes>, Items)> = vec![(None, Items::new())];
        for round in 0..25 {
            let (root, mut items) = states.last().unwrap().clone();
            let most = [3, 40, 2500][usize::try_from(random.below(3)).unwrap()];
            let list = random_changes(&mut random, most, round % 12 < 8);
            for (key, change) in &list {
                match &change.item {
                    Some(item) => items.insert(*key, item.clone()),
                    None => items.remove(key),
                };
            }
            let list: Vec<Change> = list.into_values().collect();
            states.push((update(&mut memory, 9, root.as_ref(), &list).unwrap(), items));
            for _ in 0..4 {
                let pick = |random: &mut Random| {
                    usize::try_from(random.below(states.len() as u64)).unwrap()
                };
                let (before, after) = (pick(&mut random), pick(&mut random));
                let from = if random.below(2) == 0 { Key::MIN } else { random_key(&mut random) };
                let ((old, had), (new, has)) = (&states[before], &states[after]);
                assert_eq!(
                    found_changes(&memory, (old.as_ref(), new.as_ref()), from),
                    expected_changes(had, has, from),
                    "seed {seed} states {before} and {after} from {from:?}"
                );
            }
        }
    }
}

#[test]
fn changes_cost_what_differs_and_not_what_is_there() {
    let item = |fill: u8| Some((Bytes::from(vec![fill; 60]), Some(Bytes::from(vec![2; 60]))));
    let mut memory = Memory { keeps_old: true, ..Memory::default() };
    let key = |index: u64| Key::new(index / 10, 5, index);
    let all: Vec<Change> =
        (0..100_000).map(|index| Change { key: key(index), item: item(1) }).collect();
    let before = update(&mut memory, 1, None, &all).unwrap();
    let nodes = memory.nodes.len();
    let mut reads_of = |list: &[Change]| {
        let after = update(&mut memory, 1, before.as_ref(), list).unwrap();
        memory.reads.set(0);
        let found = found_changes(&memory, (before.as_ref(), after.as_ref()), Key::MIN);
        assert_eq!(found.len(), list.len());
        memory.reads.get()
    };
    let one = reads_of(&[Change { key: key(50_000), item: item(2) }]);
    assert!(one <= 8, "{one} of {nodes} nodes were read for one change");
    // A hundred new items split leaves in one place; boundaries move, but only there.
    let list: Vec<Change> =
        (0..300).map(|index| Change { key: Key::new(7_000, 2, index), item: item(3) }).collect();
    let many = reads_of(&list);
    assert!(many <= 20, "{many} of {nodes} nodes were read for 300 changes side by side");
    let none = {
        memory.reads.set(0);
        assert!(found_changes(&memory, (before.as_ref(), before.as_ref()), Key::MIN).is_empty());
        memory.reads.get()
    };
    assert_eq!(none, 0, "the same tree is not even opened");
}
