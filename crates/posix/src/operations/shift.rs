//! Taking ranges out of files, and putting ranges into them: what comes after moves.
//!
//! Only items move, no content: a section says where in the file it begins, and blocks know
//! nothing of that. So any byte may begin and end a range.
//!
//! **In pieces.** Where no more than [`PIECE_SECTIONS`] sections are concerned, all of it is one
//! batch. Else it is done in pieces, and the range, then a hole, travels: a range that is taken out
//! becomes a hole first, which moves to the end of the file, a piece of what comes after it at a
//! time, and is cut off there with the last; a range that is put in begins at the end of the file,
//! and moves to its place. So a crash, or a piece that fails, leaves a file with all its bytes in
//! their order, and a hole as long as the range somewhere between its place and the end. Others
//! see none of that: the lock is held throughout.
//!
//! **Begun once.** What has stopped in the middle must not be begun anew when more space is free:
//! where the range was, there is content now that has moved. So it says whether it had begun.
//!
//! What was reserved past the end is given up first, as XFS does it: else the end of the file would
//! say nothing of what has to move, and where to.

use crate::frame::change::Change;
use crate::frame::content::{PIECE_SECTIONS, range_end};
use crate::frame::{privileges, together};
use crate::operations::allocate_piece;
use crate::volume::Volume;
use marram_records::failure::from_store;
use marram_records::section_edits::SectionEdits;
use marram_records::sections;
use marram_records::sections::{Section, section_key};
use marram_store::Admission;
use marram_vfs::{Allocate, Error, Result};

/// How a shift ended. An error inside says that it has stopped in the middle; one outside, that
/// nothing has moved, so that it can be begun anew.
pub(crate) type Shifted = Result<Result<()>>;

/// Which way sections move, and how far.
#[derive(Clone, Copy)]
enum Shift {
    ToFront(u64),
    ToEnd(u64),
}

impl Shift {
    fn moved(self, section: Section) -> Section {
        let at = match self {
            Shift::ToFront(bytes) => section.at - bytes,
            Shift::ToEnd(bytes) => section.at + bytes,
        };
        Section { at, ..section }
    }

    /// The size of a file of `size` bytes when all has moved.
    fn size(self, size: u64) -> u64 {
        match self {
            Shift::ToFront(bytes) => size - bytes,
            Shift::ToEnd(bytes) => size + bytes,
        }
    }
}

fn stopped(error: Error, has_moved: bool) -> Shifted {
    if has_moved { Ok(Err(error)) } else { Err(error) }
}

/// One batch of a shift.
struct Piece {
    /// What the file has from here on is cut, ...
    from: u64,
    /// ... up to here, and moves if it begins no earlier than `first_moved`.
    sections: Vec<Section>,
    to: u64,
    first_moved: u64,
    /// The size of the file from then on.
    size: u64,
}

/// Takes the range from `offset` to `end` out of a file of `size` bytes. The lock is held for
/// writing, and the file has no tail.
pub(crate) fn collapse_range(
    volume: &Volume,
    ino: u64,
    offset: u64,
    end: u64,
    size: u64,
) -> Shifted {
    if end >= size {
        return Err(Error::InvalidArgument("the range reaches the end of the file"));
    }
    drop_reserved_past_end(volume, ino, size)?;
    let shift = Shift::ToFront(end - offset);
    let whole = sections::sections(&*volume.view, ino, offset, size, PIECE_SECTIONS)?;
    if whole.len() < PIECE_SECTIONS {
        let size = size - (end - offset);
        let piece = Piece { from: offset, sections: whole, to: u64::MAX, first_moved: end, size };
        return shift_piece(volume, ino, shift, piece).map(Ok);
    }
    drop(whole);
    let mut at = offset;
    while at < end {
        at = allocate_piece::allocate_piece(volume, ino, Allocate::PunchHole, at, end)?;
    }
    while at < size {
        match together::piece(volume, || move_to_front(volume, ino, shift, (at, size))) {
            Ok(to) => at = to,
            Err(error) => return stopped(error, at > end),
        }
    }
    Ok(Ok(()))
}

/// Moves a piece of what a file of `size` bytes has from `at` on; returns where it ends.
fn move_to_front(volume: &Volume, ino: u64, shift: Shift, (at, size): (u64, u64)) -> Result<u64> {
    let sections = sections::sections(&*volume.view, ino, at, size, PIECE_SECTIONS)?;
    let last = sections.len() < PIECE_SECTIONS;
    let to = sections.last().filter(|_| !last).map_or(size, Section::end);
    let size = if last { shift.size(size) } else { size };
    shift_piece(volume, ino, shift, Piece { from: at, sections, to, first_moved: at, size })?;
    Ok(to)
}

/// Puts a hole from `offset` to `end` into a file of `size` bytes. The lock is held for
/// writing, and the file has no tail.
pub(crate) fn insert_range(volume: &Volume, ino: u64, offset: u64, end: u64, size: u64) -> Shifted {
    if offset >= size {
        return Err(Error::InvalidArgument("the range begins at the end of the file"));
    }
    range_end(size, end - offset)?;
    drop_reserved_past_end(volume, ino, size)?;
    let shift = Shift::ToEnd(end - offset);
    let mut to = size;
    while to > offset {
        let part = || move_to_end(volume, ino, shift, (offset, to), shift.size(size));
        match together::piece(volume, part) {
            Ok(from) => to = from,
            Err(error) => return stopped(error, to < size),
        }
    }
    Ok(Ok(()))
}

/// Moves the last piece of what a file has between two places, and sets its size; returns where
/// it begins.
fn move_to_end(
    volume: &Volume,
    ino: u64,
    shift: Shift,
    (offset, to): (u64, u64),
    size: u64,
) -> Result<u64> {
    let (sections, more) = last_sections(volume, ino, offset, to)?;
    let from = sections.first().filter(|_| more).map_or(offset, |first| first.at);
    shift_piece(volume, ino, shift, Piece { from, sections, to, first_moved: from, size })?;
    Ok(from)
}

/// At most [`PIECE_SECTIONS`] sections with content between two places, the last ones, in
/// order; and whether there are more before them.
fn last_sections(volume: &Volume, ino: u64, from: u64, to: u64) -> Result<(Vec<Section>, bool)> {
    let mut sections = Vec::new();
    let mut before = to;
    while let Some(last) = before.checked_sub(1) {
        let found = volume.view.last(section_key(ino, 0), section_key(ino, last));
        let Some((key, item)) = found.map_err(from_store)? else {
            break;
        };
        let section = Section::decode(key, &item)
            .map_err(|error| marram_records::failure::from_record(ino, &error))?;
        if section.end() <= from {
            break;
        }
        if sections.len() == PIECE_SECTIONS {
            sections.reverse();
            return Ok((sections, true));
        }
        before = section.at;
        sections.push(section);
        if before <= from {
            break;
        }
    }
    sections.reverse();
    Ok((sections, false))
}

/// Applies one piece. Sections that begin before the piece are cut in two where it begins.
fn shift_piece(volume: &Volume, ino: u64, shift: Shift, piece: Piece) -> Result<()> {
    let mut change = Change::begin(volume)?;
    // Where one is cut in two, more comes than goes.
    let is_cut = |section: &Section| section.at < piece.from && section.end() > piece.first_moved;
    if matches!(shift, Shift::ToFront(_)) && !piece.sections.iter().any(is_cut) {
        change.batch.admission = Admission::Freeing;
    }
    let mut edits = SectionEdits::default();
    edits.cut(&piece.sections, piece.from, piece.to);
    for section in &piece.sections {
        if section.end() > piece.first_moved {
            let part = section.part(piece.first_moved, piece.to);
            edits.put(shift.moved(part));
        }
    }
    change.put_sections(ino, edits)?;
    privileges::drop_capability(volume, &mut change, ino)?;
    change.touch_up_to(ino, 0)?;
    change.inode_mut(ino)?.size = piece.size;
    change.commit()
}

/// Gives up what is reserved past the end of a file.
fn drop_reserved_past_end(volume: &Volume, ino: u64, size: u64) -> Result<()> {
    loop {
        let sections = sections::sections(&*volume.view, ino, size, u64::MAX, PIECE_SECTIONS)?;
        if sections.is_empty() {
            return Ok(());
        }
        let mut change = Change::begin(volume)?;
        change.batch.admission = Admission::Freeing;
        let mut edits = SectionEdits::default();
        edits.cut(&sections, size, u64::MAX);
        change.put_sections(ino, edits)?;
        change.commit()?;
    }
}
