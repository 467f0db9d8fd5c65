//! The transactions of a daemon that are open, by their ids.

use crate::control::protocol::{Author, TransactionRow};
use crate::error::{Error, Result};
use marram_fuse::SessionHandle;
use marram_store::{DatasetName, Source};
use marram_tx::Recording;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// See the module.
#[derive(Default)]
pub(super) struct OpenTransactions(Mutex<Table>);

#[derive(Default)]
struct Table {
    open: BTreeMap<String, OpenTransaction>,
    /// Their views, which last for as long as descriptors into them are open.
    views: Vec<View>,
}

/// The view of a transaction that is open, or that has ended.
struct View {
    fork: Source,
    /// Whose it is, if it is neither root's nor that of the daemon's own user.
    other: Option<u32>,
}

/// One that is open.
pub(super) struct OpenTransaction {
    /// The fork that it works in.
    pub(super) fork: Source,
    /// The dataset that this is a fork of.
    pub(super) dataset: DatasetName,
    /// The state that it began with, and the inode of the root of both.
    pub(super) base: (Source, u64),
    /// What its view shows, and has noted.
    pub(super) recording: Arc<Recording>,
    /// The mount of its view.
    pub(super) session: SessionHandle,
    /// Where that is.
    pub(super) place: PathBuf,
    /// Since when it is open: seconds since 1970.
    pub(super) seconds: i64,
    /// Whose it is.
    pub(super) author: Author,
    /// Of one that outlives its conversation: whether it is in use.
    pub(super) idle: Option<Idle>,
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
    /// How many views there are.
    pub(super) fn count(&self) -> usize {
        self.0.lock().views.len()
    }

    /// How many views there are of other users than root and the daemon's own: of all, and of one.
    pub(super) fn count_of_others(&self, user: u32) -> (usize, usize) {
        let table = self.0.lock();
        let others = || table.views.iter().filter_map(|view| view.other);
        (others().count(), others().filter(|other| *other == user).count())
    }

    /// Whose one is, if it is open.
    pub(super) fn user_of(&self, id: &str) -> Option<u32> {
        self.0.lock().open.get(id).map(|open| open.author.user)
    }

    /// One more.
    pub(super) fn put(&self, id: &str, open: OpenTransaction) {
        let other = open.author.bound.as_ref().map(|_| open.author.user);
        let mut table = self.0.lock();
        table.views.push(View { fork: open.fork.clone(), other });
        table.open.insert(id.to_owned(), open);
    }

    /// Takes one to be ended.
    ///
    /// # Errors
    /// It is not open.
    pub(super) fn take(&self, id: &str) -> Result<OpenTransaction> {
        let gone = || Error::not_found(format!("no transaction {id} is open"));
        self.0.lock().open.remove(id).ok_or_else(gone)
    }

    /// The view of a fork has ended: what its transaction has done goes with it.
    pub(super) fn forget(&self, fork: &Source) {
        let mut table = self.0.lock();
        table.open.retain(|_, open| open.fork != *fork);
        table.views.retain(|view| view.fork != *fork);
    }

    /// The ids of those in which nothing has been done for too long.
    pub(super) fn forgotten(&self) -> Vec<String> {
        let mut table = self.0.lock();
        let forgotten = table.open.iter_mut().filter_map(|(id, open)| {
            let operations = open.recording.operations();
            let idle = open.idle.as_mut()?;
            idle.is_over(operations).then(|| id.clone())
        });
        forgotten.collect()
    }

    /// What is open.
    pub(super) fn rows(&self) -> Vec<TransactionRow> {
        let row = |(id, open): (&String, &OpenTransaction)| TransactionRow {
            id: id.clone(),
            dataset: open.dataset.to_string(),
            seconds: open.seconds,
            author: open.author.clone(),
            inodes_read: open.recording.inodes_read(),
            place: open.place.clone(),
            base: (open.base.0.to_string(), open.base.1),
            idle_seconds: open.idle.as_ref().map(|idle| idle.limit.as_secs()),
        };
        self.0.lock().open.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Idle;
    use std::time::Duration;

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
