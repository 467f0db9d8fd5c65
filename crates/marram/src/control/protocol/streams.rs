//! What is said of streams.

use super::{Author, DamageRow, MountReport};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A snapshot to send.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SendOrder {
    /// `DATASET@SNAPSHOT`.
    pub(crate) snapshot: String,
    /// The same: only what has changed since is sent.
    pub(crate) base: Option<String>,
    /// A token, which names both instead: only the rest is sent.
    #[serde(default)]
    pub(crate) resume: Option<String>,
}

/// A stream to receive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReceiveOrder {
    /// The dataset.
    pub(crate) dataset: String,
    /// What has changed in it since the stream's base is set aside.
    pub(crate) force: bool,
    /// What has come is kept when the stream is cut.
    #[serde(default)]
    pub(crate) resumable: bool,
    /// The author of the request.
    pub(crate) author: Author,
}

/// What has been sent or received.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StreamSummary {
    /// The snapshot, where it was sent from or is now.
    pub(crate) snapshot: String,
    /// What it goes on from.
    pub(crate) base: Option<String>,
    /// The snapshot that the dataset's state before has been kept as, where that was set aside.
    pub(crate) kept: Option<String>,
    /// Items that came or changed.
    pub(crate) items_put: u64,
    /// Items that went.
    pub(crate) items_removed: u64,
    /// Blocks of content in the stream.
    pub(crate) blocks: u64,
    /// Bytes of those, compressed as they are stored.
    pub(crate) content_bytes: u64,
    /// Bytes of the stream.
    pub(crate) stream_bytes: u64,
}

/// A part of a stream that is kept, or being received so that it can be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartialRow {
    /// The dataset that keeps it.
    pub(crate) name: String,
    /// The snapshot that it is to be.
    pub(crate) snapshot: String,
    /// It goes on from a snapshot that is there.
    pub(crate) incremental: bool,
    /// It is being received at this moment.
    pub(crate) running: bool,
    /// Items that have come.
    pub(crate) items: u64,
    /// Bytes of content that have come, compressed as they are stored.
    pub(crate) content_bytes: u64,
    /// When it began: seconds since 1970.
    pub(crate) created_seconds: i64,
    /// What `send --resume` takes; nothing if it is to begin anew.
    pub(crate) token: Option<String>,
}

/// A stream in a file that a daemon shows. It is open, and stays the same file under another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShownFile {
    /// Where it was.
    pub(crate) path: PathBuf,
    /// Number of its device, and of the file on it.
    pub(crate) identity: (u64, u64),
}

/// How streams in files are that are mounted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ShownReport {
    /// The files: a full stream, and those that go on from it.
    pub(crate) streams: Vec<PathBuf>,
    /// `online` or `damaged`.
    pub(crate) health: String,
    /// Damage that was met since the files were verified.
    pub(crate) damage: Vec<DamageRow>,
    /// What is mounted.
    pub(crate) mounts: Vec<MountReport>,
    /// The daemon's process id.
    pub(crate) pid: i32,
    /// Its version.
    pub(crate) version: String,
}
