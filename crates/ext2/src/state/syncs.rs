//! What a sync of one file has to make durable: the file, its names, and the directories on the
//! way to them that are not on the medium yet.
//!
//! An operation notes here what leads to an inode. All else of a file is found where it lies: its
//! own bytes in the table of inodes wait for what they point to.

use crate::error::failed;
use crate::state::{State, Work};
use marram_patch::{After, Discipline, PatchId};
use marram_vfs::{Ino, Result, SyncScope};

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
        let (block, at) = self.place(number)?;
        let own = at..at + self.geometry.inode_bytes;
        let mut needed = self.cache.patches_at(block, own);
        needed.extend(self.recent.get(&number).into_iter().flatten());
        needed.extend(self.cleared.get(&number).into_iter().flatten());
        needed.extend(self.names.get(&number).into_iter().flatten());
        for entries in self.touched.get(&number).into_iter().flatten() {
            needed.extend(self.cache.patches_at(*entries, 0..self.geometry.block_bytes));
        }
        Ok(needed)
    }
}

/// When what may have become durable is looked through: when there is twice as much as was left the
/// last time. So a sync does not pay for what others wait for.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    more: usize,
    left: usize,
}

/// So few are looked through each time.
const LOOK_MIN: usize = 64;

impl Looks {
    /// There are so many more.
    pub(crate) fn note(&mut self, more: usize) {
        self.more += more;
    }

    pub(crate) fn is_due(&self) -> bool {
        self.more >= self.left.max(LOOK_MIN)
    }

    /// All has been looked through, and so many are left.
    pub(crate) fn note_look(&mut self, left: usize) {
        (self.more, self.left) = (0, left);
    }
}

impl Work<'_> {
    /// Notes what is to be durable after a sync of an inode.
    pub(crate) fn note_leads(&mut self, number: u64, steps: &[After]) {
        self.leads.push((number, steps.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::{LOOK_MIN, Looks};

    /// Each of so many notes is followed by a sync, and all of them wait.
    #[test]
    fn syncs_beside_much_that_waits_look_at_each_of_it_a_few_times_at_most() {
        const NOTES: usize = 100_000;
        let (mut looks, mut looked_at) = (Looks::default(), 0);
        for there in 1..=NOTES {
            looks.note(1);
            if looks.is_due() {
                looked_at += there;
                looks.note_look(there);
            }
        }
        assert!(looked_at <= 2 * NOTES, "{looked_at}");
    }

    #[test]
    fn what_became_durable_is_looked_through_when_there_is_as_much_again() {
        let mut looks = Looks::default();
        looks.note(LOOK_MIN - 1);
        assert!(!looks.is_due());
        looks.note(1);
        assert!(looks.is_due());
        looks.note_look(1000);
        looks.note(999);
        assert!(!looks.is_due());
        looks.note(1);
        assert!(looks.is_due());
    }
}
