//! What all operations on the content of files need: ranges, records, and a file without a tail.

use crate::change::Change;
use crate::filesystem::Posix;
use marram_format::record::{Inode, state};
use marram_records::inode::{check_regular, touch_content};
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

impl Posix {
    /// The record of a regular file whose content may be changed anywhere: a tail that a cut has
    /// left would come back into the file, so it is removed first. The lock is held for writing.
    pub(crate) fn content_inode(&self, ino: u64) -> Result<Inode> {
        let inode = self.load_inode(ino)?;
        check_regular(&inode)?;
        if inode.state & state::TAIL == 0 {
            return Ok(inode);
        }
        self.finish_tail(ino)?;
        self.load_inode(ino)
    }
}

impl Change<'_, '_> {
    /// The content of a file was changed up to `end`.
    pub(crate) fn touch_up_to(&mut self, ino: u64, end: u64) -> Result<()> {
        let now = self.now;
        let inode = self.inode_mut(ino)?;
        inode.size = inode.size.max(end);
        touch_content(inode, now);
        Ok(())
    }
}
