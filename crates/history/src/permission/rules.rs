//! What each change of a file needs of the user whose change it is.
//!
//! Rights are those of the state before. What the plan itself gives an owner counts too: an owner
//! may change a mode first, and do the rest then. What a write takes away by itself (setuid,
//! setgid, capabilities of the file) may go with new content, and stays only where the user could
//! set it anew.

use super::Refusals;
use super::hidden::Hidden;
use super::plan::{Change, Plan, is_directory};
use super::rights::{READ, SEARCH, WRITE};
use super::walk::{Walk, join};
use marram_format::record::{Inode, InodeKind, Time};
use marram_records::inode::{FROZEN_FLAGS, read_inode};
use marram_records::lists::ListName;
use marram_records::state::Named;
use marram_records::xattr::CAPABILITY;
use marram_store::{Batch, View};
use marram_vfs::{Identity, InodeFlags, Result};
use std::collections::BTreeMap;

const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const STICKY: u16 = 0o1000;
/// Setgid that is a privilege: of a file that its group may run.
const SETGID_PROGRAM: u16 = 0o2010;

const SEARCH_ABOVE: &str = "search in a directory above it";
const OWNER_ONLY: &str = "only its owner may change that";

/// Judges one batch.
pub(super) struct Judge<'a> {
    view: &'a dyn View,
    root: u64,
    user: &'a dyn Identity,
    now: Time,
    walk: Walk<'a>,
    refusals: &'a mut Refusals,
}

/// Where names of an inode come and go: the directories.
#[derive(Default)]
struct Moves {
    from: Vec<u64>,
    to: Vec<u64>,
}

impl<'a> Judge<'a> {
    /// For a batch that is to be applied to `view` now.
    ///
    /// # Errors
    /// As for [`Walk::new`].
    pub(super) fn new(
        view: &'a dyn View,
        root: u64,
        user: &'a dyn Identity,
        now: Time,
        refusals: &'a mut Refusals,
    ) -> Result<Judge<'a>> {
        Ok(Judge { view, root, user, now, walk: Walk::new(view, root, user)?, refusals })
    }

    /// Judges all changes of a batch; the refusals get those that are refused.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub(super) fn judge(&mut self, batch: &Batch<'_>) -> Result<()> {
        let plan = Plan::read(self.view, batch)?;
        let mut hidden = Hidden::new(self.view, self.root, &plan);
        for (ino, change) in &plan.0 {
            if hidden.has(&mut self.walk, *ino, change)? {
                continue;
            }
            if let Some(made) = change.made() {
                self.judge_made(&plan, *ino, made, change)?;
            } else if let Some((before, after)) = change.kept() {
                self.judge_kept(*ino, (before, after), change)?;
            }
            self.judge_directory(*ino, change)?;
        }
        self.judge_moves(&plan, &mut hidden)
    }

    fn owns(&self, inode: &Inode) -> bool {
        inode.uid == self.user.uid()
    }

    /// Names that come to a directory and go from it.
    fn judge_directory(&mut self, ino: u64, change: &Change) -> Result<()> {
        let is_touched = !change.departures.is_empty() || !change.arrivals.is_empty();
        let Some(before) = change.before.as_ref().filter(|it| is_directory(it) && is_touched)
        else {
            return Ok(());
        };
        let place = self.walk.directory(ino)?;
        let path = place.path.clone().unwrap_or_default();
        let mut lacks = None;
        if !place.is_open && place.path.is_some() && !self.opens(before, change) {
            lacks = Some("search in it or in a directory above it");
        } else if !self.may(ino, before, change, WRITE | SEARCH)? {
            lacks = Some("write in the directory");
        } else if before.flags & InodeFlags::IMMUTABLE.0 != 0 {
            lacks = Some("the directory is immutable");
        } else if before.flags & InodeFlags::APPEND_ONLY.0 != 0 && !change.departures.is_empty() {
            lacks = Some("names in it may only be added");
        }
        if let Some(lacks) = lacks {
            let names = change.departures.iter().chain(&change.arrivals);
            for name in names {
                self.refusals.add(join(&path, &name.name), lacks);
            }
            return Ok(());
        }
        for name in &change.departures {
            self.judge_departure(before, name, &path)?;
        }
        Ok(())
    }

    /// Whether an owner lets itself in by the plan: the way there was open but for the directory.
    fn opens(&mut self, before: &Inode, change: &Change) -> bool {
        let above = self.walk.directory(before.parent);
        let is_near = above.is_ok_and(|above| above.is_open);
        let after = change.after.as_ref();
        is_near
            && self.owns(before)
            && after.is_some_and(|it| it.permissions & 0o300 == 0o300 && it.uid == before.uid)
    }

    fn judge_departure(&mut self, directory: &Inode, name: &Named, path: &[u8]) -> Result<()> {
        let Some(inode) = read_inode(self.view, name.ino)? else { return Ok(()) };
        let is_bound = directory.permissions & STICKY != 0;
        if is_bound && !self.owns(directory) && !self.owns(&inode) {
            self.refusals
                .add(join(path, &name.name), "the directory is sticky, and it is another's");
        }
        if inode.flags & FROZEN_FLAGS != 0 {
            self.refusals.add(join(path, &name.name), "it is immutable or may only grow");
        }
        Ok(())
    }

    /// Inodes that have another name then, or one in another directory. One that was hidden, and
    /// gets a name that is not, gets one more.
    fn judge_moves(&mut self, plan: &Plan, hidden: &mut Hidden<'_>) -> Result<()> {
        let mut moves: BTreeMap<u64, Moves> = BTreeMap::new();
        for (directory, change) in &plan.0 {
            if hidden.has(&mut self.walk, *directory, change)? {
                continue;
            }
            for name in &change.departures {
                moves.entry(name.ino).or_default().from.push(*directory);
            }
            for name in &change.arrivals {
                moves.entry(name.ino).or_default().to.push(*directory);
            }
        }
        for (ino, Moves { mut from, to }) in moves {
            let change = plan.0.get(&ino);
            let is_made = change.is_some_and(|change| change.made().is_some());
            let Some(inode) = read_inode(self.view, ino)?.filter(|_| !is_made && !to.is_empty())
            else {
                continue;
            };
            let is_linked = to.len() > from.len();
            let nothing = Change::default();
            let change = change.unwrap_or(&nothing);
            let lacks = if is_directory(&inode) {
                let (mut to, wanted) = (to, WRITE);
                from.sort_unstable();
                to.sort_unstable();
                let is_moved = from != to;
                (is_moved && !self.may(ino, &inode, change, wanted)?)
                    .then_some("write in the directory, to move it into another")
            } else if is_linked && inode.flags & FROZEN_FLAGS != 0 {
                Some("it is immutable or may only grow")
            } else if is_linked && !self.may_link(ino, &inode)? {
                Some("only its owner may give it another name")
            } else {
                None
            };
            if let Some(lacks) = lacks {
                let path = self.walk.reach(ino, &inode)?.path.unwrap_or_default();
                self.refusals.add(path, lacks);
            }
        }
        Ok(())
    }

    /// The rule of `fs.protected_hardlinks`, whatever the system has it set to.
    fn may_link(&mut self, ino: u64, inode: &Inode) -> Result<bool> {
        let is_plain = inode.kind == InodeKind::Regular
            && inode.permissions & SETUID == 0
            && inode.permissions & SETGID_PROGRAM != SETGID_PROGRAM;
        let may_use = is_plain && self.walk.grants(ino, inode, READ | WRITE)?;
        Ok(self.comes_to(ino, inode)? && (self.owns(inode) || may_use))
    }

    /// Whether the directories on the way to an inode are open, as far as there is a way: to what
    /// was hidden its own rights decide. Of a file with several names the record tells one, so
    /// nothing hides that.
    fn comes_to(&mut self, ino: u64, inode: &Inode) -> Result<bool> {
        let above = if is_directory(inode) { ino } else { inode.parent };
        let is_single = is_directory(inode) || inode.links <= 1;
        let was_hidden = is_single && self.walk.directory(above)?.path.is_none();
        Ok(was_hidden || self.walk.reach(ino, inode)?.is_open)
    }

    /// Whether the user gets `wanted` of an inode: now, or as its owner by what the plan makes of
    /// it.
    fn may(&self, ino: u64, before: &Inode, change: &Change, wanted: u16) -> Result<bool> {
        if self.walk.grants(ino, before, wanted)? {
            return Ok(true);
        }
        let after = change.after.as_ref().filter(|after| after.permissions != before.permissions);
        Ok(self.owns(before)
            && after.is_some_and(|after| after.permissions >> 6 & wanted == wanted))
    }

    /// Something new: what the user could have made, and changed as its owner.
    fn judge_made(&mut self, plan: &Plan, ino: u64, made: &Inode, change: &Change) -> Result<()> {
        let path = self.path_of_made(plan, ino, made)?;
        let above = match plan.0.get(&made.parent).and_then(|change| change.after.clone()) {
            Some(above) => Some(above),
            None => read_inode(self.view, made.parent)?,
        };
        let is_inherited =
            above.is_some_and(|above| above.permissions & SETGID != 0 && above.gid == made.gid);
        let is_member = self.user.is_member(made.gid);
        if !self.owns(made) {
            let lacks = format!("it would belong to user {}", made.uid);
            self.refusals.add(path.clone(), lacks);
        }
        if !is_member && !is_inherited {
            let lacks = format!("it would belong to group {}, which is not yours", made.gid);
            self.refusals.add(path.clone(), lacks);
        }
        let may_have_setgid = is_member || is_inherited && is_directory(made);
        if made.permissions & SETGID != 0 && !may_have_setgid {
            self.refusals.add(path.clone(), "setgid of a group that is not yours");
        }
        let is_device = matches!(made.kind, InodeKind::CharDevice | InodeKind::BlockDevice);
        let is_whiteout = made.kind == InodeKind::CharDevice && made.device == 0;
        if is_device && !is_whiteout {
            self.refusals.add(path.clone(), "only root makes device nodes");
        }
        if made.flags & FROZEN_FLAGS != 0 {
            self.refusals.add(path.clone(), "only root makes files immutable or append-only");
        }
        for (name, _) in change.xattrs.iter().filter(|(_, comes)| *comes) {
            if let Some(lacks) = lacks_for_own_xattr(name, made) {
                self.refusals.add(path.clone(), lacks);
            }
        }
        Ok(())
    }

    /// The path that something new gets.
    fn path_of_made(&mut self, plan: &Plan, ino: u64, made: &Inode) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        let (mut at, mut above) = (ino, made.parent);
        loop {
            let change = plan.0.get(&above);
            let arrivals = change.map(|change| change.arrivals.as_slice()).unwrap_or_default();
            let name = arrivals.iter().find(|name| name.ino == at);
            names.push(name.map(|name| name.name.clone()).unwrap_or_default());
            match change.and_then(Change::made) {
                Some(made) if made.parent != above => (at, above) = (above, made.parent),
                _ => break,
            }
        }
        let begin = self.walk.directory(above)?.path.unwrap_or_default();
        Ok(names.iter().rev().fold(begin, |path, name| join(&path, name)))
    }

    /// Something that stays, and is changed.
    fn judge_kept(
        &mut self,
        ino: u64,
        (before, after): (&Inode, &Inode),
        change: &Change,
    ) -> Result<()> {
        let mut lacks: Vec<String> = Vec::new();
        let may_write = self.may(ino, before, change, WRITE)?;
        if change.has_new_content && !may_write {
            lacks.push("write".to_owned());
        }
        if change.has_new_content && before.kind == InodeKind::Symlink {
            lacks.push("a symbolic link cannot be written".to_owned());
        }
        self.judge_owner((before, after), &mut lacks);
        self.judge_mode((before, after), change, &mut lacks);
        let has_new_names = !change.departures.is_empty() || !change.arrivals.is_empty();
        let is_touched = before.modified != after.modified;
        let is_by_itself = is_touched && !change.has_new_content && !has_new_names;
        let is_later = after.modified > before.modified && after.modified <= self.now;
        if is_by_itself && !self.owns(before) && !(may_write && is_later) {
            lacks.push("only its owner may set its times".to_owned());
        }
        for (name, comes) in &change.xattrs {
            lacks.extend(self.lacks_for_xattr((name, *comes), (before, may_write), change));
        }
        let is_changed = change.has_new_content || is_by_itself || !change.xattrs.is_empty();
        let is_other = is_changed || !lacks.is_empty() || has_other_attributes(before, after);
        if !is_other {
            return Ok(());
        }
        let place = self.walk.reach(ino, before)?;
        if !self.comes_to(ino, before)? {
            lacks.push(SEARCH_ABOVE.to_owned());
        }
        if before.flags & FROZEN_FLAGS != 0 {
            lacks.push("it is immutable or may only grow".to_owned());
        }
        let path = place.path.unwrap_or_default();
        lacks.into_iter().for_each(|lacks| self.refusals.add(path.clone(), lacks));
        Ok(())
    }

    /// Owner, group, flags and project.
    fn judge_owner(&self, (before, after): (&Inode, &Inode), lacks: &mut Vec<String>) {
        if after.uid != before.uid {
            lacks.push(format!("only root may give it to user {}", after.uid));
        }
        let is_given = after.gid != before.gid;
        if is_given && !(self.owns(before) && self.user.is_member(after.gid)) {
            lacks.push(format!("only its owner may give it to group {}, as one of it", after.gid));
        }
        let flags = before.flags ^ after.flags;
        if flags & FROZEN_FLAGS != 0 {
            lacks.push("only root changes immutable and append-only".to_owned());
        } else if (flags != 0 || before.project != after.project) && !self.owns(before) {
            lacks.push(OWNER_ONLY.to_owned());
        }
    }

    /// The mode: changed by its owner, and what a write takes away of it.
    fn judge_mode(
        &self,
        (before, after): (&Inode, &Inode),
        change: &Change,
        lacks: &mut Vec<String>,
    ) {
        let (old, new) = (before.permissions, after.permissions);
        let is_lost = old & !new & !(SETUID | SETGID) == 0 && new & !old == 0;
        let is_by_write = change.has_new_content && is_lost;
        let owns = self.owns(before);
        let is_member = self.user.is_member(after.gid);
        if old != new && !owns && !is_by_write {
            lacks.push("only its owner may change its mode".to_owned());
        }
        let has_new_list = change.xattrs.iter().any(|(name, _)| ListName::of(name).is_some());
        let is_set = old != new || has_new_list || after.gid != before.gid;
        if is_set && owns && new & SETGID != 0 && !is_member {
            lacks.push("setgid of a group that is not yours".to_owned());
        }
        if change.has_new_content && !is_directory(before) {
            let keeps_setuid = old & new & SETUID != 0 && !owns;
            let is_program = old & new & SETGID_PROGRAM == SETGID_PROGRAM;
            if keeps_setuid || is_program && !(owns && is_member) {
                lacks.push("a write takes setuid and setgid away".to_owned());
            }
        }
    }

    fn lacks_for_xattr(
        &self,
        (name, comes): (&[u8], bool),
        (before, may_write): (&Inode, bool),
        change: &Change,
    ) -> Option<String> {
        let is_list = ListName::of(name).is_some();
        if is_list && !self.owns(before) {
            return Some("only its owner may change its access list".to_owned());
        }
        if name == CAPABILITY && !comes && change.has_new_content {
            return None;
        }
        if let Some(lacks) = lacks_for_own_xattr(name, before) {
            return Some(lacks);
        }
        if is_list {
            return None;
        }
        let is_anothers = before.permissions & STICKY != 0 && is_directory(before);
        (!may_write || is_anothers && !self.owns(before))
            .then(|| format!("write, for the attribute {}", String::from_utf8_lossy(name)))
    }
}

/// Whether attributes differ that a user sees as such.
fn has_other_attributes(before: &Inode, after: &Inode) -> bool {
    let seen = |it: &Inode| (it.permissions, it.uid, it.gid, it.flags, it.project);
    seen(before) != seen(after)
}

/// Why not even its owner may give an inode an attribute of that name.
fn lacks_for_own_xattr(name: &[u8], inode: &Inode) -> Option<String> {
    let text = String::from_utf8_lossy(name);
    let has_content = matches!(inode.kind, InodeKind::Regular | InodeKind::Directory);
    match ListName::of(name) {
        Some(ListName::PosixAccess) if inode.kind != InodeKind::Symlink => return None,
        Some(ListName::PosixDefault) if is_directory(inode) => return None,
        _ => (),
    }
    if name.starts_with(b"user.") {
        return (!has_content).then(|| format!("{text} belongs to files and directories only"));
    }
    Some(format!("only root sets {text}"))
}
