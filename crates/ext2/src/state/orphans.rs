//! Inodes without a name that are still in use, and files that are being cut: a list that the
//! superblock begins. A crash leaves it, and the next mount, the kernel or `e2fsck` ends it.
//!
//! Only a mount that writes the journal keeps the list: each change of it is part of the
//! operation that it belongs to.

use crate::bytes::u32_at;
use crate::error::failed;
use crate::inode::Inode;
use crate::state::{State, Work, damaged, shown};
use crate::superblock::field;
use marram_vfs::{Kind, Result, Timestamp};

impl State {
    /// Ends what a crash has left on the list: inodes without a name, and files that were being
    /// cut.
    pub(crate) fn end_orphans(&mut self, now: Timestamp) -> Result<()> {
        let orphans = self.read_orphans()?;
        if orphans.is_empty() {
            return Ok(());
        }
        if self.log.is_some() {
            self.orphans = orphans.iter().rev().copied().collect();
        } else {
            // Each would be a leak, not a broken list, if there were a crash now.
            let (block, at) = self.geometry.superblock();
            let mut work = Work::new(self, now);
            let done = work.write(block, at + field::LAST_ORPHAN, &[0; 4], &[]).map(drop);
            work.end(done)?;
            self.sync()?;
        }
        orphans.into_iter().try_for_each(|number| self.end_orphan(number, now))
    }

    /// The list, its first inode first.
    fn read_orphans(&mut self) -> Result<Vec<u64>> {
        let (block, at) = self.geometry.superblock();
        let bytes = self.cache.read(block).map_err(failed)?;
        let mut next = u64::from(u32_at(bytes, at + field::LAST_ORPHAN));
        let mut orphans = Vec::new();
        while next != 0 {
            if orphans.len() as u64 > self.geometry.inodes || next < self.geometry.first_ino {
                return Err(damaged("the list of inodes without a name makes no sense"));
            }
            orphans.push(next);
            next = u64::from(self.raw_inode(next)?.removed());
        }
        Ok(orphans)
    }

    fn end_orphan(&mut self, number: u64, now: Timestamp) -> Result<()> {
        let inode = self.raw_inode(number)?;
        if inode.links() == 0 {
            return self.remove_unless_pinned(number, now);
        }
        let size = inode.size();
        let mut work = Work::new(self, now);
        if inode.kind() != Some(Kind::Regular) {
            let done = work.unlist(number);
            return work.end(done);
        }
        let done = work.zero_end((number, &inode), size, &[]);
        work.end(done)?;
        let keep = size.div_ceil(self.geometry.block_bytes as u64);
        self.cut_in_pieces(shown(number), keep, &[], now)
    }
}

impl Work<'_> {
    /// The list as this operation leaves it so far.
    fn list(&mut self) -> Vec<u64> {
        self.orphans.take().unwrap_or_else(|| self.state.orphans.clone())
    }

    fn write_first_orphan(&mut self, number: u64) -> Result<()> {
        let (block, at) = self.state.geometry.superblock();
        self.write(block, at + field::LAST_ORPHAN, &(number as u32).to_le_bytes(), &[])?;
        Ok(())
    }

    /// Puts an inode on the list, if there is one. The caller stores the inode.
    pub(crate) fn add_orphan(&mut self, number: u64, inode: &mut Inode) -> Result<()> {
        if self.state.log.is_none() {
            return Ok(());
        }
        let mut list = self.list();
        if !list.contains(&number) {
            inode.set_removed(list.last().copied().unwrap_or(0) as u32);
            list.push(number);
            self.write_first_orphan(number)?;
        }
        self.orphans = Some(list);
        Ok(())
    }

    /// Takes an inode off the list. The caller stores the inode.
    pub(crate) fn drop_orphan(&mut self, number: u64, inode: &mut Inode) -> Result<()> {
        let mut list = self.list();
        if let Some(place) = list.iter().position(|listed| *listed == number) {
            let next = if place == 0 { 0 } else { list[place - 1] };
            match list.get(place + 1).copied() {
                None => self.write_first_orphan(next)?,
                Some(before) => {
                    let mut listed = self.raw_inode(before)?;
                    listed.set_removed(next as u32);
                    self.store(before, &listed, &[])?;
                }
            }
            list.remove(place);
            inode.set_removed(0);
        }
        self.orphans = Some(list);
        Ok(())
    }

    /// Takes an inode off the list that has nothing to be ended.
    fn unlist(&mut self, number: u64) -> Result<()> {
        let mut inode = self.raw_inode(number)?;
        self.drop_orphan(number, &mut inode)?;
        inode.set_removed(0);
        self.store(number, &inode, &[]).map(drop)
    }
}
