//! Reserving, zeroing and punching ranges of files; moving and unsharing them is in `shift` and
//! `unshare`.
//!
//! A range may cover any number of sections, so it is done in pieces, from the front, each a
//! batch of its own; a new size comes with the last. Reserved space is counted as used by the
//! file; that there is as much free is checked when it is reserved, and then it is kept back from
//! others (see `promises`).

use crate::frame::content::range_end;
use crate::frame::flags::check_allocation;
use crate::frame::{content, reclaim, together};
use crate::operations::shift::Shifted;
use crate::operations::{allocate_piece, shift};
use crate::volume::Volume;
use marram_records::failure::from_store;
use marram_records::inode::check_regular;
use marram_records::sections;
use marram_records::sections::Section;
use marram_vfs::{Allocate, Error, Result};

/// As [`marram_vfs::Ranges::allocate`]. An error inside says that it has stopped in the middle: it
/// must not be executed anew.
pub(crate) fn allocate_content(
    volume: &Volume,
    ino: u64,
    how: Allocate,
    offset: u64,
    len: u64,
) -> Shifted {
    reclaim::with_reclaim(volume, || allocate_range(volume, ino, how, offset, len))
}

/// An error inside is one that more space does not help.
fn allocate_range(volume: &Volume, ino: u64, how: Allocate, offset: u64, len: u64) -> Shifted {
    volume.check_writable()?;
    let _held = volume.locks.write(&[ino]);
    let inode = volume.load_inode(ino)?;
    check_regular(&inode)?;
    check_allocation(&inode, how)?;
    if len == 0 {
        return Err(Error::InvalidArgument("length"));
    }
    let end = range_end(offset, len)?;
    let size = content::content_inode(volume, ino)?.size;
    match how {
        // Of many sections each batch moves some: between two of them others could write.
        Allocate::Collapse | Allocate::Insert if together::is_shared(volume) => {
            return Err(Error::NotSupported);
        }
        Allocate::Collapse => return shift::collapse_range(volume, ino, offset, end, size),
        Allocate::Insert => return shift::insert_range(volume, ino, offset, end, size),
        Allocate::PunchHole => (),
        _ => check_free(volume, ino, offset, end)?,
    }
    let mut at = offset;
    while at < end {
        at = allocate_piece::allocate_piece(volume, ino, how, at, end)?;
    }
    Ok(Ok(()))
}

/// Refuses to promise more space than there is, or the same space twice.
fn check_free(volume: &Volume, ino: u64, offset: u64, end: u64) -> Result<()> {
    let free_bytes = volume.view.space().free_bytes;
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
    sections::section_at(&*volume.view, ino, offset)?.map(&mut subtract);
    sections::visit_sections(&*volume.view, ino, offset + 1, end - 1, &mut subtract)?;
    if missing <= free_bytes {
        return Ok(());
    }
    // What has been freed since the last commit is not counted yet.
    volume.view.commit().map_err(from_store)?;
    if missing > volume.view.space().free_bytes { Err(Error::NoSpace) } else { Ok(()) }
}
