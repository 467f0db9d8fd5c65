//! The names of a state: what they lead to, and how many there are.

use super::entries::{Entry, entries};
use super::inodes::{DIRECTORY, Inodes};
use super::memory::{PageBytes, Problem};
use super::{Check, ROOT};
use crate::finding::FindingKind as Kind;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What the names of a state have come to.
struct Names {
    inodes: Inodes,
    /// The directories in each directory.
    below: BTreeMap<u64, Vec<u64>>,
}

impl Check<'_, '_> {
    /// Looks at all names of a state and compares the inodes with them.
    pub(super) fn check_names(&mut self, inodes: Inodes, is_snapshot: bool) {
        match inodes.get(&ROOT) {
            Some(root) if root.kind == DIRECTORY => {}
            _ => self.tell(Problem { kind: Kind::RootMissing, at: None, detail: String::new() }),
        }
        let mut names = Names { inodes, below: BTreeMap::new() };
        let is_directory =
            |(ino, inode): (&u64, &super::inodes::Inode)| (inode.kind == DIRECTORY).then_some(*ino);
        let directories: Vec<u64> = names.inodes.iter().filter_map(is_directory).collect();
        for directory in &directories {
            self.look_into(*directory, &mut names);
        }
        let reached = reached(&names.below);
        for (ino, inode) in &names.inodes {
            let is_cut_off = inode.kind == DIRECTORY && inode.names > 0 && !reached.contains(ino);
            if is_cut_off {
                let detail = format!("directory {ino} is in directory {}", inode.parent);
                self.tell_of(*ino, Problem { kind: Kind::DirectoryLoop, at: None, detail });
            }
            self.compare(*ino, inode, is_snapshot);
        }
    }

    /// Looks at the names in a directory.
    fn look_into(&mut self, directory: u64, names: &mut Names) {
        let pages = names.inodes.get(&directory).map_or(Vec::new(), |found| found.pages.clone());
        let mut known: HashSet<Vec<u8>> = HashSet::new();
        for leaf in pages {
            let bytes: PageBytes = match self.image.page(leaf.at) {
                Ok(bytes) => bytes,
                Err(problem) => {
                    self.tell_of(directory, problem);
                    continue;
                }
            };
            let found = entries(&bytes, leaf.at, &mut |problem| self.tell_of(directory, problem));
            for entry in found {
                if !known.insert(entry.name.to_vec()) {
                    self.tell_of(directory, wrong(Kind::NameDuplicate, &entry));
                }
                self.follow(directory, &entry, names);
            }
        }
    }

    /// Looks at what a name leads to.
    fn follow(&mut self, directory: u64, entry: &Entry<'_>, names: &mut Names) {
        let is_name = !entry.name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if !is_name || [&b"."[..], b".."].contains(&entry.name) {
            self.tell_of(directory, wrong(Kind::EntryName, entry));
        }
        if let Some(parent) = names.inodes.get_mut(&directory) {
            parent.entries += 1;
            parent.subdirectories += u64::from(entry.kind == DIRECTORY);
        }
        let Some(inode) = names.inodes.get_mut(&entry.ino) else {
            self.tell_of(directory, wrong(Kind::EntryDangling, entry));
            return;
        };
        if inode.kind != entry.kind {
            self.tell_of(directory, wrong(Kind::EntryKind, entry));
        }
        inode.names += 1;
        if inode.kind == DIRECTORY {
            let is_wrong = inode.names > 1 || inode.parent != directory || entry.ino == ROOT;
            names.below.entry(directory).or_default().push(entry.ino);
            if is_wrong {
                self.tell_of(entry.ino, wrong(Kind::DirectoryParent, entry));
            }
        }
    }

    /// Compares an inode with the names that were found.
    fn compare(&mut self, ino: u64, inode: &super::inodes::Inode, is_snapshot: bool) {
        let mut tell = |kind, detail| self.tell_of(ino, Problem { kind, at: None, detail });
        if ino == ROOT && inode.parent != ROOT && inode.kind == DIRECTORY {
            tell(Kind::DirectoryParent, format!("the root directory is in {}", inode.parent));
        }
        if inode.names == 0 && ino != ROOT {
            if inode.entries > 0 {
                let detail = format!("a directory with {} names has none itself", inode.entries);
                tell(Kind::InodeUnreachable, detail);
            } else if !is_snapshot {
                tell(Kind::InodeNameless, format!("it has {} links", inode.links));
            }
            return;
        }
        let expected = match inode.kind {
            DIRECTORY => 2 + inode.subdirectories,
            _ => inode.names,
        };
        if inode.links != expected {
            tell(Kind::LinkCount, format!("{} links, {expected} expected", inode.links));
        }
    }
}

fn wrong(kind: Kind, entry: &Entry<'_>) -> Problem {
    let name = entry.name.escape_ascii();
    Problem::new(kind, entry.at, format!("the name \"{name}\" leads to inode {}", entry.ino))
}

/// The directories that can be reached from the root.
fn reached(below: &BTreeMap<u64, Vec<u64>>) -> BTreeSet<u64> {
    let (mut reached, mut left) = (BTreeSet::from([ROOT]), vec![ROOT]);
    while let Some(ino) = left.pop() {
        for next in below.get(&ino).into_iter().flatten() {
            if reached.insert(*next) {
                left.push(*next);
            }
        }
    }
    reached
}
