//! Lists as extended attributes of inodes, in step with their modes.
//!
//! Bits of an inode's state say which lists it has, so that an inode without one costs no search.
//! A list that the dataset does not obey is not shown, and goes when mode or list are set: else a
//! change of the property `acl` could bring back a permission that was taken away meanwhile.

use super::PosixList;
use super::nfs4::List;
use crate::frame::change::Change;
use crate::frame::flags::check_not_frozen;
use crate::frame::privileges::SETGID;
use crate::frame::stored_attributes;
use crate::volume::Volume;
use marram_format::record::{Inode, InodeKind};
use marram_records::inode::permission_bits;
use marram_records::lists::{AccessLists, ListName};
use marram_store::Admission;
use marram_vfs::{Error, Result, XattrMode};

/// The bits of a mode that lists are about.
const MODE: u32 = 0o777;

/// The permissions of an inode with the nine low bits of `mode`.
pub(super) fn with_mode(permissions: u16, mode: u32) -> u16 {
    permission_bits(u32::from(permissions) & !MODE | mode & MODE)
}

fn no_list() -> Error {
    Error::InvalidArgument("access control list")
}

/// Whether lists of this name are obeyed, and so shown.
pub(crate) fn obeys(volume: &Volume, which: ListName) -> bool {
    volume.lists == which.kind()
}

fn check_obeyed(volume: &Volume, inode: &Inode, which: ListName) -> Result<()> {
    match obeys(volume, which) && inode.kind != InodeKind::Symlink {
        true => Ok(()),
        false => Err(Error::NotSupported),
    }
}

/// The value of the attribute that a list is.
pub(crate) fn read_list(volume: &Volume, ino: u64, which: ListName) -> Result<Vec<u8>> {
    let _held = volume.locks.read(ino);
    let inode = volume.load_inode(ino)?;
    check_obeyed(volume, &inode, which)?;
    match which {
        ListName::Nfs4 => Ok(nfs4_list(volume, ino, &inode)?.encode()),
        _ => stored_list(volume, ino, &inode, which)?.ok_or(Error::NoAttribute),
    }
}

/// The NFSv4 list of an inode: what its mode means, if no other is kept.
pub(crate) fn nfs4_list(volume: &Volume, ino: u64, inode: &Inode) -> Result<List> {
    match stored_list(volume, ino, inode, ListName::Nfs4)? {
        Some(value) => List::decode(&value).map_err(|error| damaged(ino, &error)),
        None => {
            let is_directory = inode.kind == InodeKind::Directory;
            Ok(List::from_mode(u32::from(inode.permissions) & MODE, is_directory))
        }
    }
}

/// Sets the list that an extended attribute is, and the mode with it.
pub(crate) fn set_list(
    volume: &Volume,
    ino: u64,
    name: &[u8],
    value: &[u8],
    clear_setgid: bool,
) -> Result<()> {
    let list = ListName::of(name).ok_or(Error::NotSupported)?;
    write_list(volume, ino, list, value, XattrMode::Any, clear_setgid)
}

/// Sets a list, and the mode with it. An NFSv4 list is always there already.
pub(crate) fn write_list(
    volume: &Volume,
    ino: u64,
    which: ListName,
    value: &[u8],
    mode: XattrMode,
    clear_setgid: bool,
) -> Result<()> {
    let _held = volume.locks.write(&[ino]);
    let mut change = Change::begin(volume)?;
    let inode = change.inode(ino)?.clone();
    check_not_frozen(&inode)?;
    check_obeyed(volume, &inode, which)?;
    match (mode, which == ListName::Nfs4 || inode.state & which.bit() != 0) {
        (XattrMode::Create, true) => return Err(Error::Exists),
        (XattrMode::Replace, false) => return Err(Error::NoAttribute),
        _ => (),
    }
    let is_directory = inode.kind == InodeKind::Directory;
    let (mode, kept) = match which {
        ListName::PosixAccess => posix_access(value)?,
        ListName::PosixDefault if is_directory => posix_default(value)?,
        ListName::PosixDefault => return Err(Error::AccessDenied),
        ListName::Nfs4 => nfs4(value, is_directory)?,
    };
    if let Some(mode) = mode {
        set_mode_bits(change.inode_mut(ino)?, mode, clear_setgid);
    }
    keep_list(volume, &mut change, ino, which, kept.as_deref())?;
    drop_unobeyed(volume, &mut change, ino)?;
    let now = change.now;
    change.inode_mut(ino)?.changed = now;
    change.commit()
}

/// Removes a list; the mode stays. Fine if there is none.
pub(crate) fn remove_list(volume: &Volume, ino: u64, which: ListName) -> Result<()> {
    let _held = volume.locks.write(&[ino]);
    let mut change = Change::begin(volume)?;
    let inode = change.inode(ino)?;
    check_not_frozen(inode)?;
    check_obeyed(volume, inode, which)?;
    if inode.state & which.bit() == 0 {
        return Ok(());
    }
    change.batch.admission = Admission::Freeing;
    keep_list(volume, &mut change, ino, which, None)?;
    let now = change.now;
    change.inode_mut(ino)?.changed = now;
    change.commit()
}

/// Sets all twelve permission bits, and brings the list in step.
pub(crate) fn set_mode(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    ino: u64,
    permissions: u32,
) -> Result<()> {
    let inode = change.inode_mut(ino)?;
    inode.permissions = permission_bits(permissions);
    if inode.state & ListName::ALL.iter().fold(0, |bits, list| bits | list.bit()) == 0 {
        return Ok(());
    }
    let inode = inode.clone();
    let which = match volume.lists {
        AccessLists::Off => return drop_unobeyed(volume, change, ino),
        AccessLists::Posix => ListName::PosixAccess,
        AccessLists::Nfs4 => ListName::Nfs4,
    };
    if let Some(value) = stored_list(volume, ino, &inode, which)? {
        let value = in_step(ino, &inode, which, &value)?;
        keep_list(volume, change, ino, which, Some(&value))?;
    }
    drop_unobeyed(volume, change, ino)
}

/// The list that an inode has, whether it is obeyed or not.
pub(crate) fn stored_list(
    volume: &Volume,
    ino: u64,
    inode: &Inode,
    which: ListName,
) -> Result<Option<Vec<u8>>> {
    if inode.state & which.bit() == 0 {
        return Ok(None);
    }
    let missing = || Error::Damaged(format!("inode {ino} says that it has a list"));
    stored_attributes::xattr_value(volume, ino, which.bytes())?.ok_or_else(missing).map(Some)
}

/// Stores a list of an inode, or none.
fn keep_list(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    ino: u64,
    which: ListName,
    value: Option<&[u8]>,
) -> Result<()> {
    let inode = change.inode_mut(ino)?;
    match value {
        Some(value) => {
            inode.state |= which.bit();
            stored_attributes::store_xattr(volume, change, ino, which.bytes(), value)
        }
        None => {
            inode.state &= !which.bit();
            stored_attributes::drop_xattr(volume, change, ino, which.bytes())
        }
    }
}

fn drop_unobeyed(volume: &Volume, change: &mut Change<'_, '_>, ino: u64) -> Result<()> {
    let has = change.inode(ino)?.state;
    for which in ListName::ALL {
        if !obeys(volume, which) && has & which.bit() != 0 {
            keep_list(volume, change, ino, which, None)?;
        }
    }
    Ok(())
}

/// The mode that a list brings with it, and the list as far as it says more than that.
type Checked = (Option<u32>, Option<Vec<u8>>);

fn posix_access(value: &[u8]) -> Result<Checked> {
    let list = PosixList::decode(value).map_err(|_| no_list())?;
    Ok((Some(list.mode()), (!list.is_minimal()).then(|| list.encode())))
}

fn posix_default(value: &[u8]) -> Result<Checked> {
    let list = PosixList::decode(value).map_err(|_| no_list())?;
    Ok((None, Some(list.encode())))
}

fn nfs4(value: &[u8], is_directory: bool) -> Result<Checked> {
    let list = List::decode(value).map_err(|_| no_list())?;
    if list.is_too_long() {
        return Err(no_list());
    }
    let list = if is_directory { list } else { list.without_inheritance() };
    let mode = list.mode();
    let says_more = list != List::from_mode(mode, is_directory);
    Ok((Some(mode), says_more.then(|| list.encode())))
}

fn set_mode_bits(inode: &mut Inode, mode: u32, clear_setgid: bool) {
    inode.permissions = with_mode(inode.permissions, mode);
    if clear_setgid {
        inode.permissions &= !SETGID;
    }
}

/// A kept list brought in step with the mode that the inode has now.
fn in_step(ino: u64, inode: &Inode, which: ListName, value: &[u8]) -> Result<Vec<u8>> {
    let mode = u32::from(inode.permissions) & MODE;
    if which == ListName::Nfs4 {
        let list = List::decode(value).map_err(|error| damaged(ino, &error))?;
        return Ok(list.with_mode(mode, inode.kind == InodeKind::Directory).encode());
    }
    let mut list = decode_kept(ino, value)?;
    list.set_mode(mode);
    Ok(list.encode())
}

/// A list that was checked when it was stored.
pub(super) fn decode_kept(ino: u64, value: &[u8]) -> Result<PosixList> {
    PosixList::decode(value).map_err(|error| damaged(ino, &error))
}

fn damaged(ino: u64, error: &dyn std::fmt::Display) -> Error {
    Error::Damaged(format!("access control list of inode {ino}: {error}"))
}
