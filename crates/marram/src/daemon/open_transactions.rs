//! The transactions of a daemon that are open, by their ids.
//!
//! The invariant: whatever begins, is open or ends is in the table, and so is its view for as long
//! as the kernel has it. So limits hold however many begin at once, and nothing is committed while
//! anything goes on inside of it.

use crate::control::protocol::{Author, PoolPlace, TransactionPart, TransactionRow};
use crate::error::{Error, Result};
use marram_fuse::SessionHandle;
use marram_store::{DatasetName, Source};
use marram_tx::Recording;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most transactions that are open or held at a time: each has a mount and its threads.
const VIEWS_MAX: usize = 64;
/// Most views of transactions of users at a time: root has room for others.
const VIEWS_OF_USERS_MAX: usize = 32;
/// The same of one user.
const VIEWS_OF_EACH_MAX: usize = 16;
/// Most transactions that are inside of each other, the outermost among them.
const DEPTH_MAX: usize = 8;

/// See the module.
#[derive(Default)]
pub(super) struct OpenTransactions(Mutex<Table>);

#[derive(Default)]
struct Table {
    open: BTreeMap<String, OpenTransaction>,
    /// Of each that begins, is open or ends, inside of which it is.
    outer: BTreeMap<String, String>,
    /// Those that were taken to be ended, and have not ended, as they were then.
    ending: BTreeMap<String, Option<TransactionRow>>,
    /// Their views, which last for as long as descriptors into them are open.
    views: Vec<View>,
}

/// The view of a transaction that begins, is open, or has ended.
struct View {
    fork: Source,
    /// Whose it is, if it is neither root's nor that of the daemon's own user.
    other: Option<u32>,
}

/// One that is open.
pub(super) struct OpenTransaction {
    /// What it has of each of its datasets.
    pub(super) parts: Vec<Part>,
    /// Since when it is open: seconds since 1970.
    pub(super) seconds: i64,
    /// Whose it is.
    pub(super) author: Author,
    /// Of one that outlives its conversation: whether it is in use.
    pub(super) idle: Option<Idle>,
    /// The other pool that it works in.
    pub(super) other: Option<PoolPlace>,
}

/// A transaction in one dataset.
pub(super) struct Part {
    /// The fork that it works in.
    pub(super) fork: Source,
    /// The dataset that this is a fork of.
    pub(super) dataset: DatasetName,
    /// A mount of that.
    pub(super) directory: PathBuf,
    /// The state that it began with, and the inode of the root of both.
    pub(super) base: (Source, u64),
    /// What its view shows, and has noted.
    pub(super) recording: Arc<Recording>,
    /// The mount of its view.
    pub(super) session: SessionHandle,
    /// Where that is.
    pub(super) place: PathBuf,
}

impl OpenTransaction {
    /// Answers nothing more to the programs in it.
    pub(super) fn end(&self) {
        self.parts.iter().for_each(|part| part.recording.end());
    }

    /// As it is listed while it is open.
    fn row(&self, id: &str) -> Option<TransactionRow> {
        let mut parts = self.parts.iter().map(Part::row);
        let TransactionPart { dataset, directory, place, base } = parts.next()?;
        Some(TransactionRow {
            id: id.to_owned(),
            is_ending: false,
            dataset,
            directory,
            seconds: self.seconds,
            author: self.author.clone(),
            inodes_read: self.parts.iter().map(|part| part.recording.inodes_read()).sum(),
            place,
            base,
            idle_seconds: self.idle.as_ref().map(|idle| idle.limit.as_secs()),
            also: parts.collect(),
            other: self.other.clone(),
        })
    }

    /// Whether it is one that stays open without use for too long.
    fn is_idle(&mut self) -> bool {
        let operations = self.operations();
        self.idle.as_mut().is_some_and(|idle| idle.is_over(operations))
    }

    fn operations(&self) -> u64 {
        self.parts.iter().map(|part| part.recording.operations()).sum()
    }
}

impl Part {
    fn row(&self) -> TransactionPart {
        TransactionPart {
            dataset: self.dataset.to_string(),
            directory: self.directory.clone(),
            place: self.place.clone(),
            base: (self.base.0.to_string(), self.base.1),
        }
    }
}

/// Since when nothing has been done in a transaction, and how long that may go on.
pub(super) struct Idle {
    limit: Duration,
    since: Instant,
    operations: u64,
}

impl Idle {
    /// In use now.
    pub(super) fn new(limit: Duration) -> Idle {
        Idle { limit, since: Instant::now(), operations: 0 }
    }

    /// Whether nothing has been done for too long, when so many operations have begun.
    fn is_over(&mut self, operations: u64) -> bool {
        if operations != self.operations {
            (self.operations, self.since) = (operations, Instant::now());
        }
        self.since.elapsed() >= self.limit
    }
}

impl OpenTransactions {
    /// Takes a place in the table for one that is to begin, `inside` of another one or by itself,
    /// with so many forks.
    ///
    /// # Errors
    /// There are too many, or too many inside of each other; the other one is not open; there is
    /// one of that id, or a descriptor holds what has ended of it.
    pub(super) fn reserve(
        &self,
        (id, forks): (&str, &[Source]),
        author: &Author,
        inside: Option<&str>,
    ) -> Result<()> {
        let mut table = self.0.lock();
        if table.knows(id, forks) {
            return Err(Error::usage(format!("there is a transaction {id} already")));
        }
        table.refuse_many(author, forks.len())?;
        if let Some(outer) = inside {
            table.refuse_inside(outer)?;
            table.outer.insert(id.to_owned(), outer.to_owned());
        }
        let other = author.bound.as_ref().map(|_| author.user);
        table.views.extend(forks.iter().map(|fork| View { fork: fork.clone(), other }));
        Ok(())
    }

    /// One that was to begin, and has not.
    pub(super) fn cancel(&self, (id, forks): (&str, &[Source])) {
        self.0.lock().views.retain(|view| !forks.contains(&view.fork));
        self.has_ended(id);
    }

    /// Whose one is, if it is open.
    pub(super) fn user_of(&self, id: &str) -> Option<u32> {
        self.0.lock().open.get(id).map(|open| open.author.user)
    }

    /// The other pool of one, if it is open and works in another one.
    pub(super) fn other_pool_of(&self, id: &str) -> Option<PoolPlace> {
        self.0.lock().open.get(id)?.other.clone()
    }

    /// Whether one is open, and was used of late.
    pub(super) fn is_in_use(&self, id: &str) -> bool {
        let mut table = self.0.lock();
        let is_busy = table.outer.values().any(|outer| outer == id);
        is_busy || table.open.get_mut(id).is_some_and(|open| !open.is_idle())
    }

    /// Where the views of one are, if it is open.
    pub(super) fn places_of(&self, id: &str) -> Option<Vec<PathBuf>> {
        let table = self.0.lock();
        let open = table.open.get(id)?;
        Some(open.parts.iter().map(|part| part.place.clone()).collect())
    }

    /// A mount of the dataset whose view is at a place.
    pub(super) fn directory_of(&self, place: &Path) -> Option<PathBuf> {
        let table = self.0.lock();
        let mut parts = table.open.values().flat_map(|open| &open.parts);
        parts.find(|part| part.place == place).map(|part| part.directory.clone())
    }

    /// One that was reserved is open. False if the one that it is inside of has ended meanwhile.
    pub(super) fn put(&self, id: &str, open: OpenTransaction) -> bool {
        let mut table = self.0.lock();
        table.open.insert(id.to_owned(), open);
        table.outer.get(id).is_none_or(|outer| table.open.contains_key(outer))
    }

    /// Takes one to be ended, which goes on until [`OpenTransactions::has_ended`].
    ///
    /// # Errors
    /// It is not open.
    pub(super) fn take(&self, id: &str) -> Result<OpenTransaction> {
        self.0.lock().take(id)
    }

    /// The same, if nothing goes on inside of it.
    ///
    /// # Errors
    /// It is not open; something goes on inside of it.
    pub(super) fn take_alone(&self, id: &str) -> Result<OpenTransaction> {
        let mut table = self.0.lock();
        match table.inside(id).first() {
            Some(inner) => Err(Error::in_use(format!(
                "transaction {inner} is open inside of transaction {id}"
            ))
            .hint("commit or abort what is inside of it first; nothing was changed")),
            None => table.take(id),
        }
    }

    /// One that was taken has ended.
    pub(super) fn has_ended(&self, id: &str) {
        let mut table = self.0.lock();
        table.outer.remove(id);
        table.ending.remove(id);
    }

    /// Refuses one that is just being ended: it may be committed.
    ///
    /// # Errors
    /// That it is.
    pub(super) fn refuse_ending(&self, id: &str) -> Result<()> {
        self.0.lock().refuse_ending(id)
    }

    /// Whether one may still be committed: it is open, or just being ended.
    pub(super) fn may_be_committed(&self, id: &str) -> bool {
        let table = self.0.lock();
        table.open.contains_key(id) || table.ending.contains_key(id)
    }

    /// Those that are open inside of another one.
    pub(super) fn open_inside(&self, id: &str) -> Vec<String> {
        let table = self.0.lock();
        let mut inside = table.inside(id);
        inside.retain(|inner| table.open.contains_key(inner));
        inside
    }

    /// What the one that another is inside of shows, and has noted, of each of its forks, if it is
    /// open.
    pub(super) fn recordings_around(&self, id: &str) -> Vec<(Source, Arc<Recording>)> {
        let table = self.0.lock();
        let outer = table.outer.get(id).and_then(|outer| table.open.get(outer));
        let parts = outer.into_iter().flat_map(|outer| &outer.parts);
        parts.map(|part| (part.fork.clone(), Arc::clone(&part.recording))).collect()
    }

    /// The view of a fork is no more.
    pub(super) fn forget(&self, fork: &Source) {
        self.0.lock().views.retain(|view| view.fork != *fork);
    }

    /// The ids of those in which nothing has been done for too long, and inside of which nothing
    /// goes on.
    pub(super) fn forgotten(&self) -> Vec<String> {
        let mut table = self.0.lock();
        let busy: BTreeSet<String> = table.outer.values().cloned().collect();
        let forgotten = table
            .open
            .iter_mut()
            .filter_map(|(id, open)| (open.is_idle() && !busy.contains(id)).then(|| id.clone()));
        forgotten.collect()
    }

    /// What is open, and what is being ended.
    pub(super) fn rows(&self) -> Vec<TransactionRow> {
        let table = self.0.lock();
        let open = table.open.iter().filter_map(|(id, open)| open.row(id));
        open.chain(table.ending.values().flatten().cloned()).collect()
    }
}

/// That a transaction is not open, or not any more.
pub(super) fn not_open(id: &str) -> Error {
    Error::not_found(format!("no transaction {id} is open"))
}

impl Table {
    /// Whether one of that id begins, is open or ends, or a view of it is there.
    fn knows(&self, id: &str, forks: &[Source]) -> bool {
        self.open.contains_key(id)
            || self.ending.contains_key(id)
            || self.outer.contains_key(id)
            || self.views.iter().any(|view| forks.contains(&view.fork))
    }

    fn refuse_many(&self, author: &Author, views: usize) -> Result<()> {
        if self.views.len() + views > VIEWS_MAX {
            return Err(Error::in_use(format!(
                "{VIEWS_MAX} transactions are open, or have ended and are held by descriptors"
            ))
            .hint("try again when one has gone; `marram tx list` shows those that are open"));
        }
        if author.bound.is_none() {
            return Ok(());
        }
        let others = || self.views.iter().filter_map(|view| view.other);
        let (all, own) = (others().count(), others().filter(|it| *it == author.user).count());
        if all + views <= VIEWS_OF_USERS_MAX && own + views <= VIEWS_OF_EACH_MAX {
            return Ok(());
        }
        Err(Error::in_use(format!(
            "{own} transactions of yours and {all} of all users are open, or held by \
             descriptors; at most {VIEWS_OF_EACH_MAX} and {VIEWS_OF_USERS_MAX} can be"
        ))
        .hint("close what was opened in those that have ended"))
    }

    fn refuse_inside(&self, outer: &str) -> Result<()> {
        if !self.open.contains_key(outer) {
            return Err(not_open(outer));
        }
        let around = std::iter::successors(Some(outer), |id| self.outer.get(*id).map(|it| &**it));
        match around.count() < DEPTH_MAX {
            true => Ok(()),
            false => Err(Error::usage(format!(
                "{DEPTH_MAX} transactions are inside of each other already"
            ))
            .hint("begin it in one that is further out")),
        }
    }

    /// Refuses one that is just being ended: it may be committed.
    fn refuse_ending(&self, id: &str) -> Result<()> {
        match self.ending.contains_key(id) {
            false => Ok(()),
            true => Err(Error::unknown(format!("transaction {id} is being ended at this moment"))
                .hint("`marram tx show TARGET ID` tells what has become of it")),
        }
    }

    /// What begins, is open or ends inside of one.
    fn inside(&self, id: &str) -> Vec<String> {
        let is_inside = |(_, outer): &(&String, &String)| outer.as_str() == id;
        self.outer.iter().filter(is_inside).map(|(inner, _)| inner.clone()).collect()
    }

    fn take(&mut self, id: &str) -> Result<OpenTransaction> {
        self.refuse_ending(id)?;
        let taken = self.open.remove(id).ok_or_else(|| not_open(id))?;
        let row = taken.row(id).map(|row| TransactionRow { is_ending: true, ..row });
        self.ending.insert(id.to_owned(), row);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::{Idle, OpenTransactions};
    use crate::control::protocol::Author;
    use marram_store::{DatasetName, Source};
    use std::time::Duration;

    /// What has ended has a view for as long as descriptors into it are open.
    #[test]
    fn an_id_is_of_one_transaction_until_its_views_are_gone() {
        let table = OpenTransactions::default();
        let id = "0123456789abcdef".repeat(2);
        let forks = [Source::live(DatasetName::of_transaction(&id).unwrap())];
        let author = Author { user: 7, command: "true".to_owned(), bound: None };
        let reserve = || table.reserve((&id, &forks), &author, None);
        reserve().unwrap();
        assert!(reserve().is_err());
        table.has_ended(&id);
        assert!(reserve().is_err());
        table.forget(&forks[0]);
        reserve().unwrap();
    }

    #[test]
    fn what_is_in_use_is_not_idle() {
        let mut idle = Idle::new(Duration::ZERO);
        assert!(idle.is_over(0));
        let mut idle = Idle::new(Duration::from_millis(200));
        for operations in 1..20 {
            std::thread::sleep(Duration::from_millis(15));
            assert!(!idle.is_over(operations));
        }
        std::thread::sleep(Duration::from_millis(210));
        assert!(idle.is_over(19));
    }
}
