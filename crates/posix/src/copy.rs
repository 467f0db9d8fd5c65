//! Copying ranges by sharing blocks.
//!
//! Sections are slices, so any slice of a block can be shared wherever it begins. Slices that are
//! too short to be worth a reference are copied. A long range is copied in pieces, each a batch
//! of its own; when a later piece fails, the bytes copied so far are told.

use crate::content::{PIECE_SECTIONS, range_end};
use crate::edits::SectionEdits;
use crate::failure::from_store;
use crate::filesystem::Posix;
use crate::inode::check_regular;
use crate::sections::{Section, piece_end, section_key};
use marram_store::Block;
use marram_vfs::{Error, Result};

/// Shorter slices are copied, in bytes.
const SHARED_BYTES_MIN: u64 = 4096;

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

impl Posix {
    pub(crate) fn copy_content(&self, from: Place, to: Place, len: u64, form: Form) -> Result<u64> {
        self.check_writable()?;
        let _held = self.locks.write(&[from.ino, to.ino]);
        let source = self.load_inode(from.ino)?;
        check_regular(&source)?;
        let target = self.load_inode(to.ino)?;
        check_regular(&target)?;
        self.check_write(to.ino, &target, to.offset, &[], false)?;
        let present = source.size.saturating_sub(from.offset);
        if form == Form::Shared && len > present {
            return Err(Error::InvalidArgument("the range ends after the source"));
        }
        let len = len.min(present);
        if len == 0 {
            return Ok(0);
        }
        let end = range_end(to.offset, len)?;
        if from.ino == to.ino && from.offset < end && to.offset < from.offset + len {
            return Err(Error::InvalidArgument("overlapping ranges"));
        }
        self.content_inode(to.ino)?;
        let mut copied = 0;
        while copied < len {
            match self.copy_piece(from.after(copied), to.after(copied), len - copied, form) {
                Ok(bytes) => copied += bytes,
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }

    fn copy_piece(&self, from: Place, to: Place, len: u64, form: Form) -> Result<u64> {
        let max = PIECE_SECTIONS;
        let sources = self.sections(from.ino, from.offset, from.offset + len, max)?;
        let len = piece_end(&sources, max, from.offset + len) - from.offset;
        let old = self.sections(to.ino, to.offset, to.offset + len, max)?;
        let len = piece_end(&old, max, to.offset + len) - to.offset;
        let (source_end, end) = (from.offset + len, to.offset + len);
        let mut change = self.change()?;
        let mut edits = SectionEdits::default();
        edits.cut(&old, to.offset, end);
        let used = sources.iter().filter(|source| source.at < source_end && source.block.is_some());
        let mut shared = Vec::new();
        for source in used {
            let mut part = source.part(from.offset, source_end);
            if part.len >= form.shared_bytes_min() {
                shared.push(source);
            } else {
                let content = self.content_of(&part).map_err(from_store)?.to_vec();
                part = Section { block_start: 0, block: Some(Block::fresh(content)), ..part };
            }
            edits.put(Section { at: part.at - from.offset + to.offset, ..part });
        }
        for source in shared {
            if from.ino == to.ino {
                edits.keep(source);
            } else {
                change.batch.put(section_key(from.ino, source.at), source.clone().into_item());
            }
        }
        edits.into_change(&mut change, to.ino)?;
        self.drop_capability(&mut change, to.ino)?;
        change.touch_up_to(to.ino, end)?;
        change.commit()?;
        Ok(len)
    }
}
