//! More names for an inode, and fewer.

use crate::frame::change::Change;
use crate::frame::flags::{check_not_frozen, check_not_immutable, check_project};
use crate::frame::{lookup, reclaim};
use crate::operations::create::check_links;
use crate::volume::Volume;
use marram_format::record::{Entry, InodeKind, OrphanReason, state};
use marram_records::directory::is_empty_directory;
use marram_records::inode::{attributes, check_directory, check_living_directory};
use marram_records::orphans::{orphan_item, orphan_key};
use marram_store::Admission;
use marram_vfs::{Attributes, Error, Name, Result};

pub(crate) fn add_name(
    volume: &Volume,
    ino: u64,
    parent: u64,
    name: Name<'_>,
) -> Result<Attributes> {
    let _held = volume.locks.write(&[ino, parent]);
    let mut change = Change::begin(volume)?;
    let kind = change.inode(ino)?.kind;
    check_directory(change.inode(parent)?)?;
    let probe = lookup::probe_entry(volume, parent, name)?;
    if probe.found.is_some() {
        return Err(Error::Exists);
    }
    check_living_directory(change.inode(parent)?)?;
    check_not_immutable(change.inode(parent)?)?;
    check_not_frozen(change.inode(ino)?)?;
    if kind == InodeKind::Directory {
        return Err(Error::NotPermitted);
    }
    let inode = change.inode(ino)?.clone();
    check_project(change.inode(parent)?, &inode)?;
    check_links(change.inode(ino)?)?;
    let place = probe.free()?;
    change.add_entry(parent, place, &Entry { ino, kind, name: name.as_bytes() })?;
    let now = change.now;
    let inode = change.inode_mut(ino)?;
    let first_name = inode.links == 0;
    let tail = inode.state & state::TAIL != 0;
    inode.links += 1;
    inode.changed = now;
    inode.parent = parent;
    inode.name_place = place;
    let result = attributes(ino, inode);
    if first_name && tail {
        let item = orphan_item(OrphanReason::Tail);
        change.batch.put(orphan_key(ino), item);
    } else if first_name {
        change.batch.remove(orphan_key(ino));
    }
    change.commit()?;
    volume.pins.add(ino);
    volume.pins.set_nameless(ino, false);
    Ok(result)
}

pub(crate) fn remove_name(volume: &Volume, parent: u64, name: Name<'_>) -> Result<()> {
    remove_entry_where(volume, parent, name, |kind| match kind {
        InodeKind::Directory => Err(Error::IsDirectory),
        _ => Ok(()),
    })
}

pub(crate) fn remove_empty(volume: &Volume, parent: u64, name: Name<'_>) -> Result<()> {
    remove_entry_where(volume, parent, name, |kind| match kind {
        InodeKind::Directory => Ok(()),
        _ => Err(Error::NotDirectory),
    })
}

fn remove_entry_where(
    volume: &Volume,
    parent: u64,
    name: Name<'_>,
    check_kind: impl Fn(InodeKind) -> Result<()>,
) -> Result<()> {
    volume.check_writable()?;
    loop {
        let seen = lookup::entry(volume, parent, name)?;
        let _held = volume.locks.write(&[parent, seen.ino]);
        let entry = lookup::entry(volume, parent, name)?;
        if entry.ino != seen.ino {
            continue;
        }
        let mut change = Change::begin(volume)?;
        check_not_frozen(change.inode(parent)?)?;
        check_not_frozen(change.inode(entry.ino)?)?;
        check_kind(entry.kind)?;
        if entry.kind == InodeKind::Directory && !is_empty_directory(&*volume.view, entry.ino)? {
            return Err(Error::NotEmpty);
        }
        change.batch.admission = Admission::Freeing;
        change.remove_entry(parent, entry)?;
        let orphan = reclaim::lose_name(volume, &mut change, entry.ino, parent)?;
        change.commit()?;
        reclaim::settle(volume, orphan);
        return Ok(());
    }
}
