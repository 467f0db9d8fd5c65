//! A part of the fork's changes, chosen by paths: as if the fork had changed nothing else.
//!
//! A name is chosen if its path in the base or in the fork is. So that no file loses a name for
//! nothing, **what was moved goes whole**: of an inode of which one changed name is chosen, all
//! changed names are. What had a chosen name before goes with it, and so do new directories above
//! a chosen name. Content and attributes are chosen by the path of their inode; a directory that is
//! only on the way to something keeps its own attributes.

use crate::changes::{Changes, Place};
use crate::paths::Paths;
use marram_format::record::InodeKind;
use marram_records::state::State;
use marram_vfs::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Whether what is at a path, from the root, is chosen; the flag is whether it is a directory.
pub type Select<'a> = &'a dyn Fn(&[u8], bool) -> Result<bool>;

/// Takes from the changes of a fork what is not chosen. Returns how many inodes are touched by what
/// was taken.
pub(crate) fn keep_selected(
    changes: &mut Changes,
    (base, fork): (&State, &State),
    select: Select<'_>,
) -> Result<usize> {
    let mut selection = Selection {
        base,
        old_paths: Paths::new(base),
        new_paths: Paths::new(fork),
        select,
        chosen: BTreeSet::new(),
    };
    selection.choose_names(changes)?;
    selection.cut(changes)
}

struct Selection<'a> {
    base: &'a State,
    old_paths: Paths<'a>,
    new_paths: Paths<'a>,
    select: Select<'a>,
    /// Inodes of which the changed names are chosen.
    chosen: BTreeSet<u64>,
}

impl Selection<'_> {
    /// Chooses inodes by their changed names, with all that goes with them.
    fn choose_names(&mut self, changes: &Changes) -> Result<()> {
        let names = changes.names();
        let mut before: BTreeMap<(u64, Vec<u8>), u64> = BTreeMap::new();
        for (ino, change) in &names {
            before.extend(change.gone.iter().map(|place| (self.key(place), *ino)));
        }
        let mut waiting = Vec::new();
        for (ino, change) in &names {
            let is_chosen =
                self.has_chosen(&change.gone, true)? || self.has_chosen(&change.came, false)?;
            if is_chosen {
                waiting.push(*ino);
            }
        }
        while let Some(ino) = waiting.pop() {
            if !self.chosen.insert(ino) {
                continue;
            }
            for place in names.get(&ino).map_or(&[][..], |change| &change.came) {
                waiting.extend(before.get(&self.key(place)));
                // A directory that is only renamed is there already.
                let is_new = changes.by_inode.get(&place.directory).is_some_and(|above| {
                    above.stayed().is_none() && above.after.as_ref().is_some_and(|it| it.links > 0)
                });
                waiting.extend(is_new.then_some(place.directory));
            }
        }
        Ok(())
    }

    /// A place of a name, however it is spelt.
    fn key(&self, place: &Place) -> (u64, Vec<u8>) {
        (place.directory, self.base.names().key(&place.entry.name).into_owned())
    }

    fn has_chosen(&mut self, places: &[Place], is_before: bool) -> Result<bool> {
        for Place { directory, entry } in places {
            let paths = if is_before { &mut self.old_paths } else { &mut self.new_paths };
            let path = paths.of_name(*directory, &entry.name)?;
            let is_directory = entry.kind == InodeKind::Directory;
            if let Some(path) = path
                && (self.select)(&path, is_directory)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an inode is chosen by a path that it has or had.
    fn has_inode(&mut self, ino: u64, is_directory: bool) -> Result<bool> {
        for path in [self.new_paths.of(ino)?, self.old_paths.of(ino)?].into_iter().flatten() {
            if (self.select)(&path, is_directory)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Leaves what is chosen. Returns how many inodes are touched by the rest.
    fn cut(&mut self, changes: &mut Changes) -> Result<usize> {
        self.new_paths.prepare(changes.by_inode.keys().copied())?;
        self.old_paths.prepare(changes.by_inode.keys().copied())?;
        let mut touched = BTreeSet::new();
        let mut kept = BTreeMap::new();
        for (ino, mut change) in std::mem::take(&mut changes.by_inode) {
            for pair in &mut change.entries {
                for side in [&mut pair.before, &mut pair.after] {
                    if let Some(entry) = side.take_if(|entry| !self.chosen.contains(&entry.ino)) {
                        touched.insert(entry.ino);
                    }
                }
            }
            change.entries.retain(|pair| pair.before.is_some() || pair.after.is_some());
            let record = change.after.as_ref().or(change.before.as_ref());
            let is_directory = record.is_some_and(|inode| inode.kind == InodeKind::Directory);
            let is_whole = self.chosen.contains(&ino)
                || (change.stayed().is_some() && self.has_inode(ino, is_directory)?);
            if !is_whole {
                change.is_on_the_way = true;
                if change.entries.is_empty() {
                    if !is_directory {
                        touched.insert(ino);
                    }
                    continue;
                }
            }
            kept.insert(ino, change);
        }
        changes.by_inode = kept;
        Ok(touched.len())
    }
}
