//! Finding data and holes. Reserved space counts as a hole: nothing has been written there.

use crate::volume::Volume;
use marram_format::record::{Inode, state};
use marram_records::inode::check_regular;
use marram_records::sections;
use marram_vfs::{Error, Result, SeekTarget};

pub(crate) fn find(volume: &Volume, ino: u64, offset: u64, target: SeekTarget) -> Result<u64> {
    let _held = volume.locks.read(ino);
    let inode = volume.load_inode(ino)?;
    check_regular(&inode)?;
    if offset >= inode.size {
        return Err(Error::NoSuchOffset);
    }
    match target {
        SeekTarget::Data => next_data(volume, ino, offset, inode.size),
        SeekTarget::Hole if is_dense(&inode) => Ok(inode.size),
        SeekTarget::Hole => next_hole(volume, ino, offset, inode.size),
    }
}

fn next_data(volume: &Volume, ino: u64, offset: u64, size: u64) -> Result<u64> {
    let at = sections::section_at(&*volume.view, ino, offset)?;
    if at.is_some_and(|section| section.block.is_some() && section.end() > offset) {
        return Ok(offset);
    }
    let mut found = None;
    sections::visit_sections(&*volume.view, ino, offset + 1, size - 1, &mut |section| {
        found = section.block.is_some().then_some(section.at);
        found.is_none()
    })?;
    found.ok_or(Error::NoSuchOffset)
}

fn next_hole(volume: &Volume, ino: u64, offset: u64, size: u64) -> Result<u64> {
    let at = sections::section_at(&*volume.view, ino, offset)?;
    let at = at.filter(|section| section.block.is_some() && section.end() > offset);
    let Some(section) = at else {
        return Ok(offset);
    };
    let mut end = section.end();
    sections::visit_sections(&*volume.view, ino, offset + 1, size - 1, &mut |section| {
        let goes_on = section.at == end && section.block.is_some();
        if goes_on {
            end = section.end();
        }
        goes_on
    })?;
    Ok(end.min(size))
}

/// Whether a file certainly has no holes: so a dense file of any size is answered at once.
fn is_dense(inode: &Inode) -> bool {
    inode.data_bytes == inode.size && inode.state & state::TAIL == 0
}
