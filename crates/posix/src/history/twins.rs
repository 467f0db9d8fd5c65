//! What is the same to a user in two states, under another number in each.
//!
//! A rollback of a directory makes copies of what lies elsewhere by then, and the directory itself
//! may be one. By number, all that was there went, and something else came. So what has the same
//! path in both states and is the same inode but for its number counts as one that stayed, unless
//! the one of the first state is below still, elsewhere. The two directories that are compared are
//! twins whatever they are.
//!
//! The names in twins are compared one by one, as what moved away with a directory has not changed
//! in it. That costs what is in these directories.

use super::changes::{Changes, InodeChange, NameChanges, Place};
use super::sides::NamePlace;
use super::state::{Named, State, same_inode};
use super::subtree::Subtree;
use marram_format::record::{Inode, InodeKind};
use marram_vfs::Result;
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Twins {
    /// By the number in the second state.
    pub(super) by_after: BTreeMap<u64, Twin>,
    /// Those that are directories.
    directories_before: BTreeSet<u64>,
    directories_after: BTreeSet<u64>,
    /// Names in directories that stayed, which lead to twins.
    same_names: BTreeSet<NamePlace>,
    /// The names in twins that went and came.
    names: BTreeMap<u64, NameChanges>,
}

/// The twin of an inode of the second state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twin {
    /// Its number in the first state.
    pub(super) before: u64,
    /// Of directories: whether a name has gone, come, or leads elsewhere.
    pub(super) has_other_names: bool,
}

impl Twins {
    /// Finds the twins below the roots of two states between which these are the changes.
    pub(super) fn find(before: &State, after: &State, changes: &Changes) -> Result<Twins> {
        let below = Subtree::new(after, after.root);
        let mut search =
            Search { before, after, below, twins: Twins::default(), waiting: Vec::new() };
        if before.root != after.root {
            search.add((before.root, after.root), InodeKind::Directory);
        }
        for (directory, change) in &changes.by_inode {
            if change.stayed().is_some() {
                search.stayed(*directory, change)?;
            }
        }
        while let Some(directories) = search.waiting.pop() {
            search.directories(directories)?;
        }
        Ok(search.twins)
    }

    /// The changes of names where twins are the same.
    pub(super) fn apart_from(
        &self,
        mut names: BTreeMap<u64, NameChanges>,
    ) -> BTreeMap<u64, NameChanges> {
        let is_same =
            |place: &Place| self.same_names.contains(&(place.directory, place.entry.name.clone()));
        for change in names.values_mut() {
            let known = &self.directories_before;
            change.gone.retain(|it| !known.contains(&it.directory) && !is_same(it));
            let known = &self.directories_after;
            change.came.retain(|it| !known.contains(&it.directory) && !is_same(it));
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

struct Search<'a> {
    before: &'a State,
    after: &'a State,
    /// What lies below in the second state.
    below: Subtree<'a>,
    twins: Twins,
    /// Directories of both states whose names have not been compared.
    waiting: Vec<(u64, u64)>,
}

impl Search<'_> {
    fn add(&mut self, (before, after): (u64, u64), kind: InodeKind) {
        let twin = Twin { before, has_other_names: false };
        let is_new = self.twins.by_after.insert(after, twin).is_none();
        if is_new && kind == InodeKind::Directory {
            self.twins.directories_before.insert(before);
            self.twins.directories_after.insert(after);
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
            if self.below.has(directory)? && self.are_same(gone, entry)? {
                self.twins.same_names.insert((directory, gone.name.clone()));
            }
        }
        Ok(())
    }

    /// Whether what a name led to is what it leads to: itself, or its twin.
    fn are_same(&mut self, gone: &Named, came: &Named) -> Result<bool> {
        let inodes = (self.before.named_inode(gone.ino)?, self.after.named_inode(came.ino)?);
        let (Some(before), Some(after)) = inodes else {
            return Ok(false);
        };
        if !same_inode(&before, &after) {
            return Ok(false);
        }
        if gone.ino == came.ino {
            return Ok(true);
        }
        if self.is_below(gone.ino, &before)? {
            return Ok(false);
        }
        self.add((gone.ino, came.ino), after.kind);
        Ok(true)
    }

    /// Whether an inode lies below in the second state, where another one may have its number. Of a
    /// file with several names, one counts.
    fn is_below(&mut self, ino: u64, before: &Inode) -> Result<bool> {
        let named = self.after.named_inode(ino)?;
        let Some(inode) = named.filter(|inode| same_inode(before, inode)) else {
            return Ok(false);
        };
        let entry = self.after.entry_at(inode.parent, inode.name_place)?;
        Ok(entry.is_some_and(|entry| entry.ino == ino) && self.below.has(inode.parent)?)
    }

    /// Compares the names in a directory and its twin.
    fn directories(&mut self, (before, after): (u64, u64)) -> Result<()> {
        let entries = self.after.entries(after)?.into_iter();
        let mut came: BTreeMap<_, _> = entries.map(|it| (it.name.clone(), it)).collect();
        let mut has_other_names = false;
        for gone in self.before.entries(before)? {
            if let Some(entry) = came.get(&gone.name)
                && self.are_same(&gone, entry)?
            {
                came.remove(&gone.name);
                continue;
            }
            has_other_names = true;
            // Where the directory itself is now, its name may be there too.
            let stayed = self.after.entry(before, &gone.name)?.filter(|now| now.ino == gone.ino);
            let change = self.twins.names.entry(gone.ino).or_default();
            change.came.extend(stayed.map(|entry| Place { directory: before, entry }));
            change.gone.push(Place { directory: before, entry: gone });
        }
        for entry in came.into_values() {
            has_other_names = true;
            let was = self.before.entry(after, &entry.name)?.filter(|was| was.ino == entry.ino);
            let change = self.twins.names.entry(entry.ino).or_default();
            change.gone.extend(was.map(|entry| Place { directory: after, entry }));
            change.came.push(Place { directory: after, entry });
        }
        if let Some(twin) = self.twins.by_after.get_mut(&after) {
            twin.has_other_names |= has_other_names;
        }
        Ok(())
    }
}
