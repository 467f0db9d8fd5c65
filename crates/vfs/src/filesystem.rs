//! The trait that every file system implements.

use crate::{
    AccessRules, Attributes, Extent, Ino, Kind, Marks, Name, OwnerUsage, Result, SetAttributes,
    SetMarks, UsageOwner,
};
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
pub struct WriteOptions {
    /// Clear setuid and (if group-executable) setgid. `security.capability` goes with any write.
    pub clear_privileges: bool,
    /// The write comes from a cache that owns the times: leave them alone.
    pub keep_times: bool,
    /// The write comes from a cache that has accepted the data: whoever wrote it has been told that
    /// all is well. Space that is kept back for that may be used.
    pub accepted: bool,
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

/// Data of a write, and the memory that it is a part of: it may be kept, and nobody changes it any
/// more.
#[derive(Clone, Copy, Debug)]
pub struct Keepable<'d> {
    /// What is to be written.
    pub data: &'d [u8],
    /// The whole memory. A part of it that is kept keeps all of it.
    pub memory: &'d Bytes,
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
/// **Permissions.** The caller's right to do it has been checked, as [`FileSystem::access_rules`]
/// says by whom; implementations apply what follows from identity: ownership of new
/// inodes, setgid inheritance, clearing of setuid and setgid.
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

    /// As [`FileSystem::create`], for a caller whose umask has not been taken off the permissions:
    /// it counts only where the directory's access control list does not say what holds instead.
    fn create_masked(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
        umask: u32,
    ) -> Result<Attributes> {
        self.create(caller, parent, name, node.masked(umask))
    }

    /// As [`FileSystem::create_anonymous`], with a umask as in [`FileSystem::create_masked`].
    fn create_anonymous_masked(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        umask: u32,
    ) -> Result<Attributes> {
        self.create_anonymous(caller, parent, permissions & !umask)
    }

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

    /// As [`FileSystem::read`], for who does not want the access time to move. Where access times
    /// do not move at all it is the same.
    fn read_unnoticed(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read(ino, offset, len, out)
    }

    /// Writes all of `data` at `offset`, or nothing.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions) -> Result<()>;

    /// As [`FileSystem::write`], for data in memory that the file system may keep in place of a
    /// copy. Whoever keeps it counts all of it against its limits, not only the part.
    fn write_kept(
        &self,
        ino: Ino,
        offset: u64,
        keepable: Keepable<'_>,
        options: WriteOptions,
    ) -> Result<()> {
        self.write(ino, offset, keepable.data, options)
    }

    /// Allocates, punches, zeroes, collapses or inserts a range of a regular file; what was
    /// reserved past the end of a file is given up when it is collapsed or inserted into.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for an empty range, one to collapse that reaches the end
    /// of the file, and one to insert that begins there.
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()>;

    /// Finds data or a hole at or after `offset`; [`crate::Error::NoSuchOffset`] past the end.
    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64>;

    /// Copies a range, sharing blocks where that can be done; returns how many bytes it copied
    /// (fewer than `len` at the end of the source). The ranges must not overlap in one file.
    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64>;

    /// As [`FileSystem::copy_range`], but never copies a byte: what it cannot share it refuses.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] also for a range that does not lie inside the source;
    /// [`crate::Error::NotSupported`] where nothing can be shared.
    fn share_range(
        &self,
        _from: Ino,
        _from_offset: u64,
        _to: Ino,
        _to_offset: u64,
        _len: u64,
    ) -> Result<u64> {
        Err(crate::Error::NotSupported)
    }

    /// Where the content of a regular file lies: at most `max` extents that end after `offset`, in
    /// order, also those past the end of the file that are reserved.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] where that is not known.
    fn extents(&self, _ino: Ino, _offset: u64, _max: usize) -> Result<Vec<Extent>> {
        Err(crate::Error::NotSupported)
    }

    /// Tells the devices which of their bytes between `from` and `to` hold nothing any more, in
    /// runs of at least `min_bytes`; and how many they were.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] where there are no devices.
    fn trim(&self, _from: u64, _to: u64, _min_bytes: u64) -> Result<u64> {
        Err(crate::Error::NotSupported)
    }

    /// What the file system is called.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] where there is no such thing.
    fn label(&self) -> Result<String> {
        Err(crate::Error::NotSupported)
    }

    /// Gives the file system another label for a caller, which is durable when this returns.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] as for [`FileSystem::label`];
    /// [`crate::Error::InvalidArgument`] if it is too long.
    fn set_label(&self, _caller: Caller, _label: &str) -> Result<()> {
        Err(crate::Error::NotSupported)
    }

    /// What `owner` uses, and may use, of the file system that `ino` is in.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] where that is not counted.
    fn usage(&self, _ino: Ino, _owner: UsageOwner) -> Result<OwnerUsage> {
        Err(crate::Error::NotSupported)
    }

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

    /// Sets an access control list, which is an extended attribute, and with it the mode; takes
    /// setgid off if `clear_setgid` says so (the owner is no member of the file's group).
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] where lists of that kind are not kept.
    fn set_access_list(
        &self,
        _ino: Ino,
        _name: &[u8],
        _value: &[u8],
        _clear_setgid: bool,
    ) -> Result<()> {
        Err(crate::Error::NotSupported)
    }

    /// Who checks permissions.
    fn access_rules(&self) -> AccessRules<'_> {
        AccessRules::ModeBits
    }

    /// Removes an extended attribute.
    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// Whether names are the same when only their case differs. What a name led to, and that it
    /// led to nothing, then says nothing of it once another spelling has been made or removed.
    fn folds_names(&self) -> bool {
        false
    }

    /// The flags and the project of `ino`.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] where inodes have none.
    fn marks(&self, _ino: Ino) -> Result<Marks> {
        Err(crate::Error::NotSupported)
    }

    /// Sets flags and project of `ino`. That the caller may has been checked: immutable and
    /// append-only are an administrator's to change, all else is the owner's too.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] for a flag that is not kept.
    fn set_marks(&self, _ino: Ino, _set: SetMarks) -> Result<()> {
        Err(crate::Error::NotSupported)
    }

    /// Returns when what `scope` names of `ino` is durable.
    fn sync(&self, ino: Ino, scope: SyncScope) -> Result<()>;

    /// Syncs several inodes, each as [`FileSystem::sync`] does; the outcomes are in their order.
    /// Where one flush of the devices serves them all, it is made once.
    fn sync_many(&self, inodes: &[(Ino, SyncScope)]) -> Vec<Result<()>> {
        inodes.iter().map(|(ino, scope)| self.sync(*ino, *scope)).collect()
    }

    /// Returns when everything that was done before is durable.
    fn sync_all(&self) -> Result<()>;

    /// Stops the file system for good, as a power cut would: from then on every operation fails
    /// with [`crate::Error::Io`] and nothing more is written, whatever comes (tests of crashes ask
    /// for it on a running system). The attributes of the root directory can still be asked for,
    /// so that whoever unmounts finds the mount.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] where nothing outlives the process anyway; or not everything
    /// could be made durable first: then it goes on.
    fn shutdown(&self, _how: Shutdown) -> Result<()> {
        Err(crate::Error::NotSupported)
    }
}
