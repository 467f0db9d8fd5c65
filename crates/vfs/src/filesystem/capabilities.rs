//! What a file system can do beside its core, each apart from the others.
//!
//! A capability is handed out whole: a file system that has it keeps its contract, and one that
//! cannot keep it does not hand it out. So no method here has a body of its own.

use super::{Allocate, Caller, FileSystem, NewNode, SeekTarget, Shutdown, SyncScope};
use crate::{
    Attributes, Extent, HeldLock, Ino, LockRequest, Marks, Name, OwnerUsage, Patchgroup, Result,
    SetMarks, UsageOwner,
};
use std::sync::Arc;

/// The capabilities of a file system; none by default. One that wraps another may hand on those
/// of the one inside, as long as it changes nothing that they speak of.
#[derive(Clone, Copy, Default)]
pub struct Capabilities<'f> {
    /// Ranges of a file can be reserved, freed and moved, and holes be found.
    pub ranges: Option<&'f dyn Ranges>,
    /// Ranges can be copied without the caller seeing the bytes.
    pub copying: Option<&'f dyn Copying>,
    /// Ranges can be shared without a copy.
    pub sharing: Option<&'f dyn Sharing>,
    /// Where the content of a file lies is known.
    pub extents: Option<&'f dyn ExtentMap>,
    /// There are devices, which can be given what is free.
    pub trimming: Option<&'f dyn Trimming>,
    /// The file system has a label.
    pub label: Option<&'f dyn Labelled>,
    /// What owners use is counted.
    pub usage: Option<&'f dyn UsageCounts>,
    /// Inodes have flags and a project.
    pub marks: Option<&'f dyn Marked>,
    /// Access control lists are kept.
    pub access_lists: Option<&'f dyn StoredAccessLists>,
    /// Several inodes can be made durable by one flush.
    pub group_sync: Option<&'f dyn GroupSync>,
    /// Operations can be ordered without being made durable.
    pub patchgroups: Option<&'f dyn Patchgroups>,
    /// It can be stopped as by a power cut.
    pub stopping: Option<&'f dyn Stopping>,
    /// Access times move, and a read can leave them.
    pub quiet_reads: Option<&'f dyn QuietReads>,
    /// Locks of files hold between all hosts that share the file system.
    pub locks: Option<&'f dyn FileLocks>,
    /// Names are the same when only their case differs. What a name led to, and that it led to
    /// nothing, then says nothing of it once another spelling has been made or removed.
    pub folds_names: bool,
}

/// Ranges of regular files, and their holes.
pub trait Ranges {
    /// Allocates, punches, zeroes, collapses or inserts a range of a regular file; what was
    /// reserved past the end of a file is given up when it is collapsed or inserted into.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for an empty range, one to collapse that reaches the end
    /// of the file, and one to insert that begins there.
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()>;

    /// Finds data or a hole at or after `offset`; [`crate::Error::NoSuchOffset`] past the end.
    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64>;
}

/// Copies inside the file system.
pub trait Copying {
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
}

/// Blocks that several files share.
pub trait Sharing {
    /// As [`Copying::copy_range`], but never copies a byte: what it cannot share it refuses.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] also for a range that does not lie inside the source;
    /// [`crate::Error::NotSupported`] where nothing can be shared.
    fn share_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64>;
}

/// Where contents lie.
pub trait ExtentMap {
    /// Where the content of a regular file lies: at most `max` extents that end after `offset`, in
    /// order, also those past the end of the file that are reserved.
    fn extents(&self, ino: Ino, offset: u64, max: usize) -> Result<Vec<Extent>>;
}

/// Devices below.
pub trait Trimming {
    /// Tells the devices which of their bytes between `from` and `to` hold nothing any more, in
    /// runs of at least `min_bytes`; and how many they were.
    fn trim(&self, from: u64, to: u64, min_bytes: u64) -> Result<u64>;
}

/// A label for people.
pub trait Labelled {
    /// What the file system is called.
    fn label(&self) -> Result<String>;

    /// Gives the file system another label for a caller, which is durable when this returns.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if it is too long.
    fn set_label(&self, caller: Caller, label: &str) -> Result<()>;
}

/// What owners use and may use.
pub trait UsageCounts {
    /// What `owner` uses, and may use, of the file system that `ino` is in.
    fn usage(&self, ino: Ino, owner: UsageOwner) -> Result<OwnerUsage>;
}

/// Flags and projects.
pub trait Marked {
    /// The flags and the project of `ino`.
    fn marks(&self, ino: Ino) -> Result<Marks>;

    /// Sets flags and project of `ino`. That the caller may has been checked: immutable and
    /// append-only are an administrator's to change, all else is the owner's too.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] for a flag that is not kept.
    fn set_marks(&self, ino: Ino, set: SetMarks) -> Result<()>;
}

/// Access control lists, which are extended attributes.
pub trait StoredAccessLists {
    /// As [`crate::FileSystem::create`], for a caller whose umask has not been taken off the
    /// permissions: it counts only where the directory's access control list does not say what
    /// holds instead.
    fn create_masked(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
        umask: u32,
    ) -> Result<Attributes>;

    /// As [`crate::FileSystem::create_anonymous`], with a umask as in
    /// [`StoredAccessLists::create_masked`].
    fn create_anonymous_masked(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        umask: u32,
    ) -> Result<Attributes>;

    /// Sets an access control list, which is an extended attribute, and with it the mode; takes
    /// setgid off if `clear_setgid` says so (the owner is no member of the file's group).
    fn set_access_list(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        clear_setgid: bool,
    ) -> Result<()>;
}

/// Syncs of several inodes at once.
pub trait GroupSync {
    /// Syncs several inodes, each as [`crate::FileSystem::sync`] does; the outcomes are in their
    /// order. Where one flush of the devices serves them all, it is made once.
    fn sync_many(&self, inodes: &[(Ino, SyncScope)]) -> Vec<Result<()>>;
}

/// Order between groups of operations.
///
/// Of two groups, one of which waits for the other: whatever a crash leaves of the later one, all
/// of the earlier one is there, with the names that lead to the files that it changed. This holds
/// whatever else the file system gives up for speed. What belongs to no group is not ordered by
/// them. [`crate::PatchgroupLives`] has the life of a group.
pub trait Patchgroups {
    /// Makes a group that waits for nothing.
    ///
    /// # Errors
    /// [`crate::Error::TooManyGroups`]; [`crate::Error::ReadOnly`].
    fn make_group(&self) -> Result<Patchgroup>;

    /// Lets `later` wait for `earlier`, which takes no more changes from now on.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] unless both are there and `later` has neither been engaged
    /// nor is waited for.
    fn depend(&self, later: Patchgroup, earlier: Patchgroup) -> Result<()>;

    /// The same file system; what is changed through this handle belongs to all of these groups,
    /// until one of them is waited for or closed. Then such changes are refused. What is read, and
    /// what pins and forgets, belongs to none.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if one is not there, or another one waits for it.
    fn engaged(&self, groups: &[Patchgroup]) -> Result<Arc<dyn FileSystem>>;

    /// Makes what belongs to a group durable, and all that it waits for.
    ///
    /// # Errors
    /// As for [`crate::FileSystem::sync`]; [`crate::Error::InvalidArgument`] for no group.
    fn sync_group(&self, group: Patchgroup) -> Result<()>;

    /// Forgets the number of a group. Its order stays.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for no group.
    fn close_group(&self, group: Patchgroup) -> Result<()>;
}

/// A stop for good.
pub trait Stopping {
    /// Stops the file system for good, as a power cut would: from then on every operation fails
    /// with [`crate::Error::Io`] and nothing more is written, whatever comes (tests of crashes ask
    /// for it on a running system). The attributes of the root directory can still be asked for,
    /// so that an unmount finds the mount.
    ///
    /// # Errors
    /// Not everything could be made durable first: then it goes on.
    fn shutdown(&self, how: Shutdown) -> Result<()>;
}

/// Reads that leave the access time.
pub trait QuietReads {
    /// As [`crate::FileSystem::read`], but the access time does not move.
    fn read_unnoticed(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()>;
}

/// Locks that exclude programs of all hosts that share the file system. Elsewhere the kernel's own
/// locks are enough.
pub trait FileLocks {
    /// Sets a lock of a regular file, or lets go of one: what the same owner held of the range is
    /// replaced. Never waits for others: returns a lock that is in the way, if one is. Then nothing
    /// has changed, but for a lock of the whole file that was to be held in another way: its owner
    /// has let go of it.
    ///
    /// What others did before they let go is seen by each call that begins after the lock was set.
    ///
    /// # Errors
    /// [`crate::Error::TooManyLocks`]; [`crate::Error::Io`] if others may have taken the lock
    /// since, or cannot be asked. To let go never fails.
    fn set_lock(&self, ino: Ino, lock: &LockRequest) -> Result<Option<HeldLock>>;

    /// A lock that would be in the way of this one.
    ///
    /// # Errors
    /// As for [`FileLocks::set_lock`].
    fn find_lock(&self, ino: Ino, lock: &LockRequest) -> Result<Option<HeldLock>>;
}
