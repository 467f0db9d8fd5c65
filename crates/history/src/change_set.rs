//! What an operation on a whole dataset or directory has changed, for caches that remember
//! it: in the end, those of the kernel.
//!
//! It says no more than has changed, so that a merge of one page of a large file does not cost the
//! cache of all others; and never less, since what is remembered wrongly is read as if it were
//! there.

use marram_format::FormatError;
use marram_format::record::{Entry, Inode, InodeKind};
use marram_records::failure::{from_record, from_store};
use marram_records::sections::Section;
use marram_store::{Item, ItemChange, Key, Source, Store, kind};
use marram_vfs::{Ino, Result};
use std::ops::Range;

/// What is not as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeSet {
    /// Inodes whose attributes, content or entries differ, ascending.
    pub inodes: Vec<ChangedInode>,
    /// Names that lead elsewhere, or nowhere, or somewhere now: directory and name.
    pub names: Vec<(Ino, Vec<u8>)>,
}

/// An inode that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedInode {
    /// Its number.
    pub ino: Ino,
    /// Between which bytes its content may differ (of a directory: its list of names, all of it);
    /// an empty range if only attributes do.
    pub content: Range<u64>,
}

impl ChangedInode {
    /// The range of an inode of which anything may differ.
    pub const ALL: Range<u64> = 0..u64::MAX;
    /// The range of an inode of which only attributes differ.
    pub const ATTRIBUTES: Range<u64> = 0..0;
}

/// What differs between two snapshots, as far as it can be remembered. Costs what has changed.
///
/// # Errors
/// A failed read.
pub fn change_set(store: &dyn Store, before: &Source, after: &Source) -> Result<ChangeSet> {
    let mut change_set = ChangeSet::default();
    let mut failure = None;
    let mut visit = |change: ItemChange| {
        failure = change_set.add(&change).err();
        failure.is_none()
    };
    store.changes(before, after, Key::MIN, &mut visit).map_err(from_store)?;
    failure.map_or(Ok(change_set), Err)
}

impl ChangeSet {
    fn add(&mut self, change: &ItemChange) -> Result<()> {
        let ino = Ino(change.key.object);
        if ino.0 == 0 {
            return Ok(());
        }
        let content = content_of(change).map_err(|error| from_record(ino.0, &error))?;
        match self.inodes.last_mut().filter(|last| last.ino == ino) {
            Some(last) => last.content = hull(&last.content, &content),
            None => self.inodes.push(ChangedInode { ino, content }),
        }
        if change.key.kind == kind::ENTRY {
            let both = [&change.before, &change.after];
            for item in both.into_iter().flatten() {
                self.names.push((ino, name_of(ino, item)?));
            }
        }
        Ok(())
    }

    /// Whether an inode is among them.
    pub fn has(&self, ino: Ino) -> bool {
        self.inodes.iter().any(|inode| inode.ino == ino)
    }
}

/// The shortest range that has both.
pub(crate) fn hull(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other.clone(),
        (_, true) => one.clone(),
        _ => one.start.min(other.start)..one.end.max(other.end),
    }
}

/// What changes of the content of an inode that is there before and after, by its record: past the
/// shorter end nothing is as it was.
pub(crate) fn content_by_size(before: &Inode, after: &Inode) -> Range<u64> {
    let is_file = before.kind == InodeKind::Regular && after.kind == InodeKind::Regular;
    match (is_file, before.size == after.size) {
        (false, _) => ChangedInode::ALL,
        (true, true) => ChangedInode::ATTRIBUTES,
        (true, false) => before.size.min(after.size)..u64::MAX,
    }
}

fn content_of(change: &ItemChange) -> std::result::Result<Range<u64>, FormatError> {
    match (change.key.kind, &change.before, &change.after) {
        (kind::INODE, Some(before), Some(after)) => {
            Ok(content_by_size(&Inode::decode(&before.value)?, &Inode::decode(&after.value)?))
        }
        (kind::SECTION, before, after) => {
            let mut content = ChangedInode::ATTRIBUTES;
            for item in [before, after].into_iter().flatten() {
                let section = Section::decode(change.key, item)?;
                content = hull(&content, &(section.at..section.end()));
            }
            Ok(content)
        }
        (kind::XATTR, ..) => Ok(ChangedInode::ATTRIBUTES),
        _ => Ok(ChangedInode::ALL),
    }
}

fn name_of(directory: Ino, item: &Item) -> Result<Vec<u8>> {
    let entry = Entry::decode(&item.value).map_err(|error| from_record(directory.0, &error))?;
    Ok(entry.name.to_vec())
}
