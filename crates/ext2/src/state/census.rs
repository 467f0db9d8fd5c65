//! What is in use: names of inodes and blocks of files, counted anew after a crash while operations
//! go on.
//!
//! Invariant: of the directories that have been read every name is counted, and of the inodes that
//! have been walked every block. Operations tell what they add and take away, so both stay exact.

use crate::superblock::Geometry;
use std::collections::{HashMap, HashSet};

/// A name that an operation has added or taken away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) directory: u64,
    pub(crate) target: u64,
    pub(crate) is_added: bool,
}

/// Which part comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Directories are read from the root on.
    Names,
    /// Inodes from this one on are looked at for those without a name.
    Nameless(u64),
    /// What has no name is given back.
    Return,
    /// Inodes from this one on are walked.
    Blocks(u64),
    /// Groups from this one on are compared with what was counted.
    Groups(usize),
}

/// The numbers of a set, as bits.
#[derive(Debug)]
pub(crate) struct Numbers(Vec<u64>);

impl Numbers {
    fn new(count: u64) -> Numbers {
        Numbers(vec![0; (count / 64 + 1) as usize])
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.0.get((number / 64) as usize).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    pub(crate) fn put(&mut self, number: u64, value: bool) {
        if let Some(word) = self.0.get_mut((number / 64) as usize) {
            let mask = 1 << (number % 64);
            *word = if value { *word | mask } else { *word & !mask };
        }
    }
}

/// What has been counted so far: three bytes an inode, and a bit a block.
#[derive(Debug)]
pub(crate) struct Census {
    pub(crate) stage: Stage,
    names: Vec<u16>,
    read: Numbers,
    /// Directories that are to be read.
    left: Vec<u64>,
    /// The directories in which the name of a directory was found.
    pub(crate) parents: HashMap<u64, Vec<u64>>,
    /// Directories with more than one name.
    pub(crate) twice: HashSet<u64>,
    /// Inodes without a name.
    pub(crate) nameless: Vec<u64>,
    pub(crate) blocks: Numbers,
}

impl Census {
    pub(crate) fn new(geometry: &Geometry, root: u64) -> Census {
        Census {
            stage: Stage::Names,
            names: vec![0; geometry.inodes as usize + 1],
            read: Numbers::new(geometry.inodes),
            left: vec![root],
            parents: HashMap::new(),
            twice: HashSet::new(),
            nameless: Vec::new(),
            blocks: Numbers::new(geometry.blocks),
        }
    }

    /// Names of an inode.
    pub(crate) fn names(&self, number: u64) -> u16 {
        self.names.get(number as usize).copied().unwrap_or(0)
    }

    /// The next directory that is to be read, if it has not been.
    pub(crate) fn next_directory(&mut self) -> Option<u64> {
        while let Some(number) = self.left.pop() {
            if !self.read.has(number) {
                return Some(number);
            }
        }
        None
    }

    /// Notes a name in a directory that has been read.
    pub(crate) fn count_name(&mut self, directory: u64, target: u64, is_directory: bool) {
        if let Some(names) = self.names.get_mut(target as usize) {
            *names = names.saturating_add(1);
        }
        if !is_directory {
            return;
        }
        let parents = self.parents.entry(target).or_default();
        parents.push(directory);
        if parents.len() > 1 {
            self.twice.insert(target);
        }
        self.left.push(target);
    }

    /// Whether more names of directories wait than an image that makes sense has: each directory
    /// has one, or two while it is moved.
    pub(crate) fn has_too_many(&self) -> bool {
        self.left.len() > 4 * self.names.len()
    }

    /// Notes that a directory has been read.
    pub(crate) fn note_read(&mut self, directory: u64) {
        self.read.put(directory, true);
    }

    /// Notes what an operation has done to names.
    pub(crate) fn note_name(&mut self, named: Named, is_directory: bool) {
        let Named { directory, target, is_added } = named;
        if !self.read.has(directory) {
            return;
        }
        if is_added {
            self.count_name(directory, target, is_directory);
            // All directories have been read: this one is new, and has no names yet.
            if is_directory && self.stage != Stage::Names {
                self.read.put(target, true);
            }
            return;
        }
        if let Some(names) = self.names.get_mut(target as usize) {
            *names = names.saturating_sub(1);
        }
        if let Some(parents) = self.parents.get_mut(&target) {
            if let Some(place) = parents.iter().position(|parent| *parent == directory) {
                parents.swap_remove(place);
            }
            if parents.is_empty() {
                self.parents.remove(&target);
            }
        }
    }

    /// Notes that an inode has been freed.
    pub(crate) fn note_freed_inode(&mut self, number: u64) {
        self.read.put(number, false);
    }
}
