//! Sets of grains: one bit each, kept by zone, so that what was never touched takes no memory.

use marram_format::pointer::Extent;
use marram_format::space::{ZONE_BITMAP_BYTES, ZONE_GRAINS};
use std::collections::BTreeMap;

const WORDS: usize = ZONE_BITMAP_BYTES / 8;

/// The grains of one zone.
type Zone = Box<[u64; WORDS]>;

/// A set of grains of one device.
#[derive(Default)]
pub(crate) struct GrainSet {
    zones: BTreeMap<u64, Zone>,
}

/// A run of grains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) grains: u64,
}

fn no_zone() -> Zone {
    Box::new([0; WORDS])
}

/// The bits of a word that belong to the grains from `first` to `end` of the zone.
fn mask(word: usize, first: u64, end: u64) -> u64 {
    let base = word as u64 * 64;
    let from = first.max(base) - base;
    let to = end.min(base + 64).saturating_sub(base);
    if from >= to {
        return 0;
    }
    (u64::MAX >> (64 - (to - from))) << from
}

impl GrainSet {
    /// Takes in the bitmap of a zone.
    pub(crate) fn set_zone(&mut self, zone: u64, bitmap: &[u8; ZONE_BITMAP_BYTES]) {
        let words = self.zones.entry(zone).or_insert_with(no_zone);
        for (word, bytes) in words.iter_mut().zip(bitmap.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(bytes);
            *word = u64::from_le_bytes(eight);
        }
    }

    /// Whether anything is known of a zone.
    pub(crate) fn has_zone(&self, zone: u64) -> bool {
        self.zones.contains_key(&zone)
    }

    /// The zones of which anything is known.
    pub(crate) fn zones(&self) -> impl Iterator<Item = u64> + '_ {
        self.zones.keys().copied()
    }

    /// How many grains of a zone are in the set.
    pub(crate) fn count_in(&self, zone: u64) -> u64 {
        let words = self.zones.get(&zone).map_or(&[][..], |words| &words[..]);
        words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// How many grains are in the set.
    pub(crate) fn count(&self) -> u64 {
        self.zones.keys().map(|zone| self.count_in(*zone)).sum()
    }

    /// The first grain of an extent that is (or is not) in the set.
    pub(crate) fn find(&self, extent: Extent, present: bool) -> Option<u64> {
        let (zone, first) = (extent.start / ZONE_GRAINS, extent.start % ZONE_GRAINS);
        let end = first + u64::from(extent.grains);
        let Some(words) = self.zones.get(&zone) else {
            return (!present).then_some(extent.start);
        };
        for word in word_of(first)..=word_of(end - 1) {
            let bits = if present { words[word] } else { !words[word] };
            let found = bits & mask(word, first, end);
            if found != 0 {
                let grain = word as u64 * 64 + u64::from(found.trailing_zeros());
                return Some(zone * ZONE_GRAINS + grain);
            }
        }
        None
    }

    /// Adds an extent, which lies in one zone.
    pub(crate) fn insert(&mut self, extent: Extent) {
        self.change(extent, |word, mask| *word |= mask);
    }

    /// Takes an extent out.
    pub(crate) fn remove(&mut self, extent: Extent) {
        self.change(extent, |word, mask| *word &= !mask);
    }

    fn change(&mut self, extent: Extent, change: impl Fn(&mut u64, u64)) {
        let (zone, first) = (extent.start / ZONE_GRAINS, extent.start % ZONE_GRAINS);
        let end = first + u64::from(extent.grains);
        let words = self.zones.entry(zone).or_insert_with(no_zone);
        for word in word_of(first)..=word_of(end - 1) {
            change(&mut words[word], mask(word, first, end));
        }
    }

    /// The runs of grains that are in this set and not in the other.
    pub(crate) fn without(&self, other: &GrainSet) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let none = no_zone();
        for (zone, words) in &self.zones {
            let others = other.zones.get(zone).unwrap_or(&none);
            for (index, (word, other)) in words.iter().zip(others.iter()).enumerate() {
                add_runs(&mut runs, zone * ZONE_GRAINS + index as u64 * 64, word & !other);
            }
        }
        runs
    }
}

fn add_runs(runs: &mut Vec<Run>, base: u64, bits: u64) {
    let mut bits = bits;
    while bits != 0 {
        let start = base + u64::from(bits.trailing_zeros());
        bits &= bits - 1;
        match runs.last_mut() {
            Some(last) if last.start + last.grains == start => last.grains += 1,
            _ => runs.push(Run { start, grains: 1 }),
        }
    }
}

fn word_of(grain: u64) -> usize {
    usize::try_from(grain / 64).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{GrainSet, Run};
    use marram_format::pointer::Extent;

    fn extent(start: u64, grains: u32) -> Extent {
        Extent { device: 0, start, grains }
    }

    #[test]
    fn extents_go_in_and_out_across_words_and_zones() {
        let mut set = GrainSet::default();
        set.insert(extent(60, 200));
        set.insert(extent(16_384, 16_384));
        assert_eq!(set.count(), 200 + 16_384);
        assert_eq!(set.find(extent(0, 61), true), Some(60));
        assert_eq!(set.find(extent(0, 60), true), None);
        assert_eq!(set.find(extent(60, 200), false), None);
        assert_eq!(set.find(extent(60, 201), false), Some(260));
        assert_eq!(set.find(extent(40_000, 2), false), Some(40_000));
        set.remove(extent(63, 2));
        assert_eq!(set.find(extent(60, 200), false), Some(63));
        let mut other = GrainSet::default();
        other.insert(extent(16_400, 10_000));
        let runs = set.without(&other);
        assert_eq!(runs[..2], [Run { start: 60, grains: 3 }, Run { start: 65, grains: 195 }]);
        assert_eq!(runs[2..].iter().map(|run| run.grains).sum::<u64>(), 6384);
    }
}
