//! What is said over the control socket. The reports are also what `--json` prints.

mod answer;
mod author;
mod comparison;
mod damage;
mod datasets;
mod dedup;
mod defragment;
mod grants;
mod merge;
mod mounts;
mod operation;
mod operation_log;
mod owners;
mod pass;
mod space;
mod status;
mod streams;
mod transactions;
mod two_pools;

pub(crate) use answer::Answer;
pub(crate) use author::Author;
pub(crate) use comparison::{
    CompareOrder, DifferenceRow, DirectoryOrder, SelectionOrder, VersionRow, VersionsOrder,
};
pub(crate) use damage::DamageRow;
pub(crate) use datasets::{DatasetRow, DestructionReport, ForkPlace, PropertyRow};
pub(crate) use dedup::{DedupSummary, DedupTotals, SharingReport, SharingRow};
pub(crate) use defragment::{BackgroundRewriting, DefragmentSummary, RewritingRow};
pub(crate) use grants::{GrantChange, GrantOrder, GrantRow};
pub(crate) use merge::{
    ConflictChoice, ConflictKey, ConflictRow, ConflictTexts, Decision, MergePlace, MergeRequest,
    MergeSummary, PathChoice,
};
pub(crate) use mounts::{MountReport, MountRequest, UnmountedPlace};
pub(crate) use operation::Operation;
pub(crate) use operation_log::{OperationRow, UndoReport};
pub(crate) use owners::{Owner, OwnerClass, OwnerRow};
pub(crate) use pass::{PassDirectory, PassEnd, PassOrder, SkippedRow};
pub(crate) use space::{
    FootprintReport, FootprintRequest, FootprintRow, HolderRow, InDatabase, SpaceReport, StayRow,
    ThinReport, ThinRequest,
};
pub(crate) use status::{DaemonReport, DeviceRow, ScheduleRow, StatusReport, WriteOrder};
pub(crate) use streams::{
    PartialRow, ReceiveOrder, SendOrder, ShownFile, ShownReport, StreamSummary,
};

pub(crate) use transactions::{
    BeginOrder, BegunTransaction, BegunView, CommitSummary, TransactionPart, TransactionRow,
};
pub(crate) use two_pools::{
    JointCommit, JointId, JointOutcome, PoolPlace, Resolution, Standing, TwoPoolRow,
};

use crate::error::Result;
use crate::identity::Identity;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The version of the program, which daemon and command must share.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Largest request that a daemon reads, in bytes: a merge brings what was decided about each
/// conflict.
pub(crate) const REQUEST_BYTES_MAX: u64 = 4 << 20;
/// Largest greeting that a command reads, in bytes: its sender is not known yet.
pub(crate) const GREETING_BYTES_MAX: u64 = 64 << 20;
/// Largest answer that a command reads, in bytes.
pub(crate) const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// The same of a merge: it tells up to 200,000 differences, with their paths and ranges, and each
/// conflict.
pub(crate) const MERGE_ANSWER_BYTES_MAX: u64 = 1 << 30;

/// What a daemon that is just ending answers.
pub(crate) const ENDING: &str = "is just being unmounted";
/// What is answered when just this is mounted on just that directory.
pub(crate) const THERE_ALREADY: &str = "is mounted there already";

/// The first line, from the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// The daemon's version.
    pub(crate) version: String,
    /// The daemon's process id.
    pub(crate) pid: i32,
    /// The pool, in hexadecimal.
    #[serde(default)]
    pub(crate) pool_id: String,
    /// Path of the pool.
    #[serde(default)]
    pub(crate) pool: PathBuf,
    /// What that path led to when the pool was opened; some other versions leave it out.
    #[serde(default)]
    pub(crate) served: Option<Identity>,
    /// The mount namespace in which it makes mounts.
    #[serde(default)]
    pub(crate) namespace: Option<u64>,
    /// What it has mounted.
    #[serde(default)]
    pub(crate) mounts: Vec<MountReport>,
    /// It shows streams in files, and has no pool.
    #[serde(default)]
    pub(crate) shows_streams: bool,
    /// Those files.
    #[serde(default)]
    pub(crate) shown: Vec<ShownFile>,
    /// The version of what libraries say to it about transactions.
    #[serde(default)]
    pub(crate) transactions: u32,
}

/// The second line, from the command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Something that can also be done to a pool that nobody has mounted.
    Perform(Operation),
    /// The same, with an author for the log of operations.
    PerformFor {
        /// What.
        operation: Operation,
        /// The author.
        author: Author,
    },
    /// Mount another dataset or snapshot of the pool.
    Mount(MountRequest),
    /// Tell what an inode of a mount belongs to.
    Locate {
        /// Where the mount is.
        directory: PathBuf,
        /// The number that the mount shows.
        ino: u64,
    },
    /// Tell what differs between two states: the rows come in pieces before the answer.
    Compare(CompareOrder),
    /// Send a snapshot: the stream comes in pieces before the answer.
    Send(SendOrder),
    /// Receive a stream, whose pieces follow this line.
    Receive(ReceiveOrder),
    /// Find and share equal content; given up when the client goes away.
    Dedup(PassOrder),
    /// Bring together what lies in crumbs; given up when the client goes away.
    Defragment(PassOrder),
    /// The client is about to unmount: the conversation goes on, however long that takes.
    Unmounting,
    /// It has been; the answer comes when everything is durable, and the mount gone.
    Unmounted(UnmountedPlace),
    /// Begin a transaction: the conversation goes on, and with its end the transaction is aborted.
    Begin(BeginOrder),
    /// Commit the transaction of this id.
    Commit(String),
    /// Abort the transaction of this id.
    Abort(String),
    /// Tell which transactions are open.
    Transactions,
    /// Prepare the commit of a transaction over two pools, and have the other one decide.
    Prepare(JointCommit),
    /// Commit a transaction over two pools that the other one has prepared.
    Decide(JointCommit),
    /// Tell how a transaction over two pools stands.
    Standing(JointId),
    /// End or forget a transaction over two pools, as the other pool has it.
    Resolve(JointId, Resolution),
}

/// The third line, from the daemon.
pub(crate) type Response = Result<Answer>;
