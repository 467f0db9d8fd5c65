//! Telling where the content of a file lies.

use crate::volume::Volume;
use marram_records::inode::check_regular;
use marram_records::sections;
use marram_records::sections::Section;
use marram_store::Block;
use marram_vfs::{Extent, ExtentPlace, Result};

/// At most `max` extents that end after `offset`, in order.
pub(crate) fn extents_of(
    volume: &Volume,
    ino: u64,
    offset: u64,
    max: usize,
) -> Result<Vec<Extent>> {
    let _held = volume.locks.read(ino);
    let inode = volume.load_inode(ino)?;
    check_regular(&inode)?;
    // What a cut has left past the end is not part of the file any more.
    let end =
        if inode.state & marram_format::record::state::TAIL != 0 { inode.size } else { u64::MAX };
    if offset >= end || max == 0 {
        return Ok(Vec::new());
    }
    let sections = sections::sections(&*volume.view, ino, offset, end, max)?;
    let extent = |section: &Section| Extent {
        offset: section.at,
        len: section.end().min(end) - section.at,
        place: place_of(volume, section),
    };
    Ok(sections.iter().map(extent).collect())
}

fn place_of(volume: &Volume, section: &Section) -> ExtentPlace {
    let Some(block) = &section.block else {
        return ExtentPlace::Reserved;
    };
    let place = volume.view.place_of(block);
    match (place.address, block) {
        (Some((device, address)), _) => ExtentPlace::Stored {
            device,
            address,
            stored_bytes: place.stored_bytes,
            block_bytes: block.len() as u64,
            block_start: u64::from(section.block_start),
            shared: place.may_be_shared,
        },
        (None, Block::Fresh(_)) => ExtentPlace::Waiting,
        (None, Block::Stored(_)) => ExtentPlace::Beside,
    }
}
