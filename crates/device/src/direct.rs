//! Long writes go past the page cache of the system.
//!
//! What a commit writes would wait there for the next flush, whoever asks for it: a sync of a few
//! kilobytes in the intent log would write the commit's megabytes out first, and every byte would
//! be kept in memory twice. Where the system cannot write directly, nothing is lost but that.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::GRAIN_BYTES;

/// Shorter writes are left to the page cache, which gathers them until the flush.
const LEN_MIN: usize = 64 << 10;
/// Bytes written at a time: the system takes only memory that is aligned, so they are copied.
const PIECE_BYTES: usize = 1 << 20;
/// Alignment in memory and on the device that every system is content with.
const ALIGNMENT: usize = GRAIN_BYTES as usize;

/// A way to a file or block device that leaves the page cache out.
#[derive(Debug)]
pub(crate) struct DirectWriter {
    file: File,
    aligned: Mutex<AlignedBytes>,
    /// The system has refused once; it would again.
    refused: AtomicBool,
}

impl DirectWriter {
    /// Opens what `file` has open once more; `None` where the system has no direct writes for it.
    pub(crate) fn of(file: &File) -> Option<DirectWriter> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flags of open are an int");
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = OpenOptions::new().write(true).custom_flags(flags).open(same).ok()?;
        let aligned = Mutex::new(AlignedBytes::default());
        Some(DirectWriter { file, aligned, refused: AtomicBool::new(false) })
    }

    /// Writes `bytes` at `offset` if they are a long whole number of grains and nobody else is at
    /// it; returns whether it did. Readers through the page cache see them from then on.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let is_aligned =
            offset.is_multiple_of(GRAIN_BYTES) && bytes.len().is_multiple_of(ALIGNMENT);
        if bytes.len() < LEN_MIN || !is_aligned || self.refused.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let Some(mut aligned) = self.aligned.try_lock() else {
            return Ok(false);
        };
        let mut at = offset;
        for piece in bytes.chunks(PIECE_BYTES) {
            match self.file.write_all_at(aligned.copy_of(piece), at) {
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    self.refused.store(true, Ordering::Relaxed);
                    return Ok(false);
                }
                written => written?,
            }
            at += piece.len() as u64;
        }
        Ok(true)
    }
}

/// A buffer of [`PIECE_BYTES`] at an aligned place, once it is needed.
#[derive(Debug, Default)]
struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
}

impl AlignedBytes {
    fn copy_of(&mut self, piece: &[u8]) -> &[u8] {
        if self.memory.is_empty() {
            self.memory = vec![0; PIECE_BYTES + ALIGNMENT];
            self.start = self.memory.as_ptr().align_offset(ALIGNMENT);
        }
        let place = &mut self.memory[self.start..][..piece.len()];
        place.copy_from_slice(piece);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::{DirectWriter, LEN_MIN, PIECE_BYTES};
    use std::os::unix::fs::FileExt;

    fn file_of(len: usize) -> std::fs::File {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(len as u64).expect("it can be sized");
        file
    }

    #[test]
    fn long_writes_are_seen_by_readers_through_the_page_cache() {
        let len = 3 * PIECE_BYTES + 8192;
        let file = file_of(len + 4096);
        let Some(direct) = DirectWriter::of(&file) else { return };
        let mut cached = vec![9; len];
        file.read_exact_at(&mut cached, 4096).expect("it reads");
        let bytes: Vec<u8> = (0..len).map(|at| (at / 512 % 251) as u8).collect();
        if direct.write(4096, &bytes).expect("it writes") {
            file.read_exact_at(&mut cached, 4096).expect("it reads");
            assert!(cached == bytes);
        }
    }

    #[test]
    fn what_is_short_or_crooked_is_left_to_the_page_cache() {
        let file = file_of(4 * LEN_MIN);
        let Some(direct) = DirectWriter::of(&file) else { return };
        let bytes = vec![1; 2 * LEN_MIN];
        for (offset, len) in [(0, 4096), (512, LEN_MIN), (0, LEN_MIN + 512)] {
            assert!(!direct.write(offset, &bytes[..len]).expect("it is only refused"));
        }
        let mut read = vec![9; 4 * LEN_MIN];
        file.read_exact_at(&mut read, 0).expect("it reads");
        assert!(read.iter().all(|byte| *byte == 0), "nothing was written");
    }
}
