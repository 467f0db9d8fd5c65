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

/// See the module.
#[derive(Default)]
pub(super) struct OpenTransactions(Mutex<BTreeMap<String, OpenTransaction>>);

/// One that is open.
pub(super) struct OpenTransaction {
    /// The fork that it works in.
    pub(super) fork: Source,
    /// The dataset that this is a fork of.
    pub(super) dataset: DatasetName,
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
}

impl OpenTransactions {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// One more.
    pub(super) fn put(&self, id: &str, open: OpenTransaction) {
        self.0.lock().insert(id.to_owned(), open);
    }

    /// Takes one to be ended.
    ///
    /// # Errors
    /// It is not open.
    pub(super) fn take(&self, id: &str) -> Result<OpenTransaction> {
        let gone = || Error::not_found(format!("no transaction {id} is open"));
        self.0.lock().remove(id).ok_or_else(gone)
    }

    /// The view of a fork has ended: what its transaction has done goes with it.
    pub(super) fn forget(&self, fork: &Source) {
        self.0.lock().retain(|_, open| open.fork != *fork);
    }

    /// What is open.
    pub(super) fn rows(&self) -> Vec<TransactionRow> {
        let row = |(id, open): (&String, &OpenTransaction)| TransactionRow {
            id: id.clone(),
            dataset: open.dataset.to_string(),
            seconds: open.seconds,
            author: open.author.clone(),
            inodes_read: open.recording.inodes_read(),
        };
        self.0.lock().iter().map(row).collect()
    }
}
