//! Checkpoints of an image whose pages are written back in any order.

use super::NUMBER_MAX;
use super::memory::{Checked, Image, Problem};
use crate::finding::FindingKind::ImageRecord;
use xxhash_rust::xxh3::xxh3_64;

/// Where the word is that says for which run of the machine the live state is right.
const LIVES_FOR: u64 = 528;
/// No checkpoint has this sequence number, or a greater one.
const SEQUENCE_MAX: u64 = 1 << 63;
/// Where a checkpoint can be, by the last bit of its sequence number.
const PLACES: [u64; 2] = [1024, 1536];

/// A checkpoint.
pub(super) struct Checkpoint {
    /// The first page of its slots.
    pub(super) slots: u64,
    /// All numbers that it has are below this one.
    pub(super) number_limit: u64,
}

/// What there is to look at.
pub(super) struct Begin {
    /// The live state is right here.
    pub(super) is_live: bool,
    /// What a power cut would leave. An image that was closed needs none.
    pub(super) checkpoint: Checked<Option<Checkpoint>>,
}

/// Finds out which states are right here.
pub(super) fn begin(image: &Image<'_>, host: Option<u64>) -> Checked<Begin> {
    let lives_for = image.word(LIVES_FOR)?;
    if lives_for == 0 {
        return Ok(Begin { is_live: true, checkpoint: Ok(None) });
    }
    let mut newest = None;
    for (parity, place) in PLACES.into_iter().enumerate() {
        let words = [1, 2, 3].map(|which| image.word(place + which * 8));
        let [sequence, slots, number_limit] = words;
        let words = [sequence?, slots?, number_limit?];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let is_sane = words[0] < SEQUENCE_MAX && words[2] <= NUMBER_MAX;
        let is_in_place = words[0] % 2 == parity as u64;
        let is_whole = xxh3_64(&bytes) == image.word(place)? && is_in_place && is_sane;
        if is_whole && newest.is_none_or(|known: [u64; 3]| known[0] < words[0]) {
            newest = Some(words);
        }
    }
    let checkpoint = match newest {
        Some([_, slots, number_limit]) => Ok(Some(Checkpoint { slots, number_limit })),
        None => {
            let what = "the image was not closed, and has no checkpoint";
            Err(Problem::new(ImageRecord, LIVES_FOR, what))
        }
    };
    Ok(Begin { is_live: host == Some(lives_for), checkpoint })
}
