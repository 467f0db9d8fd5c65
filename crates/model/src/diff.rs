//! What differs between two states, found by looking at every name and every byte of both.
//!
//! The rules are those of `docs/decisions/0017-diff-and-merge.md`. An inode of two states is the
//! same if its number, kind and birth are. A copy that a rollback or a merge has made has another
//! number: it counts as the same where it has the same name in the same directory, if what it is
//! a copy of is nowhere in the second state, and it is nowhere in the first. Editors save a file by
//! a new one that takes its name: a regular file in the place of another one counts as that one
//! with other content, if the other is nowhere in the second state, and it is nowhere in the first.

use crate::Model;
use crate::state::{Content, Node, State};
use marram_vfs::{Ino, Kind, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Two ranges of content with fewer equal bytes between them are one.
const EQUAL_BYTES_MIN: u64 = 64;

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// Where: in the second state, or in the first of what went. Of several names that did not
    /// change, the first.
    pub path: Vec<u8>,
    /// What has happened.
    pub what: Change,
}

/// What has happened to a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It is new.
    Created,
    /// It is gone.
    Removed,
    /// It was moved here from this path.
    Renamed(Vec<u8>),
    /// It was there, and has got this name too.
    Linked,
    /// It is still there, and has lost this name.
    Unlinked,
    /// Its content has changed.
    Content {
        /// Where each range of bytes that differ begins and ends.
        ranges: Vec<(u64, u64)>,
        /// Its sizes before and after.
        sizes: (u64, u64),
    },
    /// Permissions before and after.
    Permissions(u32, u32),
    /// Owners before and after.
    User(u32, u32),
    /// Groups before and after.
    Group(u32, u32),
    /// The last change of content before and after, where nothing else says that there was one.
    Modified(Timestamp, Timestamp),
    /// An extended attribute: its name, and its value before and after.
    Xattr(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>),
}

/// A name in a directory.
type Place = (Ino, Vec<u8>);

/// A state with the paths of all names.
struct Seen<'a> {
    state: &'a State,
    /// The path of each name, and what it leads to.
    names: BTreeMap<Place, (Vec<u8>, Ino)>,
}

struct Diff<'a> {
    before: Seen<'a>,
    after: Seen<'a>,
    /// Copies in the second state, and what they are copies of.
    twins: BTreeMap<Ino, Ino>,
    /// Names of both states that lead to the same.
    same: [BTreeSet<Place>; 2],
    /// Files of the first state, and those that took their places in the second.
    saved: BTreeSet<(Ino, Ino)>,
    /// Names of both states that led and lead to those.
    saved_names: [BTreeSet<Place>; 2],
    found: BTreeSet<Difference>,
}

impl Model {
    /// What differs from this state to another one of the same family.
    pub fn diff(&self, after: &Model) -> BTreeSet<Difference> {
        let (before, after) = (self.snapshot(), after.snapshot());
        let (before, after) = (before.state.lock(), after.state.lock());
        let mut diff = Diff {
            before: Seen::of(&before),
            after: Seen::of(&after),
            twins: BTreeMap::new(),
            same: [BTreeSet::new(), BTreeSet::new()],
            saved: BTreeSet::new(),
            saved_names: [BTreeSet::new(), BTreeSet::new()],
            found: BTreeSet::new(),
        };
        diff.match_names();
        diff.tell_names();
        diff.tell_inodes();
        diff.found
    }

    /// The first of all names of what is at a path; the path itself if nothing is there.
    pub fn first_name(&self, path: &[u8]) -> Vec<u8> {
        let state = self.state.lock();
        let seen = Seen::of(&state);
        let at = seen.names.values().find(|(name, _)| name == path).map(|(_, ino)| *ino);
        at.map_or_else(|| path.to_vec(), |ino| seen.path(ino))
    }
}

impl<'a> Seen<'a> {
    fn of(state: &'a State) -> Seen<'a> {
        let mut names = BTreeMap::new();
        let mut left = vec![(Ino::ROOT, Vec::new())];
        while let Some((at, path)) = left.pop() {
            for (name, entry) in state.directory(at).iter().flat_map(|found| &found.entries) {
                let path = [path.as_slice(), b"/", name].concat();
                if state.nodes[&entry.ino].is_directory() {
                    left.push((entry.ino, path.clone()));
                }
                names.insert((at, name.clone()), (path, entry.ino));
            }
        }
        Seen { state, names }
    }

    fn node(&self, ino: Ino) -> Option<&'a Arc<Node>> {
        self.state.nodes.get(&ino)
    }

    /// What the names of a directory lead to.
    fn entries(&self, directory: Ino) -> BTreeMap<&'a [u8], Ino> {
        let found = self.state.directory(directory).into_iter();
        let entries = found.flat_map(|found| &found.entries);
        entries.map(|(name, entry)| (name.as_slice(), entry.ino)).collect()
    }

    /// The first path of an inode.
    fn path(&self, ino: Ino) -> Vec<u8> {
        let paths = self.names.values().filter(|(_, to)| *to == ino).map(|(path, _)| path);
        paths.min().cloned().unwrap_or_else(|| b"/".to_vec())
    }
}

impl Diff<'_> {
    /// Whether two inodes are one but for their numbers.
    fn are_alike(&self, before: Ino, after: Ino) -> bool {
        let birth = |node: &Arc<Node>| (node.attributes.kind, node.attributes.created);
        let births = (self.before.node(before).map(birth), self.after.node(after).map(birth));
        births.0.is_some() && births.0 == births.1
    }

    fn stays(&self, ino: Ino) -> bool {
        self.are_alike(ino, ino)
    }

    /// Whether a name that led to one inode, and leads to another one, leads to the same.
    fn is_same(&self, before: Ino, after: Ino) -> bool {
        let one_stays = self.stays(before) || self.stays(after);
        self.are_alike(before, after) && (before == after || !one_stays)
    }

    /// Whether a name that led to one file leads to another one that was saved in its place.
    fn is_saved(&self, before: Ino, after: Ino) -> bool {
        let is_file = |node: Option<&Arc<Node>>| {
            node.is_some_and(|node| node.attributes.kind == Kind::Regular)
        };
        let files = is_file(self.before.node(before)) && is_file(self.after.node(after));
        files && !self.stays(before) && !self.stays(after)
    }

    /// Finds the names that lead to the same, from directories that stay down into copies.
    fn match_names(&mut self) {
        let directories = self.before.state.nodes.iter().filter(|(_, node)| node.is_directory());
        let stay = directories.map(|(ino, _)| *ino).filter(|ino| self.stays(*ino));
        let mut left: Vec<(Ino, Ino)> = stay.map(|ino| (ino, ino)).collect();
        while let Some((before, after)) = left.pop() {
            let now = self.after.entries(after);
            for (name, old) in self.before.entries(before) {
                let Some(new) = now.get(name).copied() else { continue };
                if !self.is_same(old, new) {
                    if self.is_saved(old, new) {
                        self.saved.insert((old, new));
                        self.saved_names[0].insert((before, name.to_vec()));
                        self.saved_names[1].insert((after, name.to_vec()));
                    }
                    continue;
                }
                self.same[0].insert((before, name.to_vec()));
                self.same[1].insert((after, name.to_vec()));
                let is_first = old != new && self.twins.insert(new, old).is_none();
                if is_first && self.before.state.nodes[&old].is_directory() {
                    left.push((old, new));
                }
            }
        }
    }

    /// The paths of the names that do not lead to the same, by inode.
    fn others(&self, side: usize) -> BTreeMap<Ino, Vec<Vec<u8>>> {
        let seen = [&self.before, &self.after][side];
        let is_other = |place: &Place| {
            !self.same[side].contains(place) && !self.saved_names[side].contains(place)
        };
        let mut others: BTreeMap<Ino, Vec<Vec<u8>>> = BTreeMap::new();
        for (_, (path, ino)) in seen.names.iter().filter(|(place, _)| is_other(place)) {
            others.entry(*ino).or_default().push(path.clone());
        }
        others.values_mut().for_each(|paths| paths.sort());
        others
    }

    fn tell(&mut self, path: Vec<u8>, what: Change) {
        self.found.insert(Difference { path, what });
    }

    fn tell_names(&mut self) {
        let (mut all_gone, mut all_came) = (self.others(0), self.others(1));
        let inos: BTreeSet<Ino> = all_gone.keys().chain(all_came.keys()).copied().collect();
        for ino in inos {
            let mut gone = all_gone.remove(&ino).unwrap_or_default();
            let mut came = all_came.remove(&ino).unwrap_or_default();
            let stays = self.stays(ino);
            let renamed = if stays { gone.len().min(came.len()) } else { 0 };
            for (old, new) in gone.drain(..renamed).zip(came.drain(..renamed)) {
                self.tell(new, Change::Renamed(old));
            }
            for (at, path) in gone.into_iter().enumerate() {
                let is_gone = at == 0 && !stays;
                self.tell(path, if is_gone { Change::Removed } else { Change::Unlinked });
            }
            for (at, path) in came.into_iter().enumerate() {
                let is_new = at == 0 && !stays;
                self.tell(path, if is_new { Change::Created } else { Change::Linked });
            }
        }
    }

    fn tell_inodes(&mut self) {
        let stay = self.after.state.nodes.keys().filter(|ino| self.stays(**ino));
        let mut pairs: Vec<(Ino, Ino)> = stay.map(|ino| (*ino, *ino)).collect();
        pairs.extend(self.twins.iter().map(|(after, before)| (*before, *after)));
        pairs.extend(self.saved.iter().copied());
        for (old, new) in pairs {
            let (before, after) = (self.before.state, self.after.state);
            let (before, after) = (&before.nodes[&old], &after.nodes[&new]);
            if Arc::ptr_eq(before, after) {
                continue;
            }
            let mut changes = changes_within(before, after);
            let (a, b) = (&before.attributes, &after.attributes);
            let is_told = changes.iter().any(|change| !is_of_owner(change));
            if a.modified != b.modified && !is_told && !self.has_other_names(old, new) {
                changes.push(Change::Modified(a.modified, b.modified));
            }
            if !changes.is_empty() {
                let path = self.after.path(new);
                changes.into_iter().for_each(|change| self.tell(path.clone(), change));
            }
        }
    }

    /// Whether a name in a directory has come, gone, or leads elsewhere.
    fn has_other_names(&self, before: Ino, after: Ino) -> bool {
        let (old, new) = (self.before.entries(before), self.after.entries(after));
        let leads_elsewhere = |(name, a): (&&[u8], &Ino)| match new.get(*name) {
            Some(b) => !self.is_same(*a, *b),
            None => true,
        };
        old.len() != new.len() || old.iter().any(leads_elsewhere)
    }
}

fn is_of_owner(change: &Change) -> bool {
    matches!(change, Change::Permissions(..) | Change::User(..) | Change::Group(..))
}

/// What differs between two inodes but names and times.
fn changes_within(before: &Node, after: &Node) -> Vec<Change> {
    let (a, b) = (&before.attributes, &after.attributes);
    let mut changes = vec![
        Change::Permissions(a.permissions, b.permissions),
        Change::User(a.uid, b.uid),
        Change::Group(a.gid, b.gid),
    ];
    changes.retain(|change| {
        let (Change::Permissions(old, new) | Change::User(old, new) | Change::Group(old, new)) =
            change
        else {
            return true;
        };
        old != new
    });
    let ranges = ranges(before, after);
    if !ranges.is_empty() {
        changes.push(Change::Content { ranges, sizes: (a.size, b.size) });
    }
    let names: BTreeSet<&Vec<u8>> = before.xattrs.keys().chain(after.xattrs.keys()).collect();
    for name in names.into_iter().filter(|name| before.xattrs.get(*name) != after.xattrs.get(*name))
    {
        let value = |node: &Node| node.xattrs.get(name).cloned();
        changes.push(Change::Xattr(name.clone(), value(before), value(after)));
    }
    changes
}

/// The ranges in which the contents of two files differ; what only one of them has does.
fn ranges(before: &Node, after: &Node) -> Vec<(u64, u64)> {
    let (Content::Bytes(a), Content::Bytes(b)) = (&before.content, &after.content) else {
        return Vec::new();
    };
    let sizes = (before.attributes.size, after.attributes.size);
    let common = sizes.0.min(sizes.1);
    let mut found = Vec::new();
    let (a, b) = (a.runs_between(0, common), b.runs_between(0, common));
    let ends = |(at, run): &(u64, Vec<u8>)| [*at, *at + run.len() as u64];
    let edges: BTreeSet<u64> = a.iter().chain(&b).flat_map(ends).collect();
    let edges: Vec<u64> = edges.into_iter().collect();
    for (start, end) in edges.iter().zip(edges.iter().skip(1)) {
        let (a, b) = (piece(&a, *start, *end), piece(&b, *start, *end));
        if a == b {
            continue;
        }
        let byte = |piece: Option<&[u8]>, at: usize| piece.map_or(0, |piece| piece[at]);
        for at in (0..(end - start) as usize).filter(|at| byte(a, *at) != byte(b, *at)) {
            add(&mut found, (start + at as u64, start + at as u64 + 1));
        }
    }
    if sizes.0 != sizes.1 {
        add(&mut found, (common, sizes.0.max(sizes.1)));
    }
    found
}

/// The part of the run that covers a range, if one does.
fn piece(runs: &[(u64, Vec<u8>)], start: u64, end: u64) -> Option<&[u8]> {
    let (at, run) = runs.get(runs.partition_point(|(at, _)| *at <= start).checked_sub(1)?)?;
    run.get((start - at) as usize..(end - at) as usize)
}

fn add(ranges: &mut Vec<(u64, u64)>, (start, end): (u64, u64)) {
    match ranges.last_mut().filter(|last| start - last.1 < EQUAL_BYTES_MIN) {
        Some(last) => last.1 = end,
        None => ranges.push((start, end)),
    }
}
