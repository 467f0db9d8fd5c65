//! The words that such a program is called with.

use std::ffi::OsString;

/// The arguments as text: paths and options of these programs come from `fstab` and scripts.
pub(super) fn texts(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}
