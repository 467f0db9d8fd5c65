//! Directories: names looked up, and visited in order of their cookies.
//!
//! A listing that goes on from a cookie misses nothing that was there all the time, and sees
//! nothing twice; see [`marram_records::directory`].

use crate::change::Change;
use crate::filesystem::Posix;
use marram_format::record::{Entry, InodeKind};
use marram_records::directory::{self, FoundEntry, Listing, Probe, entry_key};
use marram_records::inode::{
    attributes, check_directory, check_living_directory, kind_of, touch_content,
};
use marram_store::Item;
use marram_vfs::{Attributes, DirectoryEntry, Error, Ino, Name, Result};

/// Entries read at once: begins here and doubles, so that a small listing reads little.
const ENTRIES_MIN: usize = 32;
const ENTRIES_MAX: usize = 256;

impl Posix {
    pub(crate) fn probe_entry(&self, directory: u64, name: Name<'_>) -> Result<Probe<FoundEntry>> {
        let hashing = (self.counters.names(), self.counters.seed());
        directory::probe_entry(&*self.view, hashing, directory, name.as_bytes())
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
            let listing = Listing::read(&*self.view, ino, after, max)?;
            for (entry, name) in listing.entries() {
                after = entry.offset + 1;
                let found = with_attributes.then(|| self.named(entry.ino)).transpose()?;
                let accepted = visit(DirectoryEntry {
                    name,
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
            if listing.len() < max {
                return Ok(());
            }
            max = ENTRIES_MAX.min(max * 2);
        }
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
