//! The contract between a file system and its server: inode-level operations with POSIX meaning,
//! plain data types, and the one table of error numbers.
//!
//! Every engine promises what the trait [`FileSystem`] says, and every server (FUSE, tests, the
//! simulator) relies on nothing else. The crate does no I/O and knows no engine.

mod access;
mod attributes;
mod clock;
mod error;
mod extent;
mod filesystem;
mod lock;
mod marks;
mod name;
mod patchgroup;
mod usage;

pub use bytes::Bytes;

pub use access::{AccessControl, AccessRules, Action, Identity, Opened, Opening};
pub use attributes::{Attributes, Ino, Kind, SetAttributes, SetTime, Timestamp};
pub use clock::{Clock, SteppedClock, SystemClock};
pub use error::Error;
pub use extent::{Extent, ExtentPlace};
pub use filesystem::{
    Allocate, Caller, Capabilities, Copying, DirectoryEntry, ExtentMap, FileLocks, FileSystem,
    GroupSync, Labelled, Marked, NewNode, Patchgroups, QuietReads, Ranges, RenameMode, SeekTarget,
    Sharing, Shutdown, SpaceReport, Stopping, StoredAccessLists, SyncScope, Trimming, UsageCounts,
    WriteOptions, XattrMode,
};
pub use lock::{HeldLock, LockFamily, LockMode, LockRequest};
pub use marks::{InodeFlags, Marks, SetMarks};
pub use name::{Name, NameError};
pub use patchgroup::{PATCHGROUPS_MAX, Patchgroup, PatchgroupLives};
pub use usage::{OwnerUsage, UsageOwner};

/// Result of a file-system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Longest symbolic link target, in bytes.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Longest extended attribute name, in bytes.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest extended attribute value, in bytes.
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// Most names that one inode may have.
pub const LINKS_MAX: u32 = 65_000;
/// Largest cookie of a directory entry: an offset that the kernel can hold (2^63-1), less the two
/// that servers keep for `.` and `..`.
pub const COOKIE_MAX: u64 = i64::MAX as u64 - 2;
/// Largest file, in bytes.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;
