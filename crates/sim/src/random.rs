//! Randomness from one seed, and nothing else: the same seed gives the same run everywhere.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
//! Generators, 2014).

/// A stream of numbers that a seed decides.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0. Slightly uneven for large ends, which is no matter
    /// here.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// True once in `times`, on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of `choices`, which are not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// `len` bytes that `seed` decides: one repeated byte (zero among them), lines of text, or noise,
/// so that what a codec does with each kind is exercised.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    match seed % 3 {
        0 => vec![(seed / 3 % 5) as u8; len],
        1 => {
            let line = format!("{:016x} the same line again\n", random.number());
            line.bytes().cycle().take(len).collect()
        }
        _ => {
            let mut bytes: Vec<u8> = Vec::with_capacity(len + 8);
            while bytes.len() < len {
                bytes.extend(random.number().to_le_bytes());
            }
            bytes.truncate(len);
            bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, pattern};

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        let mut random = Random::new(1);
        assert_eq!(random.number(), 0x910a_2dec_8902_5cc1);
        assert_eq!(random.number(), 0xbeeb_8da1_658e_ec67);
        for seed in 0..9 {
            assert_eq!(pattern(seed, 1000).len(), 1000);
            assert_eq!(pattern(seed, 1000)[..10], pattern(seed, 10)[..]);
        }
    }
}
