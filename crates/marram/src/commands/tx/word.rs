//! What a user says for the id of a transaction.

/// Shortest beginning of an id that stands for it.
const WORD_LEN_MIN: usize = 4;

/// Whether a word of a user stands for an id: that, or the beginning of it.
pub(super) fn names(word: &str, id: &str) -> bool {
    word == id || (word.len() >= WORD_LEN_MIN && id.starts_with(word))
}
