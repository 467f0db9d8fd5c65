//! What holds the space: which datasets and snapshots see each byte, of one moment.

use crate::interrupted::{At, Interrupted};
use crate::mongo_server::Shared;
use crate::server::Server;
use crate::stores::{StillClock, made, together_in};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database, SpaceHeld};
use marram_store::{Author, Batch, Block, DatasetName, Item, Key, Source, Store, Undo};
use std::sync::Arc;

fn source(text: &str) -> Source {
    text.parse().unwrap()
}

/// Puts items of one byte, each with a block of `len` bytes that are all `value`.
fn put(store: &Cluster, dataset: &str, objects: &[u64], (value, len): (u8, usize)) {
    let view = store.open(&source(dataset)).unwrap();
    let seen = view.capabilities().together.map(|together| together.look().unwrap());
    let mut batch = Batch { seen, ..Batch::new() };
    for object in objects {
        let block = Block::fresh(vec![value; len]);
        batch.put(Key::new(*object, 5, 0), Item::with_block(vec![value], block));
    }
    view.apply(batch).unwrap();
}

/// A store with a snapshot, a fork and something destroyed.
fn filled(store: &Cluster) {
    let root = DatasetName::root();
    put(store, "root", &[2], (1, 1000));
    put(store, "root", &[3], (2, 500));
    store.snapshot(&root, "s").unwrap();
    put(store, "root", &[2], (3, 100));
    store.fork(&root, &"f".parse().unwrap(), 1).unwrap();
    put(store, "f", &[4], (4, 50));
    // What the snapshot has, and nobody else.
    put(store, "f", &[5], (1, 1000));
    store.create(&"data".parse().unwrap(), &Default::default()).unwrap();
    put(store, "data", &[2], (9, 700));
    store.hide_together(&[source("data")]).unwrap();
    store.sync().unwrap();
}

/// What each holds: referenced, added and unique bytes.
fn held(space: &SpaceHeld) -> Vec<(String, [u64; 3])> {
    let row = |holder: &marram_store::Holder| {
        let bytes = [holder.report.referenced_bytes, holder.added_bytes, holder.unique_bytes];
        (holder.report.source.to_string(), bytes)
    };
    space.usage.holders.iter().map(row).collect()
}

fn is_right(space: &SpaceHeld) {
    let wanted = [
        ("f", [101 + 501 + 51 + 1001, 51 + 1001, 51 + 1]),
        ("root", [101 + 501, 0, 0]),
        // A fork began as it.
        ("root@fork:f", [101 + 501, 101, 0]),
        ("root@s", [1001 + 501, 1001 + 501, 1]),
        ("undo:4", [701, 701, 701]),
    ];
    let wanted = wanted.map(|(name, bytes)| (name.to_owned(), bytes));
    assert_eq!(held(space), wanted);
    let usage = &space.usage;
    assert_eq!((usage.shared_bytes, usage.leaving_bytes, usage.own_bytes), (1000, 0, 0));
    let all = 1001 + 501 + 101 + 51 + 1001 + 701 - 1000;
    assert_eq!(usage.allocated_bytes, all);
    let classes = [space.live_bytes, space.snapshot_bytes, space.undo_bytes];
    assert_eq!(classes, [501 + 101 + 51 + 1001, 1, 701]);
}

fn acting(store: &Cluster) -> Cluster {
    store.acting_for(Author { user: Some(7), command: "marram x".to_owned() })
}

fn names(store: &Cluster) -> Vec<String> {
    store.list().unwrap().iter().map(|report| report.source.to_string()).collect()
}

fn each_byte_is_of_those_that_see_it(databases: &[Arc<dyn Database>]) {
    made(&databases[0]);
    let clients = together_in(databases, &StillClock::new());
    let store = acting(&clients[0]);
    filled(&store);
    let before = names(&store);
    for client in &clients {
        is_right(&client.space_held().unwrap());
        assert_eq!(names(&store), before, "nothing of it is left");
    }
    assert!(clients[0].space_held().unwrap().database_bytes > 0);
    let undone = store.capabilities().undo.unwrap().operations().unwrap();
    assert_eq!(undone.len(), 4, "no user has done it");
    // What goes for good is leaving until it is pruned.
    store.destroy_together(&[source("root@s")], false).unwrap();
    let left = clients[0].space_held().unwrap();
    assert_eq!((left.usage.leaving_bytes, left.usage.shared_bytes), (1001, 1000));
    clients[1].close().unwrap();
    clients[0].listen(&mut || ()).unwrap();
    while clients[0].prune_step().unwrap().more {}
    let left = clients[0].space_held().unwrap();
    assert_eq!((left.usage.leaving_bytes, left.usage.shared_bytes), (0, 0));
    assert_eq!(verify(&*databases[0]).unwrap().findings, [""; 0]);
}

#[test]
fn each_byte_is_of_those_that_see_it_in_memory() {
    let memory: Arc<dyn Database> = Arc::new(MemoryDatabase::default());
    each_byte_is_of_those_that_see_it(&[Arc::clone(&memory), memory]);
}

#[test]
fn each_byte_is_of_those_that_see_it_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store");
    let first: Arc<dyn Database> = Arc::new(SqliteDatabase::create(&file).unwrap());
    each_byte_is_of_those_that_see_it(&[first, Arc::new(SqliteDatabase::open(&file).unwrap())]);
}

#[test]
fn each_byte_is_of_those_that_see_it_in_postgresql() {
    let Some(server) = Server::start() else { return };
    each_byte_is_of_those_that_see_it(&server.store(2));
}

#[test]
fn each_byte_is_of_those_that_see_it_in_mongodb() {
    let Some(server) = Shared::find() else { return };
    each_byte_is_of_those_that_see_it(&server.store(2));
}

/// What is changed while it is read counts as it was, whenever that is.
#[test]
fn it_is_of_one_moment_whatever_others_do() {
    let mut between = 0;
    for call in 0..40 {
        let memory = MemoryDatabase::default();
        let handle = Interrupted::new(Arc::new(memory.clone()));
        let databases: [Arc<dyn Database>; 2] = [Arc::new(handle.clone()), Arc::new(memory)];
        made(&databases[0]);
        let clients = together_in(&databases, &StillClock::new());
        filled(&acting(&clients[0]));
        let other = Arc::clone(&clients[1]);
        let event = move || {
            put(&other, "root", &[2, 3, 7, 8], (7, 333));
            put(&other, "f", &[3, 4, 5], (8, 444));
            other.snapshot(&DatasetName::root(), "later").unwrap();
            put(&other, "root", &[2], (6, 222));
        };
        handle.at(At::Call(call), Box::new(event));
        let space = clients[0].space_held().unwrap();
        let is_before = held(&space).iter().any(|(name, _)| name == "root@later");
        if handle.take().is_none() && !is_before {
            is_right(&space);
            between += 1;
        }
    }
    assert!(between > 8, "{between}");
}

/// More items than one question asks for, and one that has more pasts than that.
#[test]
fn pages_end_between_keys() {
    let memory: Arc<dyn Database> = Arc::new(MemoryDatabase::default());
    made(&memory);
    let clients = together_in(&[memory], &StillClock::new());
    let store = &clients[0];
    let objects: Vec<u64> = (10..2600).collect();
    put(store, "root", &objects, (1, 10));
    for round in 0..1100_u32 {
        store.snapshot(&DatasetName::root(), &format!("s{round}")).unwrap();
        let value = u8::try_from(round % 100).unwrap() + 2;
        put(store, "root", &[20], (value, 20 + usize::try_from(round).unwrap()));
    }
    let space = store.space_held().unwrap();
    let of_rounds = |rounds: std::ops::Range<u64>| rounds.map(|it| it + 21).sum::<u64>();
    let first = 2590 * 11;
    assert_eq!(space.usage.allocated_bytes, first + of_rounds(0..1100) - space_shared(&space));
    assert_eq!(space.snapshot_bytes, 1 + of_rounds(0..1099));
    let unique = |name: &str| {
        let is_it = |holder: &&marram_store::Holder| holder.report.source == source(name);
        space.usage.holders.iter().find(is_it).unwrap().unique_bytes
    };
    assert_eq!((unique("root@s0"), unique("root@s500")), (1, 499 + 21));
}

/// All items of the beginning have one block.
fn space_shared(space: &SpaceHeld) -> u64 {
    assert_eq!(space.usage.shared_bytes, 2589 * 10);
    space.usage.shared_bytes
}
