//! Cutting and extending files.
//!
//! A file may have more sections past the new size than one batch should remove. Then the first
//! batch sets the size (from that moment nothing past it is part of the file), removes what it
//! can, and marks the inode: it has a **tail**, and an orphan item, so that the tail is removed
//! later, also after a crash. A file with a tail must not grow over it: whatever changes content
//! removes the tail first.

use crate::change::Change;
use crate::content::{PIECE_SECTIONS, range_end};
use crate::filesystem::Posix;
use marram_format::record::{OrphanReason, state};
use marram_records::inode::{check_regular, touch_content};
use marram_records::orphans::{orphan_item, orphan_key};
use marram_records::section_edits::SectionEdits;
use marram_records::sections;
use marram_store::Admission;
use marram_vfs::Result;

/// With less free space than this, [`SCARCE_SECTIONS`] are removed at a time.
const SCARCE_BYTES: u64 = 64 << 20;
/// See [`SCARCE_BYTES`].
const SCARCE_SECTIONS: usize = 32;

impl Posix {
    /// Sets the size. The file has no tail unless it is cut.
    pub(crate) fn set_size(&self, change: &mut Change<'_, '_>, ino: u64, size: u64) -> Result<()> {
        let inode = change.inode(ino)?;
        check_regular(inode)?;
        range_end(size, 0)?;
        let (old_size, links) = (inode.size, inode.links);
        let had_tail = inode.state & state::TAIL != 0;
        let now = change.now;
        let inode = change.inode_mut(ino)?;
        inode.size = size;
        touch_content(inode, now);
        let is_empty = inode.data_bytes == 0 && inode.reserved_bytes == 0;
        // Who empties files need not know which of them have content.
        if size < old_size || size == 0 {
            change.batch.admission = Admission::Freeing;
        }
        if size > old_size || is_empty {
            return Ok(());
        }
        let more = self.cut_from(change, ino, size, self.piece_that_fits())?;
        if more && !had_tail && links > 0 {
            let item = orphan_item(OrphanReason::Tail);
            change.batch.put(orphan_key(ino), item);
        }
        self.mark_tail(change, ino, more, had_tail)
    }

    /// How many sections one batch removes. One that removes many is taken to need more space than
    /// a nearly full store has.
    fn piece_that_fits(&self) -> usize {
        let is_scarce = self.view.space().free_bytes < SCARCE_BYTES;
        if is_scarce { SCARCE_SECTIONS } else { PIECE_SECTIONS }
    }

    /// Removes at most about `max` sections past the size; true if there may be more.
    fn cut_from(
        &self,
        change: &mut Change<'_, '_>,
        ino: u64,
        size: u64,
        max: usize,
    ) -> Result<bool> {
        let sections = sections::sections(&*self.view, ino, size, u64::MAX, max)?;
        let mut edits = SectionEdits::default();
        edits.cut(&sections, size, u64::MAX);
        change.put_sections(ino, edits)?;
        Ok(sections.len() >= max)
    }

    fn mark_tail(
        &self,
        change: &mut Change<'_, '_>,
        ino: u64,
        has_tail: bool,
        had_tail: bool,
    ) -> Result<()> {
        let inode = change.inode_mut(ino)?;
        if has_tail {
            inode.state |= state::TAIL;
            return Ok(());
        }
        inode.state &= !state::TAIL;
        if had_tail && inode.links > 0 {
            change.batch.remove(orphan_key(ino));
        }
        Ok(())
    }

    /// Removes at most about `max` sections of a tail; true if there is more of it. The lock is
    /// held for writing.
    pub(crate) fn remove_tail(&self, ino: u64, max: usize) -> Result<bool> {
        let mut change = self.change()?;
        change.batch.admission = Admission::Freeing;
        let size = change.inode(ino)?.size;
        let more = self.cut_from(&mut change, ino, size, max.max(1))?;
        self.mark_tail(&mut change, ino, more, true)?;
        change.commit()?;
        Ok(more)
    }

    /// Removes a tail. The lock is held for writing.
    pub(crate) fn finish_tail(&self, ino: u64) -> Result<()> {
        while self.remove_tail(ino, self.piece_that_fits())? {}
        Ok(())
    }
}
