//! What a check has looked at, in numbers.

use std::collections::BTreeMap;

/// What was looked at and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The pool's id.
    pub pool_id: [u8; 16],
    /// The pool's label.
    pub label: String,
    /// Number of the last commit.
    pub group: u64,
    /// Datasets that take changes, clones included.
    pub datasets: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Datasets that are being destroyed.
    pub destroying: u64,
    /// Tree nodes, each counted once.
    pub nodes: u64,
    /// Blocks of content, each counted once.
    pub blocks: u64,
    /// Bytes that all blocks take, copies and rounding included.
    pub used_bytes: u64,
    /// Stored bytes of blocks of content that were verified.
    pub verified_bytes: u64,
    /// Regular files of all datasets and snapshots that were looked at.
    pub files: u64,
    /// Directories of these.
    pub directories: u64,
    /// Other inodes of these.
    pub other_inodes: u64,
    /// Frames of the intent log that the next mount takes in.
    pub log_frames: u64,
    /// Changes of items in these.
    pub log_changes: u64,
    /// Findings that need nothing done.
    pub warnings: u64,
    /// Findings of something wrong or lost.
    pub errors: u64,
    /// Findings after which the pool should only be read.
    pub fatal: u64,
    /// All findings by code, also those that were not reported in full.
    pub codes: BTreeMap<&'static str, u64>,
}

impl Summary {
    /// Whether nothing at all was found.
    pub fn is_clean(&self) -> bool {
        self.codes.is_empty()
    }
}
