//! Flag bits of the protocol, by the request or reply that carries them.

/// Bits of the INIT request and reply; those from 32 up travel in a second word.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const ABORT_ERROR: u64 = 1 << 21;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    pub(crate) const ALLOW_IDMAP: u64 = 1 << 40;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Bits of the GETATTR and STATX requests.
pub(crate) mod get_attributes {
    /// It comes through an open file.
    pub(crate) const HANDLE: u32 = 1 << 0;
}

/// Which fields of a SETATTR request count.
pub(crate) mod set_attributes {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ACCESSED: u32 = 1 << 4;
    pub(crate) const MODIFIED: u32 = 1 << 5;
    /// It comes through an open file.
    pub(crate) const HANDLE: u32 = 1 << 6;
    pub(crate) const ACCESSED_NOW: u32 = 1 << 7;
    pub(crate) const MODIFIED_NOW: u32 = 1 << 8;
    pub(crate) const CHANGED: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Bits of a READ request.
pub(crate) mod read {
    /// It names an owner of locks, as requests do that go past the kernel's cache.
    pub(crate) const DIRECT: u32 = 1 << 1;
}

/// Bits of a WRITE request.
pub(crate) mod write {
    /// The data comes from the kernel's cache, perhaps long after the program wrote it.
    pub(crate) const CACHE: u32 = 1 << 0;
    /// As [`super::read::DIRECT`].
    pub(crate) const DIRECT: u32 = 1 << 1;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 2;
}

/// Bits of the caller's flags in OPEN and READ.
pub(crate) mod open {
    pub(crate) const ACCESS_MODE: u32 = 0o3;
    pub(crate) const READ_ONLY: u32 = 0o0;
    pub(crate) const WRITE_ONLY: u32 = 0o1;
    pub(crate) const APPEND: u32 = 0o2000;
    /// Reading through it does not move the access time.
    pub(crate) const NO_ACCESS_TIME: u32 = 0o1_000_000;
    /// The kernel's own mark: a program is about to be run.
    pub(crate) const EXECUTE: u32 = 0x20;
}

/// Bits of an ACCESS request.
pub(crate) mod access {
    pub(crate) const EXECUTE: u32 = 1;
    pub(crate) const WRITE: u32 = 2;
    pub(crate) const READ: u32 = 4;
}

/// Bits of the reply to OPEN, CREATE and TMPFILE.
pub(crate) mod opened {
    /// Nothing of the file goes through the kernel's cache.
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    /// What the kernel has cached of the file stays good.
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
}

/// Bits and kinds of GETLK, SETLK and SETLKW.
pub(crate) mod lock {
    /// It is of `flock`.
    pub(crate) const FLOCK: u32 = 1 << 0;
    pub(crate) const SHARED: u32 = 0;
    pub(crate) const EXCLUSIVE: u32 = 1;
    /// To let go; in a reply: nothing is in the way.
    pub(crate) const NONE: u32 = 2;
    /// The last byte that the kernel knows, which stands for the end of any file.
    pub(crate) const LAST_BYTE: u64 = i64::MAX as u64;
}

/// Bits of FSYNC and FSYNCDIR.
pub(crate) mod sync {
    pub(crate) const DATA_ONLY: u32 = 1 << 0;
}

/// Bits of a RENAME2 request.
pub(crate) mod rename {
    pub(crate) const NO_REPLACE: u32 = 1 << 0;
    pub(crate) const EXCHANGE: u32 = 1 << 1;
    pub(crate) const WHITEOUT: u32 = 1 << 2;
}

/// Bits of a FALLOCATE request.
pub(crate) mod allocate {
    pub(crate) const KEEP_SIZE: u32 = 0x01;
    pub(crate) const PUNCH_HOLE: u32 = 0x02;
    pub(crate) const ZERO_RANGE: u32 = 0x10;
}

/// Values of LSEEK's `whence`.
pub(crate) mod seek {
    pub(crate) const DATA: u32 = 3;
    pub(crate) const HOLE: u32 = 4;
}

/// Commands of IOCTL, and what they take.
pub(crate) mod ioctl {
    /// Bytes of a reply before its output.
    pub(crate) const REPLY_BYTES: usize = 16;
    /// `FS_IOC_SHUTDOWN`; the argument points to one of the words below.
    pub(crate) const SHUTDOWN: u32 = 0x8004_587d;
    pub(crate) const SHUTDOWN_FLUSH: u32 = 0;
    pub(crate) const SHUTDOWN_FLUSH_LOG: u32 = 1;
    pub(crate) const SHUTDOWN_NOW: u32 = 2;
    /// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`: a word, whatever their numbers say of its size.
    pub(crate) const FLAGS: u32 = 0x8008_6601;
    pub(crate) const SET_FLAGS: u32 = 0x4008_6602;
    /// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`: a `struct fsxattr` of 28 bytes, with the flags
    /// first and the project at byte 12.
    pub(crate) const EXTENDED_FLAGS: u32 = 0x801c_581f;
    pub(crate) const SET_EXTENDED_FLAGS: u32 = 0x401c_5820;
    /// `FS_IOC_GETVERSION`: the generation.
    pub(crate) const VERSION: u32 = 0x8008_7601;
    /// `FITRIM`: three numbers of 64 bits.
    pub(crate) const TRIM: u32 = 0xc018_5879;
    /// `FS_IOC_GETFSLABEL` and `FS_IOC_SETFSLABEL`: [`LABEL_BYTES`] that end with a zero.
    pub(crate) const LABEL: u32 = 0x8100_9431;
    pub(crate) const SET_LABEL: u32 = 0x4100_9432;
    /// Bytes of a label and what follows it.
    pub(crate) const LABEL_BYTES: usize = 256;
    /// Our own; see `protocol::file_calls`. The number says how long the argument is.
    pub(crate) const PREPARE: u32 = 0xc020_f501;
    pub(crate) const WITHDRAW: u32 = 0xc010_f502;
    pub(crate) const EXTENTS: u32 = 0xe000_f503;
    pub(crate) const USAGE: u32 = 0xc028_f504;
}

/// Bits of a SETXATTR request.
pub(crate) mod set_xattr {
    pub(crate) const CREATE: u32 = 1;
    pub(crate) const REPLACE: u32 = 2;
    /// In the second word: a list is set by a caller that is no member of the file's group.
    pub(crate) const CLEAR_SETGID: u32 = 1;
}

/// Bits of `statx` masks.
pub(crate) mod statx {
    pub(crate) const BASIC: u32 = 0x7ff;
    pub(crate) const BIRTH: u32 = 0x800;
}

/// Bits of the notification that drops a name.
pub(crate) mod notify {
    /// Only let it expire: a caller that uses it now goes on.
    pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
}
