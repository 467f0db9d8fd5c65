//! What lies below one directory in one state.
//!
//! A directory's record leads to its parent, so whether it lies below is known by going up. A file
//! with one name is found by its record too; one with several may have any of them anywhere, and
//! only a walk through all that lies below finds them.

use crate::changes::Place;
use crate::paths::ANCESTORS_MAX;
use marram_format::record::{Inode, InodeKind};
use marram_records::state::State;
use marram_vfs::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Places of files, by number.
pub(crate) type Places = BTreeMap<u64, Vec<Place>>;

/// See the module.
pub(crate) struct Subtree<'a> {
    pub(crate) state: &'a State,
    root: u64,
    /// Directories that have been asked for, and those on the way up from them.
    known: HashMap<u64, bool>,
}

impl<'a> Subtree<'a> {
    /// What lies below the directory `root`.
    pub(crate) fn new(state: &'a State, root: u64) -> Subtree<'a> {
        Subtree { state, root, known: HashMap::from([(root, true)]) }
    }

    /// Whether a directory is the root, or lies below it.
    pub(crate) fn has(&mut self, directory: u64) -> Result<bool> {
        let mut way = Vec::new();
        let mut at = directory;
        let found = loop {
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            way.push(at);
            if way.len() > ANCESTORS_MAX {
                return Err(self.is_no_tree());
            }
            let inode = self.state.named_inode(at)?;
            match inode.filter(|inode| inode.kind == InodeKind::Directory) {
                Some(inode) if inode.parent != at => at = inode.parent,
                _ => break false,
            }
        };
        self.known.extend(way.into_iter().map(|ino| (ino, found)));
        Ok(found)
    }

    /// Damage by which a walk would have no end.
    fn is_no_tree(&self) -> Error {
        Error::Damaged(format!("directory {} is not a tree", self.root))
    }

    /// The place of a file that has one name, if its record leads there.
    pub(crate) fn only_place(&self, ino: u64, inode: &Inode) -> Result<Option<Place>> {
        if inode.links != 1 {
            return Ok(None);
        }
        let found = self.state.entry_at(inode.parent, inode.name_place)?;
        let found = found.filter(|entry| entry.ino == ino);
        Ok(found.map(|entry| Place { directory: inode.parent, entry }))
    }

    /// All places of these, directories too: by their records, or where that is not enough by a
    /// walk through everything below the root.
    pub(crate) fn all_places(&self, wanted: &BTreeSet<u64>) -> Result<Places> {
        let (mut places, mut searched) = (Places::new(), BTreeSet::new());
        for ino in wanted {
            let Some(inode) = self.state.named_inode(*ino)? else { continue };
            let has_one = inode.kind == InodeKind::Directory || inode.links == 1;
            let entry = self.state.entry_at(inode.parent, inode.name_place)?;
            match entry.filter(|entry| has_one && entry.ino == *ino) {
                Some(entry) => {
                    places.insert(*ino, vec![Place { directory: inode.parent, entry }]);
                }
                None => {
                    searched.insert(*ino);
                }
            }
        }
        places.extend(self.places(&searched)?);
        Ok(places)
    }

    /// All places below the root of these files. Walks through everything there, unless none is
    /// wanted.
    pub(crate) fn places(&self, wanted: &BTreeSet<u64>) -> Result<Places> {
        let mut places = Places::new();
        let mut waiting = if wanted.is_empty() { Vec::new() } else { vec![self.root] };
        let mut visited = HashSet::new();
        while let Some(directory) = waiting.pop() {
            if !visited.insert(directory) {
                return Err(self.is_no_tree());
            }
            self.state.visit_entries(directory, 0, u64::MAX, &mut |entry| {
                if entry.kind == InodeKind::Directory {
                    waiting.push(entry.ino);
                } else if wanted.contains(&entry.ino) {
                    let found = places.entry(entry.ino).or_default();
                    found.push(Place { directory, entry });
                }
                true
            })?;
        }
        Ok(places)
    }
}
