//! Flags and projects of inodes, and what they forbid.
//!
//! The kernel knows nothing of the flags of a FUSE inode, so all that it refuses elsewhere on
//! their behalf is refused here: what is immutable does not change, what is append-only only
//! grows, and neither gains or loses a name. The kernel does check the right to set a flag. The
//! rules are those of Linux's `fs/namei.c`, `fs/attr.c` and `fs/open.c`, except that files are
//! opened without a word to us: what a program may not do fails when it does it. Where a server
//! is asked at each opening it looks at the flags itself.

use marram_format::record::{Inode, InodeKind};
use marram_records::inode::FROZEN_FLAGS;
use marram_vfs::{Allocate, Error, InodeFlags, Result, SetAttributes, SetTime};
use std::cell::Cell;

/// Flags that are kept.
pub(crate) const KEPT: InodeFlags = InodeFlags(
    FOR_ALL.0
        | InodeFlags::SYNC.0
        | InodeFlags::IMMUTABLE.0
        | InodeFlags::APPEND_ONLY.0
        | InodeFlags::NO_COMPRESSION.0
        | FOR_DIRECTORIES.0,
);
/// Flags that every kind of inode can have.
const FOR_ALL: InodeFlags = InodeFlags(InodeFlags::NO_DUMP.0 | InodeFlags::NO_ACCESS_TIME.0);
/// Flags that only directories can have.
const FOR_DIRECTORIES: InodeFlags =
    InodeFlags(InodeFlags::SYNC_DIRECTORY.0 | InodeFlags::INHERIT_PROJECT.0);
/// Flags that pass from a directory to what is made in it.
const INHERITED: InodeFlags =
    InodeFlags(FOR_ALL.0 | InodeFlags::SYNC.0 | InodeFlags::NO_COMPRESSION.0 | FOR_DIRECTORIES.0);
/// Flags of an inode that does not change, or only grows.
pub(crate) const FROZEN: InodeFlags = InodeFlags(FROZEN_FLAGS);

thread_local! {
    /// The operation under way on this thread has changed an inode with a flag for syncs.
    static SYNC_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Takes note of an inode that an operation has changed.
pub(crate) fn note_changed(inode: &Inode) {
    let syncs = InodeFlags::SYNC | InodeFlags::SYNC_DIRECTORY;
    if flags_of(inode).any(syncs) {
        SYNC_ASKED.set(true);
    }
}

/// An operation begins: no inode that it changes is known yet.
pub(crate) fn forget_syncs() {
    SYNC_ASKED.set(false);
}

/// Whether the operation has changed an inode with a flag for syncs.
pub(crate) fn asks_for_sync() -> bool {
    SYNC_ASKED.get()
}

/// The flags of an inode.
pub(crate) fn flags_of(inode: &Inode) -> InodeFlags {
    InodeFlags(inode.flags)
}

/// Those of `flags` that an inode of this kind can have; others are dropped without a word, as
/// ext4 does.
pub(crate) fn fitting(flags: InodeFlags, kind: InodeKind) -> InodeFlags {
    match kind {
        InodeKind::Directory => flags,
        InodeKind::Regular => flags.without(FOR_DIRECTORIES),
        _ => flags.within(FOR_ALL),
    }
}

/// Gives a new inode what passes on from the directory that it is made in.
pub(crate) fn inherit(inode: &mut Inode, above: &Inode) {
    let flags = flags_of(above);
    inode.flags = fitting(flags.within(INHERITED), inode.kind).0;
    if flags.any(InodeFlags::INHERIT_PROJECT) {
        inode.project = above.project;
    }
}

/// Refuses what neither an immutable nor an append-only inode takes: other attributes, and to
/// gain or lose a name.
pub(crate) fn check_not_frozen(inode: &Inode) -> Result<()> {
    refuse(inode, FROZEN)
}

/// Refuses what an immutable inode does not take.
pub(crate) fn check_not_immutable(inode: &Inode) -> Result<()> {
    refuse(inode, InodeFlags::IMMUTABLE)
}

fn refuse(inode: &Inode, flags: InodeFlags) -> Result<()> {
    if flags_of(inode).any(flags) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Refuses a change of attributes that flags forbid. Setting times to now is a matter of
/// permission to write, as is the loss of privileges; anything else of ownership. Times alone with
/// a change time are those of a kernel that owns times, from writes that were permitted.
pub(crate) fn check_attributes(inode: &Inode, set: &SetAttributes) -> Result<()> {
    let times = (set.accessed, set.modified);
    let touches = times == (Some(SetTime::Now), Some(SetTime::Now));
    let sets_times = !touches && times != (None, None);
    let kernels = set.changed.is_some() && set.accessed.is_none();
    let owners = set.permissions.is_some() || set.uid.is_some() || set.gid.is_some();
    if owners || set.size.is_some() || (sets_times && !kernels) {
        check_not_frozen(inode)
    } else if touches || set.clear_privileges || set.clear_setgid {
        check_not_immutable(inode)
    } else {
        Ok(())
    }
}

/// Refuses a kind of allocation that flags forbid: an append-only file can have space promised.
pub(crate) fn check_allocation(inode: &Inode, how: Allocate) -> Result<()> {
    match how {
        Allocate::Reserve | Allocate::ReserveKeepSize => check_not_immutable(inode),
        _ => check_not_frozen(inode),
    }
}

/// Refuses to bring something into a directory whose project is passed on and is another.
pub(crate) fn check_project(directory: &Inode, inode: &Inode) -> Result<()> {
    let passes_on = flags_of(directory).any(InodeFlags::INHERIT_PROJECT);
    if passes_on && directory.project != inode.project {
        return Err(Error::CrossDevice);
    }
    Ok(())
}
