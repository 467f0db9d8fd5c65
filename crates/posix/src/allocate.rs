//! Reserving, zeroing and punching ranges of files; moving and unsharing them is in `shift` and
//! `unshare`.
//!
//! A range may cover any number of sections, so it is done in pieces, from the front, each a
//! batch of its own; a new size comes with the last. Reserved space is counted as used by the
//! file; that there is as much free is checked when it is reserved, and then it is kept back from
//! others (see `promises`).

use crate::content::{PIECE_SECTIONS, range_end};
use crate::filesystem::Posix;
use crate::marks::check_allocation;
use crate::shift::Shifted;
use marram_records::failure::from_store;
use marram_records::inode::check_regular;
use marram_records::section_edits::SectionEdits;
use marram_records::sections::{self, Section, piece_end};
use marram_vfs::{Allocate, Error, Result};

/// A section without a block.
fn reserved(at: u64, end: u64) -> Section {
    Section { at, len: end - at, block_start: 0, block: None }
}

/// Reserves what no section of the range covers.
pub(crate) fn fill_gaps(edits: &mut SectionEdits, sections: &[Section], from: u64, to: u64) {
    let mut at = from;
    for section in sections {
        if section.at > at {
            edits.put(reserved(at, section.at.min(to)));
        }
        at = at.max(section.end());
    }
    if at < to {
        edits.put(reserved(at, to));
    }
}

impl Posix {
    /// As [`marram_vfs::Ranges::allocate`].
    pub(crate) fn allocate_content(
        &self,
        ino: u64,
        how: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.with_reclaim(|| self.allocate_range(ino, how, offset, len))?
    }

    /// An error inside is one that more space does not help.
    fn allocate_range(&self, ino: u64, how: Allocate, offset: u64, len: u64) -> Shifted {
        self.check_writable()?;
        let _held = self.locks.write(&[ino]);
        let inode = self.load_inode(ino)?;
        check_regular(&inode)?;
        check_allocation(&inode, how)?;
        if len == 0 {
            return Err(Error::InvalidArgument("length"));
        }
        let end = range_end(offset, len)?;
        let size = self.content_inode(ino)?.size;
        match how {
            Allocate::Collapse => return self.collapse_range(ino, offset, end, size),
            Allocate::Insert => return self.insert_range(ino, offset, end, size),
            Allocate::PunchHole => (),
            _ => self.check_free(ino, offset, end)?,
        }
        let mut at = offset;
        while at < end {
            at = self.allocate_piece(ino, how, at, end)?;
        }
        Ok(Ok(()))
    }

    /// Refuses to promise more space than there is, or the same space twice.
    fn check_free(&self, ino: u64, offset: u64, end: u64) -> Result<()> {
        let free_bytes = self.view.space().free_bytes;
        if end - offset <= free_bytes {
            return Ok(());
        }
        let mut missing = end - offset;
        let mut subtract = |section: Section| {
            if section.end() > offset {
                // Damaged sections may overlap.
                missing = missing.saturating_sub(section.part(offset, end).len);
            }
            true
        };
        sections::section_at(&*self.view, ino, offset)?.map(&mut subtract);
        sections::visit_sections(&*self.view, ino, offset + 1, end - 1, &mut subtract)?;
        if missing <= free_bytes {
            return Ok(());
        }
        // What has been freed since the last commit is not counted yet.
        self.view.commit().map_err(from_store)?;
        if missing > self.view.space().free_bytes { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Does a piece of a range, from `from` on; returns where it ends.
    pub(crate) fn allocate_piece(
        &self,
        ino: u64,
        how: Allocate,
        from: u64,
        end: u64,
    ) -> Result<u64> {
        if matches!(how, Allocate::Unshare | Allocate::UnshareKeepSize) {
            return self.unshare_piece(ino, how.extends(), from, end);
        }
        let sections = sections::sections(&*self.view, ino, from, end, PIECE_SECTIONS)?;
        let to = piece_end(&sections, PIECE_SECTIONS, end);
        let mut change = self.change()?;
        let mut edits = SectionEdits::default();
        match how {
            Allocate::Reserve | Allocate::ReserveKeepSize => {
                fill_gaps(&mut edits, &sections, from, to);
            }
            Allocate::PunchHole => edits.cut(&sections, from, to),
            Allocate::Collapse
            | Allocate::Insert
            | Allocate::Unshare
            | Allocate::UnshareKeepSize => {
                unreachable!("{how:?} is done elsewhere")
            }
            Allocate::Zero | Allocate::ZeroKeepSize => {
                edits.cut(&sections, from, to);
                edits.put(reserved(from, to));
            }
        }
        // What lies inside of one section frees nothing, and makes two of it.
        let is_inside = |section: &Section| section.at < from && section.end() > to;
        if how == Allocate::PunchHole && !sections.iter().any(is_inside) {
            change.batch.admission = marram_store::Admission::Freeing;
        }
        change.put_sections(ino, edits)?;
        self.drop_capability(&mut change, ino)?;
        change.touch_up_to(ino, if how.extends() && to == end { end } else { 0 })?;
        change.commit()?;
        Ok(to)
    }
}
