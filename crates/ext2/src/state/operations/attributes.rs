//! Changes of attributes: all that one call names happen together.

use crate::inode::{Inode, Time};
use crate::state::operations::content::without_privileges;
use crate::state::operations::names::SETGID;
use crate::state::{Work, check_changeable, number};
use marram_vfs::{Ino, Result, SetAttributes, SetTime, Timestamp};

/// The permissions that a change leaves.
fn permissions(inode: &Inode, set: &SetAttributes) -> u32 {
    let mut permissions = inode.permissions();
    if set.clear_privileges && !inode.is_directory() {
        permissions = without_privileges(permissions);
    }
    if set.clear_setgid && !inode.is_directory() {
        permissions &= !SETGID;
    }
    set.permissions.map_or(permissions, |named| named & 0o7777)
}

fn moment(set: SetTime, now: Timestamp) -> Timestamp {
    match set {
        SetTime::Now => now,
        SetTime::At(at) => at,
    }
}

impl Work<'_> {
    /// Changes attributes.
    pub(crate) fn set_attributes(&mut self, ino: Ino, set: &SetAttributes) -> Result<()> {
        let (target, mut inode) = match set.size {
            Some(_) => self.regular(ino)?,
            None => {
                let target = number(ino)?;
                (target, self.inode(target)?)
            }
        };
        check_changeable(&inode)?;
        let changes_owner = set.uid.is_some() || set.gid.is_some();
        if set.size.is_some() || changes_owner || set.clear_privileges {
            self.drop_capability(target, &mut inode)?;
        }
        let now = self.now;
        inode.set_mode(inode.mode() & !0o7777 | permissions(&inode, set));
        if let Some(uid) = set.uid {
            inode.set_uid(uid);
        }
        if let Some(gid) = set.gid {
            inode.set_gid(gid);
        }
        if let Some(accessed) = set.accessed {
            inode.set_time(Time::Accessed, moment(accessed, now));
        }
        let modified = match set.modified {
            Some(modified) => Some(moment(modified, now)),
            None => set.size.map(|_| now),
        };
        if let Some(modified) = modified {
            inode.set_time(Time::Modified, modified);
        }
        inode.set_time(Time::Changed, set.changed.unwrap_or(now));
        if set.permissions.is_some() {
            self.follow_mode(target, &mut inode)?;
        }
        match set.size {
            Some(size) => self.resize(target, &mut inode, size),
            None => self.store(target, &inode, &[]).map(drop),
        }
    }
}
