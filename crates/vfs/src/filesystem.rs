//! The trait that every file system implements: a core that all have, and capabilities.
//!
//! What only some file systems can do is a capability ([`Capabilities`]). What holds without it is
//! written once, in the methods of `dyn FileSystem`.

mod absent;
mod capabilities;

pub use capabilities::{
    Capabilities, Copying, ExtentMap, FileLocks, GroupSync, Labelled, Marked, Patchgroups,
    QuietReads, Ranges, Sharing, Stopping, StoredAccessLists, Trimming, UsageCounts,
};

use crate::{AccessRules, Attributes, Ino, Kind, Name, Result, SetAttributes};
use bytes::Bytes;

/// On whose behalf an operation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Owner of what is created.
    pub uid: u32,
    /// Group of what is created, unless the directory passes on its own.
    pub gid: u32,
}

/// What to create. Permissions have the umask taken off already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A regular file, fifo, socket or device node.
    Node {
        /// Any kind but directory and symlink.
        kind: Kind,
        /// Low twelve mode bits.
        permissions: u32,
        /// Device number in the kernel's 32-bit encoding; 0 unless a device node.
        device: u32,
    },
    /// A directory.
    Directory {
        /// Low twelve mode bits.
        permissions: u32,
    },
    /// A symbolic link with mode 0777.
    Symlink {
        /// What it points to: 1 to [`crate::SYMLINK_BYTES_MAX`] bytes.
        target: &'a [u8],
    },
}

impl<'a> NewNode<'a> {
    /// The same with a umask taken off its permissions, if it has any.
    pub fn masked(self, umask: u32) -> NewNode<'a> {
        match self {
            NewNode::Node { kind, permissions, device } => {
                NewNode::Node { kind, permissions: permissions & !umask, device }
            }
            NewNode::Directory { permissions } => {
                NewNode::Directory { permissions: permissions & !umask }
            }
            NewNode::Symlink { .. } => self,
        }
    }
}

/// What a rename does when the new name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it, as POSIX `rename` does.
    Replace,
    /// Refuse with [`crate::Error::Exists`].
    NoReplace,
    /// Let the two change places; both must exist.
    Exchange,
    /// As `Replace`, and leave a whiteout (character device 0:0) at the old name.
    Whiteout,
    /// As `NoReplace`, and leave a whiteout.
    WhiteoutNoReplace,
}

impl RenameMode {
    /// Whether a name that is taken is a reason to refuse.
    pub fn refuses_to_replace(self) -> bool {
        matches!(self, RenameMode::NoReplace | RenameMode::WhiteoutNoReplace)
    }

    /// Whether a whiteout is left.
    pub fn leaves_whiteout(self) -> bool {
        matches!(self, RenameMode::Whiteout | RenameMode::WhiteoutNoReplace)
    }
}

/// How a write is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions<'m> {
    /// Clear setuid and (if group-executable) setgid. `security.capability` goes with any write.
    pub clear_privileges: bool,
    /// The write comes from a cache that owns the times: leave them alone.
    pub keep_times: bool,
    /// The write comes from a cache that has accepted the data: the program's `write` has succeeded
    /// already. Space that is kept back for that may be used.
    pub accepted: bool,
    /// The memory that the data is a part of, if the file system may keep it in place of a copy:
    /// nothing changes it any more. A part that is kept keeps all of it, and all of it counts
    /// against the limits of the file system.
    pub memory: Option<&'m Bytes>,
}

/// What `allocate` does to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Promise space; extend the size if the range ends past it.
    Reserve,
    /// Promise space; never change the size.
    ReserveKeepSize,
    /// Make it a hole; the size stays.
    PunchHole,
    /// Make it read as zeros, space promised; extend the size if the range ends past it.
    Zero,
    /// Make it read as zeros, space promised; the size stays.
    ZeroKeepSize,
    /// Take it out of the file: what comes after it moves to where it began, and the file becomes
    /// shorter by its length. Any byte may begin and end it, but it must end before the file does.
    Collapse,
    /// Put a hole of its length where it begins: what was there and after it moves towards the
    /// end, and the file becomes longer. Any byte may begin it, but it must begin inside the file.
    Insert,
    /// Give it blocks that no other place refers to, and promise space; extend the size if the
    /// range ends past it. What reads return does not change.
    Unshare,
    /// As `Unshare`; the size stays.
    UnshareKeepSize,
}

impl Allocate {
    /// Whether a range that ends past the end of the file makes it longer.
    pub fn extends(self) -> bool {
        matches!(self, Allocate::Reserve | Allocate::Zero | Allocate::Unshare)
    }

    /// Whether it promises space, and does nothing to what is there.
    pub fn reserves(self) -> bool {
        matches!(
            self,
            Allocate::Reserve
                | Allocate::ReserveKeepSize
                | Allocate::Unshare
                | Allocate::UnshareKeepSize
        )
    }
}

/// What `seek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// The first byte at or after the offset that is not in a hole.
    Data,
    /// The first byte at or after the offset that is in a hole, or the end of the file.
    Hole,
}

/// Whether an extended attribute must or must not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Either.
    Any,
    /// Must not exist yet.
    Create,
    /// Must exist already.
    Replace,
}

/// What must be durable when `sync` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// The inode's content, and the attributes that are needed to read it back.
    Data,
    /// The inode's content and all its attributes; for a directory, its entries.
    All,
}

/// How a file system stops for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Everything that was done before is made durable first.
    Flush,
    /// At once, without another write: what was not durable is lost, as in a power cut.
    Now,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its inode.
    pub ino: Ino,
    /// The kind of that inode.
    pub kind: Kind,
    /// Where to go on after it; 1 to [`crate::COOKIE_MAX`], stable as long as the entry lives.
    pub cookie: u64,
    /// Its attributes, where they were asked for; the inode is then pinned once.
    pub attributes: Option<Attributes>,
}

/// How much space there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceReport {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Inodes that can still be made.
    pub inodes_free: u64,
}

/// A POSIX file system, one operation a method.
///
/// **Atomicity.** Each method takes effect wholly or not at all, also across a crash; an error
/// means that nothing has changed. Methods may be called from many threads at once, and the
/// result is that of some order of the calls.
///
/// **Permissions.** The caller's right to do it has been checked, on the side that
/// [`FileSystem::access_rules`] names. Implementations apply what follows from identity: ownership
/// of new inodes, setgid inheritance, clearing of setuid and setgid.
///
/// **Pins.** A method that returns [`Attributes`] of an inode reached through a name (`lookup`,
/// `parent`, `pin`, `create`, `create_anonymous`, `link`, and `read_directory` with attributes,
/// for each entry that its visitor accepted) also pins that inode once; [`FileSystem::forget`]
/// takes pins back. An inode without a name lives until its last pin is gone; then its space is
/// freed. After a crash all pins are gone.
///
/// **Times.** Content changes move `modified` and `changed`; every other change moves `changed`;
/// changes of a directory's entries move the directory's `modified` and `changed`.
pub trait FileSystem: Send + Sync {
    /// How much space there is.
    fn space(&self) -> Result<SpaceReport>;

    /// Finds `name` in the directory `parent`, and pins what it finds.
    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes>;

    /// The parent directory of the directory `ino` (the root's is itself), pinned.
    fn parent(&self, ino: Ino) -> Result<Attributes>;

    /// The attributes of `ino`, pinned: how a file handle from before finds its inode again.
    /// [`crate::Error::Stale`] if there is no such inode any more.
    fn pin(&self, ino: Ino) -> Result<Attributes>;

    /// The attributes of `ino`. Does not pin. [`crate::Error::Stale`] if there is no such inode.
    fn attributes(&self, ino: Ino) -> Result<Attributes>;

    /// Takes back `count` pins of `ino`. Never fails: a number too large is taken as all.
    fn forget(&self, ino: Ino, count: u64);

    /// Takes back all pins of all inodes: the mount that held them is gone, and a kernel that
    /// unmounts does not say what it forgets.
    fn forget_all(&self);

    /// Changes attributes, and returns all of them as they are now.
    fn set_attributes(&self, caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes>;

    /// The target of a symbolic link.
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Makes a new inode under `name` in `parent`, and pins it.
    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes>;

    /// Makes a regular file without a name, owned as a file created in `parent` would be.
    fn create_anonymous(&self, caller: Caller, parent: Ino, permissions: u32)
    -> Result<Attributes>;

    /// Gives `ino` another name, and pins it. An anonymous file gets its first name so.
    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes>;

    /// Removes a name of something that is not a directory.
    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()>;

    /// Moves a name. Replacing follows POSIX: kinds must fit, a replaced directory must be empty.
    fn rename(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()>;

    /// Appends to `out` at most `len` bytes from `offset`; fewer only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()>;

    /// Writes all of `data` at `offset`, or nothing.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()>;

    /// Writes all of `data` at the end of the file as it is at that moment, or nothing; the answer
    /// is where that was, in bytes. What changes meanwhile comes before or after all of it.
    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64>;

    /// Visits entries with a cookie above `after` in cookie order (0 starts), without `.` and
    /// `..`, until the visitor returns false (that entry was not accepted and is not pinned).
    /// Entries that exist during the whole walk are visited exactly once.
    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()>;

    /// The value of an extended attribute.
    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets an extended attribute.
    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// The names of all extended attributes.
    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;

    /// Which side checks permissions.
    fn access_rules(&self) -> AccessRules<'_>;

    /// Removes an extended attribute.
    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// Returns when what `scope` names of `ino` is durable.
    fn sync(&self, ino: Ino, scope: SyncScope) -> Result<()>;

    /// Returns when everything that was done before is durable.
    fn sync_all(&self) -> Result<()>;

    /// Whether others change the file system beside this caller, as other hosts do: then nothing
    /// that it answers may be remembered. The answer may change at any time.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether others have the file system open beside this caller, also such as do nothing now.
    /// True wherever [`FileSystem::is_shared`] is.
    fn has_company(&self) -> bool {
        self.is_shared()
    }

    /// What the file system can do beside that; [`Capabilities::default`] where it can do no more.
    /// The answer is the same at every call.
    fn capabilities(&self) -> Capabilities<'_>;
}
