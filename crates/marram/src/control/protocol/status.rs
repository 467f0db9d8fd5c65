//! The status of a pool: devices, damage, mounts and daemon.

use super::{BackgroundRewriting, DamageRow, DedupTotals, MountReport, PartialRow, TwoPoolRow};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How a pool is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StatusReport {
    /// Path of the pool.
    pub(crate) pool: PathBuf,
    /// The pool, in hexadecimal.
    pub(crate) pool_id: String,
    /// Its label.
    pub(crate) label: String,
    /// `online`, `damaged` or `read-only`.
    pub(crate) health: String,
    /// Why it is not `online`.
    pub(crate) reason: Option<String>,
    /// What it lies in and what that keeps, of a home without group commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) medium: Option<String>,
    /// In which order an image is written, and what that has cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) write_order: Option<WriteOrder>,
    /// Number of the last group commit.
    pub(crate) group: u64,
    /// When that was: seconds since 1970.
    pub(crate) last_commit_seconds: i64,
    /// Size in bytes.
    pub(crate) total_bytes: u64,
    /// Bytes in use.
    pub(crate) allocated_bytes: u64,
    /// Bytes that can be written.
    pub(crate) free_bytes: u64,
    /// Memory that the cache holds, in bytes.
    pub(crate) cache_bytes: u64,
    /// Bytes that wait for the next group commit.
    pub(crate) dirty_bytes: u64,
    /// Blocks that were mended from another copy.
    pub(crate) healed_blocks: u64,
    /// The devices.
    pub(crate) devices: Vec<DeviceRow>,
    /// Damage that was met since the pool was opened.
    pub(crate) damage: Vec<DamageRow>,
    /// What is mounted.
    pub(crate) mounts: Vec<MountReport>,
    /// Datasets of which snapshots are taken by themselves.
    #[serde(default)]
    pub(crate) snapshots: Vec<ScheduleRow>,
    /// What is kept of streams that were cut, or is being received.
    #[serde(default)]
    pub(crate) partials: Vec<PartialRow>,
    /// Transactions over two pools that are not over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) two_pools: Vec<TwoPoolRow>,
    /// Mounts that a daemon which has died has left.
    #[serde(default)]
    pub(crate) dead_mounts: Vec<PathBuf>,
    /// The daemon, if the pool is mounted.
    pub(crate) daemon: Option<DaemonReport>,
}

/// In which order an image is written, and what that has cost since it was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteOrder {
    /// The order, as the mount option says it.
    pub(crate) consistency: String,
    /// Transactions of the journal that were committed.
    #[serde(default)]
    pub(crate) commits: u64,
    /// Patches that were made.
    pub(crate) patches: u64,
    /// Those of them that nothing ever takes back.
    #[serde(default)]
    pub(crate) hard: u64,
    /// Changes that became a part of one.
    pub(crate) joined: u64,
    /// Those that became a part of one that nothing takes back.
    #[serde(default)]
    pub(crate) joined_hard: u64,
    /// Those that became a part of one whose bytes they overwrote.
    #[serde(default)]
    pub(crate) joined_overlapped: u64,
    /// Those that became a part of another one beside them.
    #[serde(default)]
    pub(crate) joined_near: u64,
    /// Patches that are not durable.
    pub(crate) waiting: u64,
    /// Bytes that are kept to take those back in what is written.
    pub(crate) undo_bytes: u64,
    /// Bytes that were kept for that so far.
    #[serde(default)]
    pub(crate) kept_bytes: u64,
    /// Memory of the patches that are not durable.
    #[serde(default)]
    pub(crate) graph_bytes: u64,
    /// Patches that were taken back in what was written.
    pub(crate) rollbacks: u64,
    /// Waves of writes.
    pub(crate) waves: u64,
    /// Flushes of the device.
    pub(crate) flushes: u64,
    /// Bytes written.
    pub(crate) written_bytes: u64,
    /// Bytes written with something taken back, and so once more.
    #[serde(default)]
    pub(crate) twice_bytes: u64,
}

/// A dataset of which snapshots are taken by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScheduleRow {
    /// The dataset.
    pub(crate) dataset: String,
    /// The property `snapshots` of it.
    pub(crate) rule: String,
    /// How many there are.
    pub(crate) count: usize,
    /// The newest of them.
    pub(crate) newest: Option<String>,
    /// When the next is due, if something has changed by then: seconds since 1970.
    pub(crate) next_seconds: i64,
}

/// A device of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceRow {
    /// Its path.
    pub(crate) name: String,
    /// Its size in bytes.
    pub(crate) size_bytes: u64,
    /// Reads that failed.
    pub(crate) read_errors: u64,
    /// Writes that failed.
    pub(crate) write_errors: u64,
    /// Blocks that did not match their checksum.
    pub(crate) checksum_errors: u64,
    /// Bytes written since the daemon opened the pool.
    pub(crate) written_bytes: u64,
    /// Flushes asked for since then.
    pub(crate) flushes: u64,
}

/// The daemon of a mounted pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DaemonReport {
    /// Its process id.
    pub(crate) pid: i32,
    /// Its version.
    pub(crate) version: String,
    /// When it began: seconds since 1970.
    pub(crate) started_seconds: i64,
    /// Most seconds between two group commits.
    pub(crate) commit_seconds: u64,
    /// Where it logs, if not to a terminal.
    pub(crate) log: Option<PathBuf>,
    /// Inodes that the kernel knows of all mounts: each takes a few bytes here.
    #[serde(default)]
    pub(crate) known_inodes: usize,
    /// What has come of `dedup=on`, if a dataset has it.
    #[serde(default)]
    pub(crate) dedup: Option<DedupTotals>,
    /// What rewriting in the background has done, if it is on.
    #[serde(default)]
    pub(crate) rewriting: Option<BackgroundRewriting>,
}
