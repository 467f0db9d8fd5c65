//! Copying ranges by sharing blocks.
//!
//! Sections are slices, so any slice of a block can be shared wherever it begins. Slices that are
//! too short to be worth a reference are copied. A long range is copied in pieces, each a batch
//! of its own; when a later piece fails, the bytes copied so far are returned.
//!
//! From another file system of the same store blocks are adopted: a block that a dataset holds of
//! another one has both as owners (docs/decisions/0016-owners-of-a-block.md).

use crate::frame::change::Change;
use crate::frame::content::{PIECE_SECTIONS, range_end};
use crate::frame::{content, privileges, together};
use crate::operations::{marks, read};
use crate::volume::Volume;
use marram_records::failure::from_store;
use marram_records::inode::check_regular;
use marram_records::section_edits::SectionEdits;
use marram_records::sections;
use marram_records::sections::{Section, piece_end, section_key};
use marram_store::Block;
use marram_vfs::{Error, Result};

/// Shorter slices are copied, in bytes.
const SHARED_BYTES_MIN: u64 = 4096;

/// How often a group commit is made for blocks that are to be adopted, and that somebody may have
/// written anew when it is done.
const SHARING_ATTEMPTS: usize = 4;

/// How a range may come to its target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// By sharing blocks, and by copying what is too short to be worth a reference.
    Any,
    /// By sharing blocks and nothing else; all of the range has to be there.
    Shared,
}

impl Form {
    /// Shorter slices are copied, in bytes.
    fn shared_bytes_min(self) -> u64 {
        match self {
            Form::Any => SHARED_BYTES_MIN,
            Form::Shared => 0,
        }
    }
}

/// A place in a file.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) ino: u64,
    pub(crate) offset: u64,
}

impl Place {
    fn after(self, bytes: u64) -> Place {
        Place { offset: self.offset + bytes, ..self }
    }
}

pub(crate) fn copy_content(
    volume: &Volume,
    from: Place,
    to: Place,
    len: u64,
    form: Form,
) -> Result<u64> {
    volume.check_writable()?;
    let _held = volume.locks.write(&[from.ino, to.ino]);
    copy_held(volume, volume, from, to, len, form)
}

/// Shares a range of a file of another file system of the same store. Blocks can be adopted once
/// a group commit has written them, so one is made where that is missing.
pub(crate) fn share_what_is_written(
    volume: &Volume,
    source: &Volume,
    from: Place,
    to: Place,
    len: u64,
) -> Result<u64> {
    let share = || copy_across(volume, source, from, to, len, Form::Shared);
    for _ in 0..SHARING_ATTEMPTS {
        match share() {
            Err(Error::Busy) => source.view.commit().map_err(from_store)?,
            done => return done,
        }
    }
    share()
}

/// Copies a range from a file of another file system of the same store.
pub(crate) fn copy_across(
    volume: &Volume,
    source: &Volume,
    from: Place,
    to: Place,
    len: u64,
    form: Form,
) -> Result<u64> {
    volume.check_running()?;
    source.check_running()?;
    volume.check_writable()?;
    // What is adopted must stay where it is until the batch has been applied.
    let _held = volume.locks.write_from(to.ino, &source.locks, from.ino);
    copy_held(volume, source, from, to, len, form)
}

fn copy_held(
    volume: &Volume,
    source: &Volume,
    from: Place,
    to: Place,
    len: u64,
    form: Form,
) -> Result<u64> {
    let read = source.load_inode(from.ino)?;
    check_regular(&read)?;
    let target = volume.load_inode(to.ino)?;
    check_regular(&target)?;
    marks::check_write(volume, to.ino, &target, to.offset, &[], false)?;
    let present = read.size.saturating_sub(from.offset);
    if form == Form::Shared && len > present {
        return Err(Error::InvalidArgument("the range ends after the source"));
    }
    let len = len.min(present);
    if len == 0 {
        return Ok(0);
    }
    let end = range_end(to.offset, len)?;
    let is_same_file = std::ptr::eq(volume, source) && from.ino == to.ino;
    if is_same_file && from.offset < end && to.offset < from.offset + len {
        return Err(Error::InvalidArgument("overlapping ranges"));
    }
    content::content_inode(volume, to.ino)?;
    let mut copied = 0;
    while copied < len {
        let (from, to) = (from.after(copied), to.after(copied));
        match copy_piece(volume, source, from, to, len - copied, form) {
            Ok(bytes) => copied += bytes,
            Err(_) if copied > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(copied)
}

fn copy_piece(
    volume: &Volume,
    source: &Volume,
    from: Place,
    to: Place,
    len: u64,
    form: Form,
) -> Result<u64> {
    let (max, is_other) = (PIECE_SECTIONS, !std::ptr::eq(volume, source));
    let moment = is_other.then(|| together::moment_of(source)).transpose()?;
    // What was known of it may be of before.
    if is_other && source.load_inode(from.ino)?.size < from.offset + len {
        return Err(Error::Overtaken);
    }
    let sources = sections::sections(&*source.view, from.ino, from.offset, from.offset + len, max)?;
    let len = piece_end(&sources, max, from.offset + len) - from.offset;
    let old = sections::sections(&*volume.view, to.ino, to.offset, to.offset + len, max)?;
    let len = piece_end(&old, max, to.offset + len) - to.offset;
    let (source_end, end) = (from.offset + len, to.offset + len);
    let mut change = Change::begin(volume)?;
    let mut edits = SectionEdits::default();
    edits.cut(&old, to.offset, end);
    let used = sources.iter().filter(|source| source.at < source_end && source.block.is_some());
    let mut shared = Vec::new();
    for section in used {
        let mut part = section.part(from.offset, source_end);
        if part.len < form.shared_bytes_min() {
            let content = read::content_of(source, &part).map_err(from_store)?.to_vec();
            part = Section { block_start: 0, block: Some(Block::fresh(content)), ..part };
        } else if is_other {
            let adopt = |block| volume.view.adopt(&*source.view, block).map_err(from_store);
            part.block = part.block.as_ref().map(adopt).transpose()?;
            if form == Form::Shared && matches!(part.block, Some(Block::Fresh(_))) {
                return Err(Error::Busy);
            }
        } else {
            shared.push(section);
        }
        edits.put(Section { at: part.at - from.offset + to.offset, ..part });
    }
    for section in shared {
        if from.ino == to.ino {
            edits.keep(section);
        } else {
            change.batch.put(section_key(from.ino, section.at), section.clone().into_item());
        }
    }
    change.put_sections(to.ino, edits)?;
    privileges::drop_capability(volume, &mut change, to.ino)?;
    change.touch_up_to(to.ino, end)?;
    // The source may have been cut anew while it was read.
    if is_other && Some(together::moment_of(source)?) != moment {
        return Err(Error::Overtaken);
    }
    change.commit()?;
    Ok(len)
}
