//! Answers: one variant for each kind of report.

use super::{
    BegunTransaction, CommitSummary, DatasetRow, DedupSummary, DefragmentSummary,
    DestructionReport, FootprintReport, ForkPlace, GrantRow, JointOutcome, MergeSummary,
    MountReport, OperationRow, OwnerRow, PartialRow, PropertyRow, SharingReport, ShownReport,
    SpaceReport, Standing, StatusReport, StreamSummary, ThinReport, TransactionRow, UndoReport,
    VersionRow,
};
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// What the daemon answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// It is done, and the engine took so long, without the way there and back.
    Timed {
        /// Nanoseconds.
        engine_nanoseconds: u64,
    },
    /// These snapshots have been taken, all at one moment.
    Snapshots {
        /// `DATASET@SNAPSHOT`.
        names: Vec<String>,
        /// How long the engine took, in nanoseconds.
        engine_nanoseconds: u64,
    },
    /// What automatic snapshots go, and which stay though the rule does not keep them.
    Thinned(ThinReport),
    /// What holds the space.
    Space(SpaceReport),
    /// What files take.
    Footprints(FootprintReport),
    /// What is saved by sharing.
    Sharing(SharingReport),
    /// The dataset goes on from the snapshot.
    RolledBack {
        /// The snapshot that its state before has been kept as.
        kept: String,
        /// How long the engine took, in nanoseconds.
        engine_nanoseconds: u64,
    },
    /// The directory is what it was in the snapshot.
    DirectoryRolledBack {
        /// The snapshot that the dataset's state before has been kept as, if it has been.
        kept: Option<String>,
        /// It was not so before.
        is_changed: bool,
        /// How long the engine took, in nanoseconds.
        engine_nanoseconds: u64,
    },
    /// The versions of a file or directory, newest first.
    Versions(Vec<VersionRow>),
    /// What a merge did, would do, or why it did not.
    Merged(Box<MergeSummary>),
    /// What has been sent or received.
    Streamed(Box<StreamSummary>),
    /// What is kept of streams that were cut.
    Partials(Vec<PartialRow>),
    /// What equal content was found, and shared.
    Deduplicated(Box<DedupSummary>),
    /// What was rewritten.
    Defragmented(Box<DefragmentSummary>),
    /// What an inode of a mount belongs to.
    Located {
        /// `DATASET` or `DATASET@SNAPSHOT`.
        source: String,
        /// Its number there, if it is a directory in one; else 0.
        ino: u64,
        /// The number there of what is shown as the root.
        root: u64,
    },
    /// Where the directory is that a fork began as.
    ForkPlace(ForkPlace),
    /// What would go or went.
    Destruction(DestructionReport),
    /// This went from sight.
    Hidden {
        /// What, and how much comes back when it is let go.
        report: DestructionReport,
        /// Until when an undo can bring it back: seconds since 1970. None if it is gone for good.
        kept_until_seconds: Option<i64>,
    },
    /// What users and groups may do beside root.
    Grants(Vec<GrantRow>),
    /// The log of operations.
    Operations(Vec<OperationRow>),
    /// An operation was taken back.
    Undone(Box<UndoReport>),
    /// Datasets and snapshots.
    Datasets(Vec<DatasetRow>),
    /// Properties.
    Properties(Vec<PropertyRow>),
    /// Owners.
    Owners(Vec<OwnerRow>),
    /// How the pool is.
    Status(Box<StatusReport>),
    /// How streams are that are mounted.
    ShownStatus(Box<ShownReport>),
    /// The pool's new size, in bytes.
    Grown {
        /// Bytes.
        size_bytes: u64,
    },
    /// A transaction has begun.
    Begun(BegunTransaction),
    /// A transaction was committed, or refused.
    Concluded(CommitSummary),
    /// What has become of a commit in two pools.
    Joint(JointOutcome),
    /// How a transaction over two pools stands.
    Standing(Standing),
    /// Transactions that are open.
    Transactions(Vec<TransactionRow>),
    /// The mount answers.
    Mounted(MountReport),
    /// The mount is gone.
    Unmounted {
        /// How many the daemon has left; with none it closes the pool and ends.
        mounts_left: usize,
        /// Why what was written through it may not all be durable.
        not_durable: Option<Error>,
        /// The directory is free, but the file system is still in use somewhere else.
        #[serde(default)]
        used_elsewhere: bool,
    },
}
