//! What all operations on the content of files need: ranges, records, and a file without a tail.

use crate::frame::tail;
use crate::volume::Volume;
use marram_format::record::{Inode, state};
use marram_records::inode::check_regular;
use marram_records::section_edits::SectionEdits;
use marram_records::sections::Section;
use marram_vfs::{Error, FILE_BYTES_MAX, Result};

/// Sections that one batch looks at when an operation may meet any number of them.
pub(crate) const PIECE_SECTIONS: usize = 1024;

/// The end of a range, if it lies within the largest file.
pub(crate) fn range_end(offset: u64, len: u64) -> Result<u64> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(end),
        _ => Err(Error::FileTooLarge),
    }
}

/// The record of a regular file whose content may be changed anywhere: a tail that a cut has
/// left would come back into the file, so it is removed first. The lock is held for writing.
pub(crate) fn content_inode(volume: &Volume, ino: u64) -> Result<Inode> {
    let inode = volume.load_inode(ino)?;
    check_regular(&inode)?;
    if inode.state & state::TAIL == 0 {
        return Ok(inode);
    }
    tail::finish_tail(volume, ino)?;
    volume.load_inode(ino)
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

/// A section without a block.
pub(crate) fn reserved(at: u64, end: u64) -> Section {
    Section { at, len: end - at, block_start: 0, block: None }
}
