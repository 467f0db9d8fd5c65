//! `posix` on the stores in memory: the one that callers are tested on, and the smallest.

use super::interrupted::InterruptedView;
use super::{Backing, StoreHome, text};
use marram_sim::{HistoryClock, Home, HomeResult};
use marram_store::memory::MemoryStore;
use marram_store::minimal::MinimalStore;
use marram_store::{DatasetName, Source, Store, View};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct InMemory {
    store: Arc<MemoryStore>,
    /// Commit in the middle of operations, as this seed decides.
    interrupts: Option<u64>,
}

/// An empty file system on an empty store in memory. The seed chooses the size of records.
pub fn memory_home(seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    home(seed, None, clock)
}

/// As [`memory_home`], with commits in the middle of operations.
pub fn busy_memory_home(seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    home(seed, Some(seed), clock)
}

fn home(seed: u64, interrupts: Option<u64>, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    let store = MemoryStore::new();
    let sizes = ["131072", "4096", "16384", "1048576"];
    let size = sizes[(seed % sizes.len() as u64) as usize];
    store.set_property(&DatasetName::root(), "recordsize", Some(size)).map_err(text)?;
    let backing = InMemory { store: Arc::new(store), interrupts };
    Ok(Box::new(StoreHome::new(backing, clock)?))
}

/// An empty file system on an empty store that has no capability.
pub fn minimal_home(_seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
    let backing = Minimal(Arc::new(MinimalStore::default()));
    Ok(Box::new(StoreHome::new(backing, clock)?))
}

/// A store that keeps everything as it is.
struct Minimal(Arc<MinimalStore>);

impl Backing for Minimal {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0) as Arc<dyn Store>
    }

    fn commit(&mut self, _count: u64) -> HomeResult<()> {
        self.0.sync().map_err(text)
    }

    fn reopen(&mut self, _count: u64) -> HomeResult<()> {
        Ok(())
    }

    /// Nothing that was kept for a comparison is left.
    fn check(&mut self) -> HomeResult<()> {
        let left = marram_history::destroy_leftovers(&*self.0).map_err(text)?;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} were left")) }
    }
}

impl Backing for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn view(&self, source: &Source) -> HomeResult<Arc<dyn View>> {
        let view = self.store.open(source).map_err(text)?;
        let Some(seed) = self.interrupts.filter(|_| view.writable()) else {
            return Ok(view);
        };
        let store = Arc::clone(&self.store);
        let part = AtomicU64::new(seed);
        let commit = move || {
            store.commit_some(part.fetch_add(1, Ordering::Relaxed) % 4);
            Ok(())
        };
        Ok(Arc::new(InterruptedView::new(view, seed, Box::new(commit))))
    }

    /// Mostly a part of the blocks, so that fresh and stored ones are met side by side.
    fn commit(&mut self, count: u64) -> HomeResult<()> {
        self.store.commit_some(count % 4);
        Ok(())
    }

    fn reopen(&mut self, count: u64) -> HomeResult<()> {
        if count.is_multiple_of(3) {
            self.store.commit();
        }
        Ok(())
    }

    fn check(&mut self) -> HomeResult<()> {
        Ok(())
    }
}
