//! Reading.
//!
//! A read returns all the bytes of its range that the file has, or fails: never fewer. The kernel
//! takes a short answer for the end of the file and shows zeros after it, so bytes before a
//! damaged block are not returned either. It then asks again page by page, which is how damage
//! comes to fail the affected range alone.

use crate::frame::{access_times, damage};
use crate::operations::create::target_key;
use crate::volume::Volume;
use bytes::Bytes;
use marram_format::record::{Inode, InodeKind, decode_target};
use marram_records::failure::from_store;
use marram_records::inode::check_regular;
use marram_records::sections;
use marram_records::sections::Section;
use marram_store::{Block, Error as StoreError, Part, Unread};
use marram_vfs::{Error, Result};

/// Most content of whole blocks that one read has in memory at once, in bytes.
const TOGETHER_BYTES_MAX: usize = 4 << 20;

/// How much of the beginning of a file is worth keeping, in bytes: a reader that has come further
/// reads on, and the kernel keeps what was read.
const BEGINNING_BYTES: u64 = 16 << 20;

/// A read that failed, and where in the file.
struct Failure {
    error: StoreError,
    section: Section,
}

pub(crate) fn read_content(
    volume: &Volume,
    ino: u64,
    offset: u64,
    len: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let inode = read_quietly(volume, ino, offset, len, out)?;
    if len > 0 {
        access_times::accessed(volume, ino, &inode);
    }
    Ok(())
}

/// Reads without moving the access time; returns the inode as it was then.
pub(crate) fn read_quietly(
    volume: &Volume,
    ino: u64,
    offset: u64,
    len: usize,
    out: &mut Vec<u8>,
) -> Result<Inode> {
    let held = volume.locks.read(ino);
    let inode = volume.load_inode(ino)?;
    check_regular(&inode)?;
    let end = inode.size.min(offset.saturating_add(len as u64));
    let before = out.len();
    let result = if offset < end { read_range(volume, ino, offset, end, out)? } else { Ok(()) };
    drop(held);
    if let Err(failure) = result {
        out.truncate(before);
        return Err(report(volume, ino, failure));
    }
    Ok(inode)
}

/// Whether `data` at `offset` repeats what the file, of `size` bytes, has there; what lies
/// past its end is nothing to repeat. The lock is held.
pub(crate) fn repeats(
    volume: &Volume,
    ino: u64,
    size: u64,
    offset: u64,
    data: &[u8],
) -> Result<bool> {
    let end = size.min(offset.saturating_add(data.len() as u64));
    let mut present = Vec::new();
    if offset < end
        && let Err(failure) = read_range(volume, ino, offset, end, &mut present)?
    {
        return Err(from_store(failure.error));
    }
    Ok(data.starts_with(&present))
}

fn read_range(
    volume: &Volume,
    ino: u64,
    offset: u64,
    end: u64,
    out: &mut Vec<u8>,
) -> Result<std::result::Result<(), Failure>> {
    let mut sections = sections::sections(&*volume.view, ino, offset, end, usize::MAX)?;
    sections.retain(|section| section.block.is_some());
    let start = out.len();
    let target = |at: u64| start + usize::try_from(at - offset).expect("a read fits memory");
    out.reserve(target(end) - start);
    let mut rest = &sections[..];
    while !rest.is_empty() {
        let (together, after) = rest.split_at(count_together(rest));
        rest = after;
        let part = |section| part_in(section, (offset, end), start);
        let parts: Vec<Part<'_>> = together.iter().filter_map(part).collect();
        if let Err(Unread { number, error }) = volume.view.read_parts(&parts, out) {
            return Ok(Err(Failure { error, section: together[number].clone() }));
        }
    }
    out.resize(target(end), 0);
    Ok(Ok(()))
}

/// The content of a section that has a block.
pub(crate) fn content_of(
    volume: &Volume,
    section: &Section,
) -> std::result::Result<Bytes, StoreError> {
    let Some(block) = &section.block else {
        return Ok(Bytes::new());
    };
    Ok(part_of(&volume.view.read_block(block)?, section))
}

/// Reports damage; returns the error of the caller.
fn report(volume: &Volume, ino: u64, failure: Failure) -> Error {
    if let StoreError::Damaged(damage) = &failure.error {
        let Section { at, len, .. } = failure.section;
        damage::report_damage(volume, ino, at, len, damage.to_string());
    }
    from_store(failure.error)
}

pub(crate) fn read_target(volume: &Volume, ino: u64) -> Result<Vec<u8>> {
    let held = volume.locks.read(ino);
    let inode = volume.load_inode(ino)?;
    if inode.kind != InodeKind::Symlink {
        return Err(Error::InvalidArgument("not a symbolic link"));
    }
    let item = volume.view.get(target_key(ino)).map_err(from_store)?;
    let missing = || Error::Damaged(format!("inode {ino}: a symlink without a target"));
    let item = item.ok_or_else(missing)?;
    let target = decode_target(&item.value)
        .map_err(|error| marram_records::failure::from_record(ino, &error))?
        .to_vec();
    drop(held);
    access_times::accessed(volume, ino, &inode);
    Ok(target)
}

/// What a section has of its block.
fn part_of(content: &Bytes, section: &Section) -> Bytes {
    let start = section.block_start as usize;
    let len = usize::try_from(section.len).expect("a block has at most 1 MiB");
    assert!(start + len <= content.len(), "a store returns whole blocks");
    content.slice(start..start + len)
}

/// What a section has of a range, of which it covers some; `start` is where that of the range
/// begins in the answer.
fn part_in(section: &Section, (offset, end): (u64, u64), start: usize) -> Option<Part<'_>> {
    let index = |bytes: u64| usize::try_from(bytes).expect("a read fits memory");
    let (from, to) = (section.at.max(offset), section.end().min(end));
    Some(Part {
        block: section.block.as_ref()?,
        from: section.block_start as usize + index(from - section.at),
        len: index(to - from),
        at: start + index(from - offset),
        passes_by: from >= BEGINNING_BYTES,
    })
}

/// How many of these sections are read together: at least the first.
fn count_together(sections: &[Section]) -> usize {
    let mut bytes = 0;
    let fits = |section: &&Section| {
        bytes += section.block.as_ref().map_or(0, Block::len);
        bytes <= TOGETHER_BYTES_MAX
    };
    sections.iter().take_while(fits).count().max(1)
}
