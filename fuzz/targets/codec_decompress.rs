//! Decompression of hostile bytes: an error or exactly the length that was asked for.

#![no_main]

use libfuzzer_sys::fuzz_target;

/// A block is at most 1 MiB.
const LEN_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let [codec, low, middle, high, rest @ ..] = bytes else { return };
    let wanted = usize::from(*low) | usize::from(*middle) << 8 | usize::from(*high) << 16;
    let wanted = wanted.min(LEN_MAX);
    if let Ok(plain) = marram_codec::decompress(codec % 8, rest, wanted) {
        assert_eq!(plain.len(), wanted);
    }
});
