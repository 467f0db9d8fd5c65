//! What is said over the control socket. The reports are also what `--json` prints.

use crate::error::{Error, Result};
use crate::options::MountOptions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The version of the program, which daemon and command must share.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Largest request that a daemon reads, in bytes.
pub(crate) const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Largest greeting or answer that a command reads, in bytes.
pub(crate) const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The first line, from the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// The daemon's version.
    pub(crate) version: String,
    /// The daemon's process id.
    pub(crate) pid: i32,
    /// The pool, in hexadecimal.
    #[serde(default)]
    pub(crate) pool_id: String,
    /// Path of the pool.
    #[serde(default)]
    pub(crate) pool: PathBuf,
    /// What it has mounted.
    #[serde(default)]
    pub(crate) mounts: Vec<MountReport>,
}

/// The second line, from the command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Something that can also be done to a pool that nobody has mounted.
    Perform(Operation),
    /// Mount another dataset or snapshot of the pool.
    Mount(MountRequest),
    /// Take a mount away; the answer comes when it is durable and gone.
    Unmount {
        /// Where it is.
        directory: PathBuf,
        /// Take it out of sight now, and let go of it when nobody uses it any more.
        detach: bool,
    },
}

/// The third line, from the daemon.
pub(crate) type Response = Result<Answer>;

/// A mount to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MountRequest {
    /// Where.
    pub(crate) directory: PathBuf,
    /// What, and how.
    pub(crate) options: MountOptions,
}

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
    /// Make a writable dataset that begins as a snapshot.
    Clone {
        /// `DATASET@SNAPSHOT`.
        origin: String,
        /// The new dataset.
        name: String,
    },
    /// Make an empty dataset.
    CreateDataset {
        /// The new dataset.
        name: String,
        /// Properties that are set on it.
        properties: BTreeMap<String, String>,
    },
    /// Destroy a dataset or snapshot.
    Destroy {
        /// `DATASET` or `DATASET@SNAPSHOT`.
        source: String,
        /// Only say what would go.
        dry_run: bool,
    },
    /// List datasets and snapshots.
    List,
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
    /// Tell how the pool is.
    Status,
    /// Take into use what its devices have grown by.
    Grow {
        /// Enlarge the pool's file to this size first, in bytes.
        size_bytes: Option<u64>,
    },
    /// Return when everything is durable.
    Sync,
}

/// What the daemon answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// What would go or went.
    Destruction(DestructionReport),
    /// Datasets and snapshots.
    Datasets(Vec<DatasetRow>),
    /// Properties.
    Properties(Vec<PropertyRow>),
    /// Owners.
    Owners(Vec<OwnerRow>),
    /// How the pool is.
    Status(Box<StatusReport>),
    /// The pool's new size, in bytes.
    Grown {
        /// Bytes.
        size_bytes: u64,
    },
    /// The mount answers.
    Mounted(MountReport),
    /// The mount is gone.
    Unmounted {
        /// How many the daemon has left; with none it closes the pool and ends.
        mounts_left: usize,
        /// Why what was written through it may not all be durable.
        not_durable: Option<Error>,
        /// The directory is free, but the file system is still in use somewhere else.
        #[serde(default)]
        used_elsewhere: bool,
    },
}

/// A mount as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountReport {
    /// Where.
    pub(crate) directory: PathBuf,
    /// `DATASET` or `DATASET@SNAPSHOT`.
    pub(crate) source: String,
    /// Whether nothing can be changed through it.
    pub(crate) read_only: bool,
    /// Its options, as `/proc/mounts` shows them.
    pub(crate) options: String,
    /// The block device that stands for the pool in `/proc/mounts`, if one does.
    pub(crate) block_device: Option<PathBuf>,
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
    /// `dataset`, `clone` or `snapshot`.
    pub(crate) kind: String,
    /// The snapshot that a clone began as.
    pub(crate) origin: Option<String>,
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

/// What kind of owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OwnerClass {
    /// A user.
    User,
    /// A group.
    Group,
    /// A project.
    Project,
}

impl fmt::Display for OwnerClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            OwnerClass::User => "user",
            OwnerClass::Group => "group",
            OwnerClass::Project => "project",
        })
    }
}

/// A user, group or project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    /// What kind of owner.
    pub(crate) class: OwnerClass,
    /// Its number.
    pub(crate) id: u32,
}

/// What an owner uses and may use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OwnerRow {
    /// Whose.
    #[serde(flatten)]
    pub(crate) owner: Owner,
    /// Its name, where it has one; the daemon does not look for it.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// Bytes of content in use, as `du` counts them.
    pub(crate) bytes: u64,
    /// Most of them.
    pub(crate) bytes_limit: Option<u64>,
    /// Inodes.
    pub(crate) inodes: u64,
    /// Most of them.
    pub(crate) inodes_limit: Option<u64>,
}

impl OwnerRow {
    /// An owner that uses nothing and has no limits.
    pub(crate) fn empty(owner: Owner) -> OwnerRow {
        OwnerRow { owner, name: None, bytes: 0, bytes_limit: None, inodes: 0, inodes_limit: None }
    }
}

/// How a pool is.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Mounts that a daemon which has died has left.
    #[serde(default)]
    pub(crate) dead_mounts: Vec<PathBuf>,
    /// The daemon, if the pool is mounted.
    pub(crate) daemon: Option<DaemonReport>,
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

/// Bytes that cannot be read as they were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DamageRow {
    /// The file, `DATASET:/path`, or the place on a device when no file is known.
    pub(crate) place: String,
    /// Where in the file, in bytes.
    pub(crate) offset: Option<u64>,
    /// How much of the file, in bytes.
    pub(crate) len: Option<u64>,
    /// What was found.
    pub(crate) reason: String,
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
}
