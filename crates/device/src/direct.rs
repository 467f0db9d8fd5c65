//! Long writes go past the page cache of the system.
//!
//! What a commit writes would wait there for the next flush of any kind. A sync of a few kilobytes
//! in the intent log would write the commit's megabytes out first, and every byte would be kept in
//! memory twice. Where the system cannot write directly, nothing is lost but that.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

use parking_lot::{Mutex, RwLock};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::GRAIN_BYTES;

/// Shorter writes are left to the page cache, which gathers them until the flush.
const LEN_MIN: usize = 64 << 10;
/// Bytes of one system call. The system takes only memory that is aligned, so they are copied; and
/// a short write waits for at most those that are under way.
const PIECE_BYTES: usize = 256 << 10;
/// Most pieces of one write that are under way at once: one by one, a device with a queue is idle
/// for much of the time.
const PIECES_AT_ONCE_MAX: usize = 4;
/// A write that is no longer than so many bytes for each is not worth another thread.
const THREAD_BYTES_MIN: usize = 2 * PIECE_BYTES;
/// Alignment in memory and on the device that every system is content with.
const ALIGNMENT: usize = GRAIN_BYTES as usize;

/// A way to a file or block device that leaves the page cache out.
///
/// **No write goes through the page cache while one goes past it.** After a direct write Linux
/// drops what the cache has of the range. The cache may keep many pages as one, which cannot be
/// dropped if a short write beside the range has made it dirty meanwhile. Linux then reports to the
/// next flush that a write has failed ("page cache invalidation failure on direct I/O").
#[derive(Debug)]
pub(crate) struct DirectWriter {
    file: File,
    /// Held alone while anything is written through the page cache, and together with others for
    /// each piece that goes past it.
    turn: RwLock<()>,
    /// Memory for pieces that nobody writes from.
    spare: Mutex<Vec<AlignedBytes>>,
    /// The system has refused once; it would again.
    refused: AtomicBool,
}

impl DirectWriter {
    /// Opens what `file` has open once more; `None` where the system has no direct writes for it.
    pub(crate) fn of(file: &File) -> Option<DirectWriter> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flags of open are an int");
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = OpenOptions::new().write(true).custom_flags(flags).open(same).ok()?;
        let (turn, spare) = (RwLock::new(()), Mutex::new(Vec::new()));
        Some(DirectWriter { file, turn, spare, refused: AtomicBool::new(false) })
    }

    /// Writes `parts`, one behind the other, at `offset`: past the page cache if they are a long
    /// whole number of grains, else by `buffered`, the same file. Readers through the page cache
    /// see them from then on. Of a long write that fails any piece may have been written.
    pub(crate) fn write(&self, buffered: &File, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if !self.can_take(offset, len) {
            let _alone = self.turn.write();
            return write_buffered(buffered, offset, parts);
        }
        let rest = Mutex::new(Rest { at: offset, len, part: &[], after: parts });
        let write = || self.write_pieces(buffered, &rest);
        let threads = (len / THREAD_BYTES_MIN).clamp(1, PIECES_AT_ONCE_MAX);
        std::thread::scope(|scope| {
            // Where the system has no thread to give, those that there are write all of it.
            let start = |_| Builder::new().spawn_scoped(scope, write).ok();
            let others: Vec<_> = (1..threads).map_while(start).collect();
            let mine = write();
            let ended = others.into_iter().map(|it| it.join().expect("writing does not panic"));
            ended.fold(mine, Result::and)
        })
    }

    /// Writes pieces until none is left, or one has failed.
    fn write_pieces(&self, buffered: &File, rest: &Mutex<Rest<'_>>) -> io::Result<()> {
        let mut memory = self.spare.lock().pop().unwrap_or_default();
        loop {
            let (at, piece) = memory.fill(&mut rest.lock());
            if piece.is_empty() {
                break;
            }
            self.write_piece(buffered, at, piece).inspect_err(|_| rest.lock().give_up())?;
        }
        let mut spare = self.spare.lock();
        spare.push(memory);
        spare.truncate(PIECES_AT_ONCE_MAX);
        Ok(())
    }

    fn write_piece(&self, buffered: &File, at: u64, piece: &[u8]) -> io::Result<()> {
        {
            let _beside_others = self.turn.read();
            match self.file.write_all_at(piece, at) {
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
                done => return done,
            }
        }
        self.refused.store(true, Ordering::Relaxed);
        let _alone = self.turn.write();
        buffered.write_all_at(piece, at)
    }

    fn can_take(&self, offset: u64, len: usize) -> bool {
        let is_aligned = offset.is_multiple_of(GRAIN_BYTES) && len.is_multiple_of(ALIGNMENT);
        len >= LEN_MIN && is_aligned && !self.refused.load(Ordering::Relaxed)
    }
}

/// Writes `parts`, one behind the other, through the page cache.
pub(crate) fn write_buffered(file: &File, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
    match parts {
        [only] => file.write_all_at(only, offset),
        _ => file.write_all_at(&parts.concat(), offset),
    }
}

/// What of some parts nobody has begun to write.
struct Rest<'p> {
    /// Where on the device it goes.
    at: u64,
    len: usize,
    part: &'p [u8],
    after: &'p [&'p [u8]],
}

impl Rest<'_> {
    /// Takes as much off the front as fills `place`.
    fn copy_to(&mut self, place: &mut [u8]) {
        self.at += place.len() as u64;
        self.len -= place.len();
        let mut place = place;
        while !place.is_empty() {
            if self.part.is_empty() {
                let (first, after) = self.after.split_first().expect("there is enough left");
                (self.part, self.after) = (first, after);
            }
            let (now, later) = self.part.split_at(self.part.len().min(place.len()));
            let (filled, empty) = place.split_at_mut(now.len());
            filled.copy_from_slice(now);
            (self.part, place) = (later, empty);
        }
    }

    /// The write has failed: nobody need begin another piece.
    fn give_up(&mut self) {
        self.len = 0;
    }
}

/// A buffer of [`PIECE_BYTES`] at an aligned place, once it is needed.
#[derive(Debug, Default)]
struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
}

impl AlignedBytes {
    /// The next piece of `rest`, and where it goes; an empty one if there is nothing left.
    fn fill(&mut self, rest: &mut Rest<'_>) -> (u64, &[u8]) {
        if self.memory.is_empty() {
            self.memory = vec![0; PIECE_BYTES + ALIGNMENT];
            self.start = self.memory.as_ptr().align_offset(ALIGNMENT);
        }
        let (at, len) = (rest.at, rest.len.min(PIECE_BYTES));
        let place = &mut self.memory[self.start..][..len];
        rest.copy_to(place);
        (at, place)
    }
}

#[cfg(test)]
mod tests {
    use super::{DirectWriter, LEN_MIN, PIECE_BYTES};
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A file, or nothing where the system has no direct writes.
    fn file_of(len: usize) -> Option<(File, DirectWriter)> {
        let folder = env!("CARGO_MANIFEST_DIR");
        let file = tempfile::tempfile_in(folder).expect("a temporary file");
        file.set_len(len as u64).expect("it can be sized");
        DirectWriter::of(&file).map(|direct| (file, direct))
    }

    #[test]
    fn writes_of_all_lengths_are_seen_by_readers_through_the_page_cache() {
        let size = 12 * PIECE_BYTES;
        let Some((file, direct)) = file_of(size) else { return };
        let mut expected = vec![0; size];
        let long = 9 * PIECE_BYTES + 8192;
        let ranges = [(4096, long), (512, LEN_MIN), (0, LEN_MIN), (70_000, 10), (8192, LEN_MIN)];
        for (offset, len) in ranges {
            let mut read = vec![9; size];
            file.read_exact_at(&mut read, 0).expect("it reads");
            let bytes: Vec<u8> = (0..len).map(|at| ((at + offset) / 512 % 251) as u8).collect();
            let (first, rest) = bytes.split_at(len / 3);
            let (second, third) = rest.split_at(len / 5);
            let parts = [first, &[], second, third];
            direct.write(&file, offset as u64, &parts).expect("it writes");
            expected[offset..offset + len].copy_from_slice(&bytes);
            file.read_exact_at(&mut read, 0).expect("it reads");
            assert!(read == expected, "after {len} bytes at {offset}");
        }
        file.sync_data().expect("it flushes");
    }

    #[test]
    fn short_and_long_neighbours_never_make_a_flush_fail() {
        never_makes_a_flush_fail(LEN_MIN, 1000);
        never_makes_a_flush_fail(5 * PIECE_BYTES, 100);
    }

    fn never_makes_a_flush_fail(long: usize, rounds: usize) {
        let size = long + 3 * PIECE_BYTES;
        let Some((file, direct)) = file_of(size) else { return };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Readers make the cache keep long stretches as one.
            scope.spawn(|| {
                let mut read = vec![0; size];
                while !done.load(Ordering::Relaxed) {
                    file.read_exact_at(&mut read, 0).expect("it reads");
                }
            });
            scope.spawn(|| {
                for round in 0..rounds {
                    direct.write(&file, 4096, &[&vec![round as u8; long]]).expect("long");
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                direct.write(&file, 0, &[&[1; 4096]]).expect("short");
                direct.write(&file, 4096 + long as u64, &[&[2; 4096]]).expect("short");
            }
        });
        file.sync_data().expect("no write has failed");
    }

    #[test]
    fn a_write_fails_if_only_its_last_piece_does() {
        const PIECES: usize = 8;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("device", flags).expect("a file in memory"));
        file.set_len(((PIECES - 1) * PIECE_BYTES) as u64).expect("it can be sized");
        fcntl_add_seals(&file, SealFlags::GROW).expect("it can be sealed");
        let Some(direct) = DirectWriter::of(&file) else { return };
        for first in 0..PIECES {
            let parts = [&vec![1; (PIECES - first) * PIECE_BYTES][..]];
            let written = direct.write(&file, (first * PIECE_BYTES) as u64, &parts);
            assert!(written.is_err(), "of {} pieces the last cannot be", PIECES - first);
        }
        direct.write(&file, 0, &[&vec![2; (PIECES - 1) * PIECE_BYTES]]).expect("all can be");
    }
}
