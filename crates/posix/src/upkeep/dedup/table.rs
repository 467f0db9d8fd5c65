//! Where which content was, as far as a bounded table remembers.

use std::collections::{HashMap, VecDeque};

/// A place where content was when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Which file system, by its place in a list.
    pub(super) files: usize,
    /// The inode.
    pub(super) ino: u64,
    /// Where in its content.
    pub(super) offset: u64,
}

/// A table that looks for checksums in one range of all. When it is full, the range becomes
/// smaller; the rest is left to another pass. So each checksum has its pass.
pub(super) struct PassTable {
    places: HashMap<u64, Place>,
    places_max: usize,
    first: u64,
    last: u64,
}

impl PassTable {
    /// A table for the first pass, of at most so many places.
    pub(super) fn new(places_max: usize) -> PassTable {
        let places_max = places_max.max(1);
        PassTable { places: HashMap::new(), places_max, first: 0, last: u64::MAX }
    }

    /// Whether this pass is about a checksum.
    pub(super) fn is_about(&self, checksum: u64) -> bool {
        (self.first..=self.last).contains(&checksum)
    }

    /// Where such content was.
    pub(super) fn get(&self, checksum: u64) -> Option<Place> {
        self.places.get(&checksum).copied()
    }

    /// Remembers where content is.
    pub(super) fn put(&mut self, checksum: u64, place: Place) {
        self.places.insert(checksum, place);
        while self.places.len() > self.places_max && self.first < self.last {
            self.last = self.first + (self.last - self.first) / 2;
            let last = self.last;
            self.places.retain(|checksum, _| *checksum <= last);
        }
    }

    /// The content is not there any more.
    pub(super) fn forget(&mut self, checksum: u64) {
        self.places.remove(&checksum);
    }

    /// Begins the next pass; false if all checksums had theirs.
    pub(super) fn next_pass(&mut self) -> bool {
        let Some(first) = self.last.checked_add(1) else {
            return false;
        };
        self.places.clear();
        (self.first, self.last) = (first, u64::MAX);
        true
    }
}

/// A table of the places that were remembered last: when it is full, the oldest goes.
pub(super) struct Hints {
    places: HashMap<u64, Place>,
    order: VecDeque<u64>,
    places_max: usize,
}

impl Hints {
    pub(super) fn new(places_max: usize) -> Hints {
        Hints { places: HashMap::new(), order: VecDeque::new(), places_max: places_max.max(1) }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the oldest goes with the next one.
    pub(super) fn is_full(&self) -> bool {
        self.places.len() >= self.places_max
    }

    /// Where such content was.
    pub(super) fn get(&self, checksum: u64) -> Option<Place> {
        self.places.get(&checksum).copied()
    }

    /// Remembers where content is, in place of where such content was.
    pub(super) fn put(&mut self, checksum: u64, place: Place) {
        if self.places.insert(checksum, place).is_none() {
            self.order.push_back(checksum);
        }
        if self.places.len() > self.places_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Hints, PassTable, Place};
    use std::collections::BTreeMap;

    const CHECKSUMS: u64 = 1000;

    fn checksum(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn place(offset: u64) -> Place {
        Place { files: 0, ino: 1, offset }
    }

    #[test]
    fn every_checksum_is_found_again_in_exactly_one_pass() {
        let mut table = PassTable::new(64);
        let mut found: BTreeMap<u64, u32> = BTreeMap::new();
        let mut passes = 1;
        loop {
            // Each checksum comes twice, far apart.
            for number in (0..CHECKSUMS).chain(0..CHECKSUMS) {
                let checksum = checksum(number);
                if table.is_about(checksum) {
                    match table.get(checksum) {
                        Some(place) => *found.entry(place.offset).or_default() += 1,
                        None => table.put(checksum, place(number)),
                    }
                }
                assert!(table.places.len() <= 64);
            }
            if !table.next_pass() {
                break;
            }
            passes += 1;
        }
        assert_eq!(found.len() as u64, CHECKSUMS);
        assert!(found.values().all(|times| *times == 1), "{found:?}");
        assert!((16..200).contains(&passes), "{passes} passes");
    }

    #[test]
    fn the_oldest_hint_goes_first() {
        let mut hints = Hints::new(3);
        for number in [1, 2, 3, 2, 4] {
            hints.put(number, place(number));
        }
        assert_eq!(hints.get(1), None);
        assert_eq!([2, 3, 4].map(|number| hints.get(number).unwrap().offset), [2, 3, 4]);
        assert_eq!((hints.len(), hints.order.len()), (3, 3));
    }
}
