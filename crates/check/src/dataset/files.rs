//! The items of one file system, one after another by ascending keys, wherever they are stored.

use super::links::Links;
use super::object::Object;
use super::references::Fault;
use super::usage::Usages;
use crate::finding::FindingKind;
use marram_format::FormatError;
use marram_format::key::{Key, kind};
use marram_format::record::{Counters, InodeCount, InodeKind, OrphanReason};

/// Counters of inodes lie at offsets up to this.
const COUNT_OFFSET_MAX: u64 = 1024;

/// An item of a file system.
#[derive(Clone, Copy, Debug)]
pub struct FileItem<'i> {
    /// Its key.
    pub key: Key,
    /// Its value.
    pub value: &'i [u8],
    /// Bytes of content of its block, if it has one.
    pub block_bytes: Option<u64>,
}

/// Inodes by what they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct InodeCounts {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// All others.
    pub others: u64,
}

/// What is wrong, and under which key, if it is under one.
pub type FileFault = (Option<Key>, FindingKind, String);

/// What is known of a file system by the items that were seen.
#[derive(Default)]
pub struct FileSystemItems {
    counters: Option<Counters>,
    has_items: bool,
    inode_count: i128,
    inodes: i128,
    counts: InodeCounts,
    links: Links,
    usages: Usages,
    object: Option<Object>,
    /// Something before the next item is missing.
    after_gap: bool,
}

impl FileSystemItems {
    /// Looks at the next item, and adds what is wrong.
    pub fn item(&mut self, item: &FileItem<'_>, faults: &mut Vec<FileFault>) {
        self.has_items = true;
        let result = match item.key.object {
            0 => self.of_dataset(item),
            ino => {
                self.change_object(ino, faults);
                self.of_inode(item)
            }
        };
        self.after_gap = false;
        if let Err((kind, detail)) = result {
            faults.push((Some(item.key), kind, detail));
        }
    }

    /// An item goes by that is none of the file system's.
    pub(super) fn pass_by(&mut self) {
        (self.has_items, self.after_gap) = (true, false);
    }

    /// Items between the last one and the next are missing.
    pub fn gap(&mut self) {
        self.after_gap = true;
        if let Some(object) = &mut self.object {
            object.has_gap = true;
        }
    }

    /// All items have been seen: what is wrong with the whole.
    pub fn finish(&mut self) -> Vec<FileFault> {
        let mut faults = Vec::new();
        let last = self.object.take();
        finish_object(last, &mut faults);
        if !self.has_items {
            return faults;
        }
        if self.counters.is_none() {
            let detail = "the item that says which inode comes next".to_owned();
            faults.push((None, FindingKind::CountersMissing, detail));
        }
        if self.inode_count != self.inodes {
            let detail = format!("{} instead of {}", self.inode_count, self.inodes);
            faults.push((None, FindingKind::InodeCount, detail));
        }
        for (key, (kind, detail)) in self.usages.finish() {
            faults.push((Some(key), kind, detail));
        }
        for (ino, (kind, detail)) in self.links.finish() {
            faults.push((Some(Key::new(ino, kind::INODE, 0)), kind, detail));
        }
        faults
    }

    /// How many inodes of each kind were seen.
    pub fn counts(&self) -> InodeCounts {
        self.counts
    }

    /// An item that belongs to no inode.
    fn of_dataset(&mut self, item: &FileItem<'_>) -> Result<(), Fault> {
        let malformed = |error: FormatError| (FindingKind::ItemMalformed, error.to_string());
        let offset = item.key.offset;
        match item.key.kind {
            kind::ORPHAN => {
                let reason = OrphanReason::decode(item.value).map_err(malformed)?;
                self.links.add_orphan(offset, reason);
            }
            kind::COUNTERS if offset == 0 => {
                self.counters = Some(Counters::decode(item.value).map_err(malformed)?);
            }
            kind::COUNTERS if offset <= COUNT_OFFSET_MAX => {
                let count = InodeCount::decode(item.value).map_err(malformed)?;
                self.inode_count += i128::from(count.0);
            }
            kind::USAGE => self.usages.keep(item)?,
            kind::LIMIT => self.usages.limit(item)?,
            kind::INODE..=kind::REFERENCES => return Err(misplaced()),
            other => return Err((FindingKind::ItemUnknown, format!("kind {other}"))),
        }
        Ok(())
    }

    /// The items of an inode begin: those of the one before are complete.
    fn change_object(&mut self, ino: u64, faults: &mut Vec<FileFault>) {
        if self.object.as_ref().is_none_or(|object| object.ino != ino) {
            let before = self.object.replace(Object::new(ino, self.after_gap));
            finish_object(before, faults);
        }
    }

    fn of_inode(&mut self, item: &FileItem<'_>) -> Result<(), Fault> {
        let seed = self.counters.map(|counters| counters.name_seed);
        let Some(object) = &mut self.object else { return Ok(()) };
        match item.key.kind {
            kind::INODE => self.inode(item),
            kind::ENTRY => {
                let (ino, named, fault) = object.entry(item, self.counters)?;
                self.links.add_name(item.key.object, ino, named);
                fault.map_or(Ok(()), Err)
            }
            kind::XATTR => object.attribute(item, seed),
            kind::TARGET => object.target(item),
            kind::SECTION => object.section(item),
            kind::ORPHAN..=kind::LIMIT => Err(misplaced()),
            other => Err((FindingKind::ItemUnknown, format!("kind {other}"))),
        }
    }

    fn inode(&mut self, item: &FileItem<'_>) -> Result<(), Fault> {
        let Some(object) = &mut self.object else { return Ok(()) };
        self.inodes += 1;
        let ino = object.ino;
        let inode = match object.record(item) {
            Ok(inode) => inode,
            Err(fault) => {
                self.links.add_damaged(ino);
                self.usages.miss();
                return Err(fault);
            }
        };
        self.links.add_inode(ino, inode);
        self.usages.count(inode);
        match inode.kind {
            InodeKind::Regular => self.counts.files += 1,
            InodeKind::Directory => self.counts.directories += 1,
            _ => self.counts.others += 1,
        }
        match self.counters {
            Some(counters) if ino >= counters.next_inode => {
                let detail = format!("inode {ino}; {} comes next", counters.next_inode);
                Err((FindingKind::InodeNumber, detail))
            }
            _ => Ok(()),
        }
    }
}

fn misplaced() -> Fault {
    (FindingKind::ItemMisplaced, "no such item is looked for there".to_owned())
}

fn finish_object(object: Option<Object>, faults: &mut Vec<FileFault>) {
    let Some(object) = object else { return };
    for (kind, detail) in object.finish() {
        faults.push((Some(Key::new(object.ino, kind::INODE, 0)), kind, detail));
    }
}
