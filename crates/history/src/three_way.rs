//! The three states of a merge: the base, the fork that began as it, and the parent as it is now.

use crate::changes::{Changes, InodeChange, NameChanges, Pair, Place};
use crate::paths::{Paths, join};
use crate::restoring::Fates;
use marram_format::record::Inode;
use marram_records::sections::Section;
use marram_records::state::{Named, State, same_inode};
use marram_vfs::Result;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// A name in a directory: the directory's number and the key of the name.
pub(crate) type NamePlace = (u64, Vec<u8>);

/// A name that the fork has changed.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// The directory, by the fork's number.
    pub(crate) directory: u64,
    /// What it led to in the base.
    pub(crate) before: Option<Named>,
    /// What it leads to in the fork.
    pub(crate) after: Option<Named>,
}

/// See the module.
pub(crate) struct ThreeWay<'a> {
    pub(crate) base: &'a State,
    pub(crate) fork: &'a State,
    /// The parent, under all its locks.
    pub(crate) now: &'a State,
    /// From the base to the fork.
    pub(crate) theirs: &'a Changes,
    /// From the base to the parent.
    pub(crate) ours: &'a Changes,
    /// What becomes of inodes, where that does not follow from the changes.
    fates: Option<Fates>,
    /// The fork's numbers are not those that it gave out: see [`crate::parted`].
    pub(crate) is_renumbered: bool,
    their_names: BTreeMap<u64, NameChanges>,
    our_names: BTreeMap<u64, NameChanges>,
    base_paths: RefCell<Paths<'a>>,
    fork_paths: RefCell<Paths<'a>>,
}

impl<'a> ThreeWay<'a> {
    pub(crate) fn new(
        (base, fork, now): (&'a State, &'a State, &'a State),
        theirs: &'a Changes,
        ours: &'a Changes,
    ) -> ThreeWay<'a> {
        ThreeWay {
            base,
            fork,
            now,
            their_names: theirs.names(),
            our_names: ours.names(),
            theirs,
            ours,
            fates: None,
            is_renumbered: false,
            base_paths: RefCell::new(Paths::new(base)),
            fork_paths: RefCell::new(Paths::new(fork)),
        }
    }

    /// The same, where what becomes of inodes was decided.
    pub(crate) fn with_fates(self, fates: Fates) -> ThreeWay<'a> {
        ThreeWay { fates: Some(fates), ..self }
    }

    /// The same, of a fork that is shown by other numbers than its own.
    pub(crate) fn renumbered(self) -> ThreeWay<'a> {
        ThreeWay { is_renumbered: true, ..self }
    }

    /// The names that the fork has changed, in order of directories.
    pub(crate) fn slots(&self, directory: u64, change: &InodeChange) -> Vec<Slot> {
        let mut slots: BTreeMap<Vec<u8>, Slot> = BTreeMap::new();
        let empty = || Slot { directory, before: None, after: None };
        for Pair { before, after } in &change.entries {
            if let Some(entry) = before {
                let slot = slots.entry(self.key(&entry.name)).or_insert_with(empty);
                slot.before = Some(entry.clone());
            }
            if let Some(entry) = after {
                let slot = slots.entry(self.key(&entry.name)).or_insert_with(empty);
                slot.after = Some(entry.clone());
            }
        }
        slots.into_values().collect()
    }

    /// What all spellings of a name have in common.
    pub(crate) fn key(&self, name: &[u8]) -> Vec<u8> {
        self.now.names().key(name).into_owned()
    }

    /// Whether the fork made the inode.
    pub(crate) fn is_new(&self, ino: u64) -> bool {
        if let Some(fates) = &self.fates {
            return fates.made.contains_key(&ino);
        }
        self.change(ino).is_some_and(|change| {
            change.stayed().is_none() && change.after.as_ref().is_some_and(|inode| inode.links > 0)
        })
    }

    /// Whether an inode that is new has the number that it has in the fork.
    pub(crate) fn keeps_number(&self, ino: u64) -> bool {
        self.fates.as_ref().is_some_and(|fates| fates.made.get(&ino) == Some(&true))
    }

    /// Whether an inode of the base is gone from the fork, or has no name there any more.
    pub(crate) fn is_gone(&self, ino: u64) -> bool {
        if let Some(fates) = &self.fates {
            return fates.gone.contains(&ino);
        }
        self.change(ino).is_some_and(|change| {
            change.stayed().is_none() && change.before.as_ref().is_some_and(|inode| inode.links > 0)
        })
    }

    fn change(&self, ino: u64) -> Option<&InodeChange> {
        self.theirs.by_inode.get(&ino)
    }

    /// The sections of an inode that the fork has changed.
    pub(crate) fn changed_sections(&self, ino: u64) -> &[Pair<Section>] {
        self.change(ino).map_or(&[], |change| &change.sections)
    }

    /// The parent's record of an inode of the base, if it is still the same and has a name.
    pub(crate) fn still(&self, ino: u64) -> Result<Option<Inode>> {
        let now = self.now.named_inode(ino)?;
        let base = self.base.inode(ino)?;
        Ok(now.filter(|now| base.is_some_and(|base| same_inode(&base, now))))
    }

    /// The names that the fork gave to an inode, and took from it.
    pub(crate) fn their_moves(&self, ino: u64) -> (BTreeSet<NamePlace>, BTreeSet<NamePlace>) {
        self.moves(self.their_names.get(&ino))
    }

    /// The names that the parent gave to an inode, and took from it.
    pub(crate) fn our_moves(&self, ino: u64) -> (BTreeSet<NamePlace>, BTreeSet<NamePlace>) {
        self.moves(self.our_names.get(&ino))
    }

    fn moves(&self, names: Option<&NameChanges>) -> (BTreeSet<NamePlace>, BTreeSet<NamePlace>) {
        let places = |places: &[Place]| -> BTreeSet<NamePlace> {
            let place = |place: &Place| (place.directory, self.key(&place.entry.name));
            places.iter().map(place).collect()
        };
        let Some(names) = names else {
            return (BTreeSet::new(), BTreeSet::new());
        };
        let (came, gone) = (places(&names.came), places(&names.gone));
        (came.difference(&gone).cloned().collect(), gone.difference(&came).cloned().collect())
    }

    /// The names that the parent gave to an inode.
    pub(crate) fn our_new_places(&self, ino: u64) -> Vec<Place> {
        let (came, _) = self.our_moves(ino);
        let places = self.our_names.get(&ino).map_or(&[][..], |names| &names.came);
        let is_new =
            |place: &&Place| came.contains(&(place.directory, self.key(&place.entry.name)));
        places.iter().filter(is_new).cloned().collect()
    }

    /// The path of a name, as the fork has its directory, or else as the base had it.
    pub(crate) fn path_of_name(&self, directory: u64, name: &[u8]) -> Result<Vec<u8>> {
        let in_fork = self.fork_paths.borrow_mut().of_name(directory, name)?;
        let path = match in_fork {
            Some(path) => Some(path),
            None => self.base_paths.borrow_mut().of_name(directory, name)?,
        };
        Ok(path.unwrap_or_else(|| join(b"?", name)))
    }

    /// The path of an inode in the fork, or else in the base.
    pub(crate) fn path_of(&self, ino: u64) -> Result<Vec<u8>> {
        let in_fork = self.fork_paths.borrow_mut().of(ino)?;
        let path = match in_fork {
            Some(path) => Some(path),
            None => self.base_paths.borrow_mut().of(ino)?,
        };
        Ok(path.unwrap_or_else(|| b"?".to_vec()))
    }

    /// Where a file was in the base.
    pub(crate) fn base_place(&self, ino: u64) -> Result<Option<(u64, Vec<u8>)>> {
        self.base_paths.borrow_mut().place(ino)
    }

    /// Makes paths of these inodes known that their records do not lead to.
    pub(crate) fn prepare_paths(&self, inos: impl Iterator<Item = u64>) -> Result<()> {
        self.fork_paths.borrow_mut().prepare(inos)
    }
}
