//! A database whose client dies at one of its calls that write.

use marram_cluster::Database;
use marram_cluster::database::{Change, Guard, Range, Row, Table};
use marram_store::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A handle that fails from one call on.
pub(crate) struct Dying {
    inner: Arc<dyn Database>,
    written: AtomicU64,
    /// At which call that writes it dies, the first being 0, and whether that call is made.
    at: Option<(u64, bool)>,
}

impl Dying {
    pub(crate) fn new(inner: Arc<dyn Database>, at: Option<(u64, bool)>) -> Dying {
        Dying { inner, written: AtomicU64::new(0), at }
    }

    /// Calls that have written up to now.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn writing<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        match self.at {
            Some((at, is_made)) if number == at && is_made => call().and(Err(dead())),
            Some((at, _)) if number >= at => Err(dead()),
            _ => call(),
        }
    }

    fn reading<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.at {
            Some((at, _)) if self.written() > at => Err(dead()),
            _ => call(),
        }
    }
}

fn dead() -> Error {
    Error::Io("this client is dead".to_owned())
}

impl Database for Dying {
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.writing(|| self.inner.insert(table, key, value))
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        self.writing(|| self.inner.write(changes))
    }

    fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        self.reading(|| self.inner.read(ranges))
    }

    fn has(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<bool>> {
        self.reading(|| self.inner.has(table, keys))
    }

    fn insert_with(&self, guard: &Guard, row: &Change, changes: &[Change]) -> Option<Result<bool>> {
        // The engines that are asked for many ranges at once have this step too.
        let step = || self.inner.insert_with(guard, row, changes).expect("it has the step");
        self.inner.asks_ranges_at_once().then(|| self.writing(step))
    }

    fn insert_if(&self, guard: &Guard, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.writing(|| self.inner.insert_if(guard, table, key, value))
    }

    fn write_if(&self, guard: &Guard, changes: &[Change]) -> Result<bool> {
        self.writing(|| self.inner.write_if(guard, changes))
    }

    fn settle(&self) -> Result<()> {
        self.writing(|| self.inner.settle())
    }

    fn identity(&self) -> Result<Vec<u8>> {
        self.inner.identity()
    }

    fn bytes(&self) -> Result<u64> {
        self.inner.bytes()
    }

    fn engine(&self) -> &'static str {
        self.inner.engine()
    }
}
