//! A cheap look at a block before a slow codec is let loose on it.
//!
//! Most of what cannot be compressed has been compressed or encrypted already. Then a few samples
//! show bytes that are all equally frequent (nothing for an entropy coder) and no repetition
//! (nothing for a dictionary coder). Only if all samples say both is the block given up; a
//! repetition farther apart than a sample is the price.

/// Blocks below this many bytes are not sampled: the codec itself is cheap enough.
const PROBED_BYTES_MIN: usize = 32 << 10;
/// Bytes of one sample.
const SAMPLE_BYTES: usize = 4096;
/// Parts of the block from each of which a sample is taken.
const SAMPLES: usize = 3;
/// Sum of the squares of the byte counts that samples of random bytes hardly ever reach: the mean
/// is `SAMPLE_BYTES + SAMPLE_BYTES^2 / 256`, and this is a tenth above.
const FLAT_SQUARES_MAX: u64 = 76_600;

/// Whether a slow codec would be wasted on `input`. `try_lz4` returns the length that LZ4 makes of
/// a sample.
pub(crate) fn is_hopeless(input: &[u8], mut try_lz4: impl FnMut(&[u8]) -> usize) -> bool {
    if input.len() < PROBED_BYTES_MIN {
        return false;
    }
    let stride = (input.len() - SAMPLE_BYTES) / (SAMPLES - 1);
    (0..SAMPLES).all(|index| {
        let sample = &input[index * stride..][..SAMPLE_BYTES];
        is_flat(sample) && try_lz4(sample) >= SAMPLE_BYTES
    })
}

/// Whether all values of a byte are about equally frequent.
fn is_flat(sample: &[u8]) -> bool {
    let mut counts = [0u64; 256];
    for &byte in sample {
        counts[usize::from(byte)] += 1;
    }
    counts.iter().map(|count| count * count).sum::<u64>() <= FLAT_SQUARES_MAX
}
