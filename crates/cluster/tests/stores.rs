//! Stores for tests.

use marram_cluster::format::{Header, Seal};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::{
    Client, Cluster, Database, Judge, Lost, NewStore, Objects, OpenOptions, make,
};
use marram_store::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

/// A moment of the tests, in seconds.
pub(crate) const NOW: i64 = 1_700_000_000;

/// A clock that moves only when a test moves it.
#[derive(Clone)]
pub(crate) struct StillClock(Arc<AtomicI64>);

impl StillClock {
    pub(crate) fn new() -> StillClock {
        StillClock(Arc::new(AtomicI64::new(NOW)))
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

/// The options of the client with this number, which takes another one for lost, and refuses to
/// be beside any.
pub(crate) fn options(client: u8, lost: Option<u8>, clock: &StillClock) -> OpenOptions {
    let lost = lost.map(|lost| [lost; 16]);
    let judge = move |there: &[Client]| match there.iter().find(|it| Some(it.session) != lost) {
        Some(other) => Err(in_use(other)),
        None => Ok(lost.into_iter().map(dead).collect()),
    };
    judged(client, clock, Arc::new(judge))
}

fn in_use(client: &Client) -> Error {
    Error::InUse { name: "the store".to_owned(), holder: client.name.clone() }
}

/// A client that does not come back.
fn dead(session: [u8; 16]) -> Lost {
    Lost { session, may_return: false }
}

/// The same of one that takes all others for lost.
pub(crate) fn after_all(client: u8, clock: &StillClock) -> OpenOptions {
    let all = |there: &[Client]| Ok(there.iter().map(|client| dead(client.session)).collect());
    judged(client, clock, Arc::new(all))
}

/// The same of one that takes all others for lost, but for a while.
pub(crate) fn instead_of_all(client: u8, clock: &StillClock) -> OpenOptions {
    let lost = |client: &Client| Lost { session: client.session, may_return: true };
    let all = move |there: &[Client]| Ok(there.iter().map(lost).collect());
    judged(client, clock, Arc::new(all))
}

/// The same of one that comes beside others, which hear of it at once.
pub(crate) fn beside(client: u8, clock: &StillClock, others: &[Arc<Cluster>]) -> OpenOptions {
    let others = others.to_vec();
    judged(client, clock, Arc::new(move |_| hear(&others).map(|()| Vec::new())))
}

/// Lets clients look whether others have come.
pub(crate) fn hear(clients: &[Arc<Cluster>]) -> Result<()> {
    clients.iter().try_for_each(|client| client.listen(&mut || ()).map(|_| ()))
}

/// Opens a store as several clients, numbered from 1 on, each through a handle of its own.
pub(crate) fn together_in(
    databases: &[Arc<dyn Database>],
    clock: &StillClock,
) -> Vec<Arc<Cluster>> {
    let mut clients = Vec::new();
    for (number, database) in (1..).zip(databases) {
        let options = beside(number, clock, &clients);
        clients.push(Arc::new(Cluster::open(Arc::clone(database), options).unwrap()));
    }
    clients
}

/// Opens a store as several clients, numbered from 1 on, of which all others answer while one comes
/// or wakes.
pub(crate) fn company(databases: &[Arc<dyn Database>], clock: &StillClock) -> Vec<Arc<Cluster>> {
    let all = Arc::new(Mutex::new(Vec::<(u8, Weak<Cluster>)>::new()));
    let mut clients = Vec::new();
    for (number, database) in (1..).zip(databases) {
        let known = Arc::clone(&all);
        let judge: Judge = Arc::new(move |_| {
            let others = known.lock().clone().into_iter().filter(|(other, _)| *other != number);
            let others: Vec<_> = others.filter_map(|(_, other)| other.upgrade()).collect();
            hear(&others).map(|()| Vec::new())
        });
        let cluster = Cluster::open(Arc::clone(database), judged(number, clock, judge)).unwrap();
        let cluster = Arc::new(cluster);
        all.lock().push((number, Arc::downgrade(&cluster)));
        clients.push(cluster);
    }
    clients
}

/// The seals of the stores that [`made`] makes.
pub(crate) fn seal() -> Seal {
    Seal::of(&Header { id: [7; 16], key: [9; 32], has_blocks_outside: false })
}

fn judged(client: u8, clock: &StillClock, judge: Judge) -> OpenOptions {
    let seconds = Arc::clone(&clock.0);
    OpenOptions {
        session: [client; 16],
        name: format!("client {client}"),
        judge,
        read_only: false,
        cache_bytes: 1 << 20,
        clock: Arc::new(move || seconds.load(Ordering::Relaxed)),
        space: None,
        bucket: Some(crate::seaweed::access()),
    }
}

/// Makes a store in an empty database.
pub(crate) fn made(database: &Arc<dyn Database>) {
    made_as(database, 7);
}

/// The same of one that is another for each number.
pub(crate) fn made_as(database: &Arc<dyn Database>, number: u8) {
    made_with(database, number, None);
}

/// The same of one whose blocks lie elsewhere.
pub(crate) fn made_with(
    database: &Arc<dyn Database>,
    number: u8,
    objects: Option<Arc<dyn Objects>>,
) {
    let new = NewStore { id: [number; 16], key: [9; 32], now: NOW, objects };
    make(Arc::clone(database), &new).unwrap();
}

/// A store in memory, open as client 1.
pub(crate) fn in_memory() -> (MemoryDatabase, Cluster) {
    in_memory_at(&StillClock::new())
}

/// The same with a clock of the caller.
pub(crate) fn in_memory_at(clock: &StillClock) -> (MemoryDatabase, Cluster) {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let cluster = Cluster::open(database, options(1, None, clock)).unwrap();
    (memory, cluster)
}
