//! Flags and projects of inodes, and what they forbid.
//!
//! The kernel knows nothing of the flags of a FUSE inode, so all that it refuses elsewhere on
//! their behalf is refused here: what is immutable does not change, what is append-only only
//! grows, and neither gains or loses a name. Who may set which flag the kernel does check. The
//! rules are those of Linux's `fs/namei.c`, `fs/attr.c` and `fs/open.c`, except that files are
//! opened without a word to us: what a program may not do fails when it does it. Where a server
//! is asked at each opening it looks at the flags itself.

use crate::filesystem::Posix;
use marram_format::record::{Inode, InodeKind, NameRule};
use marram_records::failure::from_sync;
use marram_records::inode::FROZEN_FLAGS;
use marram_vfs::{Allocate, Error, InodeFlags, Marks, Result, SetAttributes, SetMarks, SetTime};
use std::cell::Cell;

/// Flags that are kept.
const KEPT: InodeFlags = InodeFlags(
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
const FROZEN: InodeFlags = InodeFlags(FROZEN_FLAGS);

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

/// The flags of an inode.
pub(crate) fn flags_of(inode: &Inode) -> InodeFlags {
    InodeFlags(inode.flags)
}

/// Those of `flags` that an inode of this kind can have; others are dropped without a word, as
/// ext4 does.
fn fitting(flags: InodeFlags, kind: InodeKind) -> InodeFlags {
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

impl Posix {
    pub(crate) fn marks_of(&self, ino: u64) -> Result<Marks> {
        let _held = self.locks.read(ino);
        let inode = self.load_inode(ino)?;
        Ok(Marks { flags: flags_of(&inode) | self.shown_only(&inode), project: inode.project })
    }

    /// Flags that say how the dataset was made: they are told, and can be set only to what they
    /// are.
    fn shown_only(&self, inode: &Inode) -> InodeFlags {
        let folds = self.counters.names() == NameRule::Folded;
        match inode.kind {
            InodeKind::Directory if folds => InodeFlags::FOLDED_NAMES,
            _ => InodeFlags::default(),
        }
    }

    pub(crate) fn change_marks(&self, ino: u64, set: SetMarks) -> Result<()> {
        let _held = self.locks.write(&[ino]);
        let mut change = self.change()?;
        let now = change.now;
        let inode = change.inode_mut(ino)?;
        let shown = self.shown_only(inode);
        let flags = set.flags.unwrap_or(flags_of(inode) | shown);
        if flags.within(InodeFlags::FOLDED_NAMES) != shown {
            return Err(Error::NotSupported);
        }
        let flags = flags.without(shown);
        if flags.without(KEPT) != InodeFlags::default() {
            return Err(Error::NotSupported);
        }
        let marks = Marks {
            flags: fitting(flags, inode.kind),
            project: set.project.unwrap_or(inode.project),
        };
        let present = Marks { flags: flags_of(inode), project: inode.project };
        let stays_immutable = |marks: Marks| marks.flags.any(InodeFlags::IMMUTABLE);
        if stays_immutable(present) && stays_immutable(marks) && marks != present {
            return Err(Error::NotPermitted);
        }
        inode.flags = marks.flags.0;
        inode.project = marks.project;
        inode.changed = now;
        change.commit()
    }

    /// Refuses to write a range that flags forbid. Pages of a cache come whole: those of an
    /// append-only file may repeat what the file has.
    pub(crate) fn check_write(
        &self,
        ino: u64,
        inode: &Inode,
        offset: u64,
        data: &[u8],
        accepted: bool,
    ) -> Result<()> {
        let flags = flags_of(inode);
        if !flags.any(FROZEN) {
            return Ok(());
        }
        check_not_immutable(inode)?;
        let repeats = || self.repeats(ino, inode.size, offset, data);
        if offset >= inode.size || (accepted && repeats()?) {
            return Ok(());
        }
        Err(Error::NotPermitted)
    }

    /// Does an operation, and makes it durable before it returns if a flag of an inode that it
    /// changes asks for that. The locks are free again while the devices work.
    pub(crate) fn durably<T>(&self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        SYNC_ASKED.set(false);
        let done = operation()?;
        if SYNC_ASKED.get() {
            self.view.sync().map_err(from_sync)?;
        }
        Ok(done)
    }
}
