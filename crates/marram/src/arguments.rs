//! The command line: every command, its arguments and its help, from which completions and manual
//! pages are made too.

mod allowing;
mod destroying;
mod examples;
mod foreign_words;
mod format;
mod history;
mod keeping;
mod overview;
mod properties;
mod selection;
mod streams;
mod transactions;
mod undoing;
mod workspaces;

pub(crate) use allowing::{AllowArguments, DisallowArguments};
pub(crate) use destroying::{
    ConsentArguments, DestroyArguments, DestroyCommandArguments, DestroyKind,
};
pub(crate) use examples::of as examples_of;
pub(crate) use foreign_words::meaning as foreign_word;
pub(crate) use format::FormatArguments;
pub(crate) use history::{
    BranchArguments, DiffArguments, ForkArguments, ForksArguments, HoldArguments, MergeArguments,
    RollbackArguments, UpdateArguments, VersionsArguments,
};

pub(crate) use streams::{ReceiveArguments, SendArguments};

pub(crate) use keeping::{PassArguments, SnapshotArguments, SpaceArguments};

pub(crate) use overview::groups;

pub(crate) use undoing::{LogArguments, PromoteArguments, RenameArguments, UndoArguments};

pub(crate) use selection::SelectionArguments;

pub(crate) use transactions::{
    TxArguments, TxBeginArguments, TxDiffArguments, TxKind, TxListArguments, TxNamedArguments,
    TxResolveArguments, TxRunArguments,
};

pub(crate) use workspaces::{EnterArguments, RunArguments, SessionArguments, ViewArguments};

use format::TARGET_HELP;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Exit statuses; said at the end of the main help.
const AFTER_HELP: &str = "\
Targets:
  A pool is named by its file or block device, a home in SQLite also by
  sqlite:FILE, one in PostgreSQL by postgres://USER@HOST/DATABASE, one in
  MongoDB by mongodb://USER@HOST/DATABASE, or any by a path inside a mounted
  file system of it;
  --dataset NAME picks a dataset, and @NAME at the end a
  snapshot: /mnt@before. The hidden directory .marram at the root of a mount
  shows its snapshots and forks. While a pool is mounted a copy of its file or
  device is refused (11): it has the same id, and is another pool.

Exit status:
  0 done, 1 failed, 2 wrong usage, 10 not found, 11 locked or in use,
  12 the user may not do it,
  3 done in part; of status and check: there is damage,
  4 of merge: there are conflicts; of diff --quiet: the two differ";

/// A copy-on-write file system in a file or block device, with checksums, compression,
/// snapshots and clones.
#[derive(Debug, Parser)]
#[command(name = "marram", version, after_help = AFTER_HELP, max_term_width = 100)]
#[command(disable_help_subcommand = false, subcommand_required = true)]
pub(crate) struct Arguments {
    /// Print one JSON object, {"version", "command", "result" or "error"}
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print no text, only errors: the exit status tells
    #[arg(long, short = 'q', global = true)]
    pub(crate) quiet: bool,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a pool in a file or on a block device, or with --dataset a dataset in a pool
    Create(CreateArguments),
    /// Mount a pool, or one of its datasets or snapshots
    Mount(MountArguments),
    /// Unmount, and come back when everything is durable and the device is free
    #[command(visible_alias = "umount")]
    Unmount(UnmountArguments),
    /// Tell how a pool is: health, devices, space, mounts, errors
    Status(StatusArguments),
    /// List datasets and snapshots
    List(ListArguments),
    /// Keep the present state of a dataset, in no time and no space
    Snapshot(SnapshotArguments),
    /// Tell what holds the space, and what destroying it would give back
    Space(SpaceArguments),
    /// Make a writable dataset that begins as a snapshot
    Clone(CloneArguments),
    /// Make a writable fork of any directory, in no time and no space
    Fork(ForkArguments),
    /// Run a command in a fork of a directory, at the directory's own path; then merge, keep or
    /// drop what it did
    #[command(after_help = workspaces::STATUS_HELP, after_long_help = workspaces::RUN_HELP)]
    Run(RunArguments),
    /// Transactions: all that a command does happens at once, or not at all
    Tx(TxArguments),
    /// Open a shell in a fork that was kept, at the path of the directory that was forked
    #[command(after_help = workspaces::STATUS_HELP)]
    Enter(EnterArguments),
    /// List forks, or draw which began as which
    Forks(ForksArguments),
    /// Tell what differs between two states: snapshots, forks, what is there now
    Diff(DiffArguments),
    /// Bring what a fork has changed into what it was forked from, all or nothing
    Merge(MergeArguments),
    /// Bring what a fork's parent has changed since into the fork, as one atomic step
    Update(UpdateArguments),
    /// Let a dataset, directory or file be what it was in a snapshot, also while it is in use
    Rollback(RollbackArguments),
    /// List the versions that snapshots have of a file or directory, also of what was removed
    Versions(VersionsArguments),
    /// Write a snapshot, or what has changed since an older one, as a stream
    Send(SendArguments),
    /// Make a dataset of a stream, or bring one further, all or nothing
    Receive(ReceiveArguments),
    /// Tell what was done to a pool and its datasets, when and by whom
    Log(LogArguments),
    /// Take an operation back: the last one, or one of the log; also while it is in use
    Undo(UndoArguments),
    /// Give a snapshot, dataset or fork another name
    Rename(RenameArguments),
    /// Let a clone or fork have the snapshots that it began as, so that what had them can go
    Promote(PromoteArguments),
    /// Keep a snapshot from being destroyed
    Hold(HoldArguments),
    /// Take back what keeps a snapshot from being destroyed
    Release(HoldArguments),
    /// Destroy a snapshot, a fork, or a dataset with all its snapshots
    Destroy(DestroyCommandArguments),
    /// Tell properties of a dataset
    Get(GetArguments),
    /// Set properties of a dataset
    Set(SetArguments),
    /// Let a user or group do what only root may: make snapshots, roll back, send; or list that
    Allow(AllowArguments),
    /// Take back what a user or group was allowed
    Disallow(DisallowArguments),
    /// Tell what users, groups and projects use of a dataset, and set what they may use
    Quota(QuotaArguments),
    /// Take a range out of a mounted file, put a hole into it, or give it blocks of its own
    Range(RangeCommandArguments),
    /// Make a mounted file, or a range of it, share the blocks of another; never copies
    Reflink(ReflinkArguments),
    /// Find content that is stored more than once, and let it share its blocks; while in use
    #[command(after_long_help = keeping::DEDUP_HELP)]
    Dedup(PassArguments),
    /// Bring together what lies in crumbs, and give back blocks that are hardly used; while in use
    #[command(after_long_help = keeping::DEFRAGMENT_HELP)]
    Defragment(PassArguments),
    /// Tell where the content of a mounted file lies, in place of filefrag
    Extents(ExtentsArguments),
    /// Verify a pool that is not mounted, by code that shares nothing with the engine
    Check(CheckArguments),
    /// Take into use what a device has grown by, or enlarge a pool's file; works while mounted
    Grow(GrowArguments),
    /// Tell what a pool is called, or call it something else; works while mounted
    Label(LabelArguments),
    /// Come back when everything that was written is durable
    Sync(TargetArguments),
    /// List the daemons that have a home in a database open
    Clients(TargetArguments),
    /// Take a daemon that has a home in a database open for lost
    #[command(after_long_help = keeping::EXPEL_HELP)]
    Expel(ExpelArguments),
    /// Make a pool in your data folder, mount it, and show three things to try
    Quickstart(QuickstartArguments),
    /// Look whether this machine has what Marram needs
    Doctor,
    /// Race a pool against the file system of a directory, on this machine and disk
    Bench(BenchArguments),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    Manual {
        /// The folder; it is made if needed
        folder: PathBuf,
    },
    /// Install this program, its mount helpers, manual pages and completions
    Install(InstallArguments),
    /// Remove what `install` has put there
    Uninstall(InstallArguments),
    /// Print the version
    Version,
    /// Serve a pool; started by mount
    #[command(hide = true)]
    Daemon,
    /// Become a command in a view; started by run and enter
    #[command(hide = true)]
    View(ViewArguments),
}

/// The definition of the command line, with the overview as its main help and examples in that of
/// each command.
pub(crate) fn definition() -> clap::Command {
    let command = Arguments::command();
    let overview = overview::text(&command, AFTER_HELP);
    examples::add_to(command, "").override_help(overview)
}

/// Reads the words of a command line, of which the first is the program.
///
/// # Errors
/// They make no sense, or help was asked for.
pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let mut definition = definition();
    let matches = definition.try_get_matches_from_mut(words)?;
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut definition))
}

/// Arguments of `create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// A file, which is made if --size is given, or a block device; or sqlite:FILE, a home in a
    /// new SQLite file; or postgres://USER@HOST/DATABASE or mongodb://USER@HOST/DATABASE, a home
    /// on a server
    pub(crate) path: PathBuf,
    /// Size of a new file, as in 512M or 20G; an existing file or device has a size
    #[arg(long, short = 's')]
    pub(crate) size: Option<String>,
    /// Take all the space of a new file now, instead of as it is needed
    #[arg(long)]
    pub(crate) preallocate: bool,
    /// Overwrite what is there, be it a pool, a file system or a file with content
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
    /// A name for people
    #[arg(long, short = 'L', default_value = "")]
    pub(crate) label: String,
    /// Set a property of the root dataset, or of the one that --dataset makes, as in
    /// compression=zstd:3; --help has a list
    #[arg(
        short = 'O',
        long = "option",
        value_name = "NAME=VALUE",
        long_help = properties::CREATE_HELP
    )]
    pub(crate) options: Vec<String>,
    /// What to make: a pool, or a pmem home in a file on tmpfs, where every operation survives a
    /// killed daemon as soon as it returns
    #[arg(long, value_enum, default_value_t)]
    pub(crate) home: HomeKind,
    /// Of a home in a database: where the content of files is to lie, while names and all else
    /// stay in the database: a directory, new or empty, at the same path on each host; or
    /// s3://BUCKET/PREFIX, with keys from the environment or ~/.aws/credentials
    #[arg(long, value_name = "PLACE")]
    pub(crate) blocks: Option<PathBuf>,
    /// PATH is a pool, or a path inside a mounted one: make this empty dataset in it
    #[arg(
        long,
        short = 'd',
        value_name = "NAME",
        conflicts_with_all = ["size", "force", "home", "blocks"]
    )]
    pub(crate) dataset: Option<String>,
}

/// A kind of home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum HomeKind {
    /// A pool: snapshots, checksums, compression
    #[default]
    Pool,
    /// Memory that is mapped: every operation durable when it returns
    Pmem,
}

/// Arguments of `mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArguments {
    /// The pool, with @NAME at the end to mount a snapshot; or a file with a full stream; or an
    /// ext2 or ext3 image, with `-o ro` an ext4 image too
    #[arg(value_name = "TARGET", long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// Where to mount it: an existing directory
    pub(crate) directory: PathBuf,
    /// With a stream: files with incremental ones that go on from it, in their order
    #[arg(long, value_name = "FILE")]
    pub(crate) then: Vec<PathBuf>,
    /// Mount options, comma-separated: ro, noatime, allow_other, writeback, cache=512M, ...
    #[arg(short = 'o', value_name = "OPTIONS", long_help = MOUNT_OPTIONS_HELP)]
    pub(crate) options: Vec<String>,
    /// Mount this dataset instead of the root dataset
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    /// Mount this fork alone
    #[arg(long, value_name = "NAME", conflicts_with = "dataset")]
    pub(crate) fork: Option<String>,
    /// Mount this snapshot, read-only
    #[arg(long, value_name = "NAME")]
    pub(crate) snapshot: Option<String>,
    /// Stay in the foreground, and log to standard error
    #[arg(long, short = 'f')]
    pub(crate) foreground: bool,
    /// Where the daemon logs when it is in the background
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    pub(crate) log: Option<PathBuf>,
}

/// What `-o` takes, at length.
const MOUNT_OPTIONS_HELP: &str = "\
Mount options, comma-separated:
  ro, rw                 read-only, or writable (default)
  norecovery             only with ro: show the pool as its last group commit left it, without
                         what was synced since: for a pool whose log cannot be replayed
  noatime, relatime, strictatime, nodiratime, lazytime
                         when reading a file moves its access time (default: the dataset's
                         property atime)
  allow_other, noallow_other
                         whether other users may use the mount (default: when root mounts)
  default_permissions    always so, but for datasets with acl=nfsv4; accepted because mount
                         users write it
  ordered, writeback     writes reach the daemon in program order (default), or when the kernel
                         sees fit: faster for small writes, but after a crash a later write may
                         be there without an earlier one
  cache=SIZE             memory for the pool's cache, 16M to 1T
  commit=SECONDS         most seconds between two group commits, 1 to 300 (default 5)
  consistency=ORDER      of an ext2 or ext3 image: journal (default of an image with one), so that
                         a crash leaves one moment of all but the bytes of files; journal-full,
                         these too; journal-writeback, where new parts of files may show old
                         bytes; soft-updates (default of others), so that a crash leaves nothing
                         but leaks and counts that are too high; async, which keeps no order
  offset=BYTES           where in a file or device an ext2 or ext3 image begins: a partition, as
                         `sfdisk -d` shows it; 1M is sector 2048
  fakeroot               of an image: the user may set owners and change everything, as the
                         superuser may; not with allow_other
  casefold               of an image: names that differ in their case alone are one
  durable=MODE           of a pmem home, when what has returned survives a power cut: each (at
                         once) or epoch (with the next operation or fsync) in DAX memory,
                         checkpoint (with the next fsync or checkpoint, every commit=SECONDS) on
                         ordinary files; what the medium cannot keep is refused
  defragment=SECONDS     between two passes that rewrite crumbs (default 3600; 0 or off: never)
  suid, nosuid, dev, nodev, exec, noexec
                         as for every file system; without root nosuid and nodev always hold
  dataset=NAME, subvol=NAME, snapshot=NAME
                         what to mount, as --dataset and --snapshot
  blkdev=auto|on|off     as root, mount through a block device (a small loop device for a pool
                         in a file), so that sync(2) reaches the daemon
  transport=auto|classic|io_uring
                         how requests come from the kernel: by reading /dev/fuse, or over
                         io_uring, which needs Linux 6.14 and Y in
                         /sys/module/fuse/parameters/enable_uring (default: auto, which is
                         classic; `marram status` tells which it is)
  close=auto|publish|later
                         whether the close of a file returns only when what was written is
                         durable (publish), or a second later (auto, later); beside other
                         daemons of a cluster home each write is durable at once (default: auto)
  strict                 each look at a file shows what others had done before: always so
  strictopen             ask the daemon at each opening of a file, so that opening an immutable or
                         append-only file for writing fails, not only the write; opening takes
                         longer (default: nostrictopen)
  nohandles              handles of files cannot be opened (open_by_handle_at): wanted for layers
                         of OverlayFS, which else loses files that it has copied up when it is
                         mounted anew; needs Linux 6.9 (default: handles)
  wakeful, nowakeful     whether processors are kept from halting while requests flow, which
                         makes each request faster and uses more processor time (default: as
                         root in a virtual machine whose processors halt)
  remount                change ro, suid, dev and exec of the mount that is there";

/// Arguments of `unmount`.
#[derive(Debug, Args)]
pub(crate) struct UnmountArguments {
    /// Mounted directories; for a pool's path, all that is mounted of it
    #[arg(required = true, value_name = "DIRECTORY|POOL")]
    pub(crate) targets: Vec<PathBuf>,
    /// Take a busy one out of sight now, and let go of it when nobody uses it any more
    #[arg(long, short = 'l', visible_alias = "lazy")]
    pub(crate) detach: bool,
}

/// Arguments of commands on one target.
#[derive(Debug, Args)]
pub(crate) struct TargetArguments {
    /// A pool, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
}

/// Arguments of `expel`.
#[derive(Debug, Args)]
pub(crate) struct ExpelArguments {
    /// A home in a database, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// Its session, as `marram clients` shows it; so much of it that no other begins so
    pub(crate) session: String,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// A pool, or a path inside a mounted one; all mounted pools if left out
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: Option<PathBuf>,
    /// Sizes in bytes and times in seconds
    #[arg(long, short = 'p')]
    pub(crate) exact: bool,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// A pool, or a path inside a mounted one; all mounted pools if left out
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: Option<PathBuf>,
    /// Also the snapshots that the pool has made for itself: what forks began as
    #[arg(long, short = 'a')]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

/// Arguments of `clone`.
#[derive(Debug, Args)]
pub(crate) struct CloneArguments {
    /// The snapshot to begin as
    #[arg(value_name = "TARGET@NAME", long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// Name of the new dataset
    pub(crate) name: String,
    /// The snapshot's dataset, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// A pool, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// Which properties; all if left out
    #[arg(value_name = "PROPERTY")]
    pub(crate) properties: Vec<String>,
    /// The dataset, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

/// Arguments of `set`.
#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// A pool, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// New values, as in compression=zstd:3; --help has a list
    #[arg(
        value_name = "NAME=VALUE",
        required_unless_present = "defaults",
        long_help = properties::SET_HELP
    )]
    pub(crate) settings: Vec<String>,
    /// Set a property back to its default
    #[arg(long = "default", value_name = "PROPERTY")]
    pub(crate) defaults: Vec<String>,
    /// The dataset, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
}

/// Arguments of `quota`.
#[derive(Debug, Args)]
pub(crate) struct QuotaArguments {
    /// A pool, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    #[command(flatten)]
    pub(crate) owner: OwnerArguments,
    /// Most bytes that the owner may use, as in 10G; none takes the limit away
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes: Option<String>,
    /// Most inodes that the owner may have; none takes the limit away
    #[arg(long, value_name = "NUMBER")]
    pub(crate) inodes: Option<String>,
    /// The dataset, if another than the target's own
    #[arg(long, short = 'd', value_name = "NAME")]
    pub(crate) dataset: Option<String>,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

/// One owner, or none.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct OwnerArguments {
    /// The user of this name or number
    #[arg(long, short = 'u', value_name = "USER")]
    pub(crate) user: Option<String>,
    /// The group of this name or number
    #[arg(long, short = 'g', value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// The project of this name (in /etc/projid) or number
    #[arg(long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,
}

/// Arguments of `range`.
#[derive(Debug, Args)]
pub(crate) struct RangeCommandArguments {
    /// What to do with the range
    #[command(subcommand)]
    pub(crate) kind: RangeKind,
}

/// What to do with a range.
#[derive(Debug, Subcommand)]
pub(crate) enum RangeKind {
    /// Take it out: what comes after it moves to where it began, and the file becomes shorter
    Collapse(RangeArguments),
    /// Put a hole there: what was there moves towards the end, and the file becomes longer
    Insert(RangeArguments),
    /// Give it blocks that no other file refers to, and reserve space for its holes
    Unshare(RangeArguments),
}

/// A range of a file.
#[derive(Debug, Args)]
pub(crate) struct RangeArguments {
    /// The file, inside a mounted Marram file system
    pub(crate) file: PathBuf,
    /// Where the range begins, as in 0, 4096 or 1M; any byte may
    pub(crate) offset: String,
    /// How long it is, as in 4096 or 1M
    pub(crate) length: String,
}

/// Arguments of `reflink`.
#[derive(Debug, Args)]
pub(crate) struct ReflinkArguments {
    /// The file whose blocks are shared
    pub(crate) source: PathBuf,
    /// The file that becomes the same; it is made if needed
    pub(crate) target: PathBuf,
    /// Only this range of the source, to the same place of the target or to another; the rest of
    /// the target stays
    #[arg(long, value_name = "OFFSET:LENGTH[:TARGET_OFFSET]")]
    pub(crate) range: Option<String>,
}

/// Arguments of `extents`.
#[derive(Debug, Args)]
pub(crate) struct ExtentsArguments {
    /// The file, inside a mounted Marram file system
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) format: FormatArguments,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The pool: its file or block device; or a file that `marram send` wrote
    pub(crate) pool: PathBuf,
    /// Also read and verify the content of all files, every copy, not only the trees
    #[arg(long)]
    pub(crate) data: bool,
    /// Look at the file systems of datasets only; space is checked for snapshots all the same
    #[arg(long)]
    pub(crate) no_snapshots: bool,
}

/// Arguments of `grow`.
#[derive(Debug, Args)]
pub(crate) struct GrowArguments {
    /// A pool, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// Enlarge the pool's file to this size first, as in 40G
    #[arg(long, short = 's')]
    pub(crate) size: Option<String>,
}

/// Arguments of `label`.
#[derive(Debug, Args)]
pub(crate) struct LabelArguments {
    /// A pool, or a path inside a mounted one
    #[arg(long_help = TARGET_HELP)]
    pub(crate) target: PathBuf,
    /// The new label, at most 64 bytes, '' to take it away; printed if left out
    pub(crate) label: Option<String>,
}

/// Arguments of `quickstart`.
#[derive(Debug, Args)]
pub(crate) struct QuickstartArguments {
    /// Where to mount the pool; ~/marram if left out
    pub(crate) directory: Option<PathBuf>,
    /// Size of the pool's file, which takes only the space that is used
    #[arg(long, short = 's', default_value = "20G")]
    pub(crate) size: String,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// Where to race: a directory on the disk that a pool would lie on
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
    /// How often both take their turn
    #[arg(long, default_value_t = 3, value_parser = rounds)]
    pub(crate) rounds: usize,
}

/// At least one round, and not more than anybody waits for.
fn rounds(word: &str) -> Result<usize, String> {
    match word.parse() {
        Ok(rounds @ 1..=100) => Ok(rounds),
        _ => Err("wanted is a number from 1 to 100".to_owned()),
    }
}

/// Arguments of `install` and `uninstall`.
#[derive(Debug, Args)]
pub(crate) struct InstallArguments {
    /// Folder that stands for / : for packages and images
    #[arg(long, default_value = "/")]
    pub(crate) root: PathBuf,
    /// Folder for the program and its data, below the root; mount helpers go to /usr/sbin
    #[arg(long, default_value = "/usr/local")]
    pub(crate) prefix: PathBuf,
}

impl Command {
    /// The command's name, as it is typed.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Command::Create(_) => "create",
            Command::Mount(_) => "mount",
            Command::Unmount(_) => "unmount",
            Command::Status(_) => "status",
            Command::List(_) => "list",
            Command::Snapshot(_) => "snapshot",
            Command::Space(_) => "space",
            Command::Clone(_) => "clone",
            Command::Fork(_) => "fork",
            Command::Run(_) => "run",
            Command::Tx(_) => "tx",
            Command::Enter(_) => "enter",
            Command::Forks(_) => "forks",
            Command::Diff(_) => "diff",
            Command::Merge(_) => "merge",
            Command::Update(_) => "update",
            Command::Rollback(_) => "rollback",
            Command::Versions(_) => "versions",
            Command::Send(_) => "send",
            Command::Receive(_) => "receive",
            Command::Log(_) => "log",
            Command::Undo(_) => "undo",
            Command::Rename(_) => "rename",
            Command::Promote(_) => "promote",
            Command::Hold(_) => "hold",
            Command::Release(_) => "release",
            Command::Destroy(_) => "destroy",
            Command::Get(_) => "get",
            Command::Set(_) => "set",
            Command::Allow(_) => "allow",
            Command::Disallow(_) => "disallow",
            Command::Quota(_) => "quota",
            Command::Range(_) => "range",
            Command::Reflink(_) => "reflink",
            Command::Dedup(_) => "dedup",
            Command::Defragment(_) => "defragment",
            Command::Extents(_) => "extents",
            Command::Check(_) => "check",
            Command::Grow(_) => "grow",
            Command::Label(_) => "label",
            Command::Sync(_) => "sync",
            Command::Clients(_) => "clients",
            Command::Expel(_) => "expel",
            Command::Quickstart(_) => "quickstart",
            Command::Doctor => "doctor",
            Command::Bench(_) => "bench",
            Command::Completions { .. } => "completions",
            Command::Manual { .. } => "manual",
            Command::Install(_) => "install",
            Command::Uninstall(_) => "uninstall",
            Command::Version => "version",
            Command::Daemon => "daemon",
            Command::View(_) => "view",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent_and_every_argument_has_help() {
        let mut command = Arguments::command();
        command.clone().debug_assert();
        command.build();
        let mut stack = vec![command];
        while let Some(command) = stack.pop() {
            for argument in command.get_arguments() {
                let named = format!("{} {}", command.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{named}");
            }
            stack.extend(command.get_subcommands().cloned());
        }
    }
}
