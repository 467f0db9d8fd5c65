//! Flags and projects of inodes: shown, changed, and checked by writes.

use crate::frame::change::Change;
use crate::frame::flags::{FROZEN, KEPT, check_not_immutable, fitting, flags_of};
use crate::operations::read;
use crate::volume::Volume;
use marram_format::record::{Inode, InodeKind, NameRule};
use marram_vfs::{Error, InodeFlags, Marks, Result, SetMarks};

pub(crate) fn marks_of(volume: &Volume, ino: u64) -> Result<Marks> {
    let _held = volume.locks.read(ino);
    let inode = volume.load_inode(ino)?;
    Ok(Marks { flags: flags_of(&inode) | shown_only(volume, &inode), project: inode.project })
}

/// Flags that say how the dataset was made: they are shown, and can be set only to what they
/// are.
pub(crate) fn shown_only(volume: &Volume, inode: &Inode) -> InodeFlags {
    let folds = volume.counters.names() == NameRule::Folded;
    match inode.kind {
        InodeKind::Directory if folds => InodeFlags::FOLDED_NAMES,
        _ => InodeFlags::default(),
    }
}

pub(crate) fn change_marks(volume: &Volume, ino: u64, set: SetMarks) -> Result<()> {
    let _held = volume.locks.write(&[ino]);
    let mut change = Change::begin(volume)?;
    let now = change.now;
    let inode = change.inode_mut(ino)?;
    let shown = shown_only(volume, inode);
    let flags = set.flags.unwrap_or(flags_of(inode) | shown);
    if flags.within(InodeFlags::FOLDED_NAMES) != shown {
        return Err(Error::NotSupported);
    }
    let flags = flags.without(shown);
    if flags.without(KEPT) != InodeFlags::default() {
        return Err(Error::NotSupported);
    }
    let marks =
        Marks { flags: fitting(flags, inode.kind), project: set.project.unwrap_or(inode.project) };
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
    volume: &Volume,
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
    let repeats = || read::repeats(volume, ino, inode.size, offset, data);
    if offset >= inode.size || (accepted && repeats()?) {
        return Ok(());
    }
    Err(Error::NotPermitted)
}
