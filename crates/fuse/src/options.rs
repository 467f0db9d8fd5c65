//! How to mount and serve.

use crate::event::EventSink;
use marram_vfs::AccessRules;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Closes that wait for what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncedCloses {
    /// None.
    None,
    /// Those after which the file has other content than at its opening, while others have the file
    /// system open ([`marram_vfs::FileSystem::has_company`]).
    BesideOthers,
    /// All.
    All,
}

/// What `mount` shows of access times; the file system itself keeps them by its own options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never moved (`noatime`).
    Never,
    /// Moved when older than a change or a day (`relatime`).
    #[default]
    Relative,
    /// Moved by each read (`strictatime`).
    Strict,
}

/// What the kernel can do without asking, and that a mount takes unless it declines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Files are opened without a request, and what is cached of them stays.
    UnaskedOpens,
    /// The same for directories; without it their listings are not cached either.
    UnaskedDirectoryOpens,
    /// A listing brings the attributes of what it names.
    AttributesWithNames,
    /// Targets of symbolic links stay in the page cache.
    KeptSymlinks,
}

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// By reading `/dev/fuse`: over io_uring threads that sync one file hold each other up.
    #[default]
    Auto,
    /// By reading `/dev/fuse`, which every kernel can.
    Classic,
    /// Over io_uring, or the mount is refused.
    IoUring,
}

/// Which side checks permissions. It follows from the file system that is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Checks {
    /// The kernel, by mode bits.
    #[default]
    Modes,
    /// The kernel, by mode bits and POSIX access control lists.
    PosixLists,
    /// This server, request by request: nothing that the kernel could hand to somebody else may
    /// be remembered there.
    Server,
}

impl Checks {
    pub(crate) fn of(rules: AccessRules<'_>) -> Checks {
        match rules {
            AccessRules::ModeBits => Checks::Modes,
            AccessRules::PosixLists => Checks::PosixLists,
            AccessRules::Own(_) => Checks::Server,
        }
    }
}

/// Everything that a mount needs to know. Which side checks permissions is not among it: the file
/// system says so itself ([`marram_vfs::FileSystem::access_rules`]). Where it checks them, names
/// and attributes are not remembered, device nodes do not work, and written data is not held back,
/// whatever is asked for here.
#[derive(Clone)]
pub struct MountOptions {
    /// The directory to mount on.
    pub mountpoint: PathBuf,
    /// What `mount` and `df` show as the source.
    pub source: String,
    /// Mount as `fuseblk` on this block device, which is then shown as the source: `sync`, `syncfs`
    /// and `umount` reach the file system only so. Needs root; the kernel opens the device for
    /// itself, so nobody else may hold it exclusively, and it can carry one mount only.
    pub block_device: Option<PathBuf>,
    /// No changes.
    pub read_only: bool,
    /// Users other than the one that mounts may enter.
    pub allow_other: bool,
    /// Setuid and setgid programs run as such.
    pub allow_setuid: bool,
    /// Device nodes work.
    pub allow_devices: bool,
    /// Programs may be run.
    pub allow_programs: bool,
    /// What to show of access times.
    pub access_times: AccessTimes,
    /// The kernel may hold written data back. Faster for small writes, but what a crash leaves is
    /// then no longer one moment of the program's writes.
    pub writeback: bool,
    /// Each opening of a file is a request, so that opening what is immutable, or may only grow,
    /// for more than that fails at once, and not only the write. It is so anyhow where the file
    /// system checks permissions.
    pub strict_open: bool,
    /// Which closes of a file return only when what was written to it is durable.
    pub synced_closes: SyncedCloses,
    /// Others may change the file system beside this mount, now or later: while they do
    /// ([`marram_vfs::FileSystem::is_shared`]), the kernel asks for each name and for attributes
    /// again, and forgets pages of a file that has changed. It never holds writes back. Locks of
    /// files are the file system's to keep, if it can ([`marram_vfs::FileLocks`]).
    pub shareable: bool,
    /// Handles of files can be opened (`open_by_handle_at`). Without, they still tell files apart,
    /// from Linux 6.9 on: OverlayFS follows handles that it keeps of a layer below, and loses what
    /// the kernel has no name of.
    pub file_handles: bool,
    /// How many threads serve; at least 1. Over io_uring there are as many as are needed instead.
    pub threads: usize,
    /// How requests come.
    pub transport: TransportChoice,
    /// Keep processors from halting while requests flow; see [`crate::should_be_wakeful`]. Where
    /// that cannot be had, requests take longer and nothing else.
    pub wakeful: bool,
    /// Largest read or write, in bytes: 4096 to 1 MiB.
    pub transfer_bytes_max: u32,
    /// How far the kernel reads ahead, in bytes. Root only; else the kernel's own limit holds.
    pub read_ahead_bytes: u32,
    /// The I/O size that programs are advised to prefer (`st_blksize`), in bytes.
    pub preferred_io_bytes: u32,
    /// How long the kernel may remember names.
    pub entry_timeout: Duration,
    /// How long the kernel may remember that there is no such name.
    pub absence_timeout: Duration,
    /// How long the kernel may remember attributes.
    pub attributes_timeout: Duration,
    /// What of the kernel's offers is left, to see what each saves.
    pub declined: Vec<Offer>,
    /// More options for the kernel or `fusermount3`, as they are.
    pub extra: Vec<String>,
    /// Gets what the log should know.
    pub on_event: EventSink,
    /// Called when nobody has the mount of a block device any more, and what was changed is
    /// durable. As soon as it returns, others can have the device: from then on nothing may be
    /// written.
    pub on_destroyed: Arc<dyn Fn() + Send + Sync>,
    pub(crate) checks: Checks,
    /// Locks are kept by the file system.
    pub(crate) serves_locks: bool,
}

impl MountOptions {
    /// Largest transfer that can be asked for, in bytes.
    pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

    /// The usual options. Names and attributes hold for an hour: the server is the only writer.
    pub fn new(mountpoint: impl Into<PathBuf>, source: impl Into<String>) -> Self {
        MountOptions {
            mountpoint: mountpoint.into(),
            source: source.into(),
            block_device: None,
            read_only: false,
            allow_other: false,
            allow_setuid: true,
            allow_devices: true,
            allow_programs: true,
            access_times: AccessTimes::default(),
            writeback: false,
            strict_open: false,
            synced_closes: SyncedCloses::None,
            shareable: false,
            file_handles: true,
            threads: 4,
            transport: TransportChoice::default(),
            wakeful: false,
            transfer_bytes_max: Self::TRANSFER_BYTES_MAX,
            read_ahead_bytes: 1 << 20,
            preferred_io_bytes: 128 << 10,
            entry_timeout: Duration::from_secs(3600),
            absence_timeout: Duration::from_secs(3600),
            attributes_timeout: Duration::from_secs(3600),
            declined: Vec::new(),
            extra: Vec::new(),
            on_event: Arc::new(|_| ()),
            on_destroyed: Arc::new(|| ()),
            checks: Checks::default(),
            serves_locks: false,
        }
    }

    /// The same for a file system with these rules.
    pub(crate) fn with_rules(mut self, rules: AccessRules<'_>) -> Self {
        self.checks = Checks::of(rules);
        if self.checks == Checks::Server {
            self.entry_timeout = Duration::ZERO;
            self.absence_timeout = Duration::ZERO;
            self.attributes_timeout = Duration::ZERO;
            self.allow_devices = false;
            self.writeback = false;
        }
        self.writeback &= !self.shareable;
        self
    }

    /// The same for a file system that keeps locks between hosts, or does not.
    pub(crate) fn with_locks(mut self, keeps_locks: bool) -> Self {
        self.serves_locks = self.shareable && !self.read_only && keeps_locks;
        self
    }

    /// The largest transfer as the protocol can carry it: whole pages within the limits.
    pub(crate) fn transfer_pages(&self) -> u32 {
        self.transfer_bytes_max.clamp(4096, Self::TRANSFER_BYTES_MAX) / 4096
    }
}

impl fmt::Debug for MountOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MountOptions")
            .field("mountpoint", &self.mountpoint)
            .field("source", &self.source)
            .field("block_device", &self.block_device)
            .field("read_only", &self.read_only)
            .field("writeback", &self.writeback)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
