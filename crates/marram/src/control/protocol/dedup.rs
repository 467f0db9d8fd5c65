//! What is said of deduplication.

use serde::{Deserialize, Serialize};

/// Equal content to be found and shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DedupOrder {
    /// Where to look.
    pub(crate) places: Vec<DedupDirectory>,
    /// Only tell what could be shared.
    pub(crate) dry_run: bool,
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DedupDirectory {
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
    /// Why.
    pub(crate) reason: String,
}

/// What was found and done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DedupSummary {
    /// How often all content was looked through.
    pub(crate) passes: u64,
    /// Names of files that were looked at.
    pub(crate) files: u64,
    /// Bytes of content that were looked at.
    pub(crate) content_bytes: u64,
    /// Bytes that were stored more than once.
    pub(crate) equal_bytes: u64,
    /// Bytes of them that are shared now.
    pub(crate) shared_bytes: u64,
    /// Bytes that they took as they were stored. They come back when nothing else refers to their
    /// blocks; snapshots do.
    pub(crate) released_bytes: u64,
    /// Bytes by which the free space of the pool has grown meanwhile, also by what others did;
    /// negative if it has shrunk.
    pub(crate) freed_bytes: i64,
    /// Ranges and files that were left alone.
    pub(crate) skipped: u64,
    /// The first of them.
    pub(crate) told: Vec<SkippedRow>,
    /// It was ended before all was looked at: a directory was unmounted.
    pub(crate) is_interrupted: bool,
    /// Why it ended before all was looked at.
    pub(crate) failure: Option<String>,
    /// Nothing was done.
    pub(crate) dry_run: bool,
}

/// What sharing saves in one dataset, of what the last commit has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SharingRow {
    /// The dataset.
    pub(crate) name: String,
    /// Bytes of content, uncompressed.
    pub(crate) content_bytes: u64,
    /// Bytes that it would take, compressed as it is, if nothing in it were shared.
    pub(crate) unshared_bytes: u64,
    /// Bytes that its blocks of content take.
    pub(crate) stored_bytes: u64,
}

/// What sharing saves in a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SharingReport {
    /// Inside each dataset.
    pub(crate) datasets: Vec<SharingRow>,
    /// Bytes of blocks that several datasets have by a reflink, merge or deduplication, each
    /// counted once less than it has owners. What snapshots, clones and forks share is not in it.
    pub(crate) between_bytes: u64,
}

/// What has come of `dedup=on` since the pool was mounted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DedupTotals {
    /// Bytes of new content that were looked at.
    pub(crate) content_bytes: u64,
    /// Bytes of them that are shared now.
    pub(crate) shared_bytes: u64,
    /// Ranges that were not looked at since too many waited.
    pub(crate) missed_ranges: u64,
    /// Ranges that could not be read or shared.
    pub(crate) failed_ranges: u64,
    /// Places of content that are remembered.
    pub(crate) hints: u64,
}
