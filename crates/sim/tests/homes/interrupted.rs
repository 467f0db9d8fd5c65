//! Commits where a real pool's would come from another thread: between the reads of an operation
//! and the batch that follows from them.

use marram_sim::Random;
use marram_store::{Batch, Block, Capabilities, Item, Key, Part, Properties, Result, Unread, View};
use std::sync::{Arc, Mutex};

/// One call in so many has a commit before it.
const CALLS_PER_COMMIT: u64 = 40;

/// Commits the store.
pub type Commit = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// A view that commits now and then before it does what it is asked to do.
pub struct InterruptedView {
    inner: Arc<dyn View>,
    commit: Commit,
    random: Mutex<Random>,
}

impl InterruptedView {
    /// Wraps `inner`; the seed says when to commit.
    pub fn new(inner: Arc<dyn View>, seed: u64, commit: Commit) -> InterruptedView {
        InterruptedView { inner, commit, random: Mutex::new(Random::new(seed)) }
    }

    fn interrupt(&self) -> Result<()> {
        let now = self.random.lock().expect("no test panics here").once_in(CALLS_PER_COMMIT);
        if now { (self.commit)() } else { Ok(()) }
    }
}

impl View for InterruptedView {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        self.interrupt()?;
        self.inner.get(key)
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        self.interrupt()?;
        self.inner.scan(from, to, visit)
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        self.interrupt()?;
        self.inner.last(from, to)
    }

    fn apply(&self, batch: Batch<'_>) -> Result<()> {
        self.interrupt()?;
        self.inner.apply(batch)
    }

    fn read_block(&self, block: &Block) -> Result<bytes::Bytes> {
        self.interrupt()?;
        self.inner.read_block(block)
    }

    fn read_parts(&self, parts: &[Part<'_>], out: &mut Vec<u8>) -> std::result::Result<(), Unread> {
        self.interrupt().map_err(|error| Unread { number: 0, error })?;
        self.inner.read_parts(parts, out)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn writable(&self) -> bool {
        self.inner.writable()
    }

    fn properties(&self) -> Properties {
        self.inner.properties()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        self.inner.capabilities()
    }
}
