//! Items are kept in memory for as long as they are true, and cost no round trip then.

use crate::stores::{StillClock, made, together_in};
use crate::tree::Names;
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::{Cluster, Database};
use marram_posix::{Posix, PosixOptions};
use marram_store::{Batch, Item, ItemChange, Key, Source, Store, View};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ROOT: Caller = Caller { uid: 0, gid: 0 };
/// Objects, kinds and offsets that the random steps are about.
const OBJECTS: u64 = 3;
const KINDS: u64 = 3;
const OFFSETS: u64 = 40;

fn source(name: &str) -> Source {
    name.parse().unwrap()
}

/// An empty store far away, open as so many clients, and each client's handle of the database.
fn open(clients: usize) -> (Vec<MemoryDatabase>, Vec<Arc<Cluster>>) {
    let memory = MemoryDatabase::default().far_away();
    let handles = vec![memory; clients];
    let databases: Vec<Arc<dyn Database>> =
        handles.iter().map(|it| Arc::new(it.clone()) as Arc<dyn Database>).collect();
    made(&databases[0]);
    (handles, together_in(&databases, &StillClock::new()))
}

fn name(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).unwrap()
}

fn make(files: &Posix, path: &str) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    files.create(ROOT, Ino::ROOT, name(path), node).unwrap().ino
}

#[test]
fn files_of_a_client_that_is_alone_cost_nothing_but_their_publication() {
    let (memory, clusters) = open(1);
    let view = clusters[0].open(&source("root")).unwrap();
    let files = Posix::new(Arc::clone(&view), PosixOptions::default()).unwrap();
    let trips = || memory[0].round_trips();
    let work = |path: &str| {
        let before = trips();
        let ino = make(&files, path);
        files.write(ino, 0, b"content", WriteOptions::default()).unwrap();
        files.attributes(ino).unwrap();
        assert!(files.xattr(ino, b"security.capability").is_err());
        trips() - before
    };
    // Counts of files and bytes, and what is above them, are asked for once.
    let first = work("first");
    assert!(first <= 8, "{first}");
    let others: Vec<u64> = (0..100).map(|number| work(&format!("file {number}"))).collect();
    let count: u64 = others.iter().sum();
    assert_eq!(count, 0, "all of it is written behind: {others:?}");
    view.sync().unwrap();
    let before = trips();
    for number in 0..100 {
        let found = files.lookup(Ino::ROOT, name(&format!("file {number}"))).unwrap();
        assert_eq!(found.size, 7);
    }
    assert!(files.lookup(Ino::ROOT, name("none")).is_err());
    assert_eq!(trips() - before, 0, "what was published is known");
}

#[test]
fn an_object_far_away_comes_with_its_first_item() {
    let (memory, clusters) = open(1);
    let view = clusters[0].open(&source("root")).unwrap();
    let mut batch = Batch::new();
    for offset in 0..20 {
        batch.put(Key::new(9, 2, offset), Item::plain(vec![7]));
    }
    view.apply(batch).unwrap();
    clusters[0].snapshot(&"root".parse().unwrap(), "a").unwrap();
    let snapshot = clusters[0].open(&source("root@a")).unwrap();
    let before = memory[0].round_trips();
    assert!(snapshot.get(Key::new(9, 2, 5)).unwrap().is_some());
    assert_eq!(memory[0].round_trips() - before, 1);
    let mut found = 0;
    snapshot
        .scan(Key::new(9, 0, 0), Key::new(9, 9, u64::MAX), &mut |_, _| {
            found += 1;
            true
        })
        .unwrap();
    assert!(snapshot.get(Key::new(9, 3, 0)).unwrap().is_none());
    let last = snapshot.last(Key::new(9, 0, 0), Key::new(9, 2, 7)).unwrap().unwrap();
    assert_eq!((found, last.0.offset), (20, 7));
    assert_eq!(memory[0].round_trips() - before, 1, "all of it is known");
}

#[test]
fn a_directory_far_away_comes_with_its_inodes() {
    let (memory, clusters) = open(2);
    let files = |client: usize| {
        let view = clusters[client].open(&source("root")).unwrap();
        (Arc::clone(&view), Posix::new(view, PosixOptions::default()).unwrap())
    };
    let (_, here) = files(0);
    for number in 0..50 {
        make(&here, &format!("file {number}"));
    }
    let (view, there) = files(1);
    let before = memory[1].round_trips();
    for number in 0..50 {
        let found = there.lookup(Ino::ROOT, name(&format!("file {number}"))).unwrap();
        assert!(there.list_xattrs(found.ino).unwrap().is_empty());
    }
    let looks = {
        let before = memory[1].round_trips();
        view.capabilities().together.unwrap().look().unwrap();
        memory[1].round_trips() - before
    };
    let trips = memory[1].round_trips() - before;
    let most = 2 * 101 * looks + 4;
    assert!(trips <= most, "{trips} for 50 names, {looks} to look whether others have come");
}

#[test]
fn what_has_changed_comes_with_the_inodes_that_it_is_in() {
    let (memory, clusters) = open(1);
    let view = clusters[0].open(&source("root")).unwrap();
    let files = Posix::new(Arc::clone(&view), PosixOptions::default()).unwrap();
    let inos: Vec<Ino> = (0..500).map(|number| make(&files, &format!("file {number}"))).collect();
    clusters[0].snapshot(&"root".parse().unwrap(), "a").unwrap();
    for ino in inos.iter().step_by(5) {
        files.write(*ino, 0, &[7; 5000], WriteOptions::default()).unwrap();
    }
    files.sync_all().unwrap();
    clusters[0].snapshot(&"root".parse().unwrap(), "b").unwrap();
    let states = [source("root@a"), source("root@b")];
    let before = memory[0].round_trips();
    let mut changed = BTreeSet::new();
    let mut visit = |change: ItemChange| {
        changed.insert(change.key.object);
        true
    };
    clusters[0].changes(&states[0], &states[1], Key::MIN, &mut visit).unwrap();
    let inos: Vec<u64> = inos.iter().step_by(5).map(|ino| ino.0).collect();
    assert!(inos.iter().all(|ino| changed.contains(ino)), "they have changed");
    for state in &states {
        let state = clusters[0].open(state).unwrap();
        for ino in &inos {
            assert!(state.get(Key::new(*ino, 1, 0)).unwrap().is_some());
        }
    }
    let trips = memory[0].round_trips() - before;
    assert!(trips <= 20, "{trips} for {} files", inos.len());
}

/// What two clients see, which change the same objects by turns, and what is there.
struct Both {
    views: Vec<Arc<dyn View>>,
    expected: BTreeMap<Key, u8>,
    names: Names,
}

impl Both {
    fn key(&mut self) -> Key {
        let object = 5 + self.names.below(OBJECTS);
        let kind = u8::try_from(1 + self.names.below(KINDS)).unwrap();
        Key::new(object, kind, self.names.below(OFFSETS))
    }

    fn change(&mut self, by: usize) {
        let view = Arc::clone(&self.views[by]);
        let mut batch = Batch::new();
        let keys: BTreeSet<Key> = (0..5).map(|_| self.key()).collect();
        for key in keys {
            if self.names.below(3) == 0 {
                batch.remove(key);
                self.expected.remove(&key);
            } else {
                let value = u8::try_from(self.names.below(250)).unwrap();
                batch.put(key, Item::plain(vec![value]));
                self.expected.insert(key, value);
            }
        }
        batch.seen = Some(view.capabilities().together.unwrap().look().unwrap());
        view.apply(batch).unwrap();
    }

    /// Reads one key, a part of an object, or several objects, as this client sees them.
    fn look(&mut self, by: usize) {
        let view = Arc::clone(&self.views[by]);
        view.capabilities().together.unwrap().look().unwrap();
        let (mut from, mut to) = (self.key(), self.key());
        (from, to) = (from.min(to), from.max(to));
        if self.names.below(3) > 0 {
            to.object = from.object;
            (from, to) = (from.min(to), from.max(to));
        }
        let expected: Vec<(Key, u8)> =
            self.expected.range(from..=to).map(|(key, value)| (*key, *value)).collect();
        match self.names.below(3) {
            0 => {
                let found = view.get(from).unwrap().map(|item| item.value[0]);
                assert_eq!(found, self.expected.get(&from).copied(), "{from:?}");
            }
            1 => {
                let mut found = Vec::new();
                let mut visit = |key, item: &Item| {
                    found.push((key, item.value[0]));
                    true
                };
                view.scan(from, to, &mut visit).unwrap();
                assert_eq!(found, expected, "{from:?} to {to:?}");
            }
            _ => {
                let found = view.last(from, to).unwrap().map(|(key, it)| (key, it.value[0]));
                assert_eq!(found, expected.last().copied(), "{from:?} to {to:?}");
            }
        }
    }
}

#[test]
fn what_is_known_is_true_whatever_another_client_changes() {
    for seed in 0..20 {
        let (_, clusters) = open(2);
        let open = |cluster: &Arc<Cluster>| cluster.open(&source("root")).unwrap();
        let views = clusters.iter().map(open).collect();
        let mut both = Both { views, expected: BTreeMap::new(), names: Names::new(seed) };
        let (root, mut forks) = ("root".parse().unwrap(), 0);
        for _ in 0..300 {
            let by = usize::try_from(both.names.below(2)).unwrap();
            match both.names.below(12) {
                0..3 => both.change(by),
                3 if forks < 4 => {
                    // The dataset goes on from a snapshot, on another line.
                    forks += 1;
                    let name = format!("s{forks}");
                    clusters[by].snapshot(&root, &name).unwrap();
                    let kept = both.expected.clone();
                    both.change(1 - by);
                    let (to, store) = (source(&format!("root@{name}")), &*clusters[by]);
                    (store as &dyn Store).rollback(&to, &format!("kept{forks}")).unwrap();
                    both.expected = kept;
                }
                _ => both.look(by),
            }
        }
    }
}
