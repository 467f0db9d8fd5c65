//! No number of an inode is given twice, whatever becomes of the clients and of the dataset.

use crate::stores::{StillClock, beside, instead_of_all, made, together_in};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::{Cluster, Database};
use marram_posix::{Posix, PosixOptions, turn_together};
use marram_store::{Source, Store};
use marram_vfs::{Caller, Error, FileSystem, Ino, Kind, Name, NewNode, XattrMode};
use std::collections::BTreeSet;
use std::sync::Arc;

const ROOT: Caller = Caller { uid: 0, gid: 0 };

fn source(name: &str) -> Source {
    name.parse().unwrap()
}

fn empty() -> Arc<dyn Database> {
    let database: Arc<dyn Database> = Arc::new(MemoryDatabase::default());
    made(&database);
    database
}

fn files(cluster: &Cluster) -> Posix {
    let view = cluster.open(&source("root")).unwrap();
    Posix::new(view, PosixOptions::default()).unwrap()
}

/// Files that are made one after the other.
fn make(files: &Posix, called: &str, count: usize) -> Vec<Ino> {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let one = |number| {
        let name = format!("{called} {number}");
        files.create(ROOT, Ino::ROOT, Name::new(name.as_bytes()).unwrap(), node).unwrap().ino
    };
    (0..count).map(one).collect()
}

/// What one client makes has other numbers than what another one makes behind it.
fn each_has_numbers_of_its_own(first: &Posix, second: &Posix) {
    let of_second = make(second, "second", 6);
    for ino in &of_second {
        second.set_xattr(*ino, b"user.of", b"second", XattrMode::Any).unwrap();
    }
    let of_first = make(first, "first", 6);
    let all: BTreeSet<u64> = of_first.iter().chain(&of_second).map(|ino| ino.0).collect();
    assert_eq!(all.len(), 12, "{of_first:?} {of_second:?}");
    for ino in of_second {
        assert_eq!(first.xattr(ino, b"user.of").unwrap(), b"second");
    }
}

#[test]
fn another_client_sets_the_dataset_back() {
    let database = empty();
    let databases = [Arc::clone(&database), database];
    let clusters = together_in(&databases, &StillClock::new());
    let (first, second) = (files(&clusters[0]), files(&clusters[1]));
    clusters[1].snapshot(&"root".parse().unwrap(), "a").unwrap();
    // The first has numbers that the snapshot knows nothing of.
    let lost = make(&first, "lost", 3);
    second.attributes(lost[2]).unwrap();
    let store: &dyn Store = &*clusters[1];
    let back = || store.rollback(&source("root@a"), "kept").map_err(|_| Error::Stale);
    turn_together(&[&second], back, || panic!("it is read")).unwrap();
    each_has_numbers_of_its_own(&first, &second);
}

#[test]
fn a_client_comes_back_that_had_not_published_its_numbers() {
    let (database, clock) = (empty(), StillClock::new());
    let clusters = together_in(&[Arc::clone(&database)], &clock);
    let first = files(&clusters[0]);
    first.sync_all().unwrap();
    // It is alone: its numbers are taken by a batch that waits.
    make(&first, "lost", 3);
    let second = Cluster::open(Arc::clone(&database), instead_of_all(2, &clock)).unwrap();
    let second = Arc::new(second);
    let files_of_second = files(&second);
    make(&files_of_second, "meanwhile", 3);
    assert!(first.sync_all().is_err() && clusters[0].has_lost());
    let options = beside(3, &clock, &[Arc::clone(&second)]);
    let opened = Cluster::open(Arc::clone(&database), options).unwrap();
    clusters[0].rescue(&opened).unwrap();
    clusters[0].go_on_as(&opened).unwrap();
    each_has_numbers_of_its_own(&first, &files_of_second);
}

#[test]
fn a_file_system_that_was_never_published_gives_way_to_another_ones() {
    let (database, clock) = (empty(), StillClock::new());
    let clusters = together_in(&[Arc::clone(&database)], &clock);
    let first = files(&clusters[0]);
    let second = Cluster::open(Arc::clone(&database), instead_of_all(2, &clock)).unwrap();
    let second = Arc::new(second);
    let names = files(&second);
    make(&names, "there", 1);
    assert!(first.sync_all().is_err() && clusters[0].has_lost());
    let options = beside(3, &clock, &[Arc::clone(&second)]);
    let opened = Cluster::open(Arc::clone(&database), options).unwrap();
    clusters[0].rescue(&opened).unwrap();
    clusters[0].go_on_as(&opened).unwrap();
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let taken = first.create(ROOT, Ino::ROOT, Name::new(b"there 0").unwrap(), node);
    assert!(matches!(taken, Err(Error::Damaged(_))), "no name is there twice: {taken:?}");
}
