//! Snapshots go from store to store, on each database.

use crate::mongo_server::Shared;
use crate::server::Server;
use crate::stores::{StillClock, made_as, options};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::{Cluster, Database};
use marram_store::{Batch, Block, Item, Key, Source, kind};
use marram_stream::receive::receive;
use marram_stream::send::send;
use marram_stream::{ReceiveRequest, SendRequest, Since, Transfers, conformance};
use parking_lot::Mutex;
use std::sync::Arc;

fn store(database: Arc<dyn Database>, number: u8) -> Arc<dyn Transfers> {
    made_as(&database, number);
    Arc::new(Cluster::open(database, options(1, None, &StillClock::new())).unwrap())
}

#[test]
fn snapshots_go_between_stores_in_memory() {
    conformance::all(&|number| store(Arc::new(MemoryDatabase::default()), number));
}

#[test]
fn snapshots_go_between_stores_in_sqlite() {
    let folders = Mutex::new(Vec::new());
    conformance::all(&|number| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store");
        folders.lock().push(folder);
        store(Arc::new(SqliteDatabase::create(&file).unwrap()), number)
    });
}

#[test]
fn snapshots_go_between_stores_in_postgresql() {
    let Some(server) = Server::start() else { return };
    conformance::all(&|number| store(Arc::new(server.database()), number));
}

#[test]
fn snapshots_go_to_mongodb_and_back() {
    let Some(server) = Shared::find() else { return };
    let memory = || store(Arc::new(MemoryDatabase::default()), 1);
    let (from, there, back) = (memory(), store(server.store(1).remove(0), 2), memory());
    let (root, view) = ("root".parse().unwrap(), from.open(&"root".parse().unwrap()).unwrap());
    let set = |object: u64, content: u8| {
        let mut batch = Batch::new();
        let block = Block::fresh(vec![content; 50_000]);
        batch.put(Key::new(object, kind::SECTION, 0), Item::with_block(vec![content], block));
        batch.put(Key::new(object, kind::INODE, 0), Item::plain(vec![content; 9]));
        view.apply(batch).unwrap();
    };
    (2..6).for_each(|object| set(object, object as u8));
    from.snapshot(&root, "a").unwrap();
    set(3, 77);
    let mut batch = Batch::new();
    batch.remove(Key::new(5, kind::SECTION, 0));
    view.apply(batch).unwrap();
    from.snapshot(&root, "b").unwrap();
    transfer(&*from, &*there, "root@a", None);
    transfer(&*from, &*there, "root@b", Some("root@a"));
    transfer(&*there, &*back, "copy@a", None);
    transfer(&*there, &*back, "copy@b", Some("copy@a"));
    let items = |of: &dyn Transfers, source: &str| {
        let view = of.open(&source.parse().unwrap()).unwrap();
        let mut items = Vec::new();
        view.scan(Key::MIN, Key::MAX, &mut |key, item| {
            let content = item.block.as_ref().map(|block| view.read_block(block).unwrap());
            items.push((key, item.value.clone(), content));
            true
        })
        .unwrap();
        items
    };
    for name in ["a", "b"] {
        let sent = items(&*from, &format!("root@{name}"));
        assert!(sent.len() > 6, "{}", sent.len());
        assert_eq!(items(&*there, &format!("copy@{name}")), sent);
        assert_eq!(items(&*back, &format!("copy@{name}")), sent);
    }
}

/// Sends a snapshot of the root dataset into the dataset `copy` of another store.
fn transfer(from: &dyn Transfers, to: &dyn Transfers, snapshot: &str, base: Option<&str>) {
    let source = |text: &str| -> Source { text.parse().unwrap() };
    let request = SendRequest { snapshot: source(snapshot), base: base.map(source), resume: None };
    let mut stream = Vec::new();
    send(from, &request, &mut stream, &mut |_| {}).unwrap();
    let request =
        ReceiveRequest { dataset: "copy".parse().unwrap(), force: false, resumable: false };
    let incoming = receive(to, &request, &mut &stream[..], &mut |_| {}).unwrap();
    assert_eq!(incoming.publish().unwrap().since, Since::Nothing);
}

/// Items that are too many for one entry.
const MANY: u64 = 100_500;

#[test]
fn an_increment_of_very_many_items_arrives_too() {
    let [from, to] = [1, 2].map(|number| store(Arc::new(MemoryDatabase::default()), number));
    let root = "root".parse().unwrap();
    from.snapshot(&root, "a").unwrap();
    let view = from.open(&"root".parse().unwrap()).unwrap();
    for first in (0..MANY).step_by(500) {
        let mut batch = Batch::new();
        for offset in first..first + 500 {
            batch.put(Key::new(2, kind::SECTION, offset), Item::plain(vec![7]));
        }
        view.apply(batch).unwrap();
    }
    from.snapshot(&root, "b").unwrap();
    let mut batch = Batch::new();
    batch.remove(Key::new(2, kind::SECTION, 7));
    view.apply(batch).unwrap();
    from.snapshot(&root, "c").unwrap();
    transfer(&*from, &*to, "root@a", None);
    transfer(&*from, &*to, "root@b", Some("root@a"));
    transfer(&*from, &*to, "root@c", Some("root@b"));
    let items = |source: &str| {
        let (mut count, mut has) = (0, false);
        let view = to.open(&source.parse().unwrap()).unwrap();
        view.scan(Key::MIN, Key::MAX, &mut |key, _| {
            count += 1;
            has |= key.offset == 7;
            true
        })
        .unwrap();
        (count, has)
    };
    let expected = [("copy@a", (0, false)), ("copy@b", (MANY, true)), ("copy", (MANY - 1, false))];
    for (source, expected) in expected {
        assert_eq!(items(source), expected, "{source}");
    }
}
