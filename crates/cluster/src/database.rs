//! What a database must give.
//!
//! A database is a few ordered tables of rows, each a key and a value of bytes. Three steps must be
//! atomic between all that use it. [`Database::insert`] puts a row if its key is free.
//! [`Database::insert_if`] and [`Database::write_if`] make a step only while a row is as it was: so
//! a client that was stopped in the middle of something, and comes back hours later, changes
//! nothing. All writes are idempotent, and may be cut by a crash after any of their rows.

use bytes::Bytes;
use marram_store::Result;

/// A table. The names are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// The header, and up to which entry the rows follow the log.
    Header,
    /// Entries by their numbers.
    Log,
    /// Datasets and snapshots by their numbers.
    Datasets,
    /// Lines by their numbers.
    Lines,
    /// The newest item under each key of a line.
    Heads,
    /// Items that only snapshots have, by line, key and birth.
    Pasts,
    /// In which period which key of a line has changed.
    Marks,
    /// Blocks by their ids.
    Blocks,
    /// Which rows refer to a block.
    Uses,
    /// Blocks to which perhaps nothing refers.
    Loose,
    /// Runs of periods whose rows perhaps nothing needs.
    Work,
    /// The clients that have the store open.
    Clients,
    /// Which client holds which lock of an object.
    Locks,
    /// What users have asked for, by ascending numbers.
    Operations,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 14] = [
        Table::Header,
        Table::Log,
        Table::Datasets,
        Table::Lines,
        Table::Heads,
        Table::Pasts,
        Table::Marks,
        Table::Blocks,
        Table::Uses,
        Table::Loose,
        Table::Work,
        Table::Clients,
        Table::Locks,
        Table::Operations,
    ];

    /// Its name in a database.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Header => "header",
            Table::Log => "log",
            Table::Datasets => "datasets",
            Table::Lines => "lines",
            Table::Heads => "heads",
            Table::Pasts => "pasts",
            Table::Marks => "marks",
            Table::Blocks => "blocks",
            Table::Uses => "uses",
            Table::Loose => "loose",
            Table::Work => "work",
            Table::Clients => "clients",
            Table::Locks => "locks",
            Table::Operations => "operations",
        }
    }
}

/// A row: its key and its value.
pub type Row = (Bytes, Bytes);

/// Rows of a table in the order of their keys.
#[derive(Clone, Debug)]
pub struct Range {
    /// The table.
    pub table: Table,
    /// The smallest key, included.
    pub from: Vec<u8>,
    /// The largest key, included.
    pub to: Vec<u8>,
    /// Most rows of the answer.
    pub limit: usize,
    /// Those with the largest keys, the largest first.
    pub descending: bool,
}

impl Range {
    /// The row under one key.
    pub fn one(table: Table, key: impl Into<Vec<u8>>) -> Range {
        let from = key.into();
        Range { table, to: from.clone(), from, limit: 1, descending: false }
    }

    /// The first rows from one key to another, both included.
    pub fn first(table: Table, from: Vec<u8>, to: Vec<u8>, limit: usize) -> Range {
        Range { table, from, to, limit, descending: false }
    }
}

/// A row that is set (a value) or removed (none).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The table.
    pub table: Table,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Option<Vec<u8>>,
}

impl Change {
    /// Sets a row.
    pub fn put(table: Table, key: impl Into<Vec<u8>>, value: Vec<u8>) -> Change {
        Change { table, key: key.into(), value: Some(value) }
    }

    /// Removes a row, if it is there.
    pub fn remove(table: Table, key: impl Into<Vec<u8>>) -> Change {
        Change { table, key: key.into(), value: None }
    }
}

/// A row that must have this value for a step to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The table.
    pub table: Table,
    /// The key.
    pub key: Vec<u8>,
    /// The value; none if there must be no such row.
    pub value: Option<Vec<u8>>,
}

/// An open database. Every method is one round trip, and may be called from many threads.
///
/// # Errors
/// All of them: [`marram_store::Error::NoSpace`] if the database is full, or
/// [`marram_store::Error::Io`], after which a write may have been made or not.
pub trait Database: Send + Sync {
    /// Puts a row if its key is free; false if it is not, and then nothing has changed. The row,
    /// and all that was written before the call, is durable when this returns true.
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Makes changes in their order. A crash leaves a first part of them. They are durable with
    /// the next insertion, or when [`Database::settle`] returns.
    fn write(&self, changes: &[Change]) -> Result<()>;

    /// The rows of each range, all of one moment.
    fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>>;

    /// Which of these keys a table has.
    fn has(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<bool>>;

    /// [`Database::insert`] while a guard holds; false also if it does not. Nothing comes between
    /// the guard and the row.
    fn insert_if(&self, guard: &Guard, table: Table, key: &[u8], value: &[u8]) -> Result<bool>;

    /// [`Database::write`] while a guard holds; false if it does not, and then nothing has changed.
    /// Nothing comes between the guard and the changes.
    fn write_if(&self, guard: &Guard, changes: &[Change]) -> Result<bool>;

    /// [`Database::insert_if`] with a row, and changes beside it, all in one round trip. If the row
    /// is not put, then nothing has changed; a crash leaves all of it, or nothing. `None` where
    /// that is no step of its own, and then nothing was done either.
    fn insert_with(&self, _: &Guard, _row: &Change, _: &[Change]) -> Option<Result<bool>> {
        None
    }

    /// What the engine itself finds wrong with the database, in words; for the verifier. A server
    /// looks after its own.
    ///
    /// # Errors
    /// It cannot be looked at.
    fn faults(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// All that was written before the call is durable when it returns, also what other clients
    /// have written. For databases of which each write is durable this is nothing.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Bytes that the database takes where it lies.
    fn bytes(&self) -> Result<u64>;

    /// What tells this database from a copy of it, and stays for as long as it is there; empty
    /// where nothing does.
    fn identity(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Calls that have gone to a server up to now; none where there is no server.
    fn round_trips(&self) -> u64 {
        0
    }

    /// Whether it is behind a network, where bytes that are sent cost more than a search for what
    /// need not be.
    fn is_far(&self) -> bool {
        false
    }

    /// Whether questions about many ranges are one round trip, however many they are.
    fn asks_ranges_at_once(&self) -> bool {
        false
    }

    /// What kind of database it is, for people.
    fn engine(&self) -> &'static str;
}
