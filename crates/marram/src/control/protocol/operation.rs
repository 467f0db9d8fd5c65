//! Operations: what can be asked of a pool, mounted or not.

use super::{
    DirectoryOrder, FootprintRequest, GrantOrder, JointId, MergeRequest, Owner, Resolution,
    ThinRequest, VersionsOrder,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What can be asked of a pool, mounted or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Keep the present state of a dataset.
    Snapshot {
        /// The dataset.
        dataset: String,
        /// The snapshot's name.
        snapshot: String,
    },
    /// Keep the present state of a dataset and of all below it, at one moment.
    SnapshotBelow {
        /// The dataset.
        dataset: String,
        /// The name of the snapshots.
        snapshot: String,
    },
    /// Destroy automatic snapshots that are too many.
    Thin(ThinRequest),
    /// End or forget a transaction over two pools.
    Resolve {
        /// Which.
        transaction: JointId,
        /// How.
        resolution: Resolution,
    },
    /// Make a writable dataset that begins as a snapshot.
    Clone {
        /// `DATASET@SNAPSHOT`.
        origin: String,
        /// The new dataset.
        name: String,
    },
    /// Make a writable fork of a directory.
    Fork {
        /// The dataset that it is in.
        dataset: String,
        /// The fork's name.
        name: String,
        /// The directory's inode in the dataset.
        root: u64,
    },
    /// Tell where the directory is now that a fork began as.
    ForkPlace {
        /// The fork.
        fork: String,
    },
    /// Let a dataset go on from a snapshot of it.
    Rollback {
        /// `DATASET@SNAPSHOT`.
        to: String,
    },
    /// Let one directory or file become what it was in a snapshot, or a directory what it is in a
    /// clone or fork.
    RollbackDirectory(DirectoryOrder),
    /// Tell the versions of a file or directory.
    Versions(VersionsOrder),
    /// Bring what a fork has changed into what it was forked from.
    Merge(MergeRequest),
    /// Keep a snapshot from being destroyed.
    Hold {
        /// `DATASET@SNAPSHOT`.
        snapshot: String,
        /// Why, in a word.
        tag: String,
    },
    /// Take back what keeps a snapshot from being destroyed.
    Release {
        /// `DATASET@SNAPSHOT`.
        snapshot: String,
        /// The word.
        tag: String,
    },
    /// Make an empty dataset.
    CreateDataset {
        /// The new dataset.
        name: String,
        /// Properties that are set on it.
        properties: BTreeMap<String, String>,
    },
    /// Destroy datasets or snapshots, all of them or none.
    Destroy {
        /// Each `DATASET`, `DATASET@SNAPSHOT` or `DATASET@SNAPSHOT..SNAPSHOT`.
        sources: Vec<String>,
        /// Only say what would go.
        dry_run: bool,
    },
    /// Destroy datasets or snapshots, but keep them for an undo as their property says.
    Hide {
        /// Each `DATASET` or `DATASET@SNAPSHOT`.
        sources: Vec<String>,
    },
    /// Give a dataset or snapshot another name.
    Rename {
        /// `DATASET` or `DATASET@SNAPSHOT`.
        from: String,
        /// The same.
        to: String,
    },
    /// Let a clone take over the snapshots that it began as.
    Promote {
        /// The clone.
        name: String,
    },
    /// Tell the log of operations.
    Log,
    /// Take an operation back.
    Undo {
        /// Its number in the log; without one the last.
        number: Option<u64>,
        /// What was changed later is no obstacle.
        #[serde(default)]
        force: bool,
    },
    /// List datasets and snapshots.
    List,
    /// Tell what holds the space, or what destroying some together would give back.
    Space {
        /// `DATASET`, `DATASET@SNAPSHOT` or `DATASET@SNAPSHOT..SNAPSHOT`; none for all.
        sources: Vec<String>,
    },
    /// Tell what files take, and what deleting them would give back.
    Footprints(FootprintRequest),
    /// Tell what is saved by sharing, inside datasets and between them.
    Sharing,
    /// Tell the properties of a dataset.
    Get {
        /// The dataset.
        dataset: String,
    },
    /// Set properties of a dataset.
    Set {
        /// The dataset.
        dataset: String,
        /// Name and value; `None` goes back to the default.
        properties: BTreeMap<String, Option<String>>,
    },
    /// Change what users and groups may do to a dataset beside root, and tell what it is then.
    Grants(GrantOrder),
    /// Tell what owners use and may use.
    Owners {
        /// `DATASET` or `DATASET@SNAPSHOT`.
        source: String,
    },
    /// Set what an owner may use.
    SetLimit {
        /// The dataset.
        dataset: String,
        /// Whose limits.
        owner: Owner,
        /// Most bytes; `None` is no limit.
        bytes_limit: Option<u64>,
        /// Most inodes; `None` is no limit.
        inodes_limit: Option<u64>,
    },
    /// Tell what is kept of streams that were cut.
    Partials,
    /// Drop what is kept of one.
    DropPartial {
        /// The dataset that it was to be.
        dataset: String,
    },
    /// Tell how the pool is.
    Status,
    /// Take into use what its devices have grown by.
    Grow {
        /// Enlarge the pool's file to this size first, in bytes.
        size_bytes: Option<u64>,
    },
    /// Give the pool another label.
    Label {
        /// What it is to be called; empty: nothing.
        label: String,
    },
    /// Return when everything is durable.
    Sync,
}
