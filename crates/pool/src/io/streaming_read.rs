//! Long records that go by: read into the answer of the request that takes them whole, past the
//! cache.
//!
//! A program that reads a long file from one end to the other seldom needs it in this cache: the
//! kernel keeps the pages of the first read. A second copy here would push out what is read in
//! pieces. It would also take a good part of the time of reading, as the content would be written
//! to memory that no cache of the processor holds. So a streaming read leaves nothing but a note.
//! Two of them cost about as much as one that keeps the content and one that finds it. A third
//! read, past the kernel's cache or for one more fork, is kept. What takes long to unpack is kept
//! at once.
//!
//! **An answer is verified before it is used**: compressed bytes before they are unpacked, others
//! where they lie in the answer, which is thrown away after an error.

use super::{CacheKey, Media, grains_bytes, peek_key};
use crate::base::pointers::decode_pointer;
use bytes::Bytes;
use marram_codec::decompress_into;
use marram_format::pointer::{Place, Pointer, codec_id};
use marram_store::{BLOCK_BYTES_MAX, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// A record is long from this length on, in bytes: as long as records are unless somebody sets
/// another length.
const LONG_BYTES_MIN: usize = 128 << 10;
/// Notes for each long record that the cache could hold: so many that few records share a place,
/// as none of those that do is ever kept while they take turns.
const NOTES_PER_RECORD: usize = 16;
/// So often a record goes by before it is kept.
const TIMES_MAX: u64 = 2;
/// The bits of a note that say how often.
const TIMES: u64 = 3;

/// Which long records went by lately. Each has one place for its note, which that of another one
/// may take: then it counts as one that was not read.
pub(super) struct Passed {
    notes: Box<[AtomicU64]>,
}

impl Passed {
    pub(super) fn new(cache_bytes: usize) -> Passed {
        let notes = (cache_bytes / LONG_BYTES_MIN * NOTES_PER_RECORD).max(NOTES_PER_RECORD);
        Passed { notes: (0..notes).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Whether a record has gone by so often that it is kept now; else notes that it does.
    fn is_wanted(&self, (birth, address): CacheKey) -> bool {
        /// 2^64 divided by the golden ratio: spreads what lies side by side.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let name = (address ^ birth.rotate_left(32)).wrapping_mul(SPREAD);
        let place = (u128::from(name) * self.notes.len() as u128) >> u64::BITS;
        let place = &self.notes[usize::try_from(place).expect("below the number of notes")];
        let (name, noted) = (name & !TIMES, place.load(Ordering::Relaxed));
        let times = if noted & !TIMES == name { noted & TIMES } else { 0 };
        let is_wanted = times == TIMES_MAX;
        place.store(if is_wanted { 0 } else { name | (times + 1) }, Ordering::Relaxed);
        is_wanted
    }
}

impl Media {
    /// As [`Media::block`], into a place that is as long as the content, which goes by.
    pub(crate) fn block_into(&self, encoded: &Bytes, epoch: u64, place: &mut [u8]) -> Result<()> {
        if let Some(data) = self.cached(encoded).filter(|data| data.len() == place.len()) {
            place.copy_from_slice(&data);
            return Ok(());
        }
        let pointer = decode_pointer(encoded)?;
        let passes = place.len() == pointer.logical_len as usize
            && (LONG_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&place.len())
            && is_quick(pointer.codec);
        if passes && !peek_key(encoded).is_some_and(|key| self.passed.is_wanted(key)) {
            return self.fill(&pointer, epoch, place);
        }
        let content = self.block(encoded, epoch)?;
        if content.len() != place.len() {
            let reason = format!("{} bytes and not {}", content.len(), place.len());
            return Err(self.report("a block", &pointer, reason));
        }
        place.copy_from_slice(&content);
        Ok(())
    }

    /// Reads and unpacks it where it is to lie.
    fn fill(&self, pointer: &Pointer, epoch: u64, place: &mut [u8]) -> Result<()> {
        let is_plain = pointer.codec == codec_id::OFF
            && pointer.physical_len == pointer.logical_len
            && grains_bytes(pointer) == place.len();
        if let Place::Stored { checksum, copies } = &pointer.place
            && is_plain
        {
            return self.read_stored(pointer, checksum, copies, epoch, place);
        }
        let stored = self.stored(pointer, epoch)?;
        decompress_into(pointer.codec, &stored, place)
            .map_err(|error| self.not_unpacked(pointer, &error))
    }
}

/// Whether to read and unpack it again costs about as much as to keep it.
fn is_quick(codec: u8) -> bool {
    matches!(codec, codec_id::OFF | codec_id::LZ4 | codec_id::ZLE)
}

#[cfg(test)]
mod tests {
    use super::{LONG_BYTES_MIN, Passed};

    #[test]
    fn what_has_gone_by_twice_is_wanted_the_third_time() {
        const RECORDS: u64 = 1000;
        let passed = Passed::new(usize::try_from(RECORDS).expect("few") * LONG_BYTES_MIN);
        let wanted = || {
            let key = |number: u64| (7 + number / 50, number * 32);
            (0..RECORDS / 10).filter(|number| passed.is_wanted(key(*number))).count()
        };
        assert_eq!([wanted(), wanted()], [0, 0]);
        let third = wanted();
        assert!(third > 90, "{third} of 100 that were read just now");
        assert!(wanted() < 10, "it is in the cache, or is no longer wanted there");
    }
}
