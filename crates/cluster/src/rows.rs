//! Sealed rows of a database.

use crate::database::{Change, Database, Guard, Range, Row, Table};
use crate::failure::damaged;
use crate::format::{Seal, keys};
use bytes::Bytes;
use marram_store::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A row of which the value may be damaged.
pub(crate) type UncertainRow = (Bytes, Result<Bytes>);

/// The rows of a store: each value is sealed when it is written, and checked when it is read.
#[derive(Clone)]
pub(crate) struct Rows {
    database: Arc<dyn Database>,
    seal: Seal,
    stirred: Arc<AtomicU64>,
}

impl Rows {
    pub(crate) fn new(database: Arc<dyn Database>, seal: Seal) -> Rows {
        Rows { database, seal, stirred: Arc::default() }
    }

    /// How often something was read, or is taken in, that may be of a later moment than the one
    /// that is known.
    pub(crate) fn stirred(&self) -> u64 {
        self.stirred.load(Ordering::SeqCst)
    }

    /// Counts one more: when items have been read, before anybody sees them; before an entry is
    /// taken in; and before content that waits is cut anew, or another client goes on as this one.
    pub(crate) fn stir(&self) {
        self.stirred.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn database(&self) -> &dyn Database {
        &*self.database
    }

    /// The keyed hash of some bytes.
    pub(crate) fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        self.seal.hash(bytes)
    }

    /// A change that sets a row.
    pub(crate) fn put(&self, table: Table, key: Vec<u8>, value: Vec<u8>) -> Change {
        let sealed = self.seal.close(table, &key, value);
        Change::put(table, key, sealed)
    }

    /// Puts a row if its key is free, and the rows follow the log up to an entry.
    pub(crate) fn insert_after(
        &self,
        number: u64,
        (table, key): (Table, Vec<u8>),
        value: Vec<u8>,
    ) -> Result<bool> {
        let sealed = self.seal.close(table, &key, value);
        self.database.insert_if(&self.has_followed(number), table, &key, &sealed)
    }

    /// The same with changes behind it, as one step; `None` if the database has no such step.
    pub(crate) fn insert_with(
        &self,
        number: u64,
        (table, key): (Table, Vec<u8>),
        value: Vec<u8>,
        changes: &[Change],
    ) -> Option<Result<bool>> {
        let row = self.put(table, key, value);
        self.database.insert_with(&self.has_followed(number), &row, changes)
    }

    /// Makes changes if the rows follow the log up to an entry.
    pub(crate) fn write_after(&self, number: u64, changes: &[Change]) -> Result<bool> {
        self.database.write_if(&self.has_followed(number), changes)
    }

    /// Makes changes while a row is as another change has set it.
    pub(crate) fn write_while(&self, there: Change, changes: &[Change]) -> Result<bool> {
        let Change { table, key, value } = there;
        self.database.write_if(&Guard { table, key, value }, changes)
    }

    /// Sets or removes a row while it is as it was read. Only rows that are there can be guarded: a
    /// new one is put if there is none.
    pub(crate) fn replace(&self, old: Change, new: Change) -> Result<bool> {
        match (&old.value, &new.value) {
            (None, Some(value)) => self.database.insert(new.table, &new.key, value),
            _ => self.write_while(old, &[new]),
        }
    }

    fn has_followed(&self, number: u64) -> Guard {
        let Change { table, key, value } = self.put_followed(number);
        Guard { table, key, value }
    }

    pub(crate) fn write(&self, changes: &[Change]) -> Result<()> {
        match changes {
            [] => Ok(()),
            _ => self.database.write(changes),
        }
    }

    /// The rows of each range, without their seals.
    pub(crate) fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        let mut answers = self.answers(ranges)?;
        for (range, rows) in ranges.iter().zip(&mut answers) {
            for (key, value) in rows {
                *value = self.open(range.table, key, value)?;
            }
        }
        Ok(answers)
    }

    /// The rows of each range, each row without its seal, or what is wrong with it.
    pub(crate) fn read_each(&self, ranges: &[Range]) -> Result<Vec<Vec<UncertainRow>>> {
        let answers = self.answers(ranges)?;
        let opened = |range: &Range, rows: Vec<Row>| -> Vec<UncertainRow> {
            let open = |(key, sealed): Row| {
                let value = self.open(range.table, &key, &sealed);
                (key, value)
            };
            rows.into_iter().map(open).collect()
        };
        Ok(ranges.iter().zip(answers).map(|(range, rows)| opened(range, rows)).collect())
    }

    fn answers(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        let answers = self.database.read(ranges)?;
        match answers.len() == ranges.len() {
            true => Ok(answers),
            false => {
                Err(damaged("the database", "an answer".to_owned(), "it is not to the question"))
            }
        }
    }

    fn open(&self, table: Table, key: &[u8], sealed: &Bytes) -> Result<Bytes> {
        let len = self.seal.open(table, key, sealed)?.len();
        Ok(sealed.slice(..len))
    }

    /// The row under one key.
    pub(crate) fn get(&self, table: Table, key: Vec<u8>) -> Result<Option<Bytes>> {
        let found = self.read(&[Range::one(table, key)])?;
        Ok(found.into_iter().flatten().next().map(|(_, value)| value))
    }

    /// All rows of a table, for those that are small.
    pub(crate) fn all(&self, table: Table) -> Result<Vec<Row>> {
        let [all] = self.all_of([table])?;
        Ok(all)
    }

    /// All rows of some tables, as they are at one moment.
    pub(crate) fn all_of<const N: usize>(&self, tables: [Table; N]) -> Result<[Vec<Row>; N]> {
        let whole = |table| Range::first(table, Vec::new(), vec![u8::MAX; 64], usize::MAX);
        let mut found = self.read(&tables.map(whole))?.into_iter();
        Ok(tables.map(|_| found.next().unwrap_or_default()))
    }

    /// Up to which entry the rows follow the log.
    pub(crate) fn followed(&self) -> Result<u64> {
        let row = self.get(Table::Header, keys::FOLLOWED.to_vec())?;
        row.map_or(Ok(0), |value| keys::decode_number(&value))
    }

    /// A change that says so.
    pub(crate) fn put_followed(&self, number: u64) -> Change {
        self.put(Table::Header, keys::FOLLOWED.to_vec(), keys::number(number))
    }
}
