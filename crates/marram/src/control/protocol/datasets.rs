//! Datasets and snapshots: their rows, their properties, and what a destruction takes.

use crate::names::PathText;
use serde::{Deserialize, Serialize};

/// Where the directory is that a fork began as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForkPlace {
    /// The dataset or fork that has it.
    pub(crate) parent: String,
    /// Its path there; none if it is gone.
    pub(crate) path: Option<String>,
    /// All bytes of that in hexadecimal, if it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path_bytes: Option<String>,
}

/// What would go or went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DestructionReport {
    /// Every dataset and snapshot.
    pub(crate) sources: Vec<String>,
    /// Bytes that come back.
    pub(crate) freed_bytes: u64,
    /// Nothing has been done.
    pub(crate) dry_run: bool,
}

/// A dataset or snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DatasetRow {
    /// `DATASET` or `DATASET@SNAPSHOT`.
    pub(crate) name: String,
    /// `dataset`, `clone`, `fork`, `snapshot`, or `partial`: a part of a stream.
    pub(crate) kind: String,
    /// The snapshot that a clone or fork began as.
    pub(crate) origin: Option<String>,
    /// Of a fork: the newest state that its parent has too.
    #[serde(default)]
    pub(crate) base: Option<String>,
    /// The inode that is shown as its root.
    #[serde(default)]
    pub(crate) root: u64,
    /// Of a fork: the directory that it is a fork of, from the root of the parent; none if it is
    /// gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) directory: Option<PathText>,
    /// What keeps a snapshot from being destroyed.
    #[serde(default)]
    pub(crate) holds: Vec<String>,
    /// The pool has made it for itself: it goes with what needs it.
    #[serde(default)]
    pub(crate) internal: bool,
    /// When it was made: seconds since 1970.
    pub(crate) created_seconds: i64,
    /// Bytes that it refers to, shared or not.
    pub(crate) referenced_bytes: u64,
    /// Bytes that only it refers to.
    pub(crate) unique_bytes: u64,
}

/// A property of a dataset.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PropertyRow {
    /// The dataset.
    pub(crate) dataset: String,
    /// The property.
    pub(crate) property: String,
    /// The value in force.
    pub(crate) value: String,
    /// `default` or `local`.
    pub(crate) source: String,
}
