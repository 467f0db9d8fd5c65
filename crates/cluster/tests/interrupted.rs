//! A database that lets something else happen in the middle of an operation, and one that lies.

use marram_cluster::Database;
use marram_cluster::database::{Change, Guard, Range, Row, Table};
use marram_store::Result;
use parking_lot::Mutex;
use std::sync::Arc;

type Event = Box<dyn FnOnce() + Send>;

/// A handle of a database, through which one client works.
#[derive(Clone)]
pub(crate) struct Interrupted {
    inner: Arc<dyn Database>,
    next: Arc<Mutex<Option<(At, Event)>>>,
    bug: Arc<Mutex<Option<Bug>>>,
    /// Happens when the answer of the next write is lost, before it is made again.
    between: Arc<Mutex<Option<Event>>>,
}

/// Before which call of the database something happens, the first being 0.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    /// Of all calls.
    Call(u32),
    /// Of those that write.
    Write(u32),
}

impl At {
    /// Before the call behind this one; none if it is before this one.
    fn next(self, writes: bool) -> Option<At> {
        match self {
            At::Call(calls) => calls.checked_sub(1).map(At::Call),
            At::Write(calls) if writes => calls.checked_sub(1).map(At::Write),
            At::Write(calls) => Some(At::Write(calls)),
        }
    }
}

/// What a planted bug does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// It never sees the next entry of the log.
    Blind,
    /// It publishes whatever has come meanwhile.
    NoFence,
    /// It writes rows whatever they follow, and locks whatever was locked.
    NoGuard,
    /// It does not see that rows refer to blocks.
    NoUses,
    /// Its batches are as they were made, whatever has come meanwhile ([`crate::blind`]).
    Once,
}

impl Interrupted {
    pub(crate) fn new(inner: Arc<dyn Database>) -> Interrupted {
        Interrupted { inner, next: Arc::default(), bug: Arc::default(), between: Arc::default() }
    }

    /// Plants a bug.
    pub(crate) fn plant(&self, bug: Option<Bug>) {
        *self.bug.lock() = bug;
    }

    fn is_planted(&self, bug: Bug) -> bool {
        *self.bug.lock() == Some(bug)
    }

    /// Lets `event` happen before a later call.
    pub(crate) fn at(&self, at: At, event: Event) {
        *self.next.lock() = Some((at, event));
    }

    /// Loses the answer of the next write; lets `event` happen before that is made again.
    pub(crate) fn lose_answer(&self, event: Event) {
        *self.between.lock() = Some(event);
    }

    /// Takes away what has not happened; whether it was there.
    pub(crate) fn take(&self) -> Option<Event> {
        self.next.lock().take().map(|(_, event)| event)
    }

    fn call(&self, writes: bool) {
        let mut next = self.next.lock();
        let Some((at, event)) = next.take() else { return };
        if let Some(at) = at.next(writes) {
            *next = Some((at, event));
            return;
        }
        drop(next);
        apart(event);
    }

    /// Makes a write whose answer is lost, if that is to happen now.
    fn twice(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(event) = self.between.lock().take() else { return Ok(()) };
        write()?;
        apart(event);
        Ok(())
    }
}

/// On a thread of its own, as another process would be: the order of locks is a thread's.
fn apart(event: Event) {
    std::thread::spawn(event).join().unwrap();
}

impl Database for Interrupted {
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.call(true);
        if self.is_planted(Bug::NoGuard) && table == Table::Locks {
            self.inner.write(&[Change::put(table, key, value.to_vec())])?;
            return Ok(true);
        }
        self.inner.insert(table, key, value)
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        self.call(true);
        self.twice(|| self.inner.write(changes))?;
        self.inner.write(changes)
    }

    fn read(&self, ranges: &[Range]) -> Result<Vec<Vec<Row>>> {
        self.call(false);
        let mut found = self.inner.read(ranges)?;
        if self.is_planted(Bug::NoUses) {
            let of_uses = ranges.iter().zip(&mut found).filter(|it| it.0.table == Table::Uses);
            of_uses.for_each(|(_, rows)| rows.clear());
        }
        let is_log = ranges.first().is_some_and(|range| range.table == Table::Log);
        if self.is_planted(Bug::Blind) && is_log && ranges.len() == 2 {
            // "Nothing has come": the rows follow as far as the client has asked behind.
            found[0].clear();
            let asked = u64::from_be_bytes(ranges[0].from[..].try_into().unwrap());
            let log = Range::one(Table::Log, (asked - 1).to_be_bytes());
            assert!(!self.inner.read(&[log])?.concat().is_empty());
            found[1] = self.followed_then(asked - 1);
        }
        Ok(found)
    }

    fn has(&self, table: Table, keys: &[Vec<u8>]) -> Result<Vec<bool>> {
        self.call(false);
        self.inner.has(table, keys)
    }

    fn insert_if(&self, guard: &Guard, table: Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.call(true);
        if self.is_planted(Bug::NoFence) || self.is_planted(Bug::Blind) {
            self.inner.write(&[Change::put(table, key, value.to_vec())])?;
            return Ok(true);
        }
        self.inner.insert_if(guard, table, key, value)
    }

    fn write_if(&self, guard: &Guard, changes: &[Change]) -> Result<bool> {
        self.call(true);
        if self.is_planted(Bug::NoFence)
            || self.is_planted(Bug::Blind)
            || self.is_planted(Bug::NoGuard)
        {
            self.twice(|| self.inner.write(changes))?;
            return self.inner.write(changes).map(|()| true);
        }
        self.twice(|| self.inner.write_if(guard, changes).map(|_lost| ()))?;
        self.inner.write_if(guard, changes)
    }

    fn insert_with(&self, guard: &Guard, row: &Change, changes: &[Change]) -> Option<Result<bool>> {
        // Bugs are planted in the two steps.
        if !self.inner.is_far() || self.bug.lock().is_some() {
            return None;
        }
        self.call(true);
        self.inner.insert_with(guard, row, changes)
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    fn identity(&self) -> Result<Vec<u8>> {
        self.inner.identity()
    }

    fn bytes(&self) -> Result<u64> {
        self.inner.bytes()
    }

    fn is_far(&self) -> bool {
        self.inner.is_far()
    }

    fn asks_ranges_at_once(&self) -> bool {
        self.inner.asks_ranges_at_once()
    }

    fn engine(&self) -> &'static str {
        "interrupted"
    }
}

impl Interrupted {
    /// The row that says how far rows follow the log, as it would be there.
    fn followed_then(&self, number: u64) -> Vec<Row> {
        let seal = crate::stores::seal();
        let key = marram_cluster::format::keys::FOLLOWED;
        let value = seal.close(Table::Header, key, number.to_be_bytes().to_vec());
        vec![(key.into(), value.into())]
    }
}
