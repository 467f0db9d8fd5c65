//! The records that a mount of a pmem home goes by before it looks at anything else: the intent,
//! the checkpoints, the redo record. Checksums are mended, so that what they say is reached.
//!
//! The input is a mode, the two words of the intent, three words of each checkpoint, and the words
//! of the redo record.

#![no_main]

#[allow(dead_code, reason = "changes of whole images use the rest")]
mod pmem;

use libfuzzer_sys::fuzz_target;
use pmem::{PAGE, base, judge, mend_checkpoints};
use xxhash_rust::xxh3::xxh3_64;

/// Words before the redo record's.
const WORDS_BEFORE: usize = 8;
/// Most words of a redo record.
const WORDS_MAX: usize = 1023;

fuzz_target!(|bytes: &[u8]| {
    let Some((mode, words)) = bytes.split_first() else { return };
    let words = words.chunks_exact(8);
    if words.len() < WORDS_BEFORE {
        return;
    }
    let words: Vec<&[u8]> = words.collect();
    let (first, record) = words.split_at(WORDS_BEFORE);
    let mut image = base(*mode).clone();
    image[576..592].copy_from_slice(&first[..2].concat());
    for (place, checkpoint) in [(1032, &first[2..5]), (1544, &first[5..])] {
        if checkpoint[0] != [0; 8] {
            image[place..place + 24].copy_from_slice(&checkpoint.concat());
        }
    }
    mend_checkpoints(&mut image);
    let record = record[..record.len().min(WORDS_MAX)].concat();
    if !record.is_empty() {
        let opening = 1 | (record.len() as u64 / 8) << 16 | xxh3_64(&record) << 32;
        image[PAGE..PAGE + 8].copy_from_slice(&opening.to_le_bytes());
        image[PAGE + 8..PAGE + 8 + record.len()].copy_from_slice(&record);
    }
    judge(image, *mode);
});
