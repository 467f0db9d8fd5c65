//! One piece of a range that is reserved, zeroed, punched or unshared: one batch.

use crate::frame::change::Change;
use crate::frame::content::{PIECE_SECTIONS, fill_gaps, reserved};
use crate::frame::privileges;
use crate::operations::unshare;
use crate::volume::Volume;
use marram_records::section_edits::SectionEdits;
use marram_records::sections;
use marram_records::sections::{Section, piece_end};
use marram_vfs::{Allocate, Result};

/// Does a piece of a range, from `from` on; returns where it ends.
pub(crate) fn allocate_piece(
    volume: &Volume,
    ino: u64,
    how: Allocate,
    from: u64,
    end: u64,
) -> Result<u64> {
    if matches!(how, Allocate::Unshare | Allocate::UnshareKeepSize) {
        return unshare::unshare_piece(volume, ino, how.extends(), from, end);
    }
    let sections = sections::sections(&*volume.view, ino, from, end, PIECE_SECTIONS)?;
    let to = piece_end(&sections, PIECE_SECTIONS, end);
    let mut change = Change::begin(volume)?;
    let mut edits = SectionEdits::default();
    match how {
        Allocate::Reserve | Allocate::ReserveKeepSize => {
            fill_gaps(&mut edits, &sections, from, to);
        }
        Allocate::PunchHole => edits.cut(&sections, from, to),
        Allocate::Collapse | Allocate::Insert | Allocate::Unshare | Allocate::UnshareKeepSize => {
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
    privileges::drop_capability(volume, &mut change, ino)?;
    change.touch_up_to(ino, if how.extends() && to == end { end } else { 0 })?;
    change.commit()?;
    Ok(to)
}
