//! What is said of every pass over the files below some directories.

use serde::{Deserialize, Serialize};

/// A pass to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PassOrder {
    /// Where to look.
    pub(crate) places: Vec<PassDirectory>,
    /// Only tell what could be done.
    pub(crate) dry_run: bool,
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PassDirectory {
    /// `DATASET`, or, to be looked at only, `DATASET@SNAPSHOT`.
    pub(crate) source: String,
    /// The directory's inode; none for the root of what the dataset shows.
    pub(crate) directory: Option<u64>,
}

/// Something that was left alone because it could not be read or changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SkippedRow {
    /// Which of the directories that were named, from 0.
    pub(crate) place: usize,
    /// The path from there.
    pub(crate) path: String,
    /// All bytes of that in hexadecimal, if it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path_bytes: Option<String>,
    /// Why.
    pub(crate) reason: String,
}

/// How a pass ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PassEnd {
    /// Bytes by which the free space of the pool has grown meanwhile, also by what others did;
    /// negative if it has shrunk.
    pub(crate) freed_bytes: i64,
    /// What was left alone.
    pub(crate) skipped: u64,
    /// The first of it.
    pub(crate) told: Vec<SkippedRow>,
    /// It was ended before all was looked at: a directory was unmounted.
    pub(crate) is_interrupted: bool,
    /// Why it ended before all was looked at.
    pub(crate) failure: Option<String>,
    /// Nothing was done.
    pub(crate) dry_run: bool,
}
