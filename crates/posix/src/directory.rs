//! Directories: names found by their hash, and visited in order of their cookies.
//!
//! Entries (and extended attributes, which are found in the same way) lie at the hash of their
//! name plus a slot that tells equal hashes apart. A name keeps its place as long as it lives, so
//! the cookie made from the place (offset + 1) stays valid however the directory changes: a
//! listing that goes on from a cookie misses nothing that was there all the time and sees nothing
//! twice.
//!
//! Where names are folded, it is their keys that are hashed and compared (see [`NameRule`]); an
//! entry keeps the name that it was given.

use crate::change::Change;
use crate::failure::{from_record, from_store};
use crate::filesystem::Posix;
use crate::inode::{attributes, check_directory, check_living_directory, kind_of, touch_content};
use marram_format::FormatError;
#[cfg(doc)]
use marram_format::record::NameRule;
use marram_format::record::{Entry, InodeKind, NAME_SLOTS, name_offset};
use marram_store::{Item, Key, kind};
use marram_vfs::{Attributes, DirectoryEntry, Error, Ino, Name, Result};

/// Entries read at once: begins here and doubles, so that a small listing reads little.
const ENTRIES_MIN: usize = 32;
const ENTRIES_MAX: usize = 256;

/// An entry that a name led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundEntry {
    pub(crate) offset: u64,
    pub(crate) ino: u64,
    pub(crate) kind: InodeKind,
}

/// Where a name is, or could go.
pub(crate) struct Probe<T> {
    pub(crate) found: Option<T>,
    free: Option<u64>,
}

impl<T> Probe<T> {
    /// The first free slot, for a name that was not found.
    pub(crate) fn free(&self) -> Result<u64> {
        self.free.ok_or(Error::NoSpace)
    }
}

/// What a probe takes from an item: `None` if it has another name.
pub(crate) type Match<'a, T> =
    &'a dyn Fn(Key, &Item) -> std::result::Result<Option<T>, FormatError>;

/// Entries copied out of the store, so that the visitor may call it.
#[derive(Default)]
struct Listing {
    names: Vec<u8>,
    entries: Vec<(FoundEntry, usize)>,
}

fn entry_key(directory: u64, offset: u64) -> Key {
    Key::new(directory, kind::ENTRY, offset)
}

impl Posix {
    /// Looks for a name among the entries or attributes of `object`, in the slots from `base` on.
    pub(crate) fn probe<T>(
        &self,
        object: u64,
        item_kind: u8,
        base: u64,
        matches: Match<'_, T>,
    ) -> Result<Probe<T>> {
        let end = base + NAME_SLOTS;
        let mut probe = Probe { found: None, free: None };
        let mut next = base;
        let mut failure = None;
        let mut visit = |key: Key, item: &Item| {
            if key.offset > next {
                probe.free.get_or_insert(next);
            }
            next = key.offset + 1;
            match matches(key, item) {
                Ok(found) => probe.found = found,
                Err(error) => failure = Some(from_record(object, &error)),
            }
            probe.found.is_none() && failure.is_none()
        };
        let (from, to) = (Key::new(object, item_kind, base), Key::new(object, item_kind, end - 1));
        self.view.scan(from, to, &mut visit).map_err(from_store)?;
        if next < end {
            probe.free.get_or_insert(next);
        }
        failure.map_or(Ok(probe), Err)
    }

    pub(crate) fn probe_entry(&self, directory: u64, name: Name<'_>) -> Result<Probe<FoundEntry>> {
        let rule = self.counters.names();
        let wanted = rule.key(name.as_bytes());
        let base = name_offset(self.counters.seed(), &wanted);
        self.probe(directory, kind::ENTRY, base, &|key, item| {
            let entry = Entry::decode(&item.value)?;
            let found = FoundEntry { offset: key.offset, ino: entry.ino, kind: entry.kind };
            Ok((rule.key(entry.name) == wanted).then_some(found))
        })
    }

    /// The entry of a name, if it is there; fails where there is no directory.
    pub(crate) fn find_entry(&self, directory: u64, name: Name<'_>) -> Result<Option<FoundEntry>> {
        let found = self.probe_entry(directory, name)?.found;
        if found.is_none() {
            check_directory(&self.load_inode(directory)?)?;
        }
        Ok(found)
    }

    /// The entry of a name that has to be there.
    pub(crate) fn entry(&self, directory: u64, name: Name<'_>) -> Result<FoundEntry> {
        self.find_entry(directory, name)?.ok_or(Error::NotFound)
    }

    pub(crate) fn look_up(&self, parent: u64, name: Name<'_>) -> Result<Attributes> {
        let _held = self.locks.read(parent);
        let entry = self.entry(parent, name)?;
        self.pin_named(entry.ino)
    }

    /// Pins an inode that has a name in a directory whose lock is held.
    fn pin_named(&self, ino: u64) -> Result<Attributes> {
        let found = self.named(ino)?;
        self.pins.add(ino);
        Ok(found)
    }

    fn named(&self, ino: u64) -> Result<Attributes> {
        let missing = || Error::Damaged(format!("inode {ino} has a name but no record"));
        let inode = self.find_inode(ino)?.ok_or_else(missing)?;
        Ok(attributes(ino, &inode))
    }

    pub(crate) fn parent_of(&self, ino: u64) -> Result<Attributes> {
        let _held = self.locks.read(ino);
        let inode = self.load_inode(ino)?;
        check_living_directory(&inode)?;
        self.pin_named(if ino == self.root() { ino } else { inode.parent })
    }

    /// Whether a directory has no entries.
    pub(crate) fn is_empty_directory(&self, ino: u64) -> Result<bool> {
        let mut empty = true;
        let mut visit = |_: Key, _: &Item| {
            empty = false;
            false
        };
        let (from, to) = (entry_key(ino, 0), entry_key(ino, u64::MAX));
        self.view.scan(from, to, &mut visit).map_err(from_store)?;
        Ok(empty)
    }

    pub(crate) fn list(
        &self,
        ino: u64,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let inode = self.load_inode(ino)?;
        self.list_entries(ino, after, with_attributes, visit)?;
        self.accessed(ino, &inode);
        Ok(())
    }

    /// As `list`, without moving the access time.
    pub(crate) fn list_entries(
        &self,
        ino: u64,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut after = after;
        let mut max = ENTRIES_MIN;
        loop {
            let held = self.locks.read(ino);
            check_directory(&self.load_inode(ino)?)?;
            let listing = self.listing(ino, after, max)?;
            for (index, (entry, _)) in listing.entries.iter().enumerate() {
                after = entry.offset + 1;
                let found = with_attributes.then(|| self.named(entry.ino)).transpose()?;
                let accepted = visit(DirectoryEntry {
                    name: listing.name(index),
                    ino: Ino(entry.ino),
                    kind: kind_of(entry.kind),
                    cookie: after,
                    attributes: found,
                });
                if !accepted {
                    return Ok(());
                }
                if with_attributes {
                    self.pins.add(entry.ino);
                }
            }
            drop(held);
            if listing.entries.len() < max {
                return Ok(());
            }
            max = ENTRIES_MAX.min(max * 2);
        }
    }

    fn listing(&self, ino: u64, after: u64, max: usize) -> Result<Listing> {
        let mut listing = Listing::default();
        let mut failure = None;
        let mut visit = |key: Key, item: &Item| {
            match Entry::decode(&item.value) {
                Ok(entry) => listing.add(key.offset, &entry),
                Err(error) => failure = Some(from_record(ino, &error)),
            }
            failure.is_none() && listing.entries.len() < max
        };
        let (from, to) = (entry_key(ino, after), entry_key(ino, u64::MAX));
        self.view.scan(from, to, &mut visit).map_err(from_store)?;
        failure.map_or(Ok(listing), Err)
    }

    /// The name of `ino` in a directory, found by looking at all of its entries.
    pub(crate) fn name_of(&self, directory: u64, ino: u64) -> Result<Option<Vec<u8>>> {
        let mut name = None;
        let mut visit = |_: Key, item: &Item| {
            if let Ok(entry) = Entry::decode(&item.value)
                && entry.ino == ino
            {
                name = Some(entry.name.to_vec());
            }
            name.is_none()
        };
        let (from, to) = (entry_key(directory, 0), entry_key(directory, u64::MAX));
        self.view.scan(from, to, &mut visit).map_err(from_store)?;
        Ok(name)
    }
}

impl Listing {
    fn add(&mut self, offset: u64, entry: &Entry<'_>) {
        self.names.extend_from_slice(entry.name);
        let found = FoundEntry { offset, ino: entry.ino, kind: entry.kind };
        self.entries.push((found, self.names.len()));
    }

    fn name(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.entries[before].1);
        &self.names[start..self.entries[index].1]
    }
}

impl Change<'_, '_> {
    /// Sets the entry at `offset`, without a change of the directory.
    pub(crate) fn put_entry(&mut self, directory: u64, offset: u64, entry: &Entry<'_>) {
        self.batch.put(entry_key(directory, offset), Item::plain(entry.encode()));
    }

    /// Adds an entry in a free slot. The link count of the entry's inode is the caller's.
    pub(crate) fn add_entry(
        &mut self,
        directory: u64,
        offset: u64,
        entry: &Entry<'_>,
    ) -> Result<()> {
        self.put_entry(directory, offset, entry);
        let now = self.now;
        let inode = self.inode_mut(directory)?;
        inode.size += 1;
        inode.links += u32::from(entry.kind == InodeKind::Directory);
        touch_content(inode, now);
        Ok(())
    }

    /// Removes an entry. The link count of its inode is the caller's.
    pub(crate) fn remove_entry(&mut self, directory: u64, entry: FoundEntry) -> Result<()> {
        self.batch.remove(entry_key(directory, entry.offset));
        let now = self.now;
        let inode = self.inode_mut(directory)?;
        inode.size = inode.size.saturating_sub(1);
        let subdirectory = u32::from(entry.kind == InodeKind::Directory);
        inode.links = inode.links.saturating_sub(subdirectory);
        touch_content(inode, now);
        Ok(())
    }
}
