//! Transactions: how one is begun and ended, and how they are reported.

use super::{Author, ConflictRow, PoolPlace};
use crate::error::Error;
use crate::mountinfo::DeviceNumber;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// A transaction to begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BeginOrder {
    /// A mount of the dataset, or the view of a transaction that it is to be inside of.
    pub(crate) directory: PathBuf,
    /// The same of the other datasets that it is to work in.
    #[serde(default)]
    pub(crate) also: Vec<PathBuf>,
    /// The transaction that it is to be inside of, in all of its datasets, in place of directories.
    #[serde(default)]
    pub(crate) inside: Option<String>,
    /// On whose behalf.
    pub(crate) author: Author,
    /// It stays open after the conversation in which it was begun, until nothing has been done in
    /// it for so many seconds. Without that it ends with the conversation.
    #[serde(default)]
    pub(crate) idle_seconds: Option<u64>,
    /// Its id, if the command has one from another pool that it works in, too.
    #[serde(default)]
    pub(crate) id: Option<String>,
    /// That pool.
    #[serde(default)]
    pub(crate) other: Option<PoolPlace>,
    /// The root of its view comes as a descriptor with the answer, and is seen at no path.
    #[serde(default)]
    pub(crate) descriptor: bool,
}

/// A transaction that has begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BegunTransaction {
    /// Its id: 32 digits of base 16.
    pub(crate) id: String,
    /// Where its view of the dataset is mounted, for the command to be shown it elsewhere.
    pub(crate) place: PathBuf,
    /// It stays open when the conversation ends.
    #[serde(default)]
    pub(crate) outlives: bool,
    /// The device number of the files in its view.
    #[serde(default)]
    pub(crate) device: Option<DeviceNumber>,
    /// The same of the other datasets that it works in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<BegunView>,
    /// The roots of its views, if they were asked for. They go beside the line, and not in it.
    #[serde(skip)]
    pub(crate) views: Vec<Arc<OwnedFd>>,
}

/// The view of another dataset.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BegunView {
    /// Where it is mounted.
    pub(crate) place: PathBuf,
    /// The device number of the files in it.
    pub(crate) device: Option<DeviceNumber>,
}

impl BegunTransaction {
    /// Where its views are mounted.
    pub(crate) fn places(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.place).chain(self.also.iter().map(|view| &view.place))
    }
}

/// What a commit has come to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CommitSummary {
    /// It has been done: all that the transaction has changed is in the dataset, and durable.
    pub(crate) committed: bool,
    /// What others have changed that the transaction has read or written, if it was refused: at
    /// most 10,000 places of each dataset.
    pub(crate) conflicts: Vec<ConflictRow>,
    /// Why it is not known whether it has been done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unknown: Option<Error>,
}

/// A transaction, as it is listed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TransactionRow {
    /// Its id.
    pub(crate) id: String,
    /// It is being committed or aborted, and cannot be named in a command any more.
    #[serde(default)]
    pub(crate) is_ending: bool,
    /// The dataset that it works in, or the first of them.
    pub(crate) dataset: String,
    /// A mount of that.
    #[serde(default)]
    pub(crate) directory: PathBuf,
    /// Since when it is open: seconds since 1970.
    pub(crate) seconds: i64,
    /// Whose it is.
    pub(crate) author: Author,
    /// Of how many files and directories it has read something.
    pub(crate) inodes_read: usize,
    /// Where its view of the dataset is mounted.
    pub(crate) place: PathBuf,
    /// The state that it began with, and the inode of the root of both.
    pub(crate) base: (String, u64),
    /// It ends by itself when nothing has been done in it for so long.
    #[serde(default)]
    pub(crate) idle_seconds: Option<u64>,
    /// What it has of the other datasets that it works in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<TransactionPart>,
    /// The other pool that it works in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) other: Option<PoolPlace>,
}

/// A transaction in another one of its datasets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TransactionPart {
    /// The dataset.
    pub(crate) dataset: String,
    /// A mount of that.
    pub(crate) directory: PathBuf,
    /// Where its view is mounted.
    pub(crate) place: PathBuf,
    /// The state that it began with, and the inode of the root of both.
    pub(crate) base: (String, u64),
}

impl TransactionRow {
    /// What it has of each of its datasets.
    pub(crate) fn parts(&self) -> Vec<TransactionPart> {
        let first = TransactionPart {
            dataset: self.dataset.clone(),
            directory: self.directory.clone(),
            place: self.place.clone(),
            base: self.base.clone(),
        };
        [first].into_iter().chain(self.also.iter().cloned()).collect()
    }
}
