//! The store keeps the contract of a store, on each database.

use crate::engines::Engine;
use crate::mongo_server::Shared;
use crate::server::Server;
use crate::stores::{StillClock, in_memory, made, options};
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::{Cluster, Database};
use marram_store::conformance;
use parking_lot::Mutex;
use std::sync::Arc;

#[test]
fn a_store_in_memory_keeps_the_contract() {
    conformance::all(&|| Arc::new(in_memory().1));
}

#[test]
fn a_store_in_sqlite_keeps_the_contract() {
    let folders = Mutex::new(Vec::new());
    conformance::all(&|| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store");
        folders.lock().push(folder);
        let database: Arc<dyn Database> = Arc::new(SqliteDatabase::create(&file).unwrap());
        made(&database);
        Arc::new(Cluster::open(database, options(1, None, &StillClock::new())).unwrap())
    });
}

#[test]
fn a_store_in_postgresql_keeps_the_contract() {
    Server::start().iter().for_each(|server| keeps_the_contract(server));
}

#[test]
fn a_store_in_mongodb_keeps_the_contract() {
    Shared::find().iter().for_each(|server| keeps_the_contract(server));
}

fn keeps_the_contract(engine: &(dyn Engine + Sync)) {
    conformance::all(&|| {
        let database = engine.store(1).remove(0);
        made(&database);
        Arc::new(Cluster::open(database, options(1, None, &StillClock::new())).unwrap())
    });
}
