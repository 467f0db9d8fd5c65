//! Windows: the pieces of files that are compared.
//!
//! They lie at multiples of their length, however the file is cut into sections: so two files with
//! equal bytes at equal places are found to be equal, however they were written.

use crate::frame::damage;
use crate::operations::read;
use crate::volume::Volume;
use marram_records::inode::check_regular;
use marram_records::sections;
use marram_records::sections::Section;
use marram_store::Block;
use marram_vfs::{Error, Ino, Result};

/// Shorter windows (of short files, and at the end of long ones) are left alone, in bytes: content
/// that is so short lies beside its item, or nearly.
pub(super) const WINDOW_BYTES_MIN: u64 = 2048;
/// Sections that are looked at at once for one with data.
const SECTIONS_MAX: usize = 256;

/// A window with data.
pub(super) struct Window {
    /// Where in the file.
    pub(super) offset: u64,
    /// In bytes.
    pub(super) len: u64,
    /// All of it has been written by a commit.
    pub(super) is_settled: bool,
    /// Checksum of its content; none if nothing would be gained by finding the same elsewhere.
    pub(super) checksum: Result<Option<u64>>,
}

/// The first window of `len` bytes, a power of two, at or after `offset`, one of its multiples,
/// that has data. The access time does not move. With `only_settled`, what no commit has
/// written is not read.
pub(crate) fn next_window(
    volume: &Volume,
    ino: Ino,
    offset: u64,
    len: u64,
    only_settled: bool,
) -> Result<Option<Window>> {
    volume.check_running()?;
    let held = volume.locks.read(ino.0);
    let inode = volume.load_inode(ino.0)?;
    check_regular(&inode)?;
    let Some(first) = first_data(volume, ino.0, offset, inode.size)? else {
        return Ok(None);
    };
    let offset = first & !(len - 1);
    let end = offset.saturating_add(len).min(inode.size);
    let sections = sections::sections(&*volume.view, ino.0, offset, end, usize::MAX)?;
    let blocks = sections.iter().filter_map(|section| section.block.as_ref());
    let is_settled = blocks.clone().all(|block| match block {
        Block::Fresh(fresh) => fresh.stored().is_some(),
        Block::Stored(_) => true,
    });
    let is_worth_it = end - offset >= WINDOW_BYTES_MIN
        && blocks.clone().any(|block| volume.view.stored_bytes(block) > 0);
    let mut window = Window { offset, len: end - offset, is_settled, checksum: Ok(None) };
    if !is_worth_it || (only_settled && !is_settled) {
        return Ok(Some(window));
    }
    let read = content_between(volume, &sections, offset, end);
    drop(held);
    window.checksum = match read {
        Ok(content) => Ok(Some(xxhash_rust::xxh3::xxh3_64(&content))),
        Err(failure) => {
            let (section, error) = *failure;
            Err(report_unread(volume, ino.0, &section, error))
        }
    };
    Ok(Some(window))
}

/// The first byte of data at or after `offset` and before `end`.
fn first_data(volume: &Volume, ino: u64, offset: u64, end: u64) -> Result<Option<u64>> {
    let mut at = offset;
    while at < end {
        let sections = sections::sections(&*volume.view, ino, at, end, SECTIONS_MAX)?;
        if let Some(data) = sections.iter().find(|section| section.block.is_some()) {
            return Ok(Some(data.at.max(at)).filter(|first| *first < end));
        }
        match sections.last() {
            Some(last) if sections.len() >= SECTIONS_MAX => at = last.end(),
            _ => break,
        }
    }
    Ok(None)
}

/// The bytes of a range, of which these are the sections; holes are zeros.
fn content_between(
    volume: &Volume,
    sections: &[Section],
    from: u64,
    to: u64,
) -> std::result::Result<Vec<u8>, Box<(Section, marram_store::Error)>> {
    let index = |at: u64| usize::try_from(at - from).expect("a window fits memory");
    let mut content = Vec::with_capacity(index(to));
    for section in sections.iter().filter(|section| section.block.is_some()) {
        let part = section.part(from, to);
        let read =
            read::content_of(volume, &part).map_err(|error| Box::new((section.clone(), error)))?;
        content.resize(index(part.at), 0);
        content.extend_from_slice(&read);
    }
    content.resize(index(to), 0);
    Ok(content)
}

/// Reports damage, and returns what the user gets to see. No lock is held.
pub(crate) fn report_unread(
    volume: &Volume,
    ino: u64,
    section: &Section,
    error: marram_store::Error,
) -> Error {
    if let marram_store::Error::Damaged(damage) = &error {
        damage::report_damage(volume, ino, section.at, section.len, damage.to_string());
    }
    marram_records::failure::from_store(error)
}
