//! The log of operations: what it has, what an undo takes back, and for how long that can be done.

use crate::interrupted::{At, Interrupted};
use crate::server::Server;
use crate::stores::{StillClock, in_memory_at, made, options, together_in};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database};
use marram_store::{
    Author, Batch, Block, DatasetName, Error, Item, Key, MergedFrom, Operation, Reversal, Source,
    Store, Undo,
};
use parking_lot::Mutex;
use std::sync::Arc;

fn author(command: &str) -> Author {
    Author { user: Some(7), command: command.to_owned() }
}

fn source(text: &str) -> Source {
    text.parse().unwrap()
}

fn put(store: &Cluster, dataset: &str, object: u64, value: u8) {
    let view = store.open(&source(dataset)).unwrap();
    let seen = view.capabilities().together.map(|together| together.look().unwrap());
    let mut batch = Batch { seen, ..Batch::new() };
    let block = Block::fresh(vec![value; 3000]);
    batch.put(Key::new(object, 5, 0), Item::with_block(vec![value], block));
    view.apply(batch).unwrap();
}

fn value(store: &Cluster, dataset: &str, object: u64) -> Option<u8> {
    let view = store.open(&source(dataset)).unwrap();
    view.get(Key::new(object, 5, 0)).unwrap().map(|item| item.value[0])
}

fn names(store: &Cluster) -> Vec<String> {
    store.list().unwrap().iter().map(|report| report.source.to_string()).collect()
}

fn last(store: &Cluster) -> Operation {
    store.operations().unwrap().pop().unwrap()
}

fn undo(store: &Cluster, number: u64) {
    store.undo(number, false).unwrap();
}

fn clean(database: &dyn Database) {
    let verified = verify(database).unwrap();
    assert_eq!(verified.findings, [""; 0]);
}

/// Every operation that is a change of records, taken back and done again by taking that back.
fn each_is_taken_back(database: &Arc<dyn Database>, store: &Cluster) {
    let root = DatasetName::root();
    put(store, "root", 2, 1);
    store.snapshot(&root, "s").unwrap();
    store.clone_snapshot(&source("root@s"), &"c".parse().unwrap()).unwrap();
    store.fork(&root, &"f".parse().unwrap(), 1).unwrap();
    let capabilities = store.capabilities();
    let (holds, lineage) = (capabilities.holds.unwrap(), capabilities.lineage.unwrap());
    holds.hold(&source("root@s"), "tag").unwrap();
    store.rename(&source("root@s"), &source("root@t")).unwrap();
    store.set_property(&root, "undo", Some("2h")).unwrap();
    put(store, "root", 2, 2);
    lineage.rollback(&source("root@t"), "before").unwrap();
    let told: Vec<String> = store
        .operations()
        .unwrap()
        .into_iter()
        .map(|it| format!("{} {} {}", it.number, it.record.kind.name(), it.record.texts.join(" ")))
        .collect();
    let wanted = [
        "1 snapshot root@s",
        "2 clone c root@s",
        "3 fork f root",
        "4 hold root@s tag",
        "5 rename root@s root@t",
        "6 set root undo  2h",
        "7 rollback root@t root@before",
    ];
    assert_eq!(told, wanted);
    assert_eq!(value(store, "root", 2), Some(1));
    undo(store, 7);
    assert_eq!(value(store, "root", 2), Some(2));
    undo(store, 8);
    assert_eq!(value(store, "root", 2), Some(1));
    assert_eq!(last(store).record.undoes, 8);
    undo(store, 6);
    assert_eq!(store.properties(&root).unwrap()["undo"].0, "1h");
    undo(store, 5);
    assert!(names(store).contains(&"root@s".to_owned()));
    undo(store, 4);
    assert!(store.report(&source("root@s")).unwrap().holds.is_empty());
    undo(store, 3);
    assert!(!names(store).contains(&"f".to_owned()));
    let number = last(store).number;
    undo(store, number);
    assert_eq!(value(store, "f", 2), Some(1));
    undo(store, 2);
    assert!(!names(store).contains(&"c".to_owned()));
    let hidden = store.hide_together(&[source("f")]).unwrap();
    assert_eq!(hidden.destruction.sources, [source("f"), source("root@fork:f")]);
    assert!(hidden.kept_until_seconds.is_some());
    let refused = store.undo(3, false).unwrap_err().to_string();
    assert!(refused.contains("taken back by") || refused.contains("destroyed by"), "{refused}");
    let number = last(store).number;
    undo(store, number);
    assert_eq!(value(store, "f", 2), Some(1));
    assert!(matches!(store.undo(77, false), Err(Error::Invalid(_))));
    clean(&**database);
}

#[test]
fn each_operation_is_taken_back_in_memory() {
    let (memory, store) = in_memory_at(&StillClock::new());
    let database: Arc<dyn Database> = Arc::new(memory);
    each_is_taken_back(&database, &store.acting_for(author("marram do")));
}

#[test]
fn each_operation_is_taken_back_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let database: Arc<dyn Database> =
        Arc::new(SqliteDatabase::create(&folder.path().join("store")).unwrap());
    made(&database);
    let store = Cluster::open(Arc::clone(&database), options(1, None, &StillClock::new())).unwrap();
    each_is_taken_back(&database, &store.acting_for(author("marram do")));
}

#[test]
fn each_operation_is_taken_back_in_postgresql() {
    let Some(server) = Server::start() else { return };
    let database: Arc<dyn Database> = Arc::new(server.database());
    made(&database);
    let store = Cluster::open(Arc::clone(&database), options(1, None, &StillClock::new())).unwrap();
    each_is_taken_back(&database, &store.acting_for(author("marram do")));
}

fn settle(store: &Cluster) {
    while store.prune_step().unwrap().more {}
}

#[test]
fn what_is_kept_is_given_back_when_its_time_is_over() {
    let clock = StillClock::new();
    let (memory, store) = in_memory_at(&clock);
    let store = store.acting_for(author("marram destroy"));
    let data: DatasetName = "data".parse().unwrap();
    store.create(&data, &Default::default()).unwrap();
    put(&store, "data", 2, 9);
    store.snapshot(&data, "s").unwrap();
    store.hide_together(&[source("data")]).unwrap();
    assert_eq!(names(&store), ["root"]);
    store.let_go_of_expired().unwrap();
    let number = last(&store).number;
    undo(&store, number);
    assert_eq!(names(&store), ["data", "data@s", "root"]);
    store.hide_together(&[source("data")]).unwrap();
    clock.advance(3600);
    store.let_go_of_expired().unwrap();
    let gone = last(&store);
    assert!(gone.obstacle.unwrap().contains("gone for good"));
    assert_eq!(gone.record.kept_until_seconds, 0);
    settle(&store);
    clock.advance(100);
    assert_eq!(store.sweep_step(Vec::new()).unwrap().0.blocks, 1, "its block comes back");
    clean(&memory);
}

/// A store with a dataset that was destroyed as operation 2, the time of which is over.
fn expired(clock: &StillClock) -> (MemoryDatabase, Interrupted, Cluster) {
    let memory = MemoryDatabase::default();
    let handle = Interrupted::new(Arc::new(memory.clone()));
    let database: Arc<dyn Database> = Arc::new(handle.clone());
    made(&database);
    let store = Cluster::open(database, options(1, None, clock)).unwrap();
    let store = store.acting_for(author("marram destroy"));
    let data: DatasetName = "data".parse().unwrap();
    store.create(&data, &Default::default()).unwrap();
    put(&store, "data", 2, 9);
    store.hide_together(&[source("data")]).unwrap();
    clock.advance(3600);
    (memory, handle, store)
}

#[test]
fn what_is_let_go_of_is_opened_by_nobody_and_what_is_open_stays() {
    let kept = source("undo:2");
    let (mut opened, mut refused) = (0, 0);
    for call in 0..12 {
        let (memory, handle, store) = expired(&StillClock::new());
        // What waits is read for before the entry is made.
        put(&store, "root", 7, 7);
        let view = Arc::new(Mutex::new(None));
        let (found, of) = (Arc::clone(&view), store.clone());
        let of_kept = kept.clone();
        handle.at(At::Call(call), Box::new(move || *found.lock() = of.open(&of_kept).ok()));
        store.let_go_of_expired().unwrap();
        let has_happened = handle.take().is_none();
        match view.lock().take() {
            None => refused += usize::from(has_happened),
            Some(view) => {
                opened += 1;
                settle(&store);
                let item = view.get(Key::new(2, 5, 0)).unwrap();
                assert_eq!(item.map(|item| item.value[0]), Some(9), "call {call}");
            }
        }
        store.let_go_of_expired().unwrap();
        assert!(store.report(&kept).is_err(), "it goes when nobody looks at it any more");
        clean(&memory);
    }
    assert!(opened > 0 && refused > 0, "{opened} {refused}");
}

#[test]
fn what_cannot_be_let_go_of_keeps_nothing_else() {
    let clock = StillClock::new();
    let (memory, _, store) = expired(&clock);
    let other: DatasetName = "other".parse().unwrap();
    store.create(&other, &Default::default()).unwrap();
    store.hide_together(&[source("other")]).unwrap();
    clock.advance(3600);
    let open = store.open(&source("undo:2")).unwrap();
    store.let_go_of_expired().unwrap();
    assert!(store.report(&source("undo:2")).is_ok() && store.report(&source("undo:4")).is_err());
    drop(open);
    store.let_go_of_expired().unwrap();
    assert!(store.report(&source("undo:2")).is_err());
    clean(&memory);
}

#[test]
fn the_log_keeps_the_newest_and_lets_go_with_the_others() {
    let (memory, store) = in_memory_at(&StillClock::new());
    let store = store.acting_for(author("marram set"));
    let (root, data) = (DatasetName::root(), "data".parse::<DatasetName>().unwrap());
    store.create(&data, &Default::default()).unwrap();
    store.hide_together(&[source("data")]).unwrap();
    for round in 0..1000 {
        let value = if round % 2 == 0 { "4096" } else { "8192" };
        store.set_property(&root, "recordsize", Some(value)).unwrap();
    }
    let operations = store.operations().unwrap();
    assert_eq!((operations.len(), operations[0].number), (1000, 3));
    assert!(store.undo(2, false).unwrap_err().to_string().contains("no operation 2"));
    clean(&memory);
    // It is read by the next client too.
    store.close().unwrap();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    let next = Cluster::open(database, options(2, None, &StillClock::new())).unwrap();
    assert_eq!(next.operations().unwrap().len(), 1000);
    assert_eq!(last(&next).record.command, "marram set");
}

/// Merges what the fork has under an object into the root dataset.
fn merge(store: &Cluster, object: u64) -> marram_store::Result<()> {
    let (dataset, fork) = (DatasetName::root(), source("f"));
    let dynamic: &dyn Store = store;
    let read = dynamic.numbered_snapshot(&fork.dataset, "merge").unwrap();
    let view = store.open(&source("root")).unwrap();
    let base = marram_store::merge_bases(&store.list().unwrap(), &dataset, &fork.dataset).pop();
    let origin = store.report(&fork).unwrap().origin.unwrap();
    let seen = view.capabilities().together.map(|together| together.look().unwrap());
    let mut batch = Batch { seen, ..Batch::new() };
    let item = store.open(&read).unwrap().get(Key::new(object, 5, 0)).unwrap().unwrap();
    batch.put(Key::new(object, 5, 0), item);
    let base = base.unwrap_or(origin);
    let merged = MergedFrom {
        dataset: &dataset,
        fork: &fork,
        read: &read,
        keep: None,
        root_object: 1,
        base: Some(&base),
        moves_base: true,
        may_wait: false,
    };
    dynamic.apply_merge(&*view, batch, &merged).map(|_| ())
}

#[test]
fn a_merge_keeps_the_states_around_it_and_moves_its_base_with_it() {
    let clock = StillClock::new();
    let (memory, store) = in_memory_at(&clock);
    let store = store.acting_for(author("marram merge"));
    put(&store, "root", 2, 1);
    store.fork(&DatasetName::root(), &"f".parse().unwrap(), 1).unwrap();
    put(&store, "f", 3, 5);
    put(&store, "root", 4, 6);
    merge(&store, 3).unwrap();
    assert_eq!(value(&store, "root", 3), Some(5));
    let (number, reversal) = store.reversal(None, false).unwrap();
    let Reversal::Merge { base, back_to, moved_base, .. } = reversal else { panic!() };
    assert!(moved_base);
    let of = |state: &Source, object| value(&store, &state.to_string(), object);
    assert_eq!([of(&back_to, 3), of(&back_to, 4), of(&base, 3)], [None, Some(6), Some(5)]);
    assert!(!names(&store).iter().any(|name| name.contains("undo:")), "{:?}", names(&store));
    put(&store, "f", 3, 7);
    merge(&store, 3).unwrap();
    assert_eq!(value(&store, "root", 3), Some(7));
    clean(&memory);
    // The states of the first are given back, and those of the second are not yet.
    clock.advance(1800);
    put(&store, "f", 3, 8);
    merge(&store, 3).unwrap();
    clock.advance(1800);
    store.let_go_of_expired().unwrap();
    settle(&store);
    clean(&memory);
    assert!(store.reversal(Some(number), false).is_err());
    assert!(store.reversal(None, false).is_ok());
    assert_eq!(value(&store, "root", 3), Some(8));
}

#[test]
fn clients_of_one_home_have_one_log() {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let clients = together_in(&[Arc::clone(&database), database], &StillClock::new());
    let [first, second] = [0, 1].map(|which| clients[which].acting_for(author("marram x")));
    first.snapshot(&DatasetName::root(), "one").unwrap();
    second.snapshot(&DatasetName::root(), "two").unwrap();
    assert_eq!(first.operations().unwrap().len(), 2);
    second.undo(1, false).unwrap();
    assert_eq!(names(&first), ["root", "root@two"]);
    first.undo(3, false).unwrap();
    assert_eq!(names(&second), ["root", "root@one", "root@two"]);
    second.fork(&DatasetName::root(), &"f".parse().unwrap(), 1).unwrap();
    put(&first, "f", 3, 5);
    merge(&second, 3).unwrap();
    assert_eq!(value(&first, "root", 3), Some(5));
    assert_eq!(last(&first).record.kind.name(), "merge");
    clean(&memory);
}

#[test]
fn limits_of_owners_are_taken_back() {
    let (memory, store) = in_memory_at(&StillClock::new());
    let store = store.acting_for(author("marram quota"));
    let (root, dynamic) = (DatasetName::root(), &store as &dyn Store);
    let owner = 1 << 32 | 7;
    let limit = |bytes: i64| {
        let limit = marram_format::record::Limit { bytes, inodes: 10 };
        Some(bytes::Bytes::copy_from_slice(&limit.encode()))
    };
    dynamic.set_owner_limit(&root, owner, limit(5000)).unwrap();
    dynamic.set_owner_limit(&root, owner, limit(9000)).unwrap();
    let operations = store.operations().unwrap();
    assert_eq!(operations[1].record.texts, ["root", "5000 10", "9000 10"]);
    assert!(operations[0].obstacle.as_ref().unwrap().contains("9000 10"));
    undo(&store, 2);
    undo(&store, 1);
    assert_eq!(last(&store).record.texts, ["root", "5000 10", "none none"]);
    clean(&memory);
}
