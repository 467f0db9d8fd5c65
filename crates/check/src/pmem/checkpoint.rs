//! Checkpoints of an image whose pages are written back in any order.

use super::memory::{Checked, Image, Problem};
use crate::finding::FindingKind::ImageRecord;
use xxhash_rust::xxh3::xxh3_64;

/// Where the word is that says for which run of the machine the live state is right.
const LIVES_FOR: u64 = 528;
/// Where a checkpoint can be.
const PLACES: [u64; 2] = [1024, 1536];

/// Where a check begins.
pub(super) enum Begin {
    /// At the live state.
    Live,
    /// At a checkpoint.
    Checkpoint {
        /// The first page of its slots.
        slots: u64,
        /// All numbers that it has are below this one.
        number_limit: u64,
    },
}

/// Finds out which state is right here.
pub(super) fn begin(image: &Image<'_>, host: Option<u64>) -> Checked<Begin> {
    let lives_for = image.word(LIVES_FOR)?;
    if lives_for == 0 || host == Some(lives_for) {
        return Ok(Begin::Live);
    }
    let mut newest = None;
    for place in PLACES {
        let words = [1, 2, 3].map(|which| image.word(place + which * 8));
        let [sequence, slots, number_limit] = words;
        let words = [sequence?, slots?, number_limit?];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let is_whole = xxh3_64(&bytes) == image.word(place)?;
        if is_whole && newest.is_none_or(|known: [u64; 3]| known[0] < words[0]) {
            newest = Some(words);
        }
    }
    match newest {
        Some([_, slots, number_limit]) => Ok(Begin::Checkpoint { slots, number_limit }),
        None => {
            let what = "the image was not closed, and has no checkpoint";
            Err(Problem::new(ImageRecord, LIVES_FOR, what))
        }
    }
}
