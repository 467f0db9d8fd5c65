//! Times as words: exact for every moment that a user sets, and moved to the present by a store of
//! four bytes.
//!
//! The low half of a word has the low 16 bits of the seconds and the high 16 of the 30 bits of the
//! nanoseconds. The present is cut to [`GRAIN`] nanoseconds, so that the high half stays for 18
//! hours. Seconds that do not fit into 32 bits have a flag here and their high half beside the
//! word.

use marram_vfs::Timestamp;

/// Nanoseconds by which the present is cut.
pub(crate) const GRAIN: u32 = 1 << 14;
/// The user has set the time.
pub(crate) const EXPLICIT: u64 = 1 << 62;
/// The seconds go on in the extension.
const WIDE: u64 = 1 << 63;

/// Which time of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Last change of attributes, or of anything if it was set.
    Changed = 0,
    /// Last change of content.
    Modified = 1,
    /// Last access.
    Accessed = 2,
    /// Birth.
    Created = 3,
}

/// A time as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The word.
    pub(crate) word: u64,
    /// The high half of the seconds, where the word says that it counts.
    pub(crate) high: Option<u32>,
}

/// The present as it is kept.
pub(crate) fn cut(now: Timestamp) -> Timestamp {
    Timestamp { nanoseconds: now.nanoseconds & !(GRAIN - 1), ..now }
}

/// Makes a time a word.
pub(crate) fn encode(time: Timestamp, explicit: bool) -> Stored {
    let seconds = time.seconds as u64;
    let nanoseconds = u64::from(time.nanoseconds);
    let mut word = seconds & 0xffff
        | (nanoseconds >> 14) << 16
        | (nanoseconds & 0x3fff) << 32
        | (seconds >> 16 & 0xffff) << 46;
    let high = (seconds >> 32) as u32;
    if explicit {
        word |= EXPLICIT;
    }
    if high != 0 {
        word |= WIDE;
    }
    Stored { word, high: (high != 0).then_some(high) }
}

/// The time in a word; `high` is what lies beside it.
pub(crate) fn decode(word: u64, high: u32) -> Timestamp {
    let high = if is_wide(word) { u64::from(high) } else { 0 };
    let seconds = word & 0xffff | (word >> 46 & 0xffff) << 16 | high << 32;
    let nanoseconds = (word >> 16 & 0xffff) << 14 | word >> 32 & 0x3fff;
    Timestamp { seconds: seconds as i64, nanoseconds: nanoseconds as u32 }
}

/// Whether the user has set the time in a word.
pub(crate) fn is_explicit(word: u64) -> bool {
    word & EXPLICIT != 0
}

/// Whether the seconds go on beside the word.
pub(crate) fn is_wide(word: u64) -> bool {
    word & WIDE != 0
}

#[cfg(test)]
mod tests {
    use super::{cut, decode, encode, is_explicit};
    use marram_vfs::Timestamp;

    #[test]
    fn every_time_comes_back_to_the_nanosecond() {
        for seconds in
            [0, -1, -2_208_988_800, 1 << 31, 1 << 32, 253_402_300_799, i64::MIN, i64::MAX]
        {
            for nanoseconds in [0, 1, 16_383, 999_999_999] {
                let time = Timestamp { seconds, nanoseconds };
                let stored = encode(time, true);
                assert_eq!(decode(stored.word, stored.high.unwrap_or(7)), time);
                assert!(is_explicit(stored.word));
            }
        }
    }

    #[test]
    fn the_present_moves_the_low_half_alone() {
        let at = |seconds, nanoseconds| encode(cut(Timestamp { seconds, nanoseconds }), false).word;
        let first = at(1_700_000_000, 17);
        let later = at(1_700_000_000 + 2000, 999_999_999);
        assert_eq!(first >> 32, later >> 32);
        assert_ne!(first, later);
    }
}
