//! Changes of attributes: all that one call names happen together.

use crate::layout::field;
use crate::state::commit::Plan;
use crate::state::inode::SETGID;
use crate::state::operations::content::without_privileges;
use crate::state::{Basics, Node, State};
use crate::time::Which;
use marram_vfs::{Attributes, Ino, Result, SetAttributes, SetTime, Timestamp};

/// The permissions that a change leaves.
fn permissions(basics: &Basics, set: &SetAttributes) -> u32 {
    let mut permissions = basics.permissions();
    if set.clear_privileges && !basics.is_directory() {
        permissions = without_privileges(permissions);
    }
    if set.clear_setgid && !basics.is_directory() {
        permissions &= !SETGID;
    }
    set.permissions.map_or(permissions, |named| named & 0o7777)
}

impl State {
    /// Changes attributes, and returns all of them.
    pub(crate) fn set_attributes(
        &mut self,
        ino: Ino,
        set: &SetAttributes,
        now: Timestamp,
    ) -> Result<Attributes> {
        let (node, basics) = match set.size {
            Some(_) => self.regular(ino)?,
            None => self.inode(ino)?,
        };
        let node = self.own(Ino(node.ino))?;
        let mut plan = Plan::default();
        if let Some(size) = set.size {
            self.plan_size(node, &basics, size, &mut plan)?;
        }
        self.plan_owner(node, set, &mut plan)?;
        let permissions = permissions(&basics, set);
        if permissions != basics.permissions() {
            let mode = u64::from(basics.mode & !0o7777 | permissions);
            plan.narrow(node.field(field::MODE), 2, mode);
        }
        let new_owner = set.uid.is_some() || set.gid.is_some();
        if set.clear_privileges || set.size.is_some() || new_owner {
            self.plan_no_capability(node, &basics, &mut plan)?;
        }
        self.plan_times(node, set, now, &mut plan)?;
        self.commit_with_times(&plan)?;
        self.stamp_times(node, set, now)?;
        self.attributes(node)
    }

    fn plan_owner(&mut self, node: Node, set: &SetAttributes, plan: &mut Plan) -> Result<()> {
        let at = node.field(field::OWNER);
        let old = self.memory.word(at)?;
        let uid = set.uid.map_or(old & 0xffff_ffff, u64::from);
        let gid = set.gid.map_or(old >> 32, u64::from);
        let new = uid | gid << 32;
        if new != old {
            plan.edit(at, new);
        }
        Ok(())
    }

    /// Plans the times that are set to another moment than the present. The time of the last
    /// change is the word's own again as soon as a user has set that of content.
    fn plan_times(
        &mut self,
        node: Node,
        set: &SetAttributes,
        now: Timestamp,
        plan: &mut Plan,
    ) -> Result<()> {
        if let Some(SetTime::At(at)) = set.accessed {
            self.set_time(node, Which::Accessed, at, plan)?;
        }
        let modified = match set.modified {
            Some(SetTime::At(at)) => Some(at),
            Some(SetTime::Now) if set.changed.is_some() => Some(crate::time::cut(now)),
            None if set.changed.is_some() && set.size.is_some() => Some(crate::time::cut(now)),
            None if set.changed.is_some() => Some(self.modified(node)?),
            _ => None,
        };
        if let Some(modified) = modified {
            self.set_time(node, Which::Modified, modified, plan)?;
            let changed = set.changed.unwrap_or(crate::time::cut(now));
            self.set_time(node, Which::Changed, changed, plan)?;
        }
        Ok(())
    }

    /// Moves the other times to the present.
    fn stamp_times(&mut self, node: Node, set: &SetAttributes, now: Timestamp) -> Result<()> {
        if set.accessed == Some(SetTime::Now) {
            self.stamp(node, Which::Accessed, now)?;
        }
        let follows = set.changed.is_none() && !matches!(set.modified, Some(SetTime::At(_)));
        if !follows {
            return Ok(());
        }
        if set.modified.is_some() || set.size.is_some() {
            return self.stamp_content(node, now);
        }
        self.stamp_change(node, now)
    }
}
