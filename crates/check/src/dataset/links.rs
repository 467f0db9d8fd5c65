//! Names and inodes of a file system: whether each leads to the other, and all to the root.

use super::references::Fault;
use crate::finding::FindingKind;
use marram_format::record::{Inode, InodeKind, OrphanReason, state};
use std::collections::{BTreeMap, BTreeSet};

const ROOT: u64 = 1;

/// What an inode's record says.
struct Known {
    kind: InodeKind,
    links: u32,
    parent: u64,
    has_tail: bool,
}

/// What is known of an inode from its record and from names.
#[derive(Default)]
struct Inodes {
    known: Option<Known>,
    /// An item of it cannot be decoded: that there is none cannot be said.
    is_damaged: bool,
    names: u32,
    /// The kind in its first name.
    named_as: Option<InodeKind>,
    /// Another name has another kind.
    named_otherwise: bool,
    /// The directory of its last name.
    named_in: u64,
    subdirectories: u32,
    orphan: Option<OrphanReason>,
}

/// All inodes of a file system.
#[derive(Default)]
pub(super) struct Links {
    inodes: BTreeMap<u64, Inodes>,
}

impl Links {
    /// An inode's record.
    pub(super) fn add_inode(&mut self, ino: u64, inode: &Inode) {
        self.inodes.entry(ino).or_default().known = Some(Known {
            kind: inode.kind,
            links: inode.links,
            parent: inode.parent,
            has_tail: inode.state & state::TAIL != 0,
        });
    }

    /// There is a record or a name, but it cannot be decoded.
    pub(super) fn add_damaged(&mut self, ino: u64) {
        self.inodes.entry(ino).or_default().is_damaged = true;
    }

    /// An orphan item.
    pub(super) fn add_orphan(&mut self, ino: u64, reason: OrphanReason) {
        self.inodes.entry(ino).or_default().orphan = Some(reason);
    }

    /// A name.
    pub(super) fn add_name(&mut self, directory: u64, ino: u64, kind: InodeKind) {
        if kind == InodeKind::Directory {
            self.inodes.entry(directory).or_default().subdirectories += 1;
        }
        let inode = self.inodes.entry(ino).or_default();
        inode.names += 1;
        inode.named_in = directory;
        let first = *inode.named_as.get_or_insert(kind);
        inode.named_otherwise |= first != kind;
    }

    /// Everything has been seen: what is wrong, by inode.
    pub(super) fn finish(&self) -> Vec<(u64, Fault)> {
        let mut faults = Vec::new();
        for (ino, inode) in &self.inodes {
            let mut fault = |kind, detail: String| faults.push((*ino, (kind, detail)));
            match &inode.known {
                Some(known) => {
                    check_names(*ino, inode, known, &mut fault);
                    check_orphan(inode, known, &mut fault);
                }
                None if inode.is_damaged => {}
                None if inode.names > 0 => {
                    let detail = format!("from directory {}", inode.named_in);
                    fault(FindingKind::EntryDangling, detail);
                }
                None if inode.orphan.is_some() => {
                    fault(FindingKind::OrphanRecord, "there is no such inode".to_owned());
                }
                None => {}
            }
        }
        if !self.inodes.get(&ROOT).is_some_and(Inodes::may_be_root) {
            faults.push((ROOT, (FindingKind::RootMissing, "inode 1".to_owned())));
        }
        self.check_loops(&mut faults);
        faults
    }

    /// Directories all of whose ancestors lie below themselves.
    fn check_loops(&self, faults: &mut Vec<(u64, Fault)>) {
        let mut seen = BTreeSet::new();
        for ino in self.inodes.keys() {
            let mut way = BTreeSet::new();
            let mut at = *ino;
            while at != ROOT
                && let Some(inode) = self.inodes.get(&at)
                && inode.is_named_directory()
            {
                if !way.insert(at) {
                    let detail = format!("below inode {at}");
                    faults.push((at, (FindingKind::DirectoryLoop, detail)));
                    break;
                }
                if !seen.insert(at) {
                    break;
                }
                at = inode.named_in;
            }
        }
    }
}

impl Inodes {
    fn may_be_root(&self) -> bool {
        let is_directory = |known: &Known| known.kind == InodeKind::Directory;
        self.is_damaged || self.known.as_ref().is_some_and(is_directory)
    }

    fn is_named_directory(&self) -> bool {
        let is_directory = |known: &Known| known.kind == InodeKind::Directory;
        self.names > 0 && self.known.as_ref().is_some_and(is_directory)
    }
}

fn check_names(
    ino: u64,
    inode: &Inodes,
    known: &Known,
    fault: &mut dyn FnMut(FindingKind, String),
) {
    let named_as = inode.named_as.unwrap_or(known.kind);
    if inode.named_otherwise || named_as != known.kind {
        let detail = format!("it is {:?}, not all names say so", known.kind);
        fault(FindingKind::EntryKind, detail);
    }
    if known.kind == InodeKind::Directory {
        return check_directory(ino, inode, known, fault);
    }
    if known.links != inode.names {
        let detail = format!("{} instead of {}", known.links, inode.names);
        fault(FindingKind::LinkCount, detail);
    }
}

fn check_directory(
    ino: u64,
    inode: &Inodes,
    known: &Known,
    fault: &mut dyn FnMut(FindingKind, String),
) {
    let names = inode.names + u32::from(ino == ROOT);
    let expected = if names == 0 { 0 } else { 2 + inode.subdirectories };
    if known.links != expected {
        let detail = format!("{} instead of {expected}", known.links);
        fault(FindingKind::LinkCount, detail);
    }
    let parent = if ino == ROOT { ROOT } else { inode.named_in };
    if names > 1 {
        fault(FindingKind::DirectoryParent, format!("it has {names} names"));
    } else if names == 1 && known.parent != parent {
        let detail = format!("{} instead of {parent}", known.parent);
        fault(FindingKind::DirectoryParent, detail);
    }
}

fn check_orphan(inode: &Inodes, known: &Known, fault: &mut dyn FnMut(FindingKind, String)) {
    let mut wrong = |detail: &str| fault(FindingKind::OrphanRecord, detail.to_owned());
    match inode.orphan {
        Some(OrphanReason::Nameless) if known.links > 0 => {
            wrong("it waits to be freed, but has links");
        }
        Some(OrphanReason::Tail) if !known.has_tail => {
            wrong("its end waits to be removed, but it does not say so");
        }
        Some(OrphanReason::Tail) if known.links == 0 => {
            wrong("its end waits to be removed, but it has no links");
        }
        None if known.links > 0 && known.has_tail => {
            wrong("it says that its end is to be removed, but does not wait for that");
        }
        None if known.links == 0 && inode.names == 0 => {
            fault(FindingKind::InodeUnreachable, format!("it is {:?}", known.kind));
        }
        _ => {}
    }
}
