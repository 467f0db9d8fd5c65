//! A database in memory, which can be cut off after any number of changes, as by a crash.

use crate::database::{Change, Database, Guard, Range, Row, Table};
use bytes::Bytes;
use marram_store::{Error, Result};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

type Rows = BTreeMap<(Table, Bytes), Bytes>;

/// A database in memory. A clone is another handle of the same.
#[derive(Clone, Default)]
pub struct MemoryDatabase {
    inner: Arc<Mutex<Inner>>,
    is_far: bool,
}

#[derive(Default)]
struct Inner {
    rows: Rows,
    /// Changes of rows that were made.
    made: u64,
    /// Calls up to now, as if there were a server.
    calls: u64,
    /// After so many, every call fails.
    cut_after: Option<u64>,
}

impl MemoryDatabase {
    /// Changes of rows that were made up to now.
    pub fn changes_made(&self) -> u64 {
        self.inner.lock().made
    }

    /// Lets every call fail once so many changes have been made in all; `None` ends that.
    pub fn cut_after(&self, changes: Option<u64>) {
        self.inner.lock().cut_after = changes;
    }

    /// Another database with the same rows.
    pub fn copy(&self) -> MemoryDatabase {
        let rows = self.inner.lock().rows.clone();
        let inner = Inner { rows, ..Inner::default() };
        MemoryDatabase { inner: Arc::new(Mutex::new(inner)), is_far: self.is_far }
    }

    /// A handle by which calls count as round trips to another host.
    pub fn far_away(self) -> MemoryDatabase {
        MemoryDatabase { is_far: true, ..self }
    }

    /// Begins a call.
    fn call(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        inner.calls += 1;
        inner
    }

    /// All rows, for tests that damage them.
    pub fn rows(&self) -> Vec<(Table, Row)> {
        let inner = self.inner.lock();
        let rows = inner.rows.iter();
        rows.map(|((table, key), value)| (*table, (key.clone(), value.clone()))).collect()
    }
}

impl Inner {
    fn refuse_cut(&self) -> Result<()> {
        match self.cut_after {
            Some(after) if self.made >= after => Err(Error::Io("the database is cut off".into())),
            _ => Ok(()),
        }
    }

    /// Refuses a step that would be cut off in its middle, and all behind it.
    fn refuse_cut_within(&mut self, changes: u64) -> Result<()> {
        if let Some(after) = self.cut_after.filter(|after| self.made + changes > *after) {
            self.made = self.made.max(after);
        }
        self.refuse_cut()
    }

    fn change(&mut self, change: &Change) -> Result<()> {
        self.refuse_cut()?;
        let key = (change.table, Bytes::copy_from_slice(&change.key));
        match &change.value {
            Some(value) => self.rows.insert(key, Bytes::copy_from_slice(value)),
            None => self.rows.remove(&key),
        };
        self.made += 1;
        Ok(())
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        if self.rows.contains_key(&(table, Bytes::copy_from_slice(key))) {
            return Ok(false);
        }
        self.change(&Change::put(table, key, value.to_vec())).map(|()| true)
    }

    fn holds(&self, guard: &Guard) -> bool {
        let row = self.rows.get(&(guard.table, Bytes::copy_from_slice(&guard.key)));
        row.map(|value| &value[..]) == guard.value.as_deref()
    }

    fn range(&self, range: &Range) -> Vec<Row> {
        let end = |key: &[u8]| (range.table, Bytes::copy_from_slice(key));
        if range.from > range.to {
            return Vec::new();
        }
        let rows = self.rows.range(end(&range.from)..=end(&range.to));
        let row = |((_, key), value): (&(Table, Bytes), &Bytes)| (key.clone(), value.clone());
        match range.descending {
            true => rows.rev().take(range.limit).map(row).collect(),
            false => rows.take(range.limit).map(row).collect(),
        }
    }
}

impl Database for MemoryDatabase {
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut inner = self.call();
        inner.refuse_cut()?;
        inner.insert(table, key, value)
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        let mut inner = self.call();
        inner.refuse_cut()?;
        changes.iter().try_for_each(|change| inner.change(change))
    }

    fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        let inner = self.call();
        inner.refuse_cut()?;
        Ok(ranges.iter().map(|range| inner.range(range)).collect())
    }

    fn has(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<bool>> {
        let inner = self.call();
        inner.refuse_cut()?;
        let key = |key: &Vec<u8>| (table, Bytes::copy_from_slice(key));
        Ok(keys.iter().map(|it| inner.rows.contains_key(&key(it))).collect())
    }

    fn insert_if(&self, guard: &Guard, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut inner = self.call();
        inner.refuse_cut()?;
        Ok(inner.holds(guard) && inner.insert(table, key, value)?)
    }

    fn write_if(&self, guard: &Guard, changes: &[Change]) -> Result<bool> {
        let mut inner = self.call();
        inner.refuse_cut()?;
        if !inner.holds(guard) {
            return Ok(false);
        }
        changes.iter().try_for_each(|change| inner.change(change)).map(|()| true)
    }

    fn insert_with(&self, guard: &Guard, row: &Change, changes: &[Change]) -> Option<Result<bool>> {
        self.is_far.then(|| {
            let mut inner = self.call();
            inner.refuse_cut()?;
            inner.refuse_cut_within(1 + changes.len() as u64)?;
            let value = row.value.as_deref().unwrap_or_default();
            if !inner.holds(guard) || !inner.insert(row.table, &row.key, value)? {
                return Ok(false);
            }
            changes.iter().try_for_each(|change| inner.change(change)).map(|()| true)
        })
    }

    fn bytes(&self) -> Result<u64> {
        let inner = self.call();
        Ok(inner.rows.iter().map(|((_, key), value)| (key.len() + value.len()) as u64).sum())
    }

    fn round_trips(&self) -> u64 {
        self.inner.lock().calls
    }

    fn is_far(&self) -> bool {
        self.is_far
    }

    fn asks_ranges_at_once(&self) -> bool {
        true
    }

    fn engine(&self) -> &'static str {
        "memory"
    }
}
