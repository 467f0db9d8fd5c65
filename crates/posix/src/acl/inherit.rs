//! What a new inode has of the lists of its directory.

use super::nfs4::List;
use super::stored::{decode_kept, with_mode};
use crate::acl::stored;
use crate::frame::change::Change;
use crate::frame::stored_attributes;
use crate::volume::Volume;
use marram_format::record::{Inode, InodeKind};
use marram_records::lists::{AccessLists, ListName};
use marram_vfs::Result;

/// Lists that a new inode is to have: none twice.
type NewLists = Vec<(ListName, Vec<u8>)>;

/// Finds the permissions of a new inode in `parent`, which has them from its maker so far, and
/// puts its lists into the change. The umask counts only where no list speaks for it.
pub(crate) fn inherit_lists(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    parent: u64,
    ino: u64,
    inode: &mut Inode,
    umask: u32,
) -> Result<()> {
    if inode.kind == InodeKind::Symlink {
        return Ok(());
    }
    let above = change.inode(parent)?.clone();
    let lists = match volume.lists {
        AccessLists::Off => None,
        AccessLists::Posix => inherit_posix(volume, parent, &above, inode)?,
        AccessLists::Nfs4 => inherit_nfs4(volume, parent, &above, inode, umask)?,
    };
    let Some(lists) = lists else {
        inode.permissions = with_mode(inode.permissions, u32::from(inode.permissions) & !umask);
        return Ok(());
    };
    for (which, _) in &lists {
        inode.state |= which.bit();
    }
    stored_attributes::add_new_xattrs(volume, change, ino, &lists);
    Ok(())
}

/// `None` if the directory has nothing to give.
fn inherit_posix(
    volume: &Volume,
    parent: u64,
    above: &Inode,
    inode: &mut Inode,
) -> Result<Option<NewLists>> {
    let Some(value) = stored::stored_list(volume, parent, above, ListName::PosixDefault)? else {
        return Ok(None);
    };
    let given = decode_kept(parent, &value)?;
    let own = given.limited_to(u32::from(inode.permissions));
    inode.permissions = with_mode(inode.permissions, own.mode());
    let mut lists = Vec::new();
    if !own.is_minimal() {
        lists.push((ListName::PosixAccess, own.encode()));
    }
    if inode.kind == InodeKind::Directory {
        lists.push((ListName::PosixDefault, value));
    }
    Ok(Some(lists))
}

/// `None` if the directory has nothing to give.
fn inherit_nfs4(
    volume: &Volume,
    parent: u64,
    above: &Inode,
    inode: &mut Inode,
    umask: u32,
) -> Result<Option<NewLists>> {
    if above.state & ListName::Nfs4.bit() == 0 {
        return Ok(None);
    }
    let is_directory = inode.kind == InodeKind::Directory;
    let asked = u32::from(inode.permissions);
    let given = stored::nfs4_list(volume, parent, above)?;
    let Some(own) = given.inherited(asked, umask, is_directory) else {
        return Ok(None);
    };
    let mode = own.mode();
    inode.permissions = with_mode(inode.permissions, mode);
    let says_more = own != List::from_mode(mode, is_directory);
    Ok(Some(says_more.then(|| (ListName::Nfs4, own.encode())).into_iter().collect()))
}
