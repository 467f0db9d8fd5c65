//! Giving a range of a file blocks of its own.
//!
//! A slice of a block that another section may refer to is read and becomes a new block; holes are
//! reserved. It is done in pieces, each a batch of its own, that hold no more than
//! [`COPIED_BYTES_MAX`] in memory. A read shows no difference.

use crate::frame::change::Change;
use crate::frame::content::{PIECE_SECTIONS, fill_gaps};
use crate::frame::flags::flags_of;
use crate::frame::privileges;
use crate::operations::read;
use crate::volume::Volume;
use marram_records::failure::from_store;
use marram_records::section_edits::SectionEdits;
use marram_records::sections;
use marram_records::sections::{Section, piece_end};
use marram_store::Block;
use marram_vfs::{InodeFlags, Result};

/// Most bytes that one piece copies; the section that passes it comes with it.
const COPIED_BYTES_MAX: u64 = 8 << 20;

/// Does a piece of a range, from `from` on; returns where it ends. A file that `extends` gets
/// its new size with the last piece.
pub(crate) fn unshare_piece(
    volume: &Volume,
    ino: u64,
    extends: bool,
    from: u64,
    end: u64,
) -> Result<u64> {
    let mut sections = sections::sections(&*volume.view, ino, from, end, PIECE_SECTIONS)?;
    let mut to = piece_end(&sections, PIECE_SECTIONS, end);
    let mut change = Change::begin(volume)?;
    let mut edits = SectionEdits::default();
    let mut copied_bytes = 0;
    let mut looked_at = 0;
    for section in &sections {
        looked_at += 1;
        let part = section.part(from, to);
        if may_be_shared(volume, &part) {
            let content = read::content_of(volume, &part).map_err(from_store)?.to_vec();
            copied_bytes += part.len;
            edits.cut(std::slice::from_ref(section), part.at, part.end());
            let block = Some(Block::fresh(content));
            edits.put(Section { block_start: 0, block, ..part });
        }
        if copied_bytes >= COPIED_BYTES_MAX {
            to = section.end().min(to);
            break;
        }
    }
    sections.truncate(looked_at);
    fill_gaps(&mut edits, &sections, from, to);
    if flags_of(change.inode(ino)?).any(InodeFlags::NO_COMPRESSION) {
        edits.keep_as_is();
    }
    change.put_sections(ino, edits)?;
    privileges::drop_capability(volume, &mut change, ino)?;
    change.touch_up_to(ino, if extends && to == end { end } else { 0 })?;
    change.commit()?;
    Ok(to)
}

fn may_be_shared(volume: &Volume, section: &Section) -> bool {
    section.block.as_ref().is_some_and(|block| volume.view.place_of(block).may_be_shared)
}
