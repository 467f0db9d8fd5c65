//! Lists as extended attributes of inodes, in step with their modes.
//!
//! Bits of an inode's state say which lists it has, so that an inode without one costs no search.
//! A list that the dataset does not obey is not shown, and goes when mode or list are set: else a
//! change of the property `acl` could bring back a permission that was taken away meanwhile.

use super::PosixList;
use super::nfs4::List;
use crate::attributes::SETGID;
use crate::change::Change;
use crate::filesystem::Posix;
use crate::marks::check_not_frozen;
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

impl Posix {
    /// Whether lists of this name are obeyed, and so shown.
    pub(crate) fn obeys(&self, which: ListName) -> bool {
        self.lists == which.kind()
    }

    fn check_obeyed(&self, inode: &Inode, which: ListName) -> Result<()> {
        match self.obeys(which) && inode.kind != InodeKind::Symlink {
            true => Ok(()),
            false => Err(Error::NotSupported),
        }
    }

    /// The value of the attribute that a list is.
    pub(crate) fn read_list(&self, ino: u64, which: ListName) -> Result<Vec<u8>> {
        let _held = self.locks.read(ino);
        let inode = self.load_inode(ino)?;
        self.check_obeyed(&inode, which)?;
        match which {
            ListName::Nfs4 => Ok(self.nfs4_list(ino, &inode)?.encode()),
            _ => self.stored_list(ino, &inode, which)?.ok_or(Error::NoAttribute),
        }
    }

    /// The NFSv4 list of an inode: what its mode means, if no other is kept.
    pub(super) fn nfs4_list(&self, ino: u64, inode: &Inode) -> Result<List> {
        match self.stored_list(ino, inode, ListName::Nfs4)? {
            Some(value) => List::decode(&value).map_err(|error| damaged(ino, &error)),
            None => {
                let is_directory = inode.kind == InodeKind::Directory;
                Ok(List::from_mode(u32::from(inode.permissions) & MODE, is_directory))
            }
        }
    }

    /// Sets a list, and the mode with it. An NFSv4 list is always there already.
    pub(crate) fn write_list(
        &self,
        ino: u64,
        which: ListName,
        value: &[u8],
        mode: XattrMode,
        clear_setgid: bool,
    ) -> Result<()> {
        let _held = self.locks.write(&[ino]);
        let mut change = self.change()?;
        let inode = change.inode(ino)?.clone();
        check_not_frozen(&inode)?;
        self.check_obeyed(&inode, which)?;
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
        self.keep_list(&mut change, ino, which, kept.as_deref())?;
        self.drop_unobeyed(&mut change, ino)?;
        let now = change.now;
        change.inode_mut(ino)?.changed = now;
        change.commit()
    }

    /// Removes a list; the mode stays. Fine if there is none.
    pub(crate) fn remove_list(&self, ino: u64, which: ListName) -> Result<()> {
        let _held = self.locks.write(&[ino]);
        let mut change = self.change()?;
        let inode = change.inode(ino)?;
        check_not_frozen(inode)?;
        self.check_obeyed(inode, which)?;
        if inode.state & which.bit() == 0 {
            return Ok(());
        }
        change.batch.admission = Admission::Freeing;
        self.keep_list(&mut change, ino, which, None)?;
        let now = change.now;
        change.inode_mut(ino)?.changed = now;
        change.commit()
    }

    /// Sets all twelve permission bits, and brings the list in step.
    pub(crate) fn set_mode(
        &self,
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
        let which = match self.lists {
            AccessLists::Off => return self.drop_unobeyed(change, ino),
            AccessLists::Posix => ListName::PosixAccess,
            AccessLists::Nfs4 => ListName::Nfs4,
        };
        if let Some(value) = self.stored_list(ino, &inode, which)? {
            let value = in_step(ino, &inode, which, &value)?;
            self.keep_list(change, ino, which, Some(&value))?;
        }
        self.drop_unobeyed(change, ino)
    }

    /// The list that an inode has, whether it is obeyed or not.
    pub(super) fn stored_list(
        &self,
        ino: u64,
        inode: &Inode,
        which: ListName,
    ) -> Result<Option<Vec<u8>>> {
        if inode.state & which.bit() == 0 {
            return Ok(None);
        }
        let missing = || Error::Damaged(format!("inode {ino} says that it has a list"));
        self.xattr_value(ino, which.bytes())?.ok_or_else(missing).map(Some)
    }

    /// Stores a list of an inode, or none.
    fn keep_list(
        &self,
        change: &mut Change<'_, '_>,
        ino: u64,
        which: ListName,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let inode = change.inode_mut(ino)?;
        match value {
            Some(value) => {
                inode.state |= which.bit();
                self.store_xattr(change, ino, which.bytes(), value)
            }
            None => {
                inode.state &= !which.bit();
                self.drop_xattr(change, ino, which.bytes())
            }
        }
    }

    fn drop_unobeyed(&self, change: &mut Change<'_, '_>, ino: u64) -> Result<()> {
        let has = change.inode(ino)?.state;
        for which in ListName::ALL {
            if !self.obeys(which) && has & which.bit() != 0 {
                self.keep_list(change, ino, which, None)?;
            }
        }
        Ok(())
    }
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
