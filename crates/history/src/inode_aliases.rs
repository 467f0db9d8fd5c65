//! What is the same to a user in two states, under another number in each: copies that a rollback
//! made, and files that were saved by a new one in their place.
//!
//! A rollback of a directory makes copies of what lies elsewhere by then, and the directory itself
//! may be one. By number, all that was there went, and something else came. So what has the same
//! path in both states and is the same inode but for its number counts as one that stayed, unless
//! the one of the first state is below still, elsewhere, or that of the second was: then that one
//! stayed. The two directories that are compared are aliases whatever they are.
//!
//! The names in aliases are compared one by one, as what moved away with a directory has not
//! changed in it. That costs what is in these directories.
//!
//! Editors save a file by a new one that takes its name. So a name of a directory that stayed, or
//! of its alias, may have led to a regular file that is nowhere in the second state. If it leads to
//! one that was nowhere in the first, that is the same file, with other content.
//!
//! Where a file has a name is not always known from its record, which leads to the name that was
//! made last. Such files are gathered, and all that is below is walked through once for them.

use crate::changes::{Changes, InodeChange, NameChanges, Pair, Place};
use crate::subtree::Subtree;
use crate::three_way::NamePlace;
use marram_format::record::{Inode, InodeKind};
use marram_records::state::{Named, State, same_inode};
use marram_vfs::Result;
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct InodeAliases {
    /// By the number in the second state.
    pub(crate) by_after: BTreeMap<u64, InodeAlias>,
    /// Those that are directories.
    directories_before: BTreeSet<u64>,
    directories_after: BTreeSet<u64>,
    /// Names in directories that stayed, which lead to aliases.
    same_names: BTreeSet<NamePlace>,
    /// The names in aliases that went and came.
    names: BTreeMap<u64, NameChanges>,
    /// Files that were saved by a new one in their place, by the name and the number of its
    /// directory in the second state: the numbers in the first and in the second state.
    pub(crate) saved: BTreeMap<NamePlace, (u64, u64)>,
    /// The same names in the first state.
    saved_before: BTreeSet<NamePlace>,
}

/// The alias of an inode of the second state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeAlias {
    /// Its number in the first state.
    pub(crate) before: u64,
    /// Of directories: whether a name has gone, come, or leads elsewhere.
    pub(crate) has_other_names: bool,
}

impl InodeAliases {
    /// Finds the aliases below the roots of two states between which these are the changes.
    pub(crate) fn find(before: &State, after: &State, changes: &Changes) -> Result<InodeAliases> {
        Search::new(before, after, Wanted::All).all(changes)
    }

    /// Only files that were saved by a new one in their place.
    pub(crate) fn saved_files(
        before: &State,
        after: &State,
        changes: &Changes,
    ) -> Result<InodeAliases> {
        Search::new(before, after, Wanted::SavedFiles).all(changes)
    }

    /// Notes that a name leads to the next content of what it led to.
    pub(crate) fn add_saved(&mut self, directories: (u64, u64), gone: &Named, came: &Named) {
        self.saved_before.insert((directories.0, gone.name.clone()));
        self.saved.insert((directories.1, came.name.clone()), (gone.ino, came.ino));
    }

    /// Whether one of these names, of a directory that stayed, has come or gone or leads elsewhere.
    pub(crate) fn has_other_names(&self, directory: u64, entries: &[Pair<Named>]) -> bool {
        let is_same = |name: &[u8]| self.same_names.contains(&(directory, name.to_vec()));
        let mut names = entries.iter().flat_map(|pair| pair.before.iter().chain(&pair.after));
        names.any(|entry| !is_same(&entry.name))
    }

    /// The changes of names where aliases are the same.
    pub(crate) fn apart_from(
        &self,
        mut names: BTreeMap<u64, NameChanges>,
    ) -> BTreeMap<u64, NameChanges> {
        let key = |place: &Place| (place.directory, place.entry.name.clone());
        let is_left = |place: &Place| {
            let key = key(place);
            let is_known = self.directories_before.contains(&key.0);
            !is_known && !self.same_names.contains(&key) && !self.saved_before.contains(&key)
        };
        let is_new = |place: &Place| {
            let key = key(place);
            let is_known = self.directories_after.contains(&key.0);
            !is_known && !self.same_names.contains(&key) && !self.saved.contains_key(&key)
        };
        for change in names.values_mut() {
            change.gone.retain(is_left);
            change.came.retain(is_new);
        }
        for (ino, own) in &self.names {
            let change = names.entry(*ino).or_default();
            add_new(&mut change.gone, &own.gone);
            add_new(&mut change.came, &own.came);
        }
        names
    }
}

fn add_new(places: &mut Vec<Place>, more: &[Place]) {
    for place in more {
        if !places.contains(place) {
            places.push(place.clone());
        }
    }
}

/// One of the two states.
struct Side<'a> {
    below: Subtree<'a>,
    /// Files of which the record does not say whether they have a name below.
    unsure: BTreeSet<u64>,
    /// Those of them that have one, once that is known.
    found: BTreeSet<u64>,
}

impl<'a> Side<'a> {
    fn new(state: &'a State) -> Side<'a> {
        let below = Subtree::new(state, state.root);
        Side { below, unsure: BTreeSet::new(), found: BTreeSet::new() }
    }

    fn state(&self) -> &'a State {
        self.below.state
    }

    /// Whether an inode of the other state lies below in this one, where another one may have its
    /// number. What is not known yet is noted, and not counted.
    fn has(&mut self, ino: u64, other: &Inode) -> Result<bool> {
        let named = self.state().named_inode(ino)?;
        let Some(inode) = named.filter(|inode| same_inode(other, inode)) else {
            return Ok(false);
        };
        if inode.kind == InodeKind::Directory {
            return self.below.has(ino);
        }
        let entry = self.state().entry_at(inode.parent, inode.name_place)?;
        let is_named = entry.is_some_and(|entry| entry.ino == ino);
        if is_named && self.below.has(inode.parent)? {
            return Ok(true);
        }
        if !is_named || inode.links > 1 {
            self.unsure.insert(ino);
        }
        Ok(self.found.contains(&ino))
    }

    /// Walks to the files of which it is not known; returns whether any has a name below.
    fn find_unsure(&mut self) -> Result<bool> {
        self.found.extend(self.below.places(&self.unsure)?.into_keys());
        Ok(!self.found.is_empty())
    }
}

/// What is searched for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    All,
    SavedFiles,
}

struct Search<'a> {
    before: Side<'a>,
    after: Side<'a>,
    wanted: Wanted,
    aliases: InodeAliases,
    /// Directories of both states whose names have not been compared.
    waiting: Vec<(u64, u64)>,
}

impl<'a> Search<'a> {
    fn new(before: &'a State, after: &'a State, wanted: Wanted) -> Search<'a> {
        let (before, after) = (Side::new(before), Side::new(after));
        Search { before, after, wanted, aliases: InodeAliases::default(), waiting: Vec::new() }
    }

    fn all(mut self, changes: &Changes) -> Result<InodeAliases> {
        let roots = (self.before.state().root, self.after.state().root);
        self.search(roots, changes)?;
        // Directories are found without a walk, so the same files are asked for again.
        if self.before.find_unsure()? | self.after.find_unsure()? {
            self.aliases = InodeAliases::default();
            self.search(roots, changes)?;
        }
        Ok(self.aliases)
    }

    fn search(&mut self, roots: (u64, u64), changes: &Changes) -> Result<()> {
        if roots.0 != roots.1 {
            self.add(roots, InodeKind::Directory);
        }
        for (directory, change) in &changes.by_inode {
            if change.stayed().is_some() {
                self.stayed(*directory, change)?;
            }
        }
        while let Some(directories) = self.waiting.pop() {
            self.directories(directories)?;
        }
        Ok(())
    }

    fn add(&mut self, (before, after): (u64, u64), kind: InodeKind) {
        let alias = InodeAlias { before, has_other_names: false };
        let is_new = self.aliases.by_after.insert(after, alias).is_none();
        if is_new && kind == InodeKind::Directory {
            self.aliases.directories_before.insert(before);
            self.aliases.directories_after.insert(after);
            self.waiting.push((before, after));
        }
    }

    /// Names of a directory that stayed, which lead elsewhere.
    fn stayed(&mut self, directory: u64, change: &InodeChange) -> Result<()> {
        let came = change.entries.iter().filter_map(|pair| pair.after.as_ref());
        let came: BTreeMap<&[u8], &Named> = came.map(|entry| (&entry.name[..], entry)).collect();
        for gone in change.entries.iter().filter_map(|pair| pair.before.as_ref()) {
            let Some(entry) = came.get(&gone.name[..]).filter(|came| came.ino != gone.ino) else {
                continue;
            };
            if !self.after.below.has(directory)? {
                continue;
            }
            if self.wanted == Wanted::All && self.are_same(gone, entry)? {
                self.aliases.same_names.insert((directory, gone.name.clone()));
            } else {
                self.saved((directory, directory), gone, entry)?;
            }
        }
        Ok(())
    }

    /// Notes a file that was saved by a new one in its place; returns whether it is one.
    fn saved(&mut self, directories: (u64, u64), gone: &Named, came: &Named) -> Result<bool> {
        if [gone, came].iter().any(|entry| entry.kind != InodeKind::Regular) {
            return Ok(false);
        }
        let old = self.before.state().named_inode(gone.ino)?;
        let new = self.after.state().named_inode(came.ino)?;
        let (Some(before), Some(after)) = (old, new) else {
            return Ok(false);
        };
        if self.after.has(gone.ino, &before)? || self.before.has(came.ino, &after)? {
            return Ok(false);
        }
        self.aliases.add_saved(directories, gone, came);
        Ok(true)
    }

    /// Whether what a name led to is what it leads to: itself, or its alias.
    fn are_same(&mut self, gone: &Named, came: &Named) -> Result<bool> {
        let old = self.before.state().named_inode(gone.ino)?;
        let new = self.after.state().named_inode(came.ino)?;
        let (Some(before), Some(after)) = (old, new) else {
            return Ok(false);
        };
        if !same_inode(&before, &after) {
            return Ok(false);
        }
        if gone.ino == came.ino {
            return Ok(true);
        }
        if self.after.has(gone.ino, &before)? || self.before.has(came.ino, &after)? {
            return Ok(false);
        }
        self.add((gone.ino, came.ino), after.kind);
        Ok(true)
    }

    /// Compares the names in a directory and its alias.
    fn directories(&mut self, (before, after): (u64, u64)) -> Result<()> {
        let (old, new) = (self.before.state(), self.after.state());
        let entries = new.entries(after)?.into_iter();
        let mut came: BTreeMap<_, _> = entries.map(|it| (it.name.clone(), it)).collect();
        let mut has_other_names = false;
        for gone in old.entries(before)? {
            if let Some(entry) = came.get(&gone.name)
                && self.are_same(&gone, entry)?
            {
                came.remove(&gone.name);
                continue;
            }
            has_other_names = true;
            if let Some(entry) = came.get(&gone.name)
                && self.saved((before, after), &gone, entry)?
            {
                came.remove(&gone.name);
                continue;
            }
            // Where the directory itself is now, its name may be there too.
            let stayed = new.entry(before, &gone.name)?.filter(|now| now.ino == gone.ino);
            let change = self.aliases.names.entry(gone.ino).or_default();
            change.came.extend(stayed.map(|entry| Place { directory: before, entry }));
            change.gone.push(Place { directory: before, entry: gone });
        }
        for entry in came.into_values() {
            has_other_names = true;
            let was = old.entry(after, &entry.name)?.filter(|was| was.ino == entry.ino);
            let change = self.aliases.names.entry(entry.ino).or_default();
            change.gone.extend(was.map(|entry| Place { directory: after, entry }));
            change.came.push(Place { directory: after, entry });
        }
        if let Some(alias) = self.aliases.by_after.get_mut(&after) {
            alias.has_other_names |= has_other_names;
        }
        Ok(())
    }
}
