//! What is said of deduplication.

use super::PassEnd;
use serde::{Deserialize, Serialize};

/// What was found and done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DedupSummary {
    /// How often all content was looked through.
    pub(crate) passes: u64,
    /// Names of files that were looked at.
    pub(crate) files: u64,
    /// Bytes of content that were looked at.
    pub(crate) content_bytes: u64,
    /// Bytes of them that were left alone: short files, and the short ends of others.
    #[serde(default)]
    pub(crate) short_bytes: u64,
    /// Bytes that were stored more than once.
    pub(crate) equal_bytes: u64,
    /// Bytes of them that are shared now.
    pub(crate) shared_bytes: u64,
    /// Bytes that they took as they were stored. They come back when nothing else refers to their
    /// blocks; snapshots do.
    pub(crate) released_bytes: u64,
    /// How it ended.
    #[serde(flatten)]
    pub(crate) end: PassEnd,
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
