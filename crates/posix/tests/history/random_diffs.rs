//! Random changes, and what a diff tells of them: exactly what somebody finds who looks at every
//! name and every byte of both trees.

use super::family::{Family, Tree, open, source};
use super::random::{Random, Step, apply};
use marram_posix::{AttributeChange, Difference, What, XattrChange};
use marram_store::{DatasetName, Store};
use marram_vfs::{Attributes, FileSystem, Ino, Kind, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Histories, each of which is compared at several places.
const RUNS: u64 = 150;
/// States of a history.
const STATES: usize = 4;
/// Two ranges with fewer equal bytes between them are one.
const EQUAL_BYTES_MIN: u64 = 64;
/// Contents are compared in pieces of so many bytes first.
const CHUNK_BYTES: usize = 4096;

/// What an inode is in all states: its number and its birth.
type Identity = (Ino, Timestamp);

/// All of a tree.
struct Seen<'t> {
    tree: &'t Tree,
    inodes: BTreeMap<Identity, Attributes>,
    /// Each name, by the directory that it is in, with its path and what it leads to.
    names: BTreeMap<(Identity, Vec<u8>), (String, Identity)>,
}

impl<'t> Seen<'t> {
    fn of(tree: &'t Tree) -> Seen<'t> {
        let mut seen = Seen { tree, inodes: BTreeMap::new(), names: BTreeMap::new() };
        let root = seen.inode(Ino::ROOT);
        let mut waiting = vec![(root, String::new())];
        while let Some((directory, path)) = waiting.pop() {
            let mut entries = Vec::new();
            let visit = &mut |entry: marram_vfs::DirectoryEntry<'_>| {
                entries.push((entry.ino, entry.name.to_vec()));
                true
            };
            tree.0.read_directory(directory.0, 0, false, visit).unwrap();
            for (ino, name) in entries {
                let path = format!("{path}/{}", String::from_utf8_lossy(&name));
                let found = seen.inode(ino);
                if seen.inodes[&found].kind == Kind::Directory {
                    waiting.push((found, path.clone()));
                }
                seen.names.insert((directory, name), (path, found));
            }
        }
        seen
    }

    fn inode(&mut self, ino: Ino) -> Identity {
        let found = self.tree.0.attributes(ino).unwrap();
        let identity = (ino, found.created);
        self.inodes.insert(identity, found);
        identity
    }

    /// The first of the paths of an inode.
    fn path(&self, identity: Identity) -> String {
        let paths = self.names.values().filter(|(_, leads_to)| *leads_to == identity);
        paths.map(|(path, _)| path.clone()).min().unwrap_or_else(|| "/".to_owned())
    }

    fn bytes(&self, identity: Identity) -> Vec<u8> {
        let mut out = Vec::new();
        let len = usize::try_from(self.inodes[&identity].size).unwrap();
        self.tree.0.read(identity.0, 0, len, &mut out).unwrap();
        out
    }

    fn xattrs(&self, identity: Identity) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let names = self.tree.0.list_xattrs(identity.0).unwrap();
        let value = |name: &Vec<u8>| self.tree.0.xattr(identity.0, name).unwrap();
        names.into_iter().map(|name| (name.clone(), value(&name))).collect()
    }

    /// The paths of names that the other tree does not have so, by inode.
    fn names_not_in(&self, other: &Seen<'_>) -> BTreeMap<Identity, Vec<String>> {
        let mut found: BTreeMap<Identity, Vec<String>> = BTreeMap::new();
        for (place, (path, identity)) in &self.names {
            if other.names.get(place).map(|(_, leads_to)| leads_to) != Some(identity) {
                found.entry(*identity).or_default().push(path.clone());
            }
        }
        found.values_mut().for_each(|paths| paths.sort());
        found
    }
}

/// The bytes in which two contents differ.
fn ranges(a: &[u8], b: &[u8]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let chunks = (0..a.len().max(b.len())).step_by(CHUNK_BYTES);
    let differing = chunks.filter(|at| {
        let chunk = |bytes: &'_ [u8]| -> Range<usize> {
            (*at).min(bytes.len())..(at + CHUNK_BYTES).min(bytes.len())
        };
        a[chunk(a)] != b[chunk(b)]
    });
    for at in differing.flat_map(|at| at..at + CHUNK_BYTES) {
        if a.get(at) == b.get(at) {
            continue;
        }
        let at = at as u64;
        match ranges.last_mut().filter(|last| at - last.end < EQUAL_BYTES_MIN) {
            Some(last) => last.end = at + 1,
            None => ranges.push(at..at + 1),
        }
    }
    ranges
}

/// What names say.
fn names_differ(a: &Seen<'_>, b: &Seen<'_>, lines: &mut Vec<String>) {
    let (mut gone, mut came) = (a.names_not_in(b), b.names_not_in(a));
    let all: BTreeSet<Identity> = gone.keys().chain(came.keys()).copied().collect();
    for identity in all {
        let mut gone = gone.remove(&identity).unwrap_or_default();
        let mut came = came.remove(&identity).unwrap_or_default();
        let stayed = a.inodes.contains_key(&identity) && b.inodes.contains_key(&identity);
        let words = if stayed { ["unlinked", "linked"] } else { ["removed", "created"] };
        let renamed = if stayed { gone.len().min(came.len()) } else { 0 };
        for (old, new) in gone.drain(..renamed).zip(came.drain(..renamed)) {
            lines.push(format!("renamed {old} {new}"));
        }
        for (paths, [first, other]) in
            [(gone, [words[0], "unlinked"]), (came, [words[1], "linked"])]
        {
            let word = |at| if at == 0 { first } else { other };
            let told = paths.iter().enumerate().map(|(at, path)| format!("{} {path}", word(at)));
            lines.extend(told);
        }
    }
}

/// What has changed in an inode that stayed.
fn inside_differs(a: &Seen<'_>, b: &Seen<'_>, identity: Identity, lines: &mut Vec<String>) {
    let (old, new) = (&a.inodes[&identity], &b.inodes[&identity]);
    let path = b.path(identity);
    let before = lines.len();
    if new.kind == Kind::Regular {
        let ranges = ranges(&a.bytes(identity), &b.bytes(identity));
        if !ranges.is_empty() {
            lines.push(format!("content {path} {ranges:?} {} {}", old.size, new.size));
        }
    }
    let (olds, news) = (a.xattrs(identity), b.xattrs(identity));
    let names: BTreeSet<&Vec<u8>> = olds.keys().chain(news.keys()).collect();
    let names: Vec<_> = names.into_iter().filter(|it| olds.get(*it) != news.get(*it)).collect();
    if !names.is_empty() {
        lines.push(format!("xattrs {path} {names:?}"));
    }
    let is_inside = |seen: &Seen<'_>, other: &Seen<'_>| {
        let mut names = seen.names.iter().filter(|((directory, _), _)| *directory == identity);
        names.any(|(place, (_, to))| other.names.get(place).map(|(_, to)| to) != Some(to))
    };
    let has_other_names = is_inside(a, b) || is_inside(b, a);
    let mut attributes = Vec::new();
    if old.permissions != new.permissions {
        attributes.push(AttributeChange::Permissions(old.permissions, new.permissions));
    }
    if old.uid != new.uid {
        attributes.push(AttributeChange::User(old.uid, new.uid));
    }
    if lines.len() == before && !has_other_names && old.modified != new.modified {
        attributes.push(AttributeChange::Modified(old.modified, new.modified));
    }
    if !attributes.is_empty() {
        lines.push(format!("attributes {path} {attributes:?}"));
    }
}

/// What somebody finds who looks at everything.
fn found(a: &Tree, b: &Tree) -> Vec<String> {
    let (a, b) = (Seen::of(a), Seen::of(b));
    let mut lines = Vec::new();
    names_differ(&a, &b, &mut lines);
    let stayed = b.inodes.keys().filter(|identity| a.inodes.contains_key(identity));
    stayed.for_each(|identity| inside_differs(&a, &b, *identity, &mut lines));
    lines.sort();
    lines
}

/// What the diff tells, in the same words. Which of several names a file is told by is of no
/// meaning where no name has changed.
fn told(family: &Family, before: &str, after: &str, tree: &Tree) -> Vec<String> {
    let seen = Seen::of(tree);
    let line = |difference: &Difference| {
        let path = String::from_utf8_lossy(&difference.path).into_owned();
        let first = || seen.path((difference.ino, seen.created(difference.ino)));
        match &difference.what {
            What::Content { ranges, old_size, new_size } => {
                format!("content {} {ranges:?} {old_size} {new_size}", first())
            }
            What::Attributes(changes) => format!("attributes {} {changes:?}", first()),
            What::Xattrs(changes) => {
                let names: Vec<&Vec<u8>> =
                    changes.iter().map(|XattrChange { name, .. }| name).collect();
                format!("xattrs {} {names:?}", first())
            }
            What::Renamed => {
                let old = difference.old_path.as_deref().unwrap_or_default();
                format!("renamed {} {path}", String::from_utf8_lossy(old))
            }
            what => format!("{what:?} {path}").to_lowercase(),
        }
    };
    let differences = family.diff_below(before, after, Ino::ROOT);
    let mut lines: Vec<String> = differences.iter().map(line).collect();
    lines.sort();
    lines
}

impl Seen<'_> {
    fn created(&self, ino: Ino) -> Timestamp {
        self.inodes.keys().find(|(number, _)| *number == ino).expect("it is there").1
    }
}

fn change(random: &mut Random, count: u64, tree: &Tree) -> Vec<Step> {
    let draw = |_| random.step(&*tree.0);
    (0..count).map(draw).filter(|step| apply(&*tree.0, step).is_ok()).collect()
}

/// A second fork of what there is.
fn second(family: &Family) -> Tree {
    family.store.fork(&DatasetName::root(), &source("second").dataset, Ino::ROOT.0).unwrap();
    open(&family.store, "second", Ino::ROOT, &family.clock)
}

/// Compares each state with each other one, forwards and backwards. Returns how many differences
/// there were.
fn run(seed: u64) -> usize {
    let mut random = Random(seed);
    let family = Family::new(|tree| {
        for path in ["/d", "/e", "/d/f"] {
            apply(&*tree.0, &Step::Directory(path.to_owned())).unwrap();
        }
        change(&mut random, 30, tree);
    });
    let other = second(&family);
    let mut steps = Vec::new();
    for number in 0..STATES {
        family.store.snapshot(&DatasetName::root(), &format!("s{number}")).unwrap();
        let count = random.below(15);
        steps.push(change(&mut random, count, &family.parent));
        family.store.commit_some(seed % 4);
    }
    let count = 1 + random.below(15);
    steps.push(change(&mut random, count, &family.fork));
    let count = 1 + random.below(15);
    steps.push(change(&mut random, count, &other));
    for fork in ["fork", "second"] {
        family.store.snapshot(&source(fork).dataset, "own").unwrap();
    }
    let mut names: Vec<String> = (0..STATES).map(|number| format!("root@s{number}")).collect();
    let pairs = |names: &[String]| -> Vec<(String, String)> {
        let each = |a: &String| names.iter().map(|b| (a.clone(), b.clone())).collect::<Vec<_>>();
        names.iter().flat_map(each).collect()
    };
    let mut compared = pairs(&names);
    // Two forks, what they began as, and what that has become: both forks have given the same
    // numbers to different inodes.
    names = ["root@s0", "fork@own", "second@own", "root@s3"].map(str::to_owned).into();
    compared.extend(pairs(&names));
    let mut count = 0;
    for (before, after) in compared {
        let tree = |name: &str| open(&family.store, name, Ino::ROOT, &family.clock);
        let (a, b) = (tree(&before), tree(&after));
        let wanted = found(&a, &b);
        let told = told(&family, &before, &after, &b);
        assert_eq!(told, wanted, "seed {seed}, {before} to {after}\n{steps:#?}");
        count += wanted.len();
    }
    count
}

#[test]
fn a_diff_tells_what_somebody_finds_who_looks_at_everything() {
    let count: usize = (0..RUNS).map(run).sum();
    assert!(count > 30 * RUNS as usize, "{count} differences");
}

/// Two forks of one state give the same numbers to what each of them makes.
#[test]
fn what_two_forks_made_under_one_name_differs() {
    let family = Family::new(|tree| {
        tree.file("/a", b"a");
    });
    let other = second(&family);
    for (tree, content) in [(&family.fork, "of the fork"), (&other, "of the second")] {
        tree.file("/out", content.as_bytes());
        tree.directory("/made");
        tree.file("/made/in", content.as_bytes());
    }
    assert_eq!(family.fork.find("/out").unwrap().ino, other.find("/out").unwrap().ino);
    family.store.snapshot(&source("fork").dataset, "x").unwrap();
    family.store.snapshot(&source("second").dataset, "y").unwrap();
    let told = told(&family, "fork@x", "second@y", &other);
    assert_eq!(told, found(&family.fork, &other));
    assert_eq!(told.len(), 6, "{told:?}");
}
