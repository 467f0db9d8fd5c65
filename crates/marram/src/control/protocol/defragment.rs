//! What is said of rewriting.

use super::PassEnd;
use serde::{Deserialize, Serialize};

/// What was rewritten, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RewritingRow {
    /// Bytes of content that were looked at.
    pub(crate) content_bytes: u64,
    /// Bytes that were written anew.
    pub(crate) rewritten_bytes: u64,
    /// Sections of files that there are fewer.
    pub(crate) joined_sections: u64,
    /// Bytes that the blocks took which were let go of.
    pub(crate) released_bytes: u64,
    /// Bytes that would have been worth it, but a snapshot, a fork or another file has them too.
    pub(crate) held_bytes: u64,
    /// Pieces that somebody wrote to at the same moment.
    pub(crate) overtaken: u64,
    /// Pieces that could not be read.
    pub(crate) unreadable: u64,
}

/// What was found and done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DefragmentSummary {
    /// Files that were looked at.
    pub(crate) files: u64,
    /// Extents that their content lay in.
    pub(crate) extents_before: u64,
    /// Extents that it lies in now; as before if nothing was done.
    pub(crate) extents_after: u64,
    /// What was rewritten, or would be.
    #[serde(flatten)]
    pub(crate) rewriting: RewritingRow,
    /// It was ended since too little space is free.
    pub(crate) is_short_of_space: bool,
    /// How it ended.
    #[serde(flatten)]
    pub(crate) end: PassEnd,
}

/// What rewriting in the background has done since the pool was mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackgroundRewriting {
    /// Seconds between two passes.
    pub(crate) interval_seconds: u64,
    /// Passes that have come to an end.
    pub(crate) passes: u64,
    /// One is under way.
    pub(crate) is_running: bool,
    /// The last one ended since too little space is free.
    pub(crate) is_short_of_space: bool,
    /// What all of them have done.
    #[serde(flatten)]
    pub(crate) rewriting: RewritingRow,
}
