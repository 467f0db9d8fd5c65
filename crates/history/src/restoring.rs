//! One directory or file on its way back: what becomes of each inode and name below it.
//!
//! The directories come first, from what has changed: one that was below in both states stays the
//! inode that it is, one that was there only in the past is made, with all that it had, and one
//! that is there only now goes, with all that it has. Then the files: one without a name
//! outside stays the inode that it is, else it may have to be made. `docs/decisions/0021` has the
//! rules.
//!
//! **Outside nothing changes.** So an inode that has a name outside now is changed by nothing here
//! but a name below that it loses, or has again.

use crate::changes::{InodeChange, Pair, Place};
use crate::counterpart::{Counterpart, Renamed};
use crate::diff::{attribute_changes, content_ranges, xattr_changes};
use crate::equal::same_file;
use crate::merge_files::{ContentEdit, FileEdit};
use crate::merge_names::{DecidedNames, Home};
use crate::parent::HeldParent;
use crate::subtree::{Places, Subtree};
use crate::three_way::ThreeWay;
use marram_records::state::{Named, State, same_block, same_inode};

use marram_format::record::{Inode, InodeKind};
use marram_records::sections::Section;
use marram_vfs::Result;
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of inodes.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    /// Those of the past that are made; whether they have the numbers that they had.
    pub(crate) made: BTreeMap<u64, bool>,
    /// Directories that go.
    pub(crate) gone: BTreeSet<u64>,
}

/// What is to be done.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) fates: Fates,
    pub(crate) names: DecidedNames,
    pub(crate) files: BTreeMap<u64, FileEdit>,
}

/// See the module.
pub(crate) struct Restoring<'a, 's> {
    /// From now, as base and as parent, to the past, as the fork.
    sides: &'a ThreeWay<'s>,
    held: &'a dyn HeldParent,
    now: Subtree<'a>,
    past: Subtree<'a>,
    plan: Plan,
    /// Directories that are made, or go, whose entries have not been looked at.
    making: Vec<u64>,
    going: Vec<u64>,
    /// Files of the past that may be below.
    files: BTreeSet<u64>,
    /// Files that stay and get back what they were.
    restored: BTreeSet<u64>,
}

impl<'a, 's> Restoring<'a, 's> {
    /// Plans the way back of a directory.
    pub(crate) fn plan(
        sides: &'a ThreeWay<'s>,
        held: &'a dyn HeldParent,
        goes_back: &Counterpart,
    ) -> Result<Plan> {
        let mut restoring = Restoring {
            sides,
            held,
            now: Subtree::new(sides.now, goes_back.now),
            past: Subtree::new(sides.fork, goes_back.past),
            plan: Plan::default(),
            making: Vec::new(),
            going: Vec::new(),
            files: BTreeSet::new(),
            restored: BTreeSet::new(),
        };
        match (&goes_back.renamed, &goes_back.file) {
            (Some(renamed), _) => restoring.rename(renamed)?,
            (None, Some((parent, entry))) => restoring.file_in_place(*parent, entry)?,
            (None, None) => {}
        }
        restoring.directories()?;
        let places = restoring.judge_files()?;
        restoring.lead_to_made(&places)?;
        let parent = goes_back.renamed.as_ref().map(|renamed| renamed.parent);
        restoring.attributes(parent.or(goes_back.file.as_ref().map(|(parent, _)| *parent)))?;
        Ok(restoring.plan)
    }

    /// A name leads to what it led to in the past.
    fn rename(&mut self, renamed: &Renamed) -> Result<()> {
        let Renamed { parent, now, way, past } = renamed;
        if let Some(now) = now {
            if self.is_copy(now, past)? {
                return Ok(());
            }
            self.leave(now)?;
        }
        let mut home = Home::In(*parent);
        for directory in way {
            self.make(directory.ino)?;
            self.edit(home, None, Some(directory.clone()));
            home = Home::New(directory.ino);
        }
        match past.kind {
            InodeKind::Directory => self.arrive(past)?,
            _ => self.make(past.ino).map(|_| ())?,
        }
        self.edit(home, now.clone(), Some(past.clone()));
        Ok(())
    }

    /// A file goes back where it is. One with other names becomes another inode, unless it is as
    /// it was: those stay as they are.
    fn file_in_place(&mut self, parent: u64, entry: &Named) -> Result<()> {
        let states = (self.now_state(), self.past_state());
        let (Some(now), Some(past)) =
            (states.0.named_inode(entry.ino)?, states.1.named_inode(entry.ino)?)
        else {
            return Ok(());
        };
        if now.links == 1 {
            self.restored.insert(entry.ino);
        } else if !self.is_as_it_was(entry.ino, &now, &past)? {
            self.make(entry.ino)?;
            self.edit(Home::In(parent), Some(entry.clone()), Some(entry.clone()));
        }
        Ok(())
    }

    /// Whether a name leads to a copy of a file of the past that an earlier way back has made.
    fn is_copy(&self, now: &Named, past: &Named) -> Result<bool> {
        let states = (self.now_state(), self.past_state());
        let (Some(a), Some(b)) = (states.0.inode(now.ino)?, states.1.inode(past.ino)?) else {
            return Ok(false);
        };
        Ok(now.ino != past.ino
            && past.kind != InodeKind::Directory
            && a.links == 1
            && same_inode(&a, &b)
            && a.modified == b.modified
            && same_file((states.0, now.ino), (states.1, past.ino))?)
    }

    fn now_state(&self) -> &'s State {
        self.sides.now
    }

    fn past_state(&self) -> &'s State {
        self.sides.fork
    }

    /// The record of an inode as it is now, if it is that of the past and has a name.
    fn still(&self, ino: u64, past: &Inode) -> Result<Option<Inode>> {
        let now = self.now_state().named_inode(ino)?;
        Ok(now.filter(|now| same_inode(now, past)))
    }

    /// Whether a directory is below in both states.
    fn stays(&mut self, directory: u64) -> Result<bool> {
        let Some(past) = self.past_state().named_inode(directory)? else {
            return Ok(false);
        };
        let is_there = self.still(directory, &past)?.is_some();
        Ok(is_there && self.past.has(directory)? && self.now.has(directory)?)
    }

    fn directories(&mut self) -> Result<()> {
        let sides = self.sides;
        for (ino, change) in &sides.theirs.by_inode {
            let Some(after) = change.after.as_ref().filter(|inode| inode.links > 0) else {
                continue;
            };
            if after.kind != InodeKind::Directory {
                self.files.insert(*ino);
            } else if self.stays(*ino)? {
                self.names_of(*ino, change)?;
            } else if change.before.is_some() {
                self.other_by_number(*ino, after)?;
            }
        }
        while let Some(directory) = self.making.pop() {
            for entry in self.past_state().entries(directory)? {
                self.arrive(&entry)?;
                self.edit(Home::New(directory), None, Some(entry));
            }
        }
        while let Some(directory) = self.going.pop() {
            for entry in self.now_state().entries(directory)? {
                self.leave(&entry)?;
                self.edit(Home::In(directory), Some(entry), None);
            }
        }
        Ok(())
    }

    /// The names of a directory that stays.
    fn names_of(&mut self, directory: u64, change: &InodeChange) -> Result<()> {
        for slot in self.sides.slots(directory, change) {
            // A directory can have the number of what was a file.
            let leads_to = |entry: &Option<Named>| {
                entry.as_ref().map(|entry| (entry.ino, entry.kind, entry.name.clone()))
            };
            if leads_to(&slot.before) == leads_to(&slot.after) {
                continue;
            }
            if let Some(entry) = &slot.before {
                self.leave(entry)?;
            }
            if let Some(entry) = &slot.after {
                self.arrive(entry)?;
            }
            self.edit(Home::In(directory), slot.before, slot.after);
        }
        Ok(())
    }

    /// A directory whose number is now that of another inode, as may be after a rollback of the
    /// dataset: a name that leads to that is no change of the directory that it is in.
    fn other_by_number(&mut self, ino: u64, past: &Inode) -> Result<()> {
        if !self.stays(past.parent)? {
            return Ok(());
        }
        let entries = self.past_state().entries(past.parent)?;
        let Some(entry) = entries.into_iter().find(|entry| entry.ino == ino) else {
            return Ok(());
        };
        let now = self.now_state().entry(past.parent, &entry.name)?;
        if let Some(now) = now.filter(|now| now.ino == ino) {
            self.leave(&now)?;
            self.arrive(&entry)?;
            self.edit(Home::In(past.parent), Some(now), Some(entry));
        }
        Ok(())
    }

    fn edit(&mut self, home: Home, old: Option<Named>, new: Option<Named>) {
        if let Some(name) = new.as_ref().or(old.as_ref()).map(|entry| &entry.name) {
            self.plan.names.insert((home, self.sides.key(name)), (old, new));
        }
    }

    /// A name of the past comes.
    fn arrive(&mut self, entry: &Named) -> Result<()> {
        if entry.kind != InodeKind::Directory {
            self.files.insert(entry.ino);
        } else if !self.stays(entry.ino)? && self.make(entry.ino)? {
            self.making.push(entry.ino);
        }
        Ok(())
    }

    /// A name of now goes.
    fn leave(&mut self, entry: &Named) -> Result<()> {
        if entry.kind == InodeKind::Directory
            && !self.stays(entry.ino)?
            && self.plan.fates.gone.insert(entry.ino)
        {
            self.going.push(entry.ino);
        }
        Ok(())
    }

    /// An inode of the past is made; false if that is known.
    fn make(&mut self, ino: u64) -> Result<bool> {
        let is_used = ino >= self.now_state().counters.next_inode
            || self.held.is_in_use(ino)
            || self.now_state().inode(ino)?.is_some();
        Ok(self.plan.fates.made.insert(ino, !is_used).is_none())
    }

    /// Finds out which files stay and which are made. Returns where those are that the past has
    /// below.
    fn judge_files(&mut self) -> Result<Places> {
        let files = std::mem::take(&mut self.files);
        let (mut past, searched) = find_places(&mut self.past, &files)?;
        past.extend(self.past.places(&searched)?);
        past.retain(|_, places| !places.is_empty());
        let below: BTreeSet<u64> = past.keys().copied().collect();
        let (mut now, searched) = find_places(&mut self.now, &below)?;
        now.extend(self.now.places(&searched)?);
        for (ino, places) in &past {
            let count = |places: &[Place]| u32::try_from(places.len()).unwrap_or(u32::MAX);
            let names = (now.get(ino).map_or(0, |places| count(places)), count(places));
            if !self.has_copy(*ino, places)? {
                self.judge_file(*ino, names)?;
            }
        }
        past.retain(|ino, _| self.plan.fates.made.contains_key(ino));
        Ok(past)
    }

    /// Whether all names that a file had lead to a copy of it, as an earlier way back has made one:
    /// then they stay as they are.
    fn has_copy(&mut self, ino: u64, places: &[Place]) -> Result<bool> {
        let mut found = BTreeSet::new();
        for Place { directory, entry } in places {
            let now = match self.stays(*directory)? {
                true => self.now_state().entry(*directory, &entry.name)?,
                false => None,
            };
            found.insert(now.filter(|now| now.name == entry.name).map(|now| now.ino));
        }
        let mut found = found.into_iter();
        let (Some(Some(copy)), None) = (found.next(), found.next()) else {
            return Ok(false);
        };
        let states = (self.now_state(), self.past_state());
        let (Some(now), Some(past)) = (states.0.inode(copy)?, states.1.inode(ino)?) else {
            return Ok(false);
        };
        let is_copy = copy != ino
            && same_inode(&now, &past)
            && now.modified == past.modified
            && now.links as usize == places.len()
            && same_file((states.0, copy), (states.1, ino))?;
        if is_copy {
            for Place { directory, entry } in places {
                let key = self.sides.key(&entry.name);
                self.plan.names.remove(&(Home::In(*directory), key));
            }
        }
        Ok(is_copy)
    }

    /// Judges a file by how many names it has below, now and in the past.
    fn judge_file(&mut self, ino: u64, (names_now, names_past): (u32, u32)) -> Result<()> {
        let Some(past) = self.past_state().named_inode(ino)? else {
            return Ok(());
        };
        let Some(now) = self.still(ino, &past)? else {
            return self.make(ino).map(|_| ());
        };
        if now.links <= names_now {
            self.restored.insert(ino);
            return Ok(());
        }
        let was_outside = past.links > names_past;
        if !was_outside || !self.is_as_it_was(ino, &now, &past)? {
            self.make(ino)?;
        }
        Ok(())
    }

    /// Whether a file has the content and attributes that it had.
    fn is_as_it_was(&self, ino: u64, now: &Inode, past: &Inode) -> Result<bool> {
        let Some(change) = self.sides.theirs.by_inode.get(&ino) else {
            return Ok(true);
        };
        let states = (self.now_state(), self.past_state());
        Ok(now.modified == past.modified
            && attribute_changes(now, past).is_empty()
            && xattr_changes(ino, states.0, states.1, &change.xattrs)?.is_empty()
            && content_ranges(states.0, states.1, change)?.0.is_empty())
    }

    /// All names of files that are made lead to what is made, also those that have not changed.
    fn lead_to_made(&mut self, made: &Places) -> Result<()> {
        for Place { directory, entry } in made.values().flatten() {
            let home = match self.plan.fates.made.contains_key(directory) {
                true => Home::New(*directory),
                false => Home::In(*directory),
            };
            let known = (home, self.sides.key(&entry.name));
            if home == Home::In(*directory) && !self.plan.names.contains_key(&known) {
                let old = self.now_state().entry(*directory, &entry.name)?;
                self.plan.names.insert(known, (old, Some(entry.clone())));
            }
        }
        Ok(())
    }

    /// What stays has the content and attributes that it had; not so the directory `outside`, in
    /// which a name leads elsewhere from now on.
    fn attributes(&mut self, outside: Option<u64>) -> Result<()> {
        let sides = self.sides;
        let goes = |directory: &u64| self.plan.fates.gone.contains(directory);
        let homes = self.plan.names.keys().filter_map(|(home, _)| match home {
            Home::In(directory) if !goes(directory) && outside != Some(*directory) => {
                Some(*directory)
            }
            _ => None,
        });
        let renamed_in: BTreeSet<u64> = homes.collect();
        for (ino, change) in &sides.theirs.by_inode {
            let Some((now, past)) = change.stayed() else { continue };
            let stays = match past.kind {
                InodeKind::Directory => self.stays(*ino)?,
                _ => self.restored.contains(ino),
            };
            if stays && let Some(edit) = self.edit_of(*ino, (now, past), change)? {
                self.plan.files.insert(*ino, edit);
            }
        }
        for ino in renamed_in {
            let past = self.past_state().inode(ino)?;
            if let (Some(past), false) = (past, self.plan.files.contains_key(&ino)) {
                self.plan.files.insert(ino, times_only(ino, &past));
            }
        }
        Ok(())
    }

    /// What makes an inode as it was, if it is not.
    fn edit_of(
        &self,
        ino: u64,
        (now, past): (&Inode, &Inode),
        change: &InodeChange,
    ) -> Result<Option<FileEdit>> {
        let states = (self.now_state(), self.past_state());
        let is_other = has_other_content(states, change)?;
        let xattrs = xattr_changes(ino, states.0, states.1, &change.xattrs)?;
        let other = |now: u32, past: u32| (now != past).then_some(past);
        let edit = FileEdit {
            content: is_other.then_some(ContentEdit::Changed),
            permissions: (now.permissions != past.permissions).then_some(past.permissions),
            uid: other(now.uid, past.uid),
            gid: other(now.gid, past.gid),
            flags: other(now.flags, past.flags),
            project: other(now.project, past.project),
            xattrs: xattrs.into_iter().map(|xattr| (xattr.name, xattr.new)).collect(),
            ..times_only(ino, past)
        };
        let is_same = edit.is_empty() && now.modified == past.modified;
        Ok((!is_same).then_some(edit))
    }
}

/// Whether a file has other content than it had. Bytes are read only if its time says that it has
/// not, and other blocks say that it may have.
fn has_other_content((now, past): (&State, &State), change: &InodeChange) -> Result<bool> {
    let Some((a, b)) = change.stayed().filter(|(a, _)| a.kind == InodeKind::Regular) else {
        return Ok(false);
    };
    let is_moved = |pair: &Pair<Section>| !is_same_section((now, past), pair);
    let any_moved = change.sections.iter().any(is_moved);
    if a.size != b.size || (any_moved && a.modified != b.modified) {
        return Ok(true);
    }
    Ok(any_moved && !content_ranges(now, past, change)?.0.is_empty())
}

/// Whether a section is as it was: a block that was adopted or shared since is the same.
fn is_same_section((now, past): (&State, &State), pair: &Pair<Section>) -> bool {
    let (Some(a), Some(b)) = (&pair.before, &pair.after) else {
        return false;
    };
    let is_same_block = match (&a.block, &b.block) {
        (Some(a), Some(b)) => same_block((now, a), (past, b)),
        (a, b) => a.is_none() && b.is_none(),
    };
    (a.at, a.len, a.block_start) == (b.at, b.len, b.block_start) && is_same_block
}

fn times_only(ino: u64, past: &Inode) -> FileEdit {
    let times = Some((past.accessed, past.modified));
    FileEdit { fork: ino, times, ..FileEdit::default() }
}

/// The places below of files with one name, by their records; and the files that have to be
/// searched for.
fn find_places(tree: &mut Subtree<'_>, files: &BTreeSet<u64>) -> Result<(Places, BTreeSet<u64>)> {
    let (mut places, mut searched) = (Places::new(), BTreeSet::new());
    for ino in files {
        let Some(inode) = tree.state.named_inode(*ino)? else { continue };
        match tree.only_place(*ino, &inode)? {
            Some(place) if tree.has(place.directory)? => {
                places.insert(*ino, vec![place]);
            }
            Some(_) => (),
            None => {
                searched.insert(*ino);
            }
        }
    }
    Ok((places, searched))
}
