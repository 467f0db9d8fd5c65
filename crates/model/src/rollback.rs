//! The way back of all, and of one directory to what it was in an older state: of that, every name
//! and every inode below it is looked at.
//!
//! The rules are the table of `docs/decisions/0021-rollback-of-a-directory.md`. Numbers of inodes
//! are never used again here, so an inode of two states is the same if its number is.

use crate::Model;
use crate::merge::{bytes_of, owned};
use crate::state::{Content, Node, State};
use marram_vfs::{Error, Ino, Name, Result, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Place = (Ino, Vec<u8>);

struct Back<'a> {
    now: &'a State,
    past: &'a State,
    root: Ino,
    past_root: Ino,
    now_below: BTreeSet<Ino>,
    past_below: BTreeSet<Ino>,
    /// Inodes of the past that are made, with their numbers.
    made: BTreeMap<Ino, Ino>,
    /// Files that stay and get back what they were.
    restored: BTreeSet<Ino>,
    /// Names that lead to a copy that an earlier way back has made.
    copied: BTreeSet<Place>,
    last_ino: u64,
}

impl Model {
    /// Lets all go back to what it was in `past`, an older or newer state of this one. Nobody may
    /// hold a pin.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] of what is kept.
    pub fn roll_back(&self, past: &Model) -> Result<()> {
        let past = past.snapshot();
        let (mut state, _) = self.change()?;
        // Numbers go on: those of the states between are not given out again.
        let last_ino = state.last_ino.max(past.state.lock().last_ino);
        *state = State { last_ino, ..past.state.lock().clone() };
        Ok(())
    }

    /// Lets a directory go back to what it was in `past`, an older state of this one.
    ///
    /// # Errors
    /// [`Error::NotFound`] if that has neither the directory nor another one under its path.
    pub fn roll_back_directory(&self, past: &Model, directory: Ino) -> Result<()> {
        let past = past.snapshot();
        let past = past.state.lock();
        let (mut state, now) = self.change()?;
        let mut back = Back::find(&state, &past, directory)?;
        back.judge();
        let result = back.result(now);
        *state = result;
        Ok(())
    }
}

/// A directory and all directories below it.
fn below(state: &State, root: Ino) -> BTreeSet<Ino> {
    let (mut found, mut left) = (BTreeSet::new(), vec![root]);
    while let Some(ino) = left.pop() {
        let Ok(directory) = state.directory(ino) else { continue };
        if found.insert(ino) {
            left.extend(directory.entries.values().map(|entry| entry.ino));
        }
    }
    found
}

/// All names in these directories.
fn names(state: &State, directories: &BTreeSet<Ino>) -> BTreeMap<Place, Ino> {
    let mut names = BTreeMap::new();
    for ino in directories {
        for (name, entry) in state.directory(*ino).iter().flat_map(|found| &found.entries) {
            names.insert((*ino, name.clone()), entry.ino);
        }
    }
    names
}

/// The names of files by inode.
fn places(state: &State, names: &BTreeMap<Place, Ino>) -> BTreeMap<Ino, Vec<Place>> {
    let mut places: BTreeMap<Ino, Vec<Place>> = BTreeMap::new();
    let files = names.iter().filter(|(_, ino)| !state.nodes[ino].is_directory());
    files.for_each(|(place, ino)| places.entry(*ino).or_default().push(place.clone()));
    places
}

/// Whether two are the same to a user, with the time of their content, other times aside.
fn same(a: &Node, b: &Node) -> bool {
    let target = |node: &Node| match &node.content {
        Content::Target(target) => target.clone(),
        _ => Vec::new(),
    };
    (a.attributes.kind, a.attributes.device) == (b.attributes.kind, b.attributes.device)
        && owned(a) == owned(b)
        && a.attributes.modified == b.attributes.modified
        && a.xattrs == b.xattrs
        && target(a) == target(b)
        && bytes_of(a) == bytes_of(b)
}

fn named(name: &[u8]) -> Name<'_> {
    Name::new(name).expect("it is a name already")
}

impl<'a> Back<'a> {
    fn find(now: &'a State, past: &'a State, root: Ino) -> Result<Back<'a>> {
        now.living_directory(root)?;
        let past_root = match past.nodes.contains_key(&root) {
            true => root,
            false => place_in(now, past, root)?,
        };
        Ok(Back {
            now,
            past,
            root,
            past_root,
            now_below: below(now, root),
            past_below: below(past, past_root),
            made: BTreeMap::new(),
            restored: BTreeSet::new(),
            copied: BTreeSet::new(),
            last_ino: now.last_ino,
        })
    }

    fn stays(&self, directory: Ino) -> bool {
        self.now_below.contains(&directory) && self.past_below.contains(&directory)
    }

    fn make(&mut self, ino: Ino) {
        let mut number = ino;
        if self.now.nodes.contains_key(&ino) {
            self.last_ino += 1;
            number = Ino(self.last_ino);
        }
        self.made.insert(ino, number);
    }

    fn judge(&mut self) {
        for directory in self.past_below.clone() {
            if !self.stays(directory) {
                self.make(directory);
            }
        }
        let now = places(self.now, &names(self.now, &self.now_below));
        for (ino, past) in places(self.past, &names(self.past, &self.past_below)) {
            match self.has_copy(ino, &past) {
                true => self.copied.extend(past),
                false => self.judge_file(ino, now.get(&ino).map_or(0, Vec::len), past.len()),
            }
        }
    }

    fn has_copy(&self, ino: Ino, places: &[Place]) -> bool {
        let target = |(directory, name): &Place| {
            let found = self.now.find(*directory, named(name)).ok().flatten();
            found.filter(|_| self.stays(*directory))
        };
        let targets: BTreeSet<Option<Ino>> = places.iter().map(target).collect();
        let [Some(copy)] = targets.into_iter().collect::<Vec<_>>()[..] else { return false };
        let (now, past) = (&self.now.nodes[&copy], &self.past.nodes[&ino]);
        copy != ino
            && now.attributes.created == past.attributes.created
            && now.attributes.links as usize == places.len()
            && same(now, past)
    }

    fn judge_file(&mut self, ino: Ino, names_now: usize, names_past: usize) {
        let past = &self.past.nodes[&ino];
        let still = self.now.nodes.get(&ino).filter(|now| now.attributes.links > 0);
        let was_outside = past.attributes.links as usize > names_past;
        match still {
            Some(now) if now.attributes.links as usize <= names_now => {
                self.restored.insert(ino);
            }
            Some(now) if was_outside && same(now, past) => (),
            _ => self.make(ino),
        }
    }

    /// The number that an inode of the past has in the end.
    fn number(&self, ino: Ino) -> Ino {
        self.made.get(&ino).copied().unwrap_or(ino)
    }

    /// Which names there are to be in the end.
    fn wanted(&self) -> BTreeMap<Place, Ino> {
        let mut wanted = BTreeMap::new();
        for ((directory, name), ino) in names(self.past, &self.past_below) {
            let place = (directory, name.clone());
            let leads_to = match self.copied.contains(&place) {
                true => self.now.find(directory, named(&name)).ok().flatten(),
                false => None,
            };
            let place = (self.number(directory), name);
            wanted.insert(place, leads_to.unwrap_or_else(|| self.number(ino)));
        }
        wanted
    }

    fn result(&self, now: Timestamp) -> State {
        let mut state = self.now.clone();
        state.last_ino = self.last_ino;
        self.add_made(&mut state);
        let (mut there, mut wanted) = (names(self.now, &self.now_below), self.wanted());
        if self.root != self.past_root {
            let place = place_of(self.now, self.root).expect("it was found by its path");
            there.insert(place.clone(), self.root);
            wanted.insert(place, self.number(self.past_root));
        }
        let edited = change_names(&mut state, (&there, &wanted), now);
        for directory in self.now_below.iter().filter(|ino| !self.stays(**ino)) {
            state.known(*directory).attributes.links = 0;
        }
        for (ino, number) in &self.made {
            let past = &self.past.nodes[ino].attributes;
            let made = &mut state.known(*number).attributes;
            (made.accessed, made.modified, made.changed) = (past.accessed, past.modified, now);
        }
        let directories = self.past_below.iter().filter(|ino| self.stays(**ino));
        for ino in directories.chain(&self.restored) {
            self.restore(&mut state, *ino, edited.contains(ino), now);
        }
        let all: Vec<Ino> = state.nodes.keys().copied().collect();
        all.into_iter().for_each(|ino| state.free_if_unused(ino));
        state
    }

    /// Adds what is made, without names.
    fn add_made(&self, state: &mut State) {
        for (ino, number) in &self.made {
            let mut node = Node::clone(&self.past.nodes[ino]);
            (node.attributes.ino, node.attributes.links, node.pins) = (*number, 0, 0);
            if let Content::Directory(directory) = &mut node.content {
                directory.entries.clear();
                node.attributes.links = 1;
            }
            state.nodes.insert(*number, Arc::new(node));
        }
    }

    /// An inode that stays is as it was.
    fn restore(&self, state: &mut State, ino: Ino, is_edited: bool, now: Timestamp) {
        let (before, past) = (&self.now.nodes[&ino], &self.past.nodes[&ino]);
        let node = state.known(ino);
        let times = (past.attributes.accessed, past.attributes.modified);
        if same(before, past) {
            if is_edited && node.is_directory() {
                (node.attributes.accessed, node.attributes.modified) = times;
            }
            return;
        }
        let is_other = before.attributes.modified != past.attributes.modified;
        if !node.is_directory() && (is_other || bytes_of(before) != bytes_of(past)) {
            node.content = past.content.clone();
            node.attributes.size = past.attributes.size;
        }
        let attributes = &mut node.attributes;
        attributes.permissions = past.attributes.permissions;
        (attributes.uid, attributes.gid) = (past.attributes.uid, past.attributes.gid);
        (attributes.accessed, attributes.modified) = times;
        attributes.changed = now;
        node.xattrs = past.xattrs.clone();
    }
}

/// Makes the names what is wanted; returns the directories in which one has changed.
fn change_names(
    state: &mut State,
    (there, wanted): (&BTreeMap<Place, Ino>, &BTreeMap<Place, Ino>),
    now: Timestamp,
) -> BTreeSet<Ino> {
    let mut edited = BTreeSet::new();
    for (place, ino) in there.iter().filter(|(place, ino)| wanted.get(*place) != Some(*ino)) {
        state.detach(place.0, named(&place.1), now);
        state.known(*ino).attributes.changed = now;
        edited.insert(place.0);
    }
    for (place, ino) in wanted.iter().filter(|(place, ino)| there.get(*place) != Some(*ino)) {
        state.attach(place.0, named(&place.1), *ino, now);
        state.known(*ino).attributes.changed = now;
        edited.insert(place.0);
    }
    edited
}

/// Where a directory is.
fn place_of(state: &State, directory: Ino) -> Option<Place> {
    let parent = state.directory(directory).ok()?.parent;
    let entries = &state.directory(parent).ok()?.entries;
    let (name, _) = entries.iter().find(|(_, entry)| entry.ino == directory)?;
    Some((parent, name.clone()))
}

/// The directory of the past under the path that a directory has now.
fn place_in(now: &State, past: &State, directory: Ino) -> Result<Ino> {
    let (mut names, mut at) = (Vec::new(), directory);
    while at != Ino::ROOT {
        let (parent, name) = place_of(now, at).ok_or(Error::NotFound)?;
        names.push(name);
        at = parent;
    }
    for name in names.iter().rev() {
        at = past.find(at, named(name)).ok().flatten().ok_or(Error::NotFound)?;
    }
    past.directory(at).map_err(|_| Error::NotFound)?;
    Ok(at)
}
