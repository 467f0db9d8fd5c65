//! Destroying snapshots of a full pool: what is on their dead lists can be moved although there is
//! space for little of it at a time.

use crate::support;
use crate::support::{create_on, noise, section, source};
use marram_device::{Device, MemoryDevice};
use marram_pool::{OpenOptions, Pool};
use marram_store::{Admission, Batch, Block, DatasetName, Error, Item, Store, View};
use std::sync::Arc;

const BLOCKS: u64 = 50_000;

fn put_at(live: &dyn View, object: u64, len: usize, admission: Admission) -> Result<(), Error> {
    let mut batch = Batch { admission, ..Batch::new() };
    batch.put(section(object, 0), Item::with_block(Vec::new(), Block::fresh(noise(object, len))));
    live.apply(batch)
}

/// `old` has much, `between` the same, the dataset nothing of it.
fn history() -> Arc<Pool> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    create_on(&device, &[]);
    let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
    let live = support::root(&pool);
    for object in 1..=BLOCKS {
        put_at(&*live, object, 4000, Admission::Ordinary).unwrap();
    }
    pool.snapshot(&DatasetName::root(), "old").unwrap();
    put_at(&*live, 1 << 20, 4000, Admission::Ordinary).unwrap();
    pool.snapshot(&DatasetName::root(), "between").unwrap();
    for object in 1..=BLOCKS {
        let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
        batch.remove(section(object, 0));
        live.apply(batch).unwrap();
    }
    pool.commit().unwrap();
    drop(live);
    pool
}

fn fill(pool: &Pool) {
    let live = support::root(pool);
    let mut object = 1 << 30;
    for len in [200_000, 20_000, 4_000] {
        while put_at(&*live, object, len, Admission::Freeing).is_ok() {
            object += 1;
        }
    }
    pool.commit().unwrap();
}

#[test]
fn a_snapshot_of_nothing_goes_on_a_full_pool() {
    let pool = history();
    fill(&pool);
    pool.destroy(&source("root@between"), false).unwrap();
    while pool.reclaim_step().unwrap() {}
}

#[test]
fn what_is_kept_for_an_undo_is_let_go_for_a_writer_on_a_full_pool() {
    let pool = history();
    let own = noise(1, 4000);
    let other: DatasetName = "other".parse().unwrap();
    pool.create(&other, &marram_store::Properties::default()).unwrap();
    let live = support::view(&pool, "other");
    for object in 1..=1000 {
        support::put(&*live, section(object, 0), own.clone()).unwrap();
    }
    drop(live);
    fill(&pool);
    let author = marram_pool::Author { user: Some(1), command: "destroy".to_owned() };
    let acting = pool.acting_for(author);
    // Nothing comes back with the first, 4 MB with the second.
    acting.move_to_trash(&[source("root@between")]).unwrap();
    acting.move_to_trash(&[source("other")]).unwrap();
    let live = support::root(&pool);
    put_at(&*live, 1 << 40, 1_000_000, Admission::Freeing).unwrap();
    pool.commit().unwrap();
}
