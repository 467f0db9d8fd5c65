//! Which files are read through the kernel's cache, as far as direct writes must know.
//!
//! One bit for many files, and never taken back: a bit too much costs a direct write a message to
//! the kernel, one too few would leave old bytes in the cache.

use crate::protocol::flags::{read, write};
use crate::protocol::{Operation, Request};
use marram_vfs::Ino;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of bits.
const WORDS: usize = 1024;

/// Files that have been read through the cache.
pub(super) struct CachedReads(Box<[AtomicU64; WORDS]>);

/// A range of a file of which the kernel's cache may have what is no longer so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OldPages {
    pub(crate) ino: Ino,
    /// Where, in bytes.
    pub(crate) offset: i64,
    /// How much, in bytes; 0 is all up to the end.
    pub(crate) len: i64,
}

impl Default for CachedReads {
    fn default() -> Self {
        CachedReads(Box::new([const { AtomicU64::new(0) }; WORDS]))
    }
}

impl CachedReads {
    fn bit(&self, ino: Ino) -> (&AtomicU64, u64) {
        let hash = ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let word = usize::try_from(hash >> 6).expect("sixteen bits") % WORDS;
        (&self.0[word], 1 << (hash & 63))
    }

    /// Takes note of a read, before it is made. Direct ones are marked by the kernel.
    pub(super) fn note(&self, ino: Ino, flags: u32) {
        let (word, bit) = self.bit(ino);
        if flags & read::DIRECT == 0 && word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    fn has(&self, ino: Ino) -> bool {
        let (word, bit) = self.bit(ino);
        word.load(Ordering::SeqCst) & bit != 0
    }

    /// The range of a direct write that the kernel may have read before it was done. Other writes
    /// go through the cache: their pages are right, and are locked until they are answered.
    pub(super) fn direct_write(&self, request: &Request<'_>) -> Option<OldPages> {
        let Operation::Write(write) = &request.operation else {
            return None;
        };
        let ino = Ino(request.header.node);
        let is_direct = write.flags & (write::DIRECT | write::CACHE) == write::DIRECT;
        if !is_direct || !self.has(ino) {
            return None;
        }
        let offset = i64::try_from(write.offset).ok()?;
        Some(OldPages { ino, offset, len: i64::try_from(write.data.len()).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::{CachedReads, read};
    use marram_vfs::Ino;

    #[test]
    fn only_reads_through_the_cache_count() {
        let reads = CachedReads::default();
        reads.note(Ino(7), read::DIRECT);
        assert!(!reads.has(Ino(7)));
        reads.note(Ino(7), 0);
        assert!(reads.has(Ino(7)) && !reads.has(Ino(8)));
    }
}
