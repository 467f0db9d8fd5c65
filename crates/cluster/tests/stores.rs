//! Stores for tests.

use marram_cluster::memory::MemoryDatabase;
use marram_cluster::{Cluster, Database, NewStore, OpenOptions, make};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

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

/// The options of the client with this number.
pub(crate) fn options(client: u8, lost: Option<u8>, clock: &StillClock) -> OpenOptions {
    let seconds = Arc::clone(&clock.0);
    OpenOptions {
        session: [client; 16],
        name: format!("client {client}"),
        lost: lost.map(|lost| [lost; 16]),
        read_only: false,
        cache_bytes: 1 << 20,
        clock: Arc::new(move || seconds.load(Ordering::Relaxed)),
        space: None,
    }
}

/// Makes a store in an empty database.
pub(crate) fn made(database: &Arc<dyn Database>) {
    let new = NewStore { id: [7; 16], key: [9; 32], now: NOW };
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
