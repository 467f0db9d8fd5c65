//! Paths of inodes, from the root of what is shown.
//!
//! The way up goes by the parent in each record, and the name by the place that the record gives
//! for it, so no directory is searched. The place is a hint, which the entry found there confirms:
//! an inode of an older pool has none, and that of a file goes wrong when the name that was made
//! last is removed while others stay. Then the parent directory is searched, and if that does not
//! help, every directory, once for all inodes that have to be found so. A file with several names
//! may be known by one that is not below the root: then what is below it is walked through.
//!
//! In a store that is far away the ways up of many inodes are read together, a level at a time.

use crate::subtree::Subtree;
use marram_format::record::InodeKind;
use marram_records::directory::entry_key;
use marram_records::failure::from_store;
use marram_records::state::{Named, State};
use marram_store::{Item, Key, View, kind};
use marram_vfs::{Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Deepest nesting of directories that is followed upwards: a longer way up is damage.
pub(crate) const ANCESTORS_MAX: usize = 1 << 20;

/// Paths in one state.
pub(crate) struct Paths<'a> {
    state: &'a State,
    /// Directories that have been asked for, and those on the way to them; `None` is one that
    /// cannot be reached from the root.
    directories: HashMap<u64, Option<Vec<u8>>>,
    /// Where files were found whose records did not help.
    found: HashMap<u64, (u64, Vec<u8>)>,
}

/// One of the paths of an inode from the inode `root`, if it can be reached from there.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn path_of(view: Arc<dyn View>, root: u64, ino: u64) -> Result<Option<Vec<u8>>> {
    Paths::new(&State::open(view, root)?).of(ino)
}

/// A path from that of its directory.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if directory == b"/" { b"" } else { b"/" };
    [directory, separator, name].concat()
}

impl<'a> Paths<'a> {
    pub(crate) fn new(state: &'a State) -> Paths<'a> {
        let directories = HashMap::from([(state.root, Some(b"/".to_vec()))]);
        Paths { state, directories, found: HashMap::new() }
    }

    /// The path of a name in a directory, if that can be reached from the root.
    pub(crate) fn of_name(&mut self, directory: u64, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.directory(directory)?.map(|path| join(&path, name)))
    }

    /// One of the paths of an inode, if it can be reached from the root.
    pub(crate) fn of(&mut self, ino: u64) -> Result<Option<Vec<u8>>> {
        let Some(inode) = self.state.named_inode(ino)? else {
            return Ok(None);
        };
        if inode.kind == InodeKind::Directory {
            return self.directory(ino);
        }
        if let Some((directory, name)) = self.found.get(&ino).cloned() {
            return self.of_name(directory, &name);
        }
        match self.name_in(inode.parent, inode.name_place, ino)? {
            Some(name) => self.of_name(inode.parent, &name),
            None => Ok(None),
        }
    }

    /// One of the places of a file: the directory and the name.
    pub(crate) fn place(&mut self, ino: u64) -> Result<Option<(u64, Vec<u8>)>> {
        if !self.found.contains_key(&ino) {
            self.prepare(std::iter::once(ino))?;
        }
        Ok(self.found.get(&ino).cloned())
    }

    /// Prepares the paths of files: those that their records do not lead to are searched for.
    pub(crate) fn prepare(&mut self, inos: impl Iterator<Item = u64>) -> Result<()> {
        let (mut missing, mut linked) = (BTreeSet::new(), BTreeSet::new());
        let inos: BTreeSet<u64> = inos.collect();
        self.foresee(inos.clone())?;
        for ino in inos {
            let inode = self.state.named_inode(ino)?;
            let Some(inode) = inode.filter(|inode| inode.kind != InodeKind::Directory) else {
                continue;
            };
            if inode.links > 1 {
                linked.insert(ino);
            }
            match self.name_in(inode.parent, inode.name_place, ino)? {
                Some(name) => {
                    self.found.insert(ino, (inode.parent, name));
                }
                None => {
                    missing.insert(ino);
                }
            }
        }
        if !missing.is_empty() {
            self.search(missing)?;
        }
        self.look_inside(linked)
    }

    /// Has all read that leads up from inodes, where the store is far away.
    pub(crate) fn foresee(&self, inos: BTreeSet<u64>) -> Result<()> {
        if !self.state.is_far() {
            return Ok(());
        }
        let record = |ino: &u64| Key::new(*ino, kind::INODE, 0);
        let (mut level, mut seen) = (inos, BTreeSet::new());
        self.state.foresee_items(level.iter().map(record));
        while !level.is_empty() {
            let (mut places, mut parents) = (Vec::new(), BTreeSet::new());
            for ino in &level {
                let Some(inode) = self.state.named_inode(*ino)? else { continue };
                places.push(entry_key(inode.parent, inode.name_place));
                if !self.directories.contains_key(&inode.parent) && seen.insert(inode.parent) {
                    parents.insert(inode.parent);
                }
            }
            self.state.foresee_items(places.into_iter().chain(parents.iter().map(record)));
            level = parents;
        }
        Ok(())
    }

    /// Of files with several names, one may have been found that is not below the root: then all
    /// that is below it is walked through for another one, once for all such files.
    fn look_inside(&mut self, linked: BTreeSet<u64>) -> Result<()> {
        let mut outside = BTreeSet::new();
        for ino in linked {
            let place = self.found.get(&ino).map(|(directory, _)| *directory);
            if let Some(directory) = place
                && self.directory(directory)?.is_none()
            {
                outside.insert(ino);
            }
        }
        for (ino, places) in Subtree::new(self.state, self.state.root).places(&outside)? {
            let place = places.into_iter().next();
            self.found.extend(place.map(|place| (ino, (place.directory, place.entry.name))));
        }
        Ok(())
    }

    fn search(&mut self, mut missing: BTreeSet<u64>) -> Result<()> {
        let mut failure = None;
        let (state, found) = (self.state, &mut self.found);
        let mut visit = |key: Key, item: &Item| {
            if key.kind == kind::ENTRY && key.object != 0 {
                match state.entry_of(key, item) {
                    Ok(entry) if missing.remove(&entry.ino) => {
                        found.insert(entry.ino, (state.shown(key.object), entry.name));
                    }
                    Ok(_) => (),
                    Err(error) => failure = Some(error),
                }
            }
            failure.is_none() && !missing.is_empty()
        };
        state.view.scan(Key::MIN, Key::MAX, &mut visit).map_err(from_store)?;
        failure.map_or(Ok(()), Err)
    }

    /// The name of `ino` in a directory.
    fn name_in(&self, directory: u64, place: u64, ino: u64) -> Result<Option<Vec<u8>>> {
        let mut found = self.state.entry_at(directory, place)?.filter(|entry| entry.ino == ino);
        if found.is_none() {
            self.state.visit_entries(directory, 0, u64::MAX, &mut |entry| {
                found = Some(entry).filter(|entry| entry.ino == ino);
                found.is_none()
            })?;
        }
        Ok(found.map(|Named { name, .. }| name))
    }

    /// The path of a directory.
    pub(crate) fn directory(&mut self, ino: u64) -> Result<Option<Vec<u8>>> {
        let mut way = Vec::new();
        let mut at = ino;
        let mut path = loop {
            if let Some(known) = self.directories.get(&at) {
                break known.clone();
            }
            let inode = self.state.named_inode(at)?;
            let inode = inode.filter(|inode| inode.kind == InodeKind::Directory);
            let Some(inode) = inode.filter(|inode| inode.parent != at) else {
                self.directories.insert(at, None);
                break None;
            };
            let name = self.name_in(inode.parent, inode.name_place, at)?;
            way.push((at, name));
            at = inode.parent;
            if way.len() > ANCESTORS_MAX {
                return Err(Error::Damaged(format!("directory {ino} is not below the root")));
            }
        };
        for (ino, name) in way.into_iter().rev() {
            path = path.zip(name).map(|(path, name)| join(&path, &name));
            self.directories.insert(ino, path.clone());
        }
        Ok(path)
    }
}
