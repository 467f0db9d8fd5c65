//! Other ways of finding what is the same, on inserts as those of ours.

use fastcdc::v2020::FastCDC;
use marram_lab::failure::Result;
use marram_lab::process::{command, run};
use serde_json::json;
use std::collections::HashSet;
use std::path::Path;

const BLOCK: usize = 4096;
/// Content is cut into blocks of this mean, and at most so much less or more.
const CUT_FACTOR: usize = 4;
const ID_BYTES: usize = 32;
/// Rounds of those that are programs.
const PROGRAM_ROUNDS: usize = 12;
/// Rounds of what is a library.
const LIBRARY_ROUNDS: usize = 500;

/// Parts of the file's size.
#[derive(Debug, PartialEq)]
pub(super) struct Peers {
    fastcdc: f64,
    rdiff: f64,
    xdelta: f64,
}

impl Peers {
    pub(super) fn shown(&self) -> [String; 3] {
        [self.fastcdc, self.rdiff, self.xdelta].map(|part| format!("{part:.4}"))
    }

    pub(super) fn json(&self) -> serde_json::Value {
        json!({ "fastcdc": self.fastcdc, "rdiff": self.rdiff, "xdelta3": self.xdelta })
    }
}

/// Random bytes.
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut word = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
        };
        std::iter::repeat_with(&mut word).take(len.div_ceil(8)).flatten().take(len).collect()
    }
}

/// Means over inserts into a file of so many blocks.
pub(super) fn measure(folder: &Path, blocks: f64, rounds: usize) -> Result<Peers> {
    let size = (blocks * BLOCK as f64) as usize;
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let old = noise.bytes(size);
    let mut inserted = |round: usize| {
        let even = |step: f64| ((round as f64 + 0.5) * step).fract();
        let at = (even(0.754_877_666_2) * size as f64) as usize;
        let new = noise.bytes((even(0.569_840_290_998) * (size - at) as f64) as usize);
        [&old[..at], &new, &old[at..]].concat()
    };
    let part = |sum: usize, rounds: usize| sum as f64 / (rounds.max(1) * size) as f64;
    let library_rounds = rounds.min(LIBRARY_ROUNDS);
    let known: HashSet<&[u8]> = chunks(&old).collect();
    let cdc: usize = (0..library_rounds).map(|round| new_chunks(&known, &inserted(round))).sum();
    let program_rounds = rounds.min(PROGRAM_ROUNDS);
    let (mut rdiff, mut xdelta) = (0, 0);
    std::fs::write(folder.join("old"), &old)?;
    for round in 0..program_rounds {
        std::fs::write(folder.join("new"), inserted(round))?;
        rdiff += delta(
            folder,
            &[
                &["rdiff", "-f", "-b", "512", "signature", "old", "signature"],
                &["rdiff", "-f", "delta", "signature", "new", "delta"],
            ],
        )?;
        xdelta +=
            delta(folder, &[&["xdelta3", "-f", "-S", "none", "-e", "-s", "old", "new", "delta"]])?;
    }
    Ok(Peers {
        fastcdc: part(cdc, library_rounds),
        rdiff: part(rdiff, program_rounds),
        xdelta: part(xdelta, program_rounds),
    })
}

fn chunks(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bytes = |bytes: usize| u32::try_from(bytes).expect("a chunk is small");
    let (least, most) = (BLOCK / CUT_FACTOR, BLOCK * CUT_FACTOR);
    let cuts = FastCDC::new(content, bytes(least), bytes(BLOCK), bytes(most));
    cuts.map(|cut| &content[cut.offset..cut.offset + cut.length])
}

/// Bytes of the chunks that are not known, with their ids.
fn new_chunks(known: &HashSet<&[u8]>, content: &[u8]) -> usize {
    chunks(content).filter(|chunk| !known.contains(chunk)).map(|chunk| chunk.len() + ID_BYTES).sum()
}

/// Bytes of what some programs leave behind.
fn delta(folder: &Path, programs: &[&[&str]]) -> Result<usize> {
    for words in programs {
        run(command(words).current_dir(folder))?;
    }
    Ok(usize::try_from(std::fs::metadata(folder.join("delta"))?.len()).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_behind_an_insertion_are_known() {
        let old = Noise(7).bytes(200_000);
        let known: HashSet<&[u8]> = chunks(&old).collect();
        let new = [&old[..90_000], b"inserted", &old[90_000..]].concat();
        let bytes = new_chunks(&known, &new);
        assert!((8..4 * BLOCK * CUT_FACTOR).contains(&bytes), "{bytes}");
        assert_eq!(new_chunks(&known, &old), 0);
    }
}
