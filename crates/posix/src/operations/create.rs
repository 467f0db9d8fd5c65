//! New inodes, with and without a name.

use crate::acl::inherit;
use crate::frame::change::Change;
use crate::frame::flags::{check_not_immutable, inherit};
use crate::frame::lookup;
use crate::frame::privileges::SETGID;
use crate::volume::Volume;
use marram_format::record::{Entry, Inode, InodeKind, OrphanReason};
use marram_records::inode::{attributes, check_directory, check_living_directory, new_inode};
use marram_records::orphans::{orphan_item, orphan_key};
use marram_store::{Item, Key, kind};
use marram_vfs::{
    Attributes, Caller, Error, Kind, LINKS_MAX, Name, NewNode, Result, SYMLINK_BYTES_MAX,
};

pub(crate) fn target_key(ino: u64) -> Key {
    Key::new(ino, kind::TARGET, 0)
}

/// Refuses another name for, or another subdirectory in, an inode that has all it can have.
pub(crate) fn check_links(inode: &Inode) -> Result<()> {
    if inode.links >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    Ok(())
}

/// The kind, permissions and device number of a new node; refuses what cannot be made.
fn describe(node: NewNode<'_>) -> Result<(InodeKind, u32, u32)> {
    match node {
        NewNode::Directory { permissions } => Ok((InodeKind::Directory, permissions, 0)),
        NewNode::Symlink { target: [] } => Err(Error::InvalidArgument("empty target")),
        NewNode::Symlink { target } if target.len() > SYMLINK_BYTES_MAX => Err(Error::NameTooLong),
        NewNode::Symlink { .. } => Ok((InodeKind::Symlink, 0o777, 0)),
        NewNode::Node { kind, permissions, device } => match kind {
            Kind::Regular => Ok((InodeKind::Regular, permissions, 0)),
            Kind::Fifo => Ok((InodeKind::Fifo, permissions, 0)),
            Kind::Socket => Ok((InodeKind::Socket, permissions, 0)),
            Kind::CharDevice => Ok((InodeKind::CharDevice, permissions, device)),
            Kind::BlockDevice => Ok((InodeKind::BlockDevice, permissions, device)),
            Kind::Directory | Kind::Symlink => Err(Error::InvalidArgument("kind of node")),
        },
    }
}

/// The record of a new inode, owned as what `caller` makes in `parent` is: a directory with
/// setgid passes its group on, and setgid itself to subdirectories.
pub(crate) fn new_owned(
    change: &mut Change<'_, '_>,
    caller: Caller,
    parent: u64,
    kind: InodeKind,
    permissions: u32,
) -> Result<Inode> {
    let mut inode = new_inode(kind, permissions, parent, change.now);
    inode.uid = caller.uid;
    inode.gid = caller.gid;
    let above = change.inode(parent)?;
    if above.permissions & SETGID != 0 {
        inode.gid = above.gid;
        if kind == InodeKind::Directory {
            inode.permissions |= SETGID;
        }
    }
    inherit(&mut inode, above);
    Ok(inode)
}

pub(crate) fn create_named(
    volume: &Volume,
    caller: Caller,
    parent: u64,
    name: Name<'_>,
    node: NewNode<'_>,
    umask: u32,
) -> Result<Attributes> {
    let _held = volume.locks.write(&[parent]);
    let mut change = Change::begin(volume)?;
    check_directory(change.inode(parent)?)?;
    let probe = lookup::probe_entry(volume, parent, name)?;
    if probe.found.is_some() {
        return Err(Error::Exists);
    }
    check_living_directory(change.inode(parent)?)?;
    check_not_immutable(change.inode(parent)?)?;
    let (kind, permissions, device) = describe(node)?;
    if kind == InodeKind::Directory {
        check_links(change.inode(parent)?)?;
    }
    let ino = volume.counters.next_ino(&*volume.view)?;
    let mut inode = new_owned(&mut change, caller, parent, kind, permissions)?;
    inherit::inherit_lists(volume, &mut change, parent, ino, &mut inode, umask)?;
    inode.device = device;
    inode.name_place = probe.free()?;
    inode.links = if kind == InodeKind::Directory { 2 } else { 1 };
    if let NewNode::Symlink { target } = node {
        inode.size = target.len() as u64;
        change.batch.put(target_key(ino), Item::plain(target.to_vec()));
    }
    let entry = Entry { ino, kind, name: name.as_bytes() };
    change.add_entry(parent, probe.free()?, &entry)?;
    let result = attributes(ino, &inode);
    change.add_inode(ino, inode, parent);
    change.commit()?;
    volume.pins.add(ino);
    Ok(result)
}

pub(crate) fn create_nameless(
    volume: &Volume,
    caller: Caller,
    parent: u64,
    permissions: u32,
    umask: u32,
) -> Result<Attributes> {
    volume.check_writable()?;
    let ino = volume.counters.next_ino(&*volume.view)?;
    let _held = volume.locks.write(&[ino, parent]);
    let mut change = Change::begin(volume)?;
    check_living_directory(change.inode(parent)?)?;
    check_not_immutable(change.inode(parent)?)?;
    let mut inode = new_owned(&mut change, caller, parent, InodeKind::Regular, permissions)?;
    inherit::inherit_lists(volume, &mut change, parent, ino, &mut inode, umask)?;
    let result = attributes(ino, &inode);
    change.add_inode(ino, inode, ino);
    change.batch.put(orphan_key(ino), orphan_item(OrphanReason::Nameless));
    change.commit()?;
    volume.pins.add(ino);
    volume.pins.set_nameless(ino, true);
    Ok(result)
}
