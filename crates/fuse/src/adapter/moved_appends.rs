//! Appends that went elsewhere than the kernel thought.
//!
//! The kernel appends at the end that it knows. Where a file has grown or shrunk behind its back,
//! and it has not asked since, that is not the end: a merge has added lines to a log that a program
//! has open. So an append goes to the true end. The kernel then has the bytes cached in the wrong
//! place, and has to forget them.

use super::cached::OldPages;
use crate::protocol::Header;
use marram_vfs::Ino;
use parking_lot::Mutex;

/// Such appends that are done and not answered, by the numbers of their requests.
#[derive(Default)]
pub(super) struct MovedAppends(Mutex<Vec<(u64, OldPages)>>);

impl MovedAppends {
    /// Takes note of an append that the kernel has asked for at `asked` and that went to `end`.
    pub(super) fn note(&self, header: &Header, asked: u64, end: u64) {
        if asked == end {
            return;
        }
        let offset = i64::try_from(asked.min(end)).unwrap_or(i64::MAX);
        let pages = OldPages { ino: Ino(header.node), offset, len: 0 };
        self.0.lock().push((header.unique, pages));
    }

    /// What the kernel has to forget when this request has been answered.
    pub(super) fn take(&self, header: &Header) -> Option<OldPages> {
        let mut moved = self.0.lock();
        let at = moved.iter().position(|(unique, _)| *unique == header.unique)?;
        Some(moved.swap_remove(at).1)
    }
}
