//! What is said over the control socket. The reports are also what `--json` prints.

mod comparison;
mod dedup;
mod defragment;
mod pass;
mod space;
mod streams;

pub(crate) use comparison::{CompareOrder, DifferenceRow, DirectoryOrder};
pub(crate) use dedup::{DedupSummary, DedupTotals, SharingReport, SharingRow};
pub(crate) use defragment::{BackgroundRewriting, DefragmentSummary, RewritingRow};
pub(crate) use pass::{PassDirectory, PassEnd, PassOrder, SkippedRow};
pub(crate) use space::{
    FootprintReport, FootprintRequest, FootprintRow, HolderRow, SpaceReport, StayRow, ThinReport,
    ThinRequest,
};
pub(crate) use streams::{
    PartialRow, ReceiveOrder, SendOrder, ShownFile, ShownReport, StreamSummary,
};

use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::names::{bytes, printable, quoted};
use crate::options::MountOptions;
use crate::paths::own_uid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The version of the program, which daemon and command must share.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Largest request that a daemon reads, in bytes: a merge brings what was decided about each
/// conflict.
pub(crate) const REQUEST_BYTES_MAX: u64 = 4 << 20;
/// Largest greeting that a command reads, in bytes: nobody knows yet who gives it.
pub(crate) const GREETING_BYTES_MAX: u64 = 64 << 20;
/// Largest answer that a command reads, in bytes.
pub(crate) const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// The same of a merge: it tells up to 200,000 differences, with their paths and ranges, and each
/// conflict.
pub(crate) const MERGE_ANSWER_BYTES_MAX: u64 = 1 << 30;

/// What a daemon that is just ending answers.
pub(crate) const ENDING: &str = "is just being unmounted";
/// What is answered when just this is mounted on just that directory.
pub(crate) const THERE_ALREADY: &str = "is mounted there already";

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
    /// What that path led to when the pool was opened; not told by some other versions.
    #[serde(default)]
    pub(crate) served: Option<Identity>,
    /// What it has mounted.
    #[serde(default)]
    pub(crate) mounts: Vec<MountReport>,
    /// It shows streams in files, and has no pool.
    #[serde(default)]
    pub(crate) shows_streams: bool,
    /// Those files.
    #[serde(default)]
    pub(crate) shown: Vec<ShownFile>,
}

/// The second line, from the command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Something that can also be done to a pool that nobody has mounted.
    Perform(Operation),
    /// The same, for the log of operations with who asks for it.
    PerformFor {
        /// What.
        operation: Operation,
        /// Who says so.
        author: Author,
    },
    /// Mount another dataset or snapshot of the pool.
    Mount(MountRequest),
    /// Tell what an inode of a mount belongs to.
    Locate {
        /// Where the mount is.
        directory: PathBuf,
        /// The number that the mount shows.
        ino: u64,
    },
    /// Tell what differs between two states: the rows come in pieces before the answer.
    Compare(CompareOrder),
    /// Send a snapshot: the stream comes in pieces before the answer.
    Send(SendOrder),
    /// Receive a stream, whose pieces follow this line.
    Receive(ReceiveOrder),
    /// Find and share equal content; given up when who asks goes away.
    Dedup(PassOrder),
    /// Bring together what lies in crumbs; given up when who asks goes away.
    Defragment(PassOrder),
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

/// Who asks for an operation, as he says himself: the socket is his own, or he is root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Author {
    /// The user.
    pub(crate) user: u32,
    /// The command line.
    pub(crate) command: String,
}

impl Author {
    /// The user who runs this process, and its command line.
    pub(crate) fn of_this_process() -> Author {
        let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let program = words.next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        let command = [program].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        Author { user: own_uid(), command }
    }
}

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
    /// Keep the present state of a dataset and of all below it, at one moment.
    SnapshotBelow {
        /// The dataset.
        dataset: String,
        /// The name of the snapshots.
        snapshot: String,
    },
    /// Destroy automatic snapshots that are too many.
    Thin(ThinRequest),
    /// Make a writable dataset that begins as a snapshot.
    Clone {
        /// `DATASET@SNAPSHOT`.
        origin: String,
        /// The new dataset.
        name: String,
    },
    /// Make a writable fork of a directory.
    Fork {
        /// The dataset that it is in.
        dataset: String,
        /// The fork's name.
        name: String,
        /// The directory's inode in the dataset.
        root: u64,
    },
    /// Let a dataset go on from a snapshot of it.
    Rollback {
        /// `DATASET@SNAPSHOT`.
        to: String,
    },
    /// Let one directory become what it was in a snapshot, or what it is in a clone or fork.
    RollbackDirectory(DirectoryOrder),
    /// Bring what a fork has changed into what it was forked from.
    Merge(MergeRequest),
    /// Keep a snapshot from being destroyed.
    Hold {
        /// `DATASET@SNAPSHOT`.
        snapshot: String,
        /// Why, in a word.
        tag: String,
    },
    /// Take back what keeps a snapshot from being destroyed.
    Release {
        /// `DATASET@SNAPSHOT`.
        snapshot: String,
        /// The word.
        tag: String,
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
    /// Destroy datasets or snapshots, but keep them for an undo as their property says.
    Hide {
        /// Each `DATASET` or `DATASET@SNAPSHOT`.
        sources: Vec<String>,
    },
    /// Give a dataset or snapshot another name.
    Rename {
        /// `DATASET` or `DATASET@SNAPSHOT`.
        from: String,
        /// The same.
        to: String,
    },
    /// Let a clone take over the snapshots that it began as.
    Promote {
        /// The clone.
        name: String,
    },
    /// Tell the log of operations.
    Log,
    /// Take an operation back.
    Undo {
        /// Its number in the log; without one the last.
        number: Option<u64>,
    },
    /// List datasets and snapshots.
    List,
    /// Tell who holds the space, or what destroying some together would give back.
    Space {
        /// `DATASET`, `DATASET@SNAPSHOT` or `DATASET@SNAPSHOT..SNAPSHOT`; none for all.
        sources: Vec<String>,
    },
    /// Tell what files take, and what deleting them would give back.
    Footprints(FootprintRequest),
    /// Tell what is saved by sharing, inside datasets and between them.
    Sharing,
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
    /// Tell what is kept of streams that were cut.
    Partials,
    /// Drop what is kept of one.
    DropPartial {
        /// The dataset that it was to be.
        dataset: String,
    },
    /// Tell how the pool is.
    Status,
    /// Take into use what its devices have grown by.
    Grow {
        /// Enlarge the pool's file to this size first, in bytes.
        size_bytes: Option<u64>,
    },
    /// Give the pool another label.
    Label {
        /// What it is to be called; empty: nothing.
        label: String,
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
    /// It is done, and the engine took so long, without the way there and back.
    Timed {
        /// Nanoseconds.
        engine_nanoseconds: u64,
    },
    /// These snapshots have been taken, all at one moment.
    Snapshots {
        /// `DATASET@SNAPSHOT`.
        names: Vec<String>,
        /// How long the engine took, in nanoseconds.
        engine_nanoseconds: u64,
    },
    /// What automatic snapshots go, and which stay though the rule does not keep them.
    Thinned(ThinReport),
    /// Who holds the space.
    Space(SpaceReport),
    /// What files take.
    Footprints(FootprintReport),
    /// What is saved by sharing.
    Sharing(SharingReport),
    /// The dataset goes on from the snapshot.
    RolledBack {
        /// The snapshot that its state before has been kept as.
        kept: String,
        /// How long the engine took, in nanoseconds.
        engine_nanoseconds: u64,
    },
    /// The directory is what it was in the snapshot.
    DirectoryRolledBack {
        /// The snapshot that the dataset's state before has been kept as, if it has been.
        kept: Option<String>,
        /// It was not so before.
        is_changed: bool,
        /// How long the engine took, in nanoseconds.
        engine_nanoseconds: u64,
    },
    /// What a merge did, would do, or why it did not.
    Merged(Box<MergeSummary>),
    /// What has been sent or received.
    Streamed(Box<StreamSummary>),
    /// What is kept of streams that were cut.
    Partials(Vec<PartialRow>),
    /// What equal content was found, and shared.
    Deduplicated(Box<DedupSummary>),
    /// What was rewritten.
    Defragmented(Box<DefragmentSummary>),
    /// What an inode of a mount belongs to.
    Located {
        /// `DATASET` or `DATASET@SNAPSHOT`.
        source: String,
        /// Its number there, if it is a directory in one; else 0.
        ino: u64,
        /// The number there of what is shown as the root.
        root: u64,
    },
    /// What would go or went.
    Destruction(DestructionReport),
    /// This went from sight.
    Hidden {
        /// What, and how much comes back when it is let go.
        report: DestructionReport,
        /// Until when an undo can bring it back: seconds since 1970. None if it is gone for good.
        kept_until_seconds: Option<i64>,
    },
    /// The log of operations.
    Operations(Vec<OperationRow>),
    /// An operation was taken back.
    Undone(Box<UndoReport>),
    /// Datasets and snapshots.
    Datasets(Vec<DatasetRow>),
    /// Properties.
    Properties(Vec<PropertyRow>),
    /// Owners.
    Owners(Vec<OwnerRow>),
    /// How the pool is.
    Status(Box<StatusReport>),
    /// How streams are that are mounted.
    ShownStatus(Box<ShownReport>),
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

/// An entry of the log of operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OperationRow {
    /// Its number.
    pub(crate) number: u64,
    /// When: seconds since 1970.
    pub(crate) seconds: i64,
    /// The user who asked for it.
    pub(crate) user: Option<u32>,
    /// The command line.
    pub(crate) command: String,
    /// What was done: `create`, `snapshot`, `clone`, `fork`, `rollback`, `merge`, `promote`,
    /// `rollback-directory`,
    /// `hold`, `release`, `set`, `rename`, `destroy` or `restore`.
    pub(crate) operation: String,
    /// What it was done to, and with what: names and values, in an order that the operation has.
    pub(crate) names: Vec<String>,
    /// The first and the last of the operations that one command did together, in one step, of
    /// which this is one: they are taken back together. None if it is alone.
    pub(crate) together: Option<(u64, u64)>,
    /// The operation that it took back.
    pub(crate) undoes: Option<u64>,
    /// The operation that took it back.
    pub(crate) undone_by: Option<u64>,
    /// Until when what an undo needs is kept: seconds since 1970.
    pub(crate) kept_until_seconds: Option<i64>,
    /// It can be taken back now.
    pub(crate) can_undo: bool,
    /// Why not.
    pub(crate) obstacle: Option<String>,
}

/// What an undo did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UndoReport {
    /// The operations that were taken back: all that were one step with the one that was named.
    pub(crate) undone: Vec<OperationRow>,
    /// The entries of the undo itself; none if nothing was left to take back.
    pub(crate) entries: Vec<OperationRow>,
    /// Those of the step that stay as they are, each with what was in the way.
    pub(crate) left: Vec<OperationRow>,
    /// Operations before and after that the same command line did in steps of their own, and that
    /// were not taken back.
    pub(crate) others: Vec<OperationRow>,
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
    /// The inode that is shown as its root.
    #[serde(default)]
    pub(crate) root: u64,
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

/// What is done about conflicts of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConflictChoice {
    /// They are told, and nothing is changed.
    #[default]
    Refuse,
    /// The parent's state stays.
    Ours,
    /// The fork's state is taken.
    Theirs,
    /// The lines of both, with marks around those that both changed.
    Marked,
}

/// A merge that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MergeRequest {
    /// The fork.
    pub(crate) fork: String,
    /// Only tell what would happen.
    pub(crate) preview: bool,
    /// What is done about conflicts.
    pub(crate) choice: ConflictChoice,
    /// Changes to different ranges of one file go together.
    pub(crate) ranges: bool,
    /// Changes to different lines of one text go together.
    pub(crate) text: bool,
    /// The fork is destroyed when it has been merged.
    pub(crate) drop: bool,
    /// What is done about single conflicts.
    #[serde(default)]
    pub(crate) decisions: Vec<Decision>,
    /// Tell conflicts of texts with the lines of both.
    #[serde(default)]
    pub(crate) marks: bool,
    /// Merge only if nothing has changed since the report with this state.
    #[serde(default)]
    pub(crate) state: Option<String>,
}

/// What is done about one conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// The conflict, as a report told it.
    pub(crate) conflict: ConflictRow,
    /// What is done about it.
    pub(crate) choice: ConflictChoice,
}

/// A conflict of a merge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ConflictRow {
    /// Where, from the root of the fork.
    pub(crate) path: String,
    /// All bytes of that in hexadecimal, if it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path_bytes: Option<String>,
    /// `content`, `attribute`, `name`, `removed` or `loop`.
    pub(crate) kind: String,
    /// What both sides did.
    pub(crate) detail: String,
    /// If that was asked for, and both are texts that are not long: the lines of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) marked: Option<String>,
}

/// What tells conflicts apart: path, its bytes, kind and detail.
pub(crate) type ConflictKey<'c> = (&'c str, Option<&'c str>, &'c str, &'c str);

impl ConflictRow {
    /// What it is about, however its texts are told.
    pub(crate) fn key(&self) -> ConflictKey<'_> {
        (&self.path, self.path_bytes.as_deref(), &self.kind, &self.detail)
    }

    /// What it is and where, in a line for people.
    pub(crate) fn line(&self) -> String {
        let path = quoted(&bytes(&self.path, self.path_bytes.as_ref()));
        format!("{} {path}: {}", self.kind, printable(self.detail.clone()))
    }
}

/// What a merge did, would do, or why it did not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MergeSummary {
    /// The fork.
    pub(crate) fork: String,
    /// What it was forked from.
    pub(crate) parent: String,
    /// It has been done.
    pub(crate) applied: bool,
    /// What went, or would go, into the parent.
    pub(crate) differences: Vec<DifferenceRow>,
    /// How many more there are than are told.
    #[serde(default)]
    pub(crate) differences_left_out: usize,
    /// Conflicts that nobody has decided: with any of them nothing is changed.
    pub(crate) conflicts: Vec<ConflictRow>,
    /// Conflicts that were decided.
    pub(crate) decided: Vec<ConflictRow>,
    /// The fork has been destroyed.
    pub(crate) dropped: bool,
    /// How long the engine took, in nanoseconds.
    pub(crate) engine_nanoseconds: u64,
    /// Stands for all that both sides have changed since the base.
    #[serde(default)]
    pub(crate) state: String,
    /// One side has changed since the report whose state was asked for: nothing was changed.
    #[serde(default)]
    pub(crate) is_outdated: bool,
    /// Of a preview: why it would be refused all the same.
    #[serde(default)]
    pub(crate) obstacle: Option<String>,
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
    /// What is kept of streams that were cut, or is being received.
    #[serde(default)]
    pub(crate) partials: Vec<PartialRow>,
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
