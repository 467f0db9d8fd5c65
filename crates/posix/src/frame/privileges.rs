//! Privileges that a file loses when its content or its owner changes.

use crate::frame::change::Change;
use crate::frame::stored_attributes;
use crate::volume::Volume;
use marram_format::record::{InodeKind, state};
use marram_records::xattr::CAPABILITY;
use marram_vfs::Result;

/// Set-user-id bit.
const SETUID: u16 = 0o4000;
/// Set-group-id bit.
pub(crate) const SETGID: u16 = 0o2000;
/// Execute permission of the group.
const GROUP_EXECUTE: u16 = 0o0010;

/// Takes setuid, setgid (where it means a privilege) and file capabilities away. The bits of
/// a directory mean something else and stay.
pub(crate) fn clear_privileges(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    ino: u64,
) -> Result<()> {
    let inode = change.inode_mut(ino)?;
    if inode.kind == InodeKind::Directory {
        return Ok(());
    }
    inode.permissions &= !SETUID;
    if inode.permissions & GROUP_EXECUTE != 0 {
        inode.permissions &= !SETGID;
    }
    drop_capability(volume, change, ino)
}

/// Takes file capabilities away: they were given to the content that is about to change, or by
/// the owner that is, so no change keeps them, not even one of root.
pub(crate) fn drop_capability(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    ino: u64,
) -> Result<()> {
    let inode = change.inode(ino)?;
    if inode.state & state::CAPABILITY == 0 || inode.kind == InodeKind::Directory {
        return Ok(());
    }
    change.inode_mut(ino)?.state &= !state::CAPABILITY;
    stored_attributes::drop_xattr(volume, change, ino, CAPABILITY)
}
