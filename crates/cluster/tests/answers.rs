//! A database of which an answer is lost.

use marram_cluster::Database;
use marram_cluster::database::{Change, Guard, Range, Row, Table};
use marram_store::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// What comes of the next entry of the log that is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is put, and nobody hears of it.
    Lost,
    /// It is put, nobody hears of it, and a second attempt finds that its place is taken.
    Repeated,
    /// It is not put, and the connection is lost.
    Refused,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    next: Option<(Answer, bool)>,
    /// Everything fails.
    is_away: bool,
}

/// A handle of a database, through which one client works.
#[derive(Clone)]
pub(crate) struct Answers {
    inner: Arc<dyn Database>,
    fate: Arc<Mutex<Fate>>,
}

impl Answers {
    pub(crate) fn new(inner: Arc<dyn Database>) -> Answers {
        Answers { inner, fate: Arc::default() }
    }

    /// The next entry has this answer; `goes` says whether the database is away from then on.
    pub(crate) fn next(&self, answer: Answer, goes: bool) {
        self.fate.lock().next = Some((answer, goes));
    }

    /// The database is away, or is back.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.fate.lock().is_away = is_away;
    }

    fn check(&self) -> Result<()> {
        match self.fate.lock().is_away {
            true => Err(lost()),
            false => Ok(()),
        }
    }
}

fn lost() -> Error {
    Error::Io("the connection is lost".to_owned())
}

impl Database for Answers {
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.check()?;
        self.inner.insert(table, key, value)
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        self.check()?;
        self.inner.write(changes)
    }

    fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        self.check()?;
        self.inner.read(ranges)
    }

    fn has(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<bool>> {
        self.check()?;
        self.inner.has(table, keys)
    }

    fn insert_if(&self, guard: &Guard, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.check()?;
        let next = if table == Table::Log { self.fate.lock().next.take() } else { None };
        let Some((answer, goes)) = next else {
            return self.inner.insert_if(guard, table, key, value);
        };
        if answer != Answer::Refused {
            assert!(self.inner.insert_if(guard, table, key, value)?, "nobody is in the way");
        }
        self.set_away(goes);
        match answer {
            Answer::Repeated => Ok(false),
            Answer::Lost | Answer::Refused => Err(lost()),
        }
    }

    fn write_if(&self, guard: &Guard, changes: &[Change]) -> Result<bool> {
        self.check()?;
        self.inner.write_if(guard, changes)
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn bytes(&self) -> Result<u64> {
        self.inner.bytes()
    }

    fn engine(&self) -> &'static str {
        "with lost answers"
    }
}
