//! Reports of what holds space, and of what retention takes.

use serde::{Deserialize, Serialize};

/// Automatic snapshots to be thinned out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThinRequest {
    /// The dataset.
    pub(crate) dataset: String,
    /// Those below it too, each on its own.
    pub(crate) recursive: bool,
    /// How many of which to keep, as in `24h,7d`.
    pub(crate) keep: String,
    /// A snapshot that is taken to be there already, in seconds since 1970.
    pub(crate) coming_seconds: Option<i64>,
    /// Only say what would go.
    pub(crate) dry_run: bool,
}

/// An automatic snapshot that the rule does not keep, and that stays all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StayRow {
    /// `DATASET@SNAPSHOT`.
    pub(crate) name: String,
    /// Why.
    pub(crate) reason: String,
}

/// What thinning took or would take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThinReport {
    /// Every snapshot that goes.
    pub(crate) destroyed: Vec<String>,
    /// Those that stay though the rule does not keep them.
    pub(crate) stayed: Vec<StayRow>,
    /// How many automatic snapshots are kept by the rule.
    pub(crate) kept: usize,
    /// Bytes that come back.
    pub(crate) freed_bytes: u64,
    /// Nothing has been done.
    pub(crate) dry_run: bool,
}

/// The files of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FootprintRequest {
    /// `DATASET` or `DATASET@SNAPSHOT`.
    pub(crate) source: String,
    /// The directory's inode in it; none is its root.
    pub(crate) directory: Option<u64>,
    /// How many levels below it.
    pub(crate) depth: usize,
    /// Only so many.
    pub(crate) top: Option<usize>,
}

/// What one name takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FootprintRow {
    /// From the directory on; empty of itself.
    pub(crate) path: String,
    /// All bytes of that in hexadecimal, if it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path_bytes: Option<String>,
    /// `file` or `directory`, which counts with all that is in it. A file is what is no directory.
    pub(crate) kind: String,
    /// Names that the inode has.
    pub(crate) links: u32,
    /// Bytes that its blocks take, each counted once.
    pub(crate) referenced_bytes: u64,
    /// Bytes that deleting it would give back.
    pub(crate) unique_bytes: u64,
}

/// What files take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FootprintReport {
    /// The dataset or snapshot.
    pub(crate) source: String,
    /// By path, or by what deleting would give back.
    pub(crate) files: Vec<FootprintRow>,
    /// How often the directory was walked through.
    pub(crate) passes: u32,
}

/// What a dataset or snapshot holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HolderRow {
    /// `DATASET` or `DATASET@SNAPSHOT`.
    pub(crate) name: String,
    /// `dataset`, `clone`, `fork` or `snapshot`.
    pub(crate) kind: String,
    /// Bytes that it refers to, shared or not.
    pub(crate) referenced_bytes: u64,
    /// Bytes that came with it: those that it has, and what it goes on from has not.
    pub(crate) added_bytes: u64,
    /// Bytes that destroying it alone would give back.
    pub(crate) unique_bytes: u64,
    /// Bytes that it refers to and that destroying it alone would not give back.
    pub(crate) shared_bytes: u64,
}

/// Where the space of a pool has gone: what was added, the pool's own and what is leaving, less
/// what is counted more than once, is what is in use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpaceReport {
    /// All datasets and snapshots, by name.
    pub(crate) holders: Vec<HolderRow>,
    /// Bytes that all of them added.
    pub(crate) added_bytes: u64,
    /// Bytes that the pool has for itself.
    pub(crate) own_bytes: u64,
    /// Bytes of what has been destroyed and is just being given back.
    pub(crate) leaving_bytes: u64,
    /// Bytes that several have added, once less than they were counted.
    pub(crate) shared_bytes: u64,
    /// Bytes in use, as `df` tells.
    pub(crate) allocated_bytes: u64,
    /// Of a home in a database: what sees these bytes, and what the database takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) in_database: Option<InDatabase>,
}

/// What sees the content of a home in a database, and what the database takes. Bytes but those of
/// the database are of contents before they were compressed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InDatabase {
    /// Bytes that datasets see as they are.
    pub(crate) live_bytes: u64,
    /// Bytes that only snapshots see.
    pub(crate) snapshot_bytes: u64,
    /// Bytes that are kept for an undo alone.
    pub(crate) undo_bytes: u64,
    /// Blocks to which nothing refers.
    pub(crate) loose_blocks: u64,
    /// Their bytes.
    pub(crate) loose_bytes: u64,
    /// Bytes that the database takes, with all that it has for itself.
    pub(crate) database_bytes: u64,
}
