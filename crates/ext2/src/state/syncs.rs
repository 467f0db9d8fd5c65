//! What a sync of one file has to make durable: the file, its names, and the directories on the
//! way to them that are not on the medium yet.
//!
//! An operation notes here what leads to an inode. All else of a file is found where it lies: its
//! own bytes in the table of inodes wait for what they point to.

use crate::error::failed;
use crate::inode::Inode;
use crate::state::{State, Work};
use marram_patch::{After, Discipline, PatchId};
use marram_vfs::{Ino, Result, SyncScope, Timestamp};
use std::ops::Range;

/// No inode has this number: under it stands what leads to directories that were moved. They may be
/// on the way to anything, so each sync makes all of it durable.
pub(crate) const MOVED_DIRECTORIES: u64 = 0;

impl State {
    /// Makes files and directories durable, and with them no more than that needs. What a journal
    /// has, or what has no order, is made durable as a whole.
    pub(crate) fn sync_inodes(&mut self, inodes: &[(Ino, SyncScope)]) -> Result<()> {
        if self.discipline != Discipline::SoftUpdates {
            return self.sync();
        }
        let moved = self.names.get(&MOVED_DIRECTORIES);
        let mut needed: Vec<PatchId> = moved.into_iter().flatten().copied().collect();
        for (ino, _) in inodes {
            let number = crate::state::number(*ino)?;
            needed.extend(self.needed_for(number)?);
        }
        self.cache.sync_patches(&needed).map_err(failed)?;
        self.note_durable();
        Ok(())
    }

    /// The changes that a sync of an inode makes durable, each with what it waits for.
    fn needed_for(&mut self, number: u64) -> Result<Vec<PatchId>> {
        let inode = self.raw_inode(number)?;
        let (block, at) = self.place(number)?;
        let own = at..at + self.geometry.inode_bytes;
        let mut needed = self.cache.patches_at(block, own);
        needed.extend(self.recent.get(&number).into_iter().flatten());
        needed.extend(self.names.get(&number).into_iter().flatten());
        if inode.is_directory() {
            for entries in self.dirty_blocks(&inode)? {
                needed.extend(self.cache.patches_at(entries, self.whole_block()));
            }
        }
        Ok(needed)
    }

    fn whole_block(&self) -> Range<usize> {
        0..self.geometry.block_bytes
    }

    /// The blocks of a directory with entries that are not durable.
    fn dirty_blocks(&mut self, inode: &Inode) -> Result<Vec<u64>> {
        let blocks = inode.size() / self.geometry.block_bytes as u64;
        let mut work = Work::new(self, Timestamp::default());
        let mut dirty = Vec::new();
        for which in 0..blocks {
            let block = work.map(inode, which)?;
            if block != 0 && work.state.cache.is_dirty(block) {
                dirty.push(block);
            }
        }
        Ok(dirty)
    }
}

impl Work<'_> {
    /// Notes what is to be durable after a sync of an inode.
    pub(crate) fn note_leads(&mut self, number: u64, steps: &[After]) {
        self.leads.push((number, steps.to_vec()));
    }
}
