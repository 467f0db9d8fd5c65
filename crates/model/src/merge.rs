//! The merge of a fork into its parent, over whole states: every name and every inode is looked at.
//!
//! The rules are the table of `docs/decisions/0017-diff-and-merge.md`. What is in conflict in
//! content or attributes can be decided by its path; any other conflict refuses the merge.

use crate::Model;
use crate::state::{CAPABILITY, Content, Node, State};
use marram_vfs::{Ino, Kind, Name, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why parent and fork do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clash {
    /// Both changed the content of a file.
    Content,
    /// Both changed an attribute.
    Attribute,
    /// A name leads to different things, or one thing went to different names.
    Name,
    /// One removed what the other changed.
    Removed,
    /// A directory would be in itself.
    Loop,
}

/// Which side is taken where both have changed the same part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the parent has stays.
    Ours,
    /// What the fork has comes.
    Theirs,
}

/// What is decided about content and attributes of files, by their paths in the fork.
pub type Decisions = BTreeMap<Vec<u8>, Side>;

type Place = (Ino, Vec<u8>);
type Names = BTreeMap<Place, Ino>;

/// Where a directory of the fork is in the parent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    In(Ino),
    New(Ino),
    Gone,
}

/// A file as base, fork and parent have it.
struct Three {
    base: Option<Ino>,
    fork: Ino,
    now: Ino,
    path: Vec<u8>,
    /// What is decided about it.
    side: Option<Side>,
}

struct Merge<'a> {
    /// Files of the fork that are decided.
    sides: BTreeMap<Ino, Side>,
    base: &'a State,
    fork: &'a State,
    now: &'a State,
    names: [Names; 3],
    twins: BTreeMap<Ino, Ino>,
    threes: Vec<Three>,
    /// Names that the parent is to have, by the fork's numbers, or none any more.
    puts: BTreeMap<(Home, Vec<u8>), Option<Ino>>,
    /// Inodes that keep their names because one of them is in conflict.
    stay: BTreeSet<Ino>,
    clashes: BTreeSet<(Clash, Vec<u8>)>,
}

impl Model {
    /// Brings what changed from `base` to `fork` into this one, which was forked as `base`; if
    /// there are conflicts that are not decided, returns them with their paths and changes nothing.
    pub fn merge(
        &self,
        base: &Model,
        fork: &Model,
        decisions: &Decisions,
    ) -> BTreeSet<(Clash, Vec<u8>)> {
        let (base, fork) = (base.snapshot(), fork.snapshot());
        let (base, fork) = (base.state.lock(), fork.state.lock());
        let mut now = self.state.lock();
        let mut merge = Merge::new(&base, &fork, &now);
        merge.decide(decisions);
        merge.judge();
        if !merge.clashes.is_empty() {
            return merge.clashes;
        }
        let merged = merge.result(self.clock.now());
        *now = merged;
        BTreeSet::new()
    }
}

fn names_of(state: &State) -> Names {
    let mut names = Names::new();
    for (ino, node) in state.nodes.iter().filter(|(_, node)| node.attributes.links > 0) {
        if let Content::Directory(directory) = &node.content {
            for (name, entry) in &directory.entries {
                names.insert((*ino, name.clone()), entry.ino);
            }
        }
    }
    names
}

fn is_regular(node: &Node) -> bool {
    node.attributes.kind == Kind::Regular
}

/// What a file reads as: its size, and what is not zero. Sizes may be far beyond all memory.
pub(crate) fn bytes_of(node: &Node) -> (u64, Vec<(u64, Vec<u8>)>) {
    let size = node.attributes.size;
    match &node.content {
        Content::Bytes(bytes) => (size, bytes.nonzero_runs(size)),
        _ => (0, Vec::new()),
    }
}

pub(crate) fn owned(node: &Node) -> [u32; 3] {
    let attributes = &node.attributes;
    [attributes.permissions, attributes.uid, attributes.gid]
}

/// Whether two are the same to a user, names and times aside.
fn same(a: &Node, b: &Node) -> bool {
    let special = |node: &Node| match &node.content {
        Content::Target(target) => target.clone(),
        _ => node.attributes.device.to_le_bytes().to_vec(),
    };
    a.attributes.kind == b.attributes.kind
        && owned(a) == owned(b)
        && a.xattrs == b.xattrs
        && special(a) == special(b)
        && bytes_of(a) == bytes_of(b)
}

impl<'a> Merge<'a> {
    fn new(base: &'a State, fork: &'a State, now: &'a State) -> Merge<'a> {
        Merge {
            sides: BTreeMap::new(),
            base,
            fork,
            now,
            names: [names_of(base), names_of(fork), names_of(now)],
            twins: BTreeMap::new(),
            threes: Vec::new(),
            puts: BTreeMap::new(),
            stay: BTreeSet::new(),
            clashes: BTreeSet::new(),
        }
    }

    /// Notes which files are decided.
    fn decide(&mut self, decisions: &Decisions) {
        for (path, side) in decisions {
            let parts = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
            let found = parts.into_iter().try_fold(Ino::ROOT, |directory, name| {
                self.names[1].get(&(directory, name.to_vec())).copied()
            });
            self.sides.extend(found.map(|ino| (ino, *side)));
        }
    }

    fn is_new(&self, ino: Ino) -> bool {
        !self.base.nodes.contains_key(&ino)
    }

    fn is_gone(&self, ino: Ino) -> bool {
        !self.fork.nodes.contains_key(&ino)
    }

    /// Whether the parent still has an inode of the base, with a name.
    fn is_still(&self, ino: Ino) -> bool {
        let alive = self.now.nodes.get(&ino).is_some_and(|node| node.attributes.links > 0);
        alive && !self.is_new(ino)
    }

    fn is_changed_by_us(&self, ino: Ino) -> bool {
        self.is_still(ino) && !same(&self.base.nodes[&ino], &self.now.nodes[&ino])
    }

    fn home(&self, directory: Ino) -> Home {
        match self.twins.get(&directory) {
            Some(twin) => Home::In(*twin),
            None if self.is_new(directory) => Home::New(directory),
            None if self.is_still(directory) => Home::In(directory),
            None => Home::Gone,
        }
    }

    fn found(&self, home: Home, name: &[u8]) -> Option<Ino> {
        match home {
            Home::In(directory) => self.names[2].get(&(directory, name.to_vec())).copied(),
            Home::New(_) | Home::Gone => None,
        }
    }

    /// The names in `after` of an inode that it had not in `before`.
    fn came(before: &Names, after: &Names, ino: Ino) -> BTreeSet<Place> {
        let is_new = |(place, at): &(&Place, &Ino)| **at == ino && before.get(*place) != Some(&ino);
        after.iter().filter(is_new).map(|(place, _)| place.clone()).collect()
    }

    fn path(&self, directory: Ino, name: &[u8]) -> Vec<u8> {
        let is_there = self.fork.nodes.contains_key(&directory);
        let names = if is_there { &self.names[1] } else { &self.names[0] };
        let mut path = [b"/", name].concat();
        let mut at = directory;
        while at != Ino::ROOT {
            let place = names.iter().find(|(_, ino)| **ino == at);
            let Some(((above, name), _)) = place else { break };
            path = [b"/", name.as_slice(), &path].concat();
            at = *above;
        }
        path
    }

    fn path_of(&self, ino: Ino) -> Vec<u8> {
        let place = self.names[1].iter().find(|(_, at)| **at == ino);
        place.map_or_else(|| b"/".to_vec(), |((above, name), _)| self.path(*above, name))
    }

    fn clash(&mut self, clash: Clash, (directory, name): &Place) {
        let path = self.path(*directory, name);
        self.clashes.insert((clash, path));
    }

    /// A name of the fork does not come: what it led to and leads to moves as a whole or not at
    /// all.
    fn refuse(&mut self, clash: Clash, after: Ino, place: &Place) {
        self.stay.extend(self.names[0].get(place).copied());
        self.stay.insert(after);
        self.clash(clash, place);
    }

    fn judge(&mut self) {
        let places: BTreeSet<Place> =
            self.names[0].keys().chain(self.names[1].keys()).cloned().collect();
        let changed: Vec<Place> = places
            .into_iter()
            .filter(|place| self.names[0].get(place) != self.names[1].get(place))
            .collect();
        let (mut inner, outer): (Vec<Place>, Vec<Place>) =
            changed.iter().cloned().partition(|(directory, _)| self.is_new(*directory));
        for place in &outer {
            self.judge_arrival(place);
        }
        // From the top down: what a directory is in the parent is known before what is in it.
        while !inner.is_empty() {
            let known = |(directory, _): &Place| {
                !inner.iter().any(|(above, name)| {
                    self.names[1].get(&(*above, name.clone())) == Some(directory)
                })
            };
            let (ready, later): (Vec<Place>, Vec<Place>) =
                inner.iter().cloned().partition(|place| known(place));
            for place in &ready {
                if self.is_made(place.0) || self.twins.contains_key(&place.0) {
                    self.judge_arrival(place);
                }
            }
            inner = later;
        }
        for place in outer {
            self.judge_departure(&place);
        }
        self.judge_last_names();
        self.judge_directories();
        self.judge_loops();
        self.judge_files();
    }

    /// Whether some name of an inode of the fork goes into the parent.
    fn is_made(&self, ino: Ino) -> bool {
        self.puts.values().any(|put| *put == Some(ino))
    }

    fn judge_arrival(&mut self, place: &Place) {
        let (before, after) = (self.names[0].get(place).copied(), self.names[1].get(place));
        let Some(after) = after.copied() else { return };
        let home = self.home(place.0);
        if home == Home::Gone || (!self.is_new(after) && !self.is_still(after)) {
            return self.refuse(Clash::Removed, after, place);
        }
        let gone = before.filter(|before| self.is_gone(*before));
        let node = &self.fork.nodes[&after];
        let replaces = gone.filter(|ino| is_regular(&self.base.nodes[ino]) && is_regular(node));
        let found = self.found(home, &place.1);
        match found {
            None if replaces.is_some() => self.refuse(Clash::Removed, after, place),
            None => _ = self.puts.insert((home, place.1.clone()), Some(after)),
            Some(found) if found == after && !self.is_new(after) => (),
            Some(found) if Some(found) == before && self.is_still(found) => {
                if gone.is_none() || !self.is_changed_by_us(found) {
                    self.puts.insert((home, place.1.clone()), Some(after));
                } else if replaces.is_some() && self.is_new(after) {
                    self.pair(before, after, found, place);
                } else {
                    self.refuse(Clash::Removed, after, place);
                }
            }
            Some(found) => self.judge_taken(replaces, after, found, place),
        }
    }

    fn judge_taken(&mut self, replaces: Option<Ino>, after: Ino, found: Ino, place: &Place) {
        let (theirs, ours) = (&self.fork.nodes[&after], &self.now.nodes[&found]);
        if self.is_new(after) {
            match (theirs.is_directory(), ours.is_directory()) {
                (true, true) => return self.pair(None, after, found, place),
                (false, false) if same(theirs, ours) => {
                    self.twins.insert(after, found);
                    return;
                }
                _ => (),
            }
            if replaces.is_some() && is_regular(ours) && self.is_new(found) {
                return self.pair(replaces, after, found, place);
            }
        }
        self.refuse(Clash::Name, after, place);
    }

    fn pair(&mut self, base: Option<Ino>, fork: Ino, now: Ino, (directory, name): &Place) {
        self.twins.insert(fork, now);
        let path = self.path(*directory, name);
        let side = self.sides.get(&fork).copied();
        self.threes.push(Three { base, fork, now, path, side });
    }

    fn judge_departure(&mut self, place: &Place) {
        let (before, after) = (self.names[0].get(place).copied(), self.names[1].get(place));
        let Some(before) = before else { return };
        let home = self.home(place.0);
        let found = self.found(home, &place.1);
        if found == Some(before) && self.is_still(before) {
            if after.is_none() {
                if self.is_gone(before) && self.is_changed_by_us(before) {
                    return self.clash(Clash::Removed, place);
                }
                self.puts.insert((home, place.1.clone()), None);
            }
            return;
        }
        let theirs = Merge::came(&self.names[0], &self.names[1], before);
        if found.is_some() && after.is_none() && theirs.is_empty() {
            return self.clash(Clash::Removed, place);
        }
        let ours = Merge::came(&self.names[0], &self.names[2], before);
        let theirs: BTreeSet<(Home, Vec<u8>)> =
            theirs.into_iter().map(|(above, name)| (self.home(above), name)).collect();
        let ours = ours.into_iter().map(|(above, name)| (Home::In(above), name)).collect();
        if self.is_still(before) && theirs != ours {
            self.stay.insert(before);
            self.clash(Clash::Name, place);
        }
    }

    /// A file that both sides have, and one of them changed, does not lose all of its names.
    fn judge_last_names(&mut self) {
        let files = self.base.nodes.iter().filter(|(_, node)| !node.is_directory());
        let in_both = |ino: &Ino| !self.is_gone(*ino) && self.is_still(*ino);
        let files: Vec<Ino> = files.map(|(ino, _)| *ino).filter(in_both).collect();
        for ino in files {
            let changed =
                !same(&self.base.nodes[&ino], &self.fork.nodes[&ino]) || self.is_changed_by_us(ino);
            let goes = |((home, name), put): &(&(Home, Vec<u8>), &Option<Ino>)| {
                self.found(*home, name) == Some(ino) && **put != Some(ino)
            };
            let lost: Vec<_> = self.puts.iter().filter(goes).map(|(at, _)| at.clone()).collect();
            let has = self.names[2].values().filter(|at| **at == ino).count();
            let comes = self.puts.values().filter(|put| **put == Some(ino)).count();
            if changed && !self.stay.contains(&ino) && has + comes == lost.len() {
                for (home, name) in lost {
                    self.clash_at(home, &name);
                    self.puts.remove(&(home, name));
                }
            }
        }
    }

    /// A name of the parent is in conflict because the fork removed it.
    fn clash_at(&mut self, home: Home, name: &[u8]) {
        if let Home::In(directory) | Home::New(directory) = home {
            let twin = self.twins.iter().find(|(_, now)| **now == directory);
            let directory = twin.map_or(directory, |(fork, _)| *fork);
            self.clash(Clash::Removed, &(directory, name.to_vec()));
        }
    }

    /// A directory that goes must be empty then.
    fn judge_directories(&mut self) {
        let puts = self.puts.clone();
        for (home, name) in puts.keys() {
            let old = self.found(*home, name);
            let goes = |ino: &Ino| self.is_gone(*ino) && self.now.nodes[ino].is_directory();
            let Some(directory) = old.filter(|old| !self.is_new(*old)).filter(goes) else {
                continue;
            };
            let ours: Vec<(Place, Ino)> =
                self.names[2].iter().map(|(place, ino)| (place.clone(), *ino)).collect();
            for (place, ino) in ours.into_iter().filter(|(place, _)| place.0 == directory) {
                if self.names[0].get(&place) != Some(&ino) {
                    self.clash(Clash::Removed, &place);
                }
            }
        }
    }

    fn judge_loops(&mut self) {
        let mut parents: BTreeMap<Home, Home> = BTreeMap::new();
        for ((home, _), put) in &self.puts {
            if let Some(ino) = put.filter(|ino| self.fork.nodes[ino].is_directory()) {
                parents.insert(self.home(ino), *home);
            }
        }
        for start in parents.keys().copied().collect::<Vec<_>>() {
            let mut seen = BTreeSet::new();
            let mut at = start;
            while seen.insert(at) {
                at = match (parents.get(&at), at) {
                    (Some(above), _) => *above,
                    (None, Home::In(ino)) if ino != Ino::ROOT => match self.now.directory(ino) {
                        Ok(directory) => Home::In(directory.parent),
                        Err(_) => break,
                    },
                    _ => break,
                };
                if let (true, Home::In(ino)) = (at == start, start) {
                    let path = self.path_of(ino);
                    self.clashes.insert((Clash::Loop, path));
                }
            }
        }
    }

    fn judge_files(&mut self) {
        let stays = |ino: &Ino| !self.is_gone(*ino);
        let inos: Vec<Ino> = self.base.nodes.keys().copied().filter(stays).collect();
        for ino in inos {
            let path = self.path_of(ino);
            let now = match self.is_still(ino) {
                true => Some(ino),
                false if same(&self.base.nodes[&ino], &self.fork.nodes[&ino]) => continue,
                false => self.replacement(ino),
            };
            match now {
                Some(now) => {
                    let (base, side) = (Some(ino), self.sides.get(&ino).copied());
                    self.threes.push(Three { base, fork: ino, now, path, side });
                }
                None => _ = self.clashes.insert((Clash::Removed, path)),
            }
        }
        for at in 0..self.threes.len() {
            self.judge_file(at);
        }
    }

    /// The new file that took the only name of one.
    fn replacement(&self, ino: Ino) -> Option<Ino> {
        let node = &self.base.nodes[&ino];
        if !is_regular(node) || node.attributes.links != 1 {
            return None;
        }
        let (place, _) = self.names[0].iter().find(|(_, at)| **at == ino)?;
        let stays = self.names[1].get(place) == Some(&ino) && self.is_still(place.0);
        let found = self.names[2].get(place).copied().filter(|_| stays)?;
        (self.is_new(found) && is_regular(&self.now.nodes[&found])).then_some(found)
    }

    fn judge_file(&mut self, at: usize) {
        let Three { base, fork, now, path, side } = &self.threes[at];
        let is_decided = side.is_some();
        let base = base.map(|ino| &self.base.nodes[&ino]);
        let (fork, now) = (&self.fork.nodes[fork], &self.now.nodes[now]);
        let mut clashes = Vec::new();
        let (theirs, ours) = (bytes_of(fork), bytes_of(now));
        if base.is_some_and(|base| clash(Some(&bytes_of(base)), &theirs, &ours)) {
            clashes.push((Clash::Content, path.clone()));
        }
        let start = base.map(|base| owned(base));
        let attributes = (0..3).any(|field| {
            clash(start.map(|start| start[field]).as_ref(), &owned(fork)[field], &owned(now)[field])
        });
        let names = fork.xattrs.keys().chain(now.xattrs.keys());
        let xattrs =
            names.chain(base.into_iter().flat_map(|base| base.xattrs.keys())).any(|name| {
                let start = base.and_then(|base| base.xattrs.get(name));
                clash(Some(&start), &fork.xattrs.get(name), &now.xattrs.get(name))
            });
        if attributes || xattrs || self.is_misplaced(&self.threes[at]) {
            clashes.push((Clash::Attribute, path.clone()));
        }
        if !is_decided {
            self.clashes.extend(clashes);
        }
    }

    /// The parent with all that was judged.
    fn result(&self, now: Timestamp) -> State {
        let mut state = self.now.clone();
        let shift = state.last_ino - self.base.last_ino;
        let number = |ino: Ino| match self.twins.get(&ino) {
            Some(twin) => *twin,
            None if self.is_new(ino) => Ino(ino.0 + shift),
            None => ino,
        };
        state.last_ino = self.fork.last_ino + shift;
        let made: BTreeSet<Ino> = self.puts.values().copied().flatten().collect();
        for ino in made.into_iter().filter(|ino| self.is_new(*ino) && !self.twins.contains_key(ino))
        {
            let mut node = Node::clone(&self.fork.nodes[&ino]);
            node.attributes.ino = number(ino);
            node.attributes.links = 0;
            if let Content::Directory(directory) = &mut node.content {
                directory.entries.clear();
                node.attributes.links = 1;
            }
            state.nodes.insert(number(ino), Arc::new(node));
        }
        let place = |home: Home| match home {
            Home::In(directory) => directory,
            Home::New(directory) => number(directory),
            Home::Gone => unreachable!("that is a conflict"),
        };
        for (home, name) in self.puts.keys() {
            let name = Name::new(name).expect("it was a name");
            if let Ok(Some(found)) = state.find(place(*home), name) {
                state.detach(place(*home), name, now);
                state.known(found).attributes.changed = now;
            }
        }
        for ((home, name), put) in &self.puts {
            if let Some(ino) = put {
                let name = Name::new(name).expect("it was a name");
                state.attach(place(*home), name, number(*ino), now);
            }
        }
        for ino in self.puts.values().copied().flatten() {
            let attributes = &mut state.known(number(ino)).attributes;
            attributes.changed = now;
            if self.is_new(ino) && !self.twins.contains_key(&ino) {
                attributes.modified = self.fork.nodes[&ino].attributes.modified;
            }
        }
        for three in &self.threes {
            self.write_file(&mut state, three, now);
        }
        let is_directory = |ino: &Ino| self.base.nodes[ino].is_directory();
        let gone = self.base.nodes.keys().filter(|ino| self.is_gone(**ino) && is_directory(ino));
        for ino in gone.filter(|ino| self.is_still(**ino)) {
            state.known(*ino).attributes.links = 0;
        }
        let all: Vec<Ino> = state.nodes.keys().copied().collect();
        for ino in all {
            state.free_if_unused(ino);
        }
        state
    }

    fn write_file(&self, state: &mut State, three: &Three, now: Timestamp) {
        let base = three.base.map(|ino| &self.base.nodes[&ino]);
        let fork = &self.fork.nodes[&three.fork];
        let start = self.now.nodes[&three.now].clone();
        let is_misplaced = self.is_misplaced(three);
        let node = state.known(three.now);
        if self.takes_content(three) {
            node.content = fork.content.clone();
            node.attributes.size = fork.attributes.size;
        }
        let field_comes = |field: usize| {
            let old = base.map(|base| owned(base)[field]);
            takes(old.as_ref(), &owned(fork)[field], &owned(&start)[field], three.side)
        };
        if field_comes(0) {
            node.attributes.permissions = fork.attributes.permissions;
        }
        if field_comes(1) {
            node.attributes.uid = fork.attributes.uid;
        }
        if field_comes(2) {
            node.attributes.gid = fork.attributes.gid;
        }
        let names = fork.xattrs.keys().chain(start.xattrs.keys());
        for name in names.chain(base.into_iter().flat_map(|base| base.xattrs.keys())) {
            let old = base.and_then(|base| base.xattrs.get(name));
            let (theirs, ours) = (fork.xattrs.get(name), start.xattrs.get(name));
            let comes = match name.as_slice() == CAPABILITY && is_misplaced {
                true => three.side == Some(Side::Theirs),
                false => takes(Some(&old), &theirs, &ours, three.side),
            };
            match theirs {
                _ if !comes => (),
                Some(value) => _ = node.xattrs.insert(name.clone(), value.clone()),
                None => _ = node.xattrs.remove(name),
            }
        }
        // A rewrite of the same bytes is a change too.
        let modified = fork.attributes.modified;
        let is_later = base.is_none_or(|base| base.attributes.modified != modified)
            && modified > start.attributes.modified;
        if is_later {
            node.attributes.modified = node.attributes.modified.max(modified);
        }
        if is_later || !same(&start, node) {
            node.attributes.changed = now;
        }
    }

    /// Whether the fork's content comes into a file of the parent.
    fn takes_content(&self, three: &Three) -> bool {
        let Some(base) = three.base.map(|ino| &self.base.nodes[&ino]) else { return false };
        let (fork, now) = (&self.fork.nodes[&three.fork], &self.now.nodes[&three.now]);
        let [start, theirs, ours] = [base, fork, now].map(|node| bytes_of(node));
        is_regular(base) && takes(Some(&start), &theirs, &ours, three.side)
    }

    /// Whether a capability that one side gave to a file would come to content of the other.
    fn is_misplaced(&self, three: &Three) -> bool {
        let base = three.base.map(|ino| &self.base.nodes[&ino]);
        let (fork, now) = (&self.fork.nodes[&three.fork], &self.now.nodes[&three.now]);
        let value = |node: &Node| node.xattrs.get(CAPABILITY).cloned();
        let (start, theirs, ours) = (base.and_then(|base| value(base)), value(fork), value(now));
        let has_own = base.is_some_and(|base| is_regular(base) && bytes_of(base) != bytes_of(now));
        let given_there = theirs.is_some() && theirs != start && theirs != ours;
        let given_here = ours.is_some() && ours != start && ours != theirs;
        given_there && has_own || given_here && self.takes_content(three)
    }
}

/// Whether both changed a part, and not to the same.
fn clash<T: PartialEq>(base: Option<&T>, fork: &T, now: &T) -> bool {
    base != Some(fork) && base != Some(now) && fork != now
}

/// Whether the fork's state of a part comes.
fn takes<T: PartialEq>(base: Option<&T>, fork: &T, now: &T, side: Option<Side>) -> bool {
    let is_changed = base != Some(fork) && fork != now;
    is_changed && (base == Some(now) || side == Some(Side::Theirs))
}
