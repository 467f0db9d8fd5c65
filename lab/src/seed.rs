//! Random numbers from a seed (SplitMix64), so that a run can be replayed.

/// A source of random numbers.
pub struct Seed(u64);

impl Seed {
    /// The source that `seed` starts.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` up to and without `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low).max(1)
    }

    /// An index into `length` things.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.draw() % length.max(1) as u64).expect("below a usize")
    }

    /// Bytes that do not compress.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.draw().to_le_bytes());
        words.flatten().take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let mut first = Seed::new(7);
        let mut second = Seed::new(7);
        assert_eq!(first.bytes(100), second.bytes(100));
        assert!((10..20).contains(&first.between(10, 20)));
    }
}
