//! Directories: names found by their hash, and visited in order of their cookies.
//!
//! Entries (and extended attributes, which are found in the same way) lie at the hash of their
//! name plus a slot that keeps equal hashes apart. A name keeps its place as long as it lives, so
//! the cookie made from the place (offset + 1) stays valid however the directory changes: a
//! listing that goes on from a cookie misses nothing that was there all the time and sees nothing
//! twice.
//!
//! Where names are folded, it is their keys that are hashed and compared (see [`NameRule`]); an
//! entry keeps the name that it was given.

use crate::failure::{from_record, from_store};
use marram_format::FormatError;
use marram_format::record::{Entry, InodeKind, NAME_SLOTS, NameRule, name_offset};
use marram_store::{Item, Key, View, kind};
use marram_vfs::{COOKIE_MAX, Error, Result};

/// An entry that a name led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundEntry {
    /// Its place in the directory.
    pub offset: u64,
    /// The inode.
    pub ino: u64,
    /// The kind of the inode.
    pub kind: InodeKind,
}

/// Where a name is, or could go.
#[derive(Debug)]
pub struct Probe<T> {
    /// What was found under the name.
    pub found: Option<T>,
    free: Option<u64>,
}

impl<T> Probe<T> {
    /// The first free slot, for a name that was not found.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if all slots of the hash are taken.
    pub fn free(&self) -> Result<u64> {
        self.free.ok_or(Error::NoSpace)
    }
}

/// What a probe takes from an item: `None` if it has another name.
pub type Match<'a, T> = &'a dyn Fn(Key, &Item) -> std::result::Result<Option<T>, FormatError>;

/// The key of the entry at a place of a directory.
pub fn entry_key(directory: u64, offset: u64) -> Key {
    Key::new(directory, kind::ENTRY, offset)
}

/// Looks for a name among the entries or attributes of `object`, in the slots from `base` on.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn probe<T>(
    view: &dyn View,
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
    view.scan(from, to, &mut visit).map_err(from_store)?;
    if next < end {
        probe.free.get_or_insert(next);
    }
    failure.map_or(Ok(probe), Err)
}

/// Looks for a name in a directory, by the rule and the seed of the file system.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn probe_entry(
    view: &dyn View,
    (rule, seed): (NameRule, u64),
    directory: u64,
    name: &[u8],
) -> Result<Probe<FoundEntry>> {
    let wanted = rule.key(name);
    let base = name_offset(seed, &wanted);
    probe(view, directory, kind::ENTRY, base, &|key, item| {
        let entry = Entry::decode(&item.value)?;
        let found = FoundEntry { offset: key.offset, ino: entry.ino, kind: entry.kind };
        Ok((rule.key(entry.name) == wanted).then_some(found))
    })
}

/// Whether a directory has no entries.
///
/// # Errors
/// A failed read.
pub fn is_empty_directory(view: &dyn View, ino: u64) -> Result<bool> {
    let mut empty = true;
    let mut visit = |_: Key, _: &Item| {
        empty = false;
        false
    };
    view.scan(entry_key(ino, 0), entry_key(ino, u64::MAX), &mut visit).map_err(from_store)?;
    Ok(empty)
}

/// The name of `ino` in a directory, found by looking at all of its entries.
///
/// # Errors
/// A failed read.
pub fn name_of(view: &dyn View, directory: u64, ino: u64) -> Result<Option<Vec<u8>>> {
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
    view.scan(from, to, &mut visit).map_err(from_store)?;
    Ok(name)
}

/// Some entries, copied out of the store so that a visitor may call it.
#[derive(Debug, Default)]
pub struct Listing {
    names: Vec<u8>,
    entries: Vec<(FoundEntry, usize)>,
}

impl Listing {
    /// At most `max` entries of a directory, from the place `after` on.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn read(view: &dyn View, directory: u64, after: u64, max: usize) -> Result<Listing> {
        let mut listing = Listing::default();
        let mut failure = None;
        let mut visit = |key: Key, item: &Item| {
            match Entry::decode(&item.value) {
                Ok(entry) if key.offset < COOKIE_MAX => listing.add(key.offset, &entry),
                Ok(_) => {
                    let text = format!("directory {directory} has an entry beyond its end");
                    failure = Some(Error::Damaged(text));
                }
                Err(error) => failure = Some(from_record(directory, &error)),
            }
            failure.is_none() && listing.entries.len() < max
        };
        let (from, to) = (entry_key(directory, after), entry_key(directory, u64::MAX));
        view.scan(from, to, &mut visit).map_err(from_store)?;
        failure.map_or(Ok(listing), Err)
    }

    fn add(&mut self, offset: u64, entry: &Entry<'_>) {
        self.names.extend_from_slice(entry.name);
        let found = FoundEntry { offset, ino: entry.ino, kind: entry.kind };
        self.entries.push((found, self.names.len()));
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries with their names, in the order of their places.
    pub fn entries(&self) -> impl Iterator<Item = (FoundEntry, &[u8])> {
        let mut start = 0;
        self.entries.iter().map(move |(entry, end)| {
            let name = &self.names[start..*end];
            start = *end;
            (*entry, name)
        })
    }
}
