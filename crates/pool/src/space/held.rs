//! Grains that were given back and are not used again yet, since somebody reads a state that has
//! them.
//!
//! On media, and in reports of free space, they are free. Only the allocator passes them over,
//! until no reader has such a state any more, or until it cannot do without them. **A reader never
//! makes a writer run out of space.** The checksum shows a reader that what it reads is gone, and
//! [`SpaceMap::breaks`] whether that is why.

use super::going::Going;
use super::{SpaceMap, zone_of};
use marram_format::pointer::Extent;
use std::collections::BTreeMap;

/// Most extents that are held back at a time, of 16 bytes each.
const HELD_EXTENTS_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// How many read what was given back meanwhile.
    readers: u32,
    extents: BTreeMap<usize, Vec<Extent>>,
    /// The same, to find what is given back once more.
    going: Going,
    count: usize,
    grains: u64,
    /// How often it was let go of before its time.
    breaks: u64,
}

impl Held {
    /// Grains that are held back.
    pub(super) fn grains(&self) -> u64 {
        self.grains
    }

    /// What is held back.
    pub(super) fn going(&self) -> &Going {
        &self.going
    }

    /// What is held back of a zone.
    pub(super) fn of_zone(&self, zone: usize) -> &[Extent] {
        self.extents.get(&zone).map_or(&[], Vec::as_slice)
    }

    /// Grains that are held back of a zone.
    pub(super) fn grains_of_zone(&self, zone: usize) -> u32 {
        self.of_zone(zone).iter().map(|extent| extent.grains).sum()
    }
}

impl SpaceMap {
    /// From now on nothing that is given back is used again, until [`SpaceMap::let_go`]. Returns
    /// what [`SpaceMap::breaks`] says now. Only between two commits.
    pub(crate) fn hold(&mut self) -> u64 {
        self.held.readers += 1;
        self.held.breaks
    }

    /// A reader no longer holds any.
    pub(crate) fn let_go(&mut self) {
        self.held.readers -= 1;
        if self.held.readers == 0 {
            self.use_held();
        }
    }

    /// How often what was held back had to be used all the same.
    pub(crate) fn breaks(&self) -> u64 {
        self.held.breaks
    }

    /// Uses what is held back, before its time; whether there was any.
    pub(super) fn break_hold(&mut self) -> bool {
        let is_any = self.held.count > 0;
        self.held.breaks += u64::from(is_any);
        self.use_held();
        is_any
    }

    /// What a durable commit has given back can be allocated, or is held back.
    pub(super) fn give_back(&mut self, extent: Extent) {
        if self.held.readers == 0 {
            return self.release(extent);
        }
        self.held.extents.entry(zone_of(extent)).or_default().push(extent);
        self.held.going.note(extent);
        self.held.count += 1;
        self.held.grains += u64::from(extent.grains);
        if self.held.count > HELD_EXTENTS_MAX {
            self.break_hold();
        }
    }

    fn use_held(&mut self) {
        (self.held.count, self.held.grains) = (0, 0);
        self.held.going.clear();
        for extent in std::mem::take(&mut self.held.extents).into_values().flatten() {
            self.release(extent);
        }
        self.show();
    }
}
