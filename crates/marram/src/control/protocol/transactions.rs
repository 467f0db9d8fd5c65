//! Transactions: how one is begun and ended, and how they are reported.

use super::{Author, ConflictRow};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A transaction to begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BeginOrder {
    /// A mount of the dataset.
    pub(crate) directory: PathBuf,
    /// On whose behalf.
    pub(crate) author: Author,
    /// It stays open after the conversation in which it was begun, until nothing has been done in
    /// it for so many seconds. Without that it ends with the conversation.
    #[serde(default)]
    pub(crate) idle_seconds: Option<u64>,
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
}

/// What a commit has come to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CommitSummary {
    /// It has been done: all that the transaction has changed is in the dataset, and durable.
    pub(crate) committed: bool,
    /// What others have changed that the transaction has read or written, if it was refused.
    pub(crate) conflicts: Vec<ConflictRow>,
}

/// A transaction, as it is listed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TransactionRow {
    /// Its id.
    pub(crate) id: String,
    /// The dataset that it works in.
    pub(crate) dataset: String,
    /// Since when it is open: seconds since 1970.
    pub(crate) seconds: i64,
    /// Whose it is.
    pub(crate) author: Author,
    /// Of how many files and directories it has read something.
    pub(crate) inodes_read: usize,
    /// Where its view of the dataset is mounted.
    pub(crate) place: PathBuf,
    /// It ends by itself when nothing has been done in it for so long.
    #[serde(default)]
    pub(crate) idle_seconds: Option<u64>,
}
