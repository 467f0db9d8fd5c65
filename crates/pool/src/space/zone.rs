//! One zone: 64 MiB of a device, one bit for each grain.

use marram_format::space::{ZONE_BITMAP_BYTES, ZONE_GRAINS};

const WORDS: usize = ZONE_BITMAP_BYTES / 8;

/// Which grains of a zone are taken.
///
/// A set bit means that the grain must not be allocated: it is in use, was freed by the group that
/// is being committed (the last commit still needs it until the new one is durable), or lies
/// past the end of the device.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    busy: [u64; WORDS],
    busy_grains: u32,
    /// No run of free grains is longer than this: saves searching full zones again and again.
    run_grains_max: u32,
}

impl Zone {
    /// A zone of which the first `grains` exist, all free.
    pub(crate) fn empty(grains: u64) -> Zone {
        let mut zone = Zone { busy: [0; WORDS], busy_grains: 0, run_grains_max: u32::MAX };
        for grain in grains..ZONE_GRAINS {
            zone.set(grain);
        }
        zone
    }

    /// A zone from its bitmap; `grains` of it exist.
    pub(crate) fn from_bitmap(bitmap: &[u8; ZONE_BITMAP_BYTES], grains: u64) -> Zone {
        let mut zone = Zone::empty(grains);
        for (word, bytes) in zone.busy.iter_mut().zip(bitmap.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(bytes);
            *word |= u64::from_le_bytes(eight);
        }
        zone.busy_grains = zone.busy.iter().map(|word| word.count_ones()).sum();
        zone
    }

    /// The bitmap of the first `grains`; what does not exist is written as free.
    pub(crate) fn bitmap(&self, grains: u64) -> [u8; ZONE_BITMAP_BYTES] {
        let mut copy = self.clone();
        for grain in grains..ZONE_GRAINS {
            copy.clear(grain);
        }
        let mut bytes = [0; ZONE_BITMAP_BYTES];
        for (eight, word) in bytes.chunks_exact_mut(8).zip(copy.busy) {
            eight.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Grains that can be allocated.
    pub(crate) fn free_grains(&self) -> u32 {
        u32::try_from(ZONE_GRAINS).unwrap_or(u32::MAX) - self.busy_grains
    }

    /// Whether a run of `grains` may exist.
    pub(crate) fn may_hold(&self, grains: u32) -> bool {
        self.free_grains() >= grains && self.run_grains_max >= grains
    }

    fn is_busy(&self, grain: u64) -> bool {
        self.busy[word_of(grain)] >> (grain % 64) & 1 == 1
    }

    fn set(&mut self, grain: u64) {
        let bit = 1 << (grain % 64);
        let word = &mut self.busy[word_of(grain)];
        self.busy_grains += u32::from(*word & bit == 0);
        *word |= bit;
    }

    fn clear(&mut self, grain: u64) {
        let bit = 1 << (grain % 64);
        let word = &mut self.busy[word_of(grain)];
        self.busy_grains -= u32::from(*word & bit != 0);
        *word &= !bit;
    }

    /// Whether every grain of a run is free.
    pub(crate) fn is_free(&self, start: u64, grains: u32) -> bool {
        let end = start + u64::from(grains);
        self.next_busy(start, end) == end
    }

    /// Whether every grain of a run is taken.
    pub(crate) fn is_taken(&self, start: u64, grains: u32) -> bool {
        self.next_free(start, start + u64::from(grains)).is_none()
    }

    /// Takes a run; every grain of it must be free.
    pub(crate) fn take(&mut self, start: u64, grains: u32) {
        for grain in start..start + u64::from(grains) {
            assert!(!self.is_busy(grain), "grain {grain} of a zone is allocated twice");
            self.set(grain);
        }
    }

    /// Marks a run as taken, whatever it was.
    pub(crate) fn mark(&mut self, start: u64, grains: u32) {
        (start..start + u64::from(grains)).for_each(|grain| self.set(grain));
    }

    /// Gives a run back; every grain of it must be taken.
    pub(crate) fn release(&mut self, start: u64, grains: u32) {
        for grain in start..start + u64::from(grains) {
            assert!(self.is_busy(grain), "grain {grain} of a zone is freed twice");
            self.clear(grain);
        }
        self.run_grains_max = u32::MAX;
    }

    /// The first run of `grains` free grains at or after `from`, else before it.
    pub(crate) fn find(&mut self, from: u64, grains: u32) -> Option<u64> {
        if !self.may_hold(grains) {
            return None;
        }
        let found = self
            .find_between(from, ZONE_GRAINS, grains)
            .or_else(|| self.find_between(0, (from + u64::from(grains)).min(ZONE_GRAINS), grains));
        if found.is_none() {
            self.run_grains_max = grains - 1;
        }
        found
    }

    fn find_between(&self, from: u64, end: u64, grains: u32) -> Option<u64> {
        let mut start = self.next_free(from, end)?;
        loop {
            let limit = (start + u64::from(grains)).min(end);
            let busy = self.next_busy(start, limit);
            if busy - start >= u64::from(grains) {
                return Some(start);
            }
            start = self.next_free(busy, end)?;
        }
    }

    /// All runs of free grains: starts and lengths, in order.
    pub(crate) fn free_runs(&self) -> impl Iterator<Item = (u64, u32)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let start = self.next_free(from, ZONE_GRAINS)?;
            from = self.next_busy(start, ZONE_GRAINS);
            Some((start, u32::try_from(from - start).unwrap_or(u32::MAX)))
        })
    }

    fn next_free(&self, from: u64, end: u64) -> Option<u64> {
        self.next_where(from, end, |word| !word)
    }

    /// The first taken grain from `from`, or `end`.
    fn next_busy(&self, from: u64, end: u64) -> u64 {
        self.next_where(from, end, |word| word).unwrap_or(end)
    }

    fn next_where(&self, from: u64, end: u64, select: impl Fn(u64) -> u64) -> Option<u64> {
        let mut grain = from;
        while grain < end {
            let word = select(self.busy[word_of(grain)]) >> (grain % 64);
            if word != 0 {
                let found = grain + u64::from(word.trailing_zeros());
                return (found < end).then_some(found);
            }
            grain = (grain / 64 + 1) * 64;
        }
        None
    }
}

fn word_of(grain: u64) -> usize {
    usize::try_from(grain / 64).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{ZONE_GRAINS, Zone};

    #[test]
    fn runs_are_found_across_words_and_around_the_end() {
        let mut zone = Zone::empty(ZONE_GRAINS);
        zone.take(0, 100);
        assert_eq!(zone.find(0, 200), Some(100));
        zone.take(300, 16_384 - 300);
        assert_eq!(zone.find(290, 150), Some(100));
        assert_eq!(zone.find(0, 201), None);
        assert!(!zone.may_hold(201));
        zone.release(300, 1);
        assert_eq!(zone.find(0, 201), Some(100));
        assert_eq!(zone.free_runs().next(), Some((100, 201)));
    }

    #[test]
    fn a_bitmap_brings_back_the_zone_and_hides_what_does_not_exist() {
        let mut zone = Zone::empty(1000);
        assert_eq!(zone.free_grains(), 1000);
        zone.take(17, 70);
        let bitmap = zone.bitmap(1000);
        assert_eq!(bitmap.iter().map(|byte| byte.count_ones()).sum::<u32>(), 70);
        let mut back = Zone::from_bitmap(&bitmap, 1000);
        assert_eq!(back.free_grains(), 930);
        assert_eq!(back.find(20, 1), Some(87));
        assert_eq!(back.find(0, 1000), None);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_a_broken_invariant() {
        let mut zone = Zone::empty(ZONE_GRAINS);
        zone.take(5, 1);
        zone.release(5, 1);
        zone.release(5, 1);
    }
}
