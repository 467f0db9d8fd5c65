//! Snapshots that clients take by themselves: each is taken by one of them, and none by a client
//! that was taken for lost.

use crate::interrupted::{At, Interrupted};
use crate::mongo_server::Shared;
use crate::server::Server;
use crate::stores::{StillClock, made, options, together_in};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database, Lost};
use marram_store::{
    Batch, DatasetName, Error, Item, Key, Result, Scheduled, SnapshotRule, Source, Store, kind,
};
use std::sync::Arc;

fn root() -> DatasetName {
    DatasetName::root()
}

/// Puts an entry of a directory.
fn put(store: &Cluster, number: u64) {
    let view = store.open(&Source::live(root())).unwrap();
    let seen = view.capabilities().together.map(|together| together.look().unwrap());
    let mut batch = Batch { seen, ..Batch::new() };
    batch.put(Key::new(1, kind::ENTRY, number), Item::plain(vec![1]));
    view.apply(batch).unwrap();
}

fn judged(store: &Cluster) -> Vec<Scheduled> {
    store.scheduled().unwrap()
}

fn take(store: &Cluster, due: &[Scheduled], minute: u32) -> Result<usize> {
    store.take_due(due, &format!("auto:2026-11-28T10:{minute:02}:00Z")).map(|taken| taken.len())
}

fn automatic(store: &Cluster) -> usize {
    store.list().unwrap().iter().filter(|report| report.source.is_automatic()).count()
}

/// Of two clients that have judged the same, one takes what is due, whichever is first.
fn one_of_two_takes_each(databases: &[Arc<dyn Database>]) {
    made(&databases[0]);
    let clients = together_in(databases, &StillClock::new());
    let [first, second] = [&clients[0], &clients[1]];
    assert_eq!(judged(first), []);
    first.set_property(&root(), "snapshots", Some("1m:5")).unwrap();
    let due = [judged(first), judged(second)];
    assert_eq!(due[0], due[1]);
    assert_eq!(due[0][0].rule, "1m:5".parse::<SnapshotRule>().unwrap());
    assert!(!second.has_changed_since(&due[1][0]).unwrap(), "there is nothing in it");
    put(second, 1);
    assert!(first.has_changed_since(&due[0][0]).unwrap());
    assert_eq!(take(first, &due[0], 1), Ok(1));
    assert_eq!(take(second, &due[1], 2), Ok(0), "another one has taken it");
    let next = judged(second);
    assert_eq!(
        (next[0].automatic.len(), &next[0].newest),
        (1, &next[0].automatic.first().cloned())
    );
    assert!(!second.has_changed_since(&next[0]).unwrap());
    put(first, 2);
    assert!(second.has_changed_since(&next[0]).unwrap());
    assert_eq!(take(second, &next, 3), Ok(1));
    assert_eq!(automatic(first), 2);
    // No user has asked for it.
    let operations = first.capabilities().undo.unwrap().operations().unwrap();
    assert!(operations.is_empty(), "{operations:?}");
    let rule = first.set_property(&root(), "snapshots", Some("hourly")).unwrap_err().to_string();
    assert!(rule.contains("15m:8,1h:24,1d:7"), "{rule}");
    assert_eq!(verify(&*databases[0]).unwrap().findings, [""; 0]);
}

#[test]
fn one_of_two_takes_each_in_memory() {
    let memory: Arc<dyn Database> = Arc::new(MemoryDatabase::default());
    one_of_two_takes_each(&[Arc::clone(&memory), memory]);
}

#[test]
fn one_of_two_takes_each_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store");
    let first: Arc<dyn Database> = Arc::new(SqliteDatabase::create(&file).unwrap());
    one_of_two_takes_each(&[first, Arc::new(SqliteDatabase::open(&file).unwrap())]);
}

#[test]
fn one_of_two_takes_each_in_postgresql() {
    let Some(server) = Server::start() else { return };
    one_of_two_takes_each(&server.store(2));
}

#[test]
fn one_of_two_takes_each_in_mongodb() {
    let Some(server) = Shared::find() else { return };
    one_of_two_takes_each(&server.store(2));
}

#[test]
fn whenever_another_comes_between_one_is_taken() {
    let mut between = 0;
    for call in 0..20 {
        let memory = MemoryDatabase::default();
        let handle = Interrupted::new(Arc::new(memory.clone()));
        let databases: [Arc<dyn Database>; 2] = [Arc::new(handle.clone()), Arc::new(memory)];
        made(&databases[0]);
        let clients = together_in(&databases, &StillClock::new());
        clients[0].set_property(&root(), "snapshots", Some("1m:5")).unwrap();
        put(&clients[0], 1);
        let other = Arc::clone(&clients[1]);
        let (due, of_other) = (judged(&clients[0]), judged(&other));
        let event = move || assert!(take(&other, &of_other, 2).is_ok());
        handle.at(At::Call(call), Box::new(event));
        take(&clients[0], &due, 1).unwrap();
        between += usize::from(handle.take().is_none());
        assert_eq!(automatic(&clients[0]), 1, "call {call}");
    }
    assert!(between > 1, "{between}");
}

#[test]
fn a_client_that_was_taken_for_lost_takes_none() {
    let memory: Arc<dyn Database> = Arc::new(MemoryDatabase::default());
    made(&memory);
    let clients = together_in(&[Arc::clone(&memory), memory], &StillClock::new());
    clients[0].set_property(&root(), "snapshots", Some("1m:5")).unwrap();
    put(&clients[0], 1);
    let due = judged(&clients[0]);
    let lost = Lost { session: clients[0].session(), may_return: true };
    clients[1].expel(lost).unwrap();
    assert!(matches!(take(&clients[0], &due, 1), Err(Error::ReadOnly(_))));
    assert_eq!(automatic(&clients[1]), 0);
    assert_eq!(take(&clients[1], &judged(&clients[1]), 1), Ok(1));
}

#[test]
fn what_the_log_tells_of_the_clocks_of_others_is_known() {
    let memory: Arc<dyn Database> = Arc::new(MemoryDatabase::default());
    made(&memory);
    let clock = StillClock::new();
    let clients = together_in(&[Arc::clone(&memory), Arc::clone(&memory)], &clock);
    clock.advance(5000);
    put(&clients[1], 1);
    clients[0].list().unwrap();
    let told = clients[0].clocks();
    assert_eq!(told.others_seconds, Some(told.before_seconds + 5000));
    clients.iter().for_each(|client| client.close().unwrap());
    let next = Cluster::open(memory, options(3, None, &StillClock::new())).unwrap();
    let known = next.clocks();
    assert_eq!((known.others_seconds, known.before_seconds), (None, told.before_seconds + 5000));
}
