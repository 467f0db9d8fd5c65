//! Clients come, go, and are taken for lost: decided in the database.

use crate::stores::{NOW, StillClock, in_memory, options};
use marram_cluster::{Cluster, Database, glance};
use marram_store::{Batch, Error, Item, Key, Store, View};
use std::sync::Arc;

fn put(view: &dyn View, value: u8) -> marram_store::Result<()> {
    let mut batch = Batch::new();
    batch.put(Key::new(2, 1, 0), Item::plain(vec![value]));
    view.apply(batch)?;
    view.sync()
}

#[test]
fn a_second_client_is_refused_by_the_name_of_the_first() {
    let (memory, cluster) = in_memory();
    let database: Arc<dyn Database> = Arc::new(memory);
    let refused = Cluster::open(Arc::clone(&database), options(2, None, &StillClock::new()));
    let error = refused.err().unwrap();
    assert!(
        matches!(&error, Error::InUse { holder, .. } if holder.contains("client 1")),
        "{error}"
    );
    let beat = glance(Arc::clone(&database)).unwrap().clients[0].beat;
    cluster.beat().unwrap();
    assert_eq!(glance(Arc::clone(&database)).unwrap().clients[0].beat, beat + 1);
    cluster.close().unwrap();
    assert_eq!(glance(Arc::clone(&database)).unwrap().clients, []);
    Cluster::open(database, options(2, None, &StillClock::new())).unwrap();
}

#[test]
fn a_client_that_was_taken_for_lost_changes_nothing_any_more() {
    let (memory, first) = in_memory();
    let view = first.open(&"root".parse().unwrap()).unwrap();
    put(&*view, 1).unwrap();
    let database: Arc<dyn Database> = Arc::new(memory);
    let second = Cluster::open(database, options(2, Some(1), &StillClock::new())).unwrap();
    let refused = put(&*view, 2).unwrap_err();
    assert!(
        matches!(&refused, Error::ReadOnly(why) if why.contains("taken for lost")),
        "{refused}"
    );
    assert!(first.beat().is_err() && first.prune_step().is_err());
    assert!(!view.writable());
    let view = second.open(&"root".parse().unwrap()).unwrap();
    let item = view.get(Key::new(2, 1, 0)).unwrap().unwrap();
    assert_eq!(item.value[..], [1], "{NOW}");
    assert!(second.status().unwrap().stopped.is_none());
}

#[test]
fn an_open_for_reading_changes_nothing() {
    let (memory, cluster) = in_memory();
    put(&*cluster.open(&"root".parse().unwrap()).unwrap(), 1).unwrap();
    cluster.close().unwrap();
    let before = memory.changes_made();
    let read_only =
        marram_cluster::OpenOptions { read_only: true, ..options(2, None, &StillClock::new()) };
    let reader = Cluster::open(Arc::new(memory.clone()), read_only).unwrap();
    let view = reader.open(&"root".parse().unwrap()).unwrap();
    assert!(!view.writable() && matches!(put(&*view, 2), Err(Error::ReadOnly(_))));
    assert_eq!(view.get(Key::new(2, 1, 0)).unwrap().unwrap().value[..], [1]);
    reader.close().unwrap();
    assert_eq!(memory.changes_made(), before);
}
