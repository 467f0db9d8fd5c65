//! Attributes of inodes: read, and changed by `set_attributes`.

use crate::change::Change;
use crate::content::range_end;
use crate::filesystem::Posix;
use crate::marks::check_attributes;
use marram_format::record::{Inode, InodeKind, Time, state};
use marram_records::inode::{attributes, check_regular, read_inode, time};
use marram_records::xattr::CAPABILITY;
use marram_store::Admission;
use marram_vfs::{Attributes, Error, Result, SetAttributes, SetTime};

/// Set-user-id bit.
const SETUID: u16 = 0o4000;
/// Set-group-id bit.
pub(crate) const SETGID: u16 = 0o2000;
/// Execute permission of the group.
const GROUP_EXECUTE: u16 = 0o0010;

impl Posix {
    /// The record of an inode that exists: it has a name, or is pinned.
    pub(crate) fn load_inode(&self, ino: u64) -> Result<Inode> {
        let inode = self.find_inode(ino)?.ok_or(Error::Stale)?;
        if inode.links == 0 && !self.pins.pinned(ino) {
            return Err(Error::Stale);
        }
        Ok(inode)
    }

    /// The record of an inode, if there is one.
    pub(crate) fn find_inode(&self, ino: u64) -> Result<Option<Inode>> {
        let mut inode = read_inode(&*self.view, ino)?;
        if let Some(inode) = &mut inode {
            self.lazy_times.fill(ino, inode);
        }
        Ok(inode)
    }

    pub(crate) fn attributes_of(&self, ino: u64) -> Result<Attributes> {
        Ok(attributes(ino, &self.load_inode(ino)?))
    }

    pub(crate) fn pin_existing(&self, ino: u64) -> Result<Attributes> {
        let _held = self.locks.read(ino);
        let found = self.attributes_of(ino)?;
        self.pins.add(ino);
        Ok(found)
    }

    pub(crate) fn change_attributes(&self, ino: u64, set: &SetAttributes) -> Result<Attributes> {
        let _held = self.locks.write(&[ino]);
        if set.size.is_some() {
            self.prepare_size(ino, set)?;
        }
        let mut change = self.change()?;
        let inode = change.inode(ino)?;
        check_attributes(inode, set)?;
        // Only whom no limit binds may do that.
        let gives_away = set.uid.is_some_and(|uid| uid != inode.uid);
        change.lifts_limits = gives_away;
        if are_times_of_a_cache(set) {
            change.batch.admission = Admission::Accepted;
        }
        if let Some(size) = set.size {
            self.set_size(&mut change, ino, size)?;
        }
        change.inode_mut(ino)?;
        if set.clear_privileges {
            self.clear_privileges(&mut change, ino)?;
        } else if set.size.is_some() || set.uid.is_some() || set.gid.is_some() {
            self.drop_capability(&mut change, ino)?;
        }
        if set.clear_setgid && change.inode(ino)?.kind != InodeKind::Directory {
            change.inode_mut(ino)?.permissions &= !SETGID;
        }
        let now = change.now;
        if let Some(permissions) = set.permissions {
            self.set_mode(&mut change, ino, permissions)?;
        }
        let inode = change.inode_mut(ino)?;
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        set_times(inode, set, now);
        let result = attributes(ino, inode);
        let tail = inode.state & state::TAIL != 0;
        change.commit()?;
        if tail {
            self.orphans.push(ino);
        }
        Ok(result)
    }

    /// What must be done before a size can be set: a tail that is still there would come back
    /// into the file when it grows.
    fn prepare_size(&self, ino: u64, set: &SetAttributes) -> Result<()> {
        let inode = self.load_inode(ino)?;
        check_regular(&inode)?;
        check_attributes(&inode, set)?;
        let size = range_end(set.size.unwrap_or(0), 0)?;
        if size >= inode.size && inode.state & state::TAIL != 0 {
            self.finish_tail(ino)?;
        }
        Ok(())
    }

    /// Takes setuid, setgid (where it means a privilege) and file capabilities away. The bits of
    /// a directory mean something else and stay.
    pub(crate) fn clear_privileges(&self, change: &mut Change<'_, '_>, ino: u64) -> Result<()> {
        let inode = change.inode_mut(ino)?;
        if inode.kind == InodeKind::Directory {
            return Ok(());
        }
        inode.permissions &= !SETUID;
        if inode.permissions & GROUP_EXECUTE != 0 {
            inode.permissions &= !SETGID;
        }
        self.drop_capability(change, ino)
    }

    /// Takes file capabilities away: they were given to the content that is about to change, or by
    /// the owner that is, so nobody's change keeps them, not even root's.
    pub(crate) fn drop_capability(&self, change: &mut Change<'_, '_>, ino: u64) -> Result<()> {
        let inode = change.inode(ino)?;
        if inode.state & state::CAPABILITY == 0 || inode.kind == InodeKind::Directory {
            return Ok(());
        }
        change.inode_mut(ino)?.state &= !state::CAPABILITY;
        self.drop_xattr(change, ino, CAPABILITY)
    }
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
