//! Entries of directories, as a part of a change.

use super::Change;
use marram_format::record::{Entry, InodeKind};
use marram_records::directory::{FoundEntry, entry_key};
use marram_records::inode::touch_content;
use marram_store::Item;
use marram_vfs::Result;

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
