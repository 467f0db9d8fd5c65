//! Attributes of inodes: read, and changed by `set_attributes`.

use crate::acl::stored;
use crate::frame::change::Change;
use crate::frame::content::range_end;
use crate::frame::flags::check_attributes;
use crate::frame::privileges::SETGID;
use crate::frame::{privileges, tail};
use crate::operations::truncate;
use crate::volume::Volume;
use marram_format::record::{Inode, InodeKind, Time, state};
use marram_records::inode::{attributes, check_regular, time};
use marram_store::Admission;
use marram_vfs::{Attributes, Result, SetAttributes, SetTime};

pub(crate) fn attributes_of(volume: &Volume, ino: u64) -> Result<Attributes> {
    Ok(attributes(ino, &volume.load_inode(ino)?))
}

pub(crate) fn pin_existing(volume: &Volume, ino: u64) -> Result<Attributes> {
    let _held = volume.locks.read(ino);
    let found = attributes_of(volume, ino)?;
    volume.pins.add(ino);
    Ok(found)
}

pub(crate) fn change_attributes(
    volume: &Volume,
    ino: u64,
    set: &SetAttributes,
) -> Result<Attributes> {
    let _held = volume.locks.write(&[ino]);
    if set.size.is_some() {
        prepare_size(volume, ino, set)?;
    }
    let mut change = Change::begin(volume)?;
    let inode = change.inode(ino)?;
    check_attributes(inode, set)?;
    // Only a caller that no limit binds may do that.
    let gives_away = set.uid.is_some_and(|uid| uid != inode.uid);
    change.lifts_limits = gives_away;
    if are_times_of_a_cache(set) {
        change.batch.admission = Admission::Accepted;
    }
    if let Some(size) = set.size {
        truncate::set_size(volume, &mut change, ino, size)?;
    }
    change.inode_mut(ino)?;
    if set.clear_privileges {
        privileges::clear_privileges(volume, &mut change, ino)?;
    } else if set.size.is_some() || set.uid.is_some() || set.gid.is_some() {
        privileges::drop_capability(volume, &mut change, ino)?;
    }
    if set.clear_setgid && change.inode(ino)?.kind != InodeKind::Directory {
        change.inode_mut(ino)?.permissions &= !SETGID;
    }
    let now = change.now;
    if let Some(permissions) = set.permissions {
        stored::set_mode(volume, &mut change, ino, permissions)?;
    }
    let inode = change.inode_mut(ino)?;
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    set_times(inode, set, now);
    let result = attributes(ino, inode);
    let tail = inode.state & state::TAIL != 0;
    change.commit()?;
    if tail {
        volume.orphans.push(ino);
    }
    Ok(result)
}

/// What must be done before a size can be set: a tail that is still there would come back
/// into the file when it grows.
fn prepare_size(volume: &Volume, ino: u64, set: &SetAttributes) -> Result<()> {
    let inode = volume.load_inode(ino)?;
    check_regular(&inode)?;
    check_attributes(&inode, set)?;
    let size = range_end(set.size.unwrap_or(0), 0)?;
    if size >= inode.size && inode.state & state::TAIL != 0 {
        tail::finish_tail(volume, ino)?;
    }
    Ok(())
}

/// Whether these are the times of what a cache has written back. They come with the sync of data
/// that was accepted earlier: refused, they would make a sync fail whose data is safe.
fn are_times_of_a_cache(set: &SetAttributes) -> bool {
    let times = SetAttributes {
        accessed: set.accessed,
        modified: set.modified,
        changed: set.changed,
        ..SetAttributes::default()
    };
    set.changed.is_some() && *set == times
}

fn set_times(inode: &mut Inode, set: &SetAttributes, now: Time) {
    let resolve = |to: SetTime| match to {
        SetTime::Now => now,
        SetTime::At(at) => time(at),
    };
    inode.accessed = set.accessed.map_or(inode.accessed, resolve);
    inode.modified = set.modified.map_or(inode.modified, resolve);
    inode.changed = set.changed.map_or(now, time);
}
