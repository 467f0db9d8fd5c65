//! Files in a merge: what the fork changed of the content and attributes of each.
//!
//! A file is merged part by part: its content, its permissions with its access control lists, each
//! other attribute. A part that only one side changed is that side's; one that both changed to the
//! same is no conflict. What gives a program privileges belongs to the content that it was given
//! to: it does not come to other content without a conflict.

use crate::changes::InodeChange;
use crate::conflict::{Conflict, ConflictKind};
use crate::conflicts::{Conflicts, Verdict};
use crate::diff::content_ranges;
use crate::equal::{file_ranges, is_changed};
use crate::merge_names::{FilePair, MergeNames};
use crate::text::{MergedText, merged_text};
use crate::three_way::ThreeWay;
use marram_format::record::{Inode, InodeKind, Time, state};
use marram_records::inode::FROZEN_FLAGS;
use marram_records::lists::ListName;
use marram_records::state::State;
use marram_records::xattr::CAPABILITY;
use marram_vfs::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Where the new content of a file comes from.
#[derive(Clone, Debug)]
pub(crate) enum ContentEdit {
    /// The sections that the fork changed, of a file that has the base's sections.
    Changed,
    /// All of the fork's.
    Whole,
    /// These ranges of the fork's, and how long the file is then.
    Ranges(Vec<Range<u64>>, u64),
    /// These bytes.
    Bytes(Vec<u8>),
}

/// What becomes of a file of the parent.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileEdit {
    /// In the fork.
    pub(crate) fork: u64,
    pub(crate) content: Option<ContentEdit>,
    pub(crate) permissions: Option<u16>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) flags: Option<u32>,
    pub(crate) project: Option<u32>,
    /// New values, or none any more.
    pub(crate) xattrs: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// When its content was last changed in the fork, if that was later.
    pub(crate) modified: Option<Time>,
    /// When it was last read and its content last changed, whatever the parent has.
    pub(crate) times: Option<(Time, Time)>,
}

impl FileEdit {
    /// Whether it does anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_without_changes() && self.modified.is_none()
    }

    /// Whether it changes attributes; a time is one.
    pub(crate) fn has_attributes(&self) -> bool {
        self.has_numbers() || self.modified.is_some()
    }

    fn has_numbers(&self) -> bool {
        let numbers = [self.uid, self.gid, self.flags, self.project];
        self.permissions.is_some() || numbers.iter().any(Option::is_some)
    }

    /// This one, and of another one of the same inode what this one leaves as it is; of both times
    /// the later one.
    fn over(mut self, other: Option<FileEdit>) -> FileEdit {
        let Some(mut other) = other else { return self };
        other.xattrs.append(&mut self.xattrs);
        FileEdit {
            fork: self.fork,
            content: self.content.or(other.content),
            permissions: self.permissions.or(other.permissions),
            uid: self.uid.or(other.uid),
            gid: self.gid.or(other.gid),
            flags: self.flags.or(other.flags),
            project: self.project.or(other.project),
            xattrs: other.xattrs,
            modified: self.modified.max(other.modified),
            times: self.times.or(other.times),
        }
    }

    fn is_without_changes(&self) -> bool {
        self.content.is_none() && !self.has_numbers() && self.xattrs.is_empty()
    }
}

/// One inode as the three have it.
struct Three<'a, 's> {
    sides: &'a ThreeWay<'s>,
    pair: &'a FilePair,
    base: Option<Inode>,
    fork: Inode,
    now: Inode,
    edit: FileEdit,
    /// The parent has other content than the base.
    has_own_content: bool,
}

/// Judges all files; the edits by the parent's numbers.
pub(crate) fn judge(
    sides: &ThreeWay<'_>,
    names: &mut MergeNames<'_, '_>,
    conflicts: &mut Conflicts<'_>,
) -> Result<BTreeMap<u64, FileEdit>> {
    let mut pairs = std::mem::take(&mut names.pairs);
    for (ino, change) in &sides.theirs.by_inode {
        if change.stayed().is_some()
            && !change.is_on_the_way
            && let Some(pair) = pair_of(sides, *ino, change, conflicts)?
        {
            pairs.push(pair);
        }
    }
    let mut edits: BTreeMap<u64, FileEdit> = BTreeMap::new();
    for pair in &pairs {
        if let Some(mut three) = Three::read(sides, pair)? {
            three.judge(conflicts)?;
            if !three.edit.is_empty() {
                // A directory that the fork has changed may also be the one that a new one becomes.
                let edit = three.edit.over(edits.remove(&pair.now));
                edits.insert(pair.now, edit);
            }
        }
    }
    Ok(edits)
}

/// Which inode of the parent the fork's changes of an inode of the base are for.
fn pair_of(
    sides: &ThreeWay<'_>,
    ino: u64,
    change: &InodeChange,
    conflicts: &mut Conflicts<'_>,
) -> Result<Option<FilePair>> {
    let pair = |now| Ok(FilePair { base: Some(ino), fork: ino, now, path: sides.path_of(ino)? });
    if sides.still(ino)?.is_some() {
        return pair(ino).map(Some);
    }
    if !is_changed((sides.base, sides.fork), ino, change)? {
        return Ok(None);
    }
    if let Some(now) = replacement(sides, ino)? {
        return pair(now).map(Some);
    }
    let detail = "changed in the fork, removed in the parent";
    conflicts.add(ConflictKind::Removed, sides.path_of(ino)?, detail, false);
    Ok(None)
}

/// The new file that the parent has under the only name of one that it replaced.
fn replacement(sides: &ThreeWay<'_>, ino: u64) -> Result<Option<u64>> {
    let record = sides.base.inode(ino)?;
    let Some((directory, name)) = sides.base_place(ino)? else {
        return Ok(None);
    };
    let is_only =
        record.is_some_and(|record| record.kind == InodeKind::Regular && record.links == 1);
    let there = sides.fork.entry(directory, &name)?.is_some_and(|entry| entry.ino == ino);
    if !is_only || !there || sides.still(directory)?.is_none() {
        return Ok(None);
    }
    let found = sides.now.entry(directory, &name)?;
    let found = found.filter(|found| found.kind == InodeKind::Regular).map(|found| found.ino);
    match found {
        Some(found) if sides.base.named_inode(found)?.is_none() => Ok(Some(found)),
        _ => Ok(None),
    }
}

impl<'a, 's> Three<'a, 's> {
    fn read(sides: &'a ThreeWay<'s>, pair: &'a FilePair) -> Result<Option<Three<'a, 's>>> {
        let base = pair.base.map(|ino| sides.base.inode(ino)).transpose()?.flatten();
        let (fork, now) = (sides.fork.inode(pair.fork)?, sides.now.inode(pair.now)?);
        let edit = FileEdit { fork: pair.fork, ..FileEdit::default() };
        let read =
            |(fork, now)| Three { sides, pair, base, fork, now, edit, has_own_content: false };
        Ok(fork.zip(now).map(read))
    }

    fn judge(&mut self, conflicts: &mut Conflicts<'_>) -> Result<()> {
        self.content(conflicts)?;
        self.access(conflicts)?;
        self.numbers(conflicts);
        self.xattrs(conflicts)?;
        let frozen_before = self.base.as_ref().map_or(0, |base| base.flags & FROZEN_FLAGS);
        if self.now.flags & FROZEN_FLAGS & !frozen_before != 0 && !self.edit.is_without_changes() {
            let detail = "immutable or append-only in the parent";
            if self.conflict(ConflictKind::Attribute, detail, conflicts) == Verdict::Ours {
                self.edit = FileEdit { fork: self.pair.fork, ..FileEdit::default() };
            }
        }
        let touched = self.base.as_ref().is_none_or(|base| base.modified != self.fork.modified);
        if touched && self.fork.modified > self.now.modified {
            self.edit.modified = Some(self.fork.modified);
        }
        Ok(())
    }

    fn conflict(&self, kind: ConflictKind, detail: &str, to: &mut Conflicts<'_>) -> Verdict {
        to.add(kind, self.pair.path.clone(), detail, true)
    }

    fn content(&mut self, conflicts: &mut Conflicts<'_>) -> Result<()> {
        let Some(base) = self.base.as_ref().filter(|base| base.kind == InodeKind::Regular) else {
            return Ok(());
        };
        let (sides, pair) = (self.sides, self.pair);
        let base_ino = pair.base.unwrap_or(pair.fork);
        let start = (sides.base, base, base_ino);
        let changed_by =
            |state: &State, inode: &Inode, ino: u64, change: Option<&InodeChange>| match change {
                _ if ino != base_ino => file_ranges(start, (state, inode, ino)),
                Some(change) => Ok(content_ranges(sides.base, state, change)?.0),
                None => Ok(Vec::new()),
            };
        let their_change = sides.theirs.by_inode.get(&pair.fork);
        let our_change = sides.ours.by_inode.get(&pair.now);
        let theirs = changed_by(sides.fork, &self.fork, pair.fork, their_change)?;
        let ours = changed_by(sides.now, &self.now, pair.now, our_change)?;
        self.has_own_content = !ours.is_empty();
        if theirs.is_empty() {
            return Ok(());
        }
        if ours.is_empty() {
            let one = pair.fork == base_ino && pair.now == base_ino;
            let untouched = our_change.is_none_or(|change| change.sections.is_empty());
            let edit = if one && untouched { ContentEdit::Changed } else { ContentEdit::Whole };
            self.edit.content = Some(edit);
            return Ok(());
        }
        let (fork, now) = (&self.fork, &self.now);
        if file_ranges((sides.fork, fork, pair.fork), (sides.now, now, pair.now))?.is_empty() {
            return Ok(());
        }
        self.edit.content = self.both_changed(&theirs, &ours, conflicts)?;
        Ok(())
    }

    /// Both changed the content, and not to the same.
    fn both_changed(
        &self,
        theirs: &[Range<u64>],
        ours: &[Range<u64>],
        conflicts: &mut Conflicts<'_>,
    ) -> Result<Option<ContentEdit>> {
        let old_size = self.base.as_ref().map_or(0, |base| base.size);
        if conflicts.options.ranges && are_disjoint(theirs, ours) {
            let grown = self.fork.size != old_size;
            let size = if grown { self.fork.size } else { self.now.size };
            return Ok(Some(ContentEdit::Ranges(theirs.to_vec(), size)));
        }
        let asks_for_text = conflicts.options.text || conflicts.options.marks;
        let names = conflicts.options.names;
        let text = if asks_for_text { self.text(names)? } else { None };
        let text = match text {
            Some(text) if conflicts.options.text && text.is_clean => {
                return Ok(Some(ContentEdit::Bytes(text.texts.marked)));
            }
            text => text.filter(|_| conflicts.options.marks),
        };
        let (kind, detail) = (ConflictKind::Content, "changed by both");
        let marked = text.as_ref().map(|text| text.texts.marked.clone());
        let conflict = Conflict { path: self.pair.path.clone(), kind, detail: detail.to_owned() };
        if let Some(MergedText { texts, .. }) = text {
            conflicts.texts.insert(conflict.clone(), texts);
        }
        Ok(match self.conflict(kind, detail, conflicts) {
            Verdict::Theirs => Some(ContentEdit::Whole),
            Verdict::Marked => marked.map(ContentEdit::Bytes),
            Verdict::Given => (conflicts.options.content)(&conflict).map(ContentEdit::Bytes),
            Verdict::Ours => None,
        })
    }

    /// Both sides' changes of lines, if all three are text.
    fn text(&self, names: [&str; 2]) -> Result<Option<MergedText>> {
        let Some((base, ino)) = self.base.as_ref().zip(self.pair.base) else {
            return Ok(None);
        };
        let (sides, pair) = (self.sides, self.pair);
        merged_text(
            (sides.base, base, ino),
            (sides.now, &self.now, pair.now),
            (sides.fork, &self.fork, pair.fork),
            names,
        )
    }

    /// Permissions and the lists that say more of the same are one part.
    fn access(&mut self, conflicts: &mut Conflicts<'_>) -> Result<()> {
        let lists = [ListName::PosixAccess, ListName::Nfs4];
        let bits = lists[0].bit() | lists[1].bit();
        let (base, pair) = (self.base.as_ref(), self.pair);
        let same_mode = base.map(|base| base.permissions) == Some(self.fork.permissions);
        let any = base.map_or(0, |base| base.state) | self.fork.state | self.now.state;
        if same_mode && any & bits == 0 {
            return Ok(());
        }
        let read = |state: &State, inode: &Inode, ino: u64| -> Result<Access> {
            let mut xattrs = BTreeMap::new();
            if inode.state & bits != 0 {
                xattrs = state.xattrs(ino)?;
            }
            let values = lists.map(|list| xattrs.remove(list.bytes()));
            Ok((inode.permissions, values))
        };
        let base = match (base, pair.base) {
            (Some(inode), Some(ino)) => Some(read(self.sides.base, inode, ino)?),
            _ => None,
        };
        let fork = read(self.sides.fork, &self.fork, pair.fork)?;
        let now = read(self.sides.now, &self.now, pair.now)?;
        if self.takes(base.as_ref(), &fork, &now, "permissions", conflicts) {
            self.edit.permissions = Some(fork.0);
            for (list, value) in lists.into_iter().zip(fork.1) {
                self.edit.xattrs.insert(list.bytes().to_vec(), value);
            }
        }
        Ok(())
    }

    fn numbers(&mut self, conflicts: &mut Conflicts<'_>) {
        type Field = (&'static str, fn(&Inode) -> u32);
        let fields: [Field; 4] = [
            ("owner", |inode| inode.uid),
            ("group", |inode| inode.gid),
            ("flags", |inode| inode.flags),
            ("project", |inode| inode.project),
        ];
        let values = fields.map(|(name, field)| {
            let base = self.base.as_ref().map(field);
            let (fork, now) = (field(&self.fork), field(&self.now));
            self.takes(base.as_ref(), &fork, &now, name, conflicts).then_some(fork)
        });
        [self.edit.uid, self.edit.gid, self.edit.flags, self.edit.project] = values;
    }

    fn xattrs(&mut self, conflicts: &mut Conflicts<'_>) -> Result<()> {
        let (sides, pair) = (self.sides, self.pair);
        let items_changed =
            |change: Option<&InodeChange>| change.is_some_and(|change| !change.xattrs.is_empty());
        let one = pair.base == Some(pair.fork);
        let at_risk = self.edit.content.is_some() && self.now.state & state::CAPABILITY != 0;
        if one && !at_risk && !items_changed(sides.theirs.by_inode.get(&pair.fork)) {
            return Ok(());
        }
        let base = match pair.base {
            Some(ino) => sides.base.xattrs(ino)?,
            None => BTreeMap::new(),
        };
        let (fork, now) = (sides.fork.xattrs(pair.fork)?, sides.now.xattrs(pair.now)?);
        let mut names: BTreeSet<&Vec<u8>> = base.keys().collect();
        names.extend(fork.keys().chain(now.keys()));
        let access = [ListName::PosixAccess.bytes(), ListName::Nfs4.bytes()];
        for name in names.into_iter().filter(|name| !access.contains(&name.as_slice())) {
            let (base, fork, now) = (base.get(name), fork.get(name), now.get(name));
            let detail = attribute_name(name);
            let is_capability = name == CAPABILITY;
            let misplaced = is_capability && self.is_misplaced(base, fork, now);
            let takes = match misplaced {
                true => {
                    self.conflict(ConflictKind::Attribute, &detail, conflicts) == Verdict::Theirs
                }
                false => self.takes(Some(&base), &fork, &now, &detail, conflicts),
            };
            if takes {
                self.edit.xattrs.insert(name.clone(), fork.cloned());
            }
        }
        Ok(())
    }

    /// Whether capabilities that one side gave would come to content of the other.
    fn is_misplaced(
        &self,
        base: Option<&Vec<u8>>,
        fork: Option<&Vec<u8>>,
        now: Option<&Vec<u8>>,
    ) -> bool {
        let given_there = fork.is_some() && fork != base && fork != now;
        let given_here = now.is_some() && now != base && now != fork;
        (given_there && self.has_own_content) || (given_here && self.edit.content.is_some())
    }

    /// Whether the fork's value of a part is taken.
    fn takes<T: PartialEq>(
        &self,
        base: Option<&T>,
        fork: &T,
        now: &T,
        detail: &str,
        conflicts: &mut Conflicts<'_>,
    ) -> bool {
        if base == Some(fork) || fork == now {
            return false;
        }
        base == Some(now)
            || self.conflict(ConflictKind::Attribute, detail, conflicts) == Verdict::Theirs
    }
}

/// The name of an attribute as text, such that no two read alike.
fn attribute_name(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.contains('\\') => text.to_owned(),
        _ => name.escape_ascii().to_string(),
    }
}

/// Permission bits and the lists of both kinds.
type Access = (u16, [Option<Vec<u8>>; 2]);

/// Whether no range of one list meets one of the other; both are in order.
fn are_disjoint(a: &[Range<u64>], b: &[Range<u64>]) -> bool {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        if x.end <= y.start {
            a.next();
        } else if y.end <= x.start {
            b.next();
        } else {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::attribute_name;

    #[test]
    fn no_two_attributes_are_told_alike() {
        let reported: [(&[u8], &str); 4] = [
            ("user.\u{e9}".as_bytes(), "user.\u{e9}"),
            (b"user.\xfe", r"user.\xfe"),
            (b"user.\xff", r"user.\xff"),
            (br"user.\xff", r"user.\\xff"),
        ];
        reported.iter().for_each(|(name, text)| assert_eq!(attribute_name(name), *text));
    }
}
