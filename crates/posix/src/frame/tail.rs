//! Tails: sections past the end of a file that a cut has left to be removed later.
//!
//! A file with a tail must not grow over it, or the tail would come back into the file.

use crate::frame::change::Change;
use crate::frame::content::PIECE_SECTIONS;
use crate::volume::Volume;
use marram_format::record::state;
use marram_records::orphans::orphan_key;
use marram_records::section_edits::SectionEdits;
use marram_records::sections;
use marram_store::Admission;
use marram_vfs::Result;

/// With less free space than this, [`SCARCE_SECTIONS`] are removed at a time.
const SCARCE_BYTES: u64 = 64 << 20;
/// See [`SCARCE_BYTES`].
const SCARCE_SECTIONS: usize = 32;

/// How many sections one batch removes. One that removes many is taken to need more space than
/// a nearly full store has.
pub(crate) fn piece_that_fits(volume: &Volume) -> usize {
    let is_scarce = volume.view.space().free_bytes < SCARCE_BYTES;
    if is_scarce { SCARCE_SECTIONS } else { PIECE_SECTIONS }
}

/// Removes at most about `max` sections past the size; true if there may be more.
pub(crate) fn cut_from(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    ino: u64,
    size: u64,
    max: usize,
) -> Result<bool> {
    let sections = sections::sections(&*volume.view, ino, size, u64::MAX, max)?;
    let mut edits = SectionEdits::default();
    edits.cut(&sections, size, u64::MAX);
    change.put_sections(ino, edits)?;
    Ok(sections.len() >= max)
}

pub(crate) fn mark_tail(
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
pub(crate) fn remove_tail(volume: &Volume, ino: u64, max: usize) -> Result<bool> {
    let mut change = Change::begin(volume)?;
    change.batch.admission = Admission::Freeing;
    let size = change.inode(ino)?.size;
    let more = cut_from(volume, &mut change, ino, size, max.max(1))?;
    mark_tail(&mut change, ino, more, true)?;
    change.commit()?;
    Ok(more)
}

/// Removes a tail. The lock is held for writing.
pub(crate) fn finish_tail(volume: &Volume, ino: u64) -> Result<()> {
    while remove_tail(volume, ino, piece_that_fits(volume))? {}
    Ok(())
}
