//! The grains that are given back, each of them once: by the commit which is being made, or by one
//! before it for as long as they are held back.
//!
//! A block that is freed twice, or is free already, has two references that no count joins: one of
//! them would lose it to the next use of the space. Nothing that a device says can be trusted not
//! to do that, so such a commit is refused, and the last one stays.

use super::{SpaceMap, Zone, ZoneSource, zone_of};
use marram_format::pointer::{Extent, GRAIN_BYTES};
use marram_format::space::ZONE_GRAINS;
use marram_store::{Damage, Error, Result};
use std::collections::BTreeMap;

/// By zone, those that are given back.
#[derive(Debug, Default)]
pub(super) struct Going(BTreeMap<usize, Box<Zone>>);

impl Going {
    /// None of them is going any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether nothing of an extent is among them.
    fn is_without(&self, extent: Extent) -> bool {
        let start = extent.start % ZONE_GRAINS;
        self.0.get(&zone_of(extent)).is_none_or(|zone| zone.is_free(start, extent.grains))
    }

    /// Takes note of an extent; false if some of it goes already.
    pub(super) fn note(&mut self, extent: Extent) -> bool {
        let none = || Box::new(Zone::empty(ZONE_GRAINS));
        let zone = self.0.entry(zone_of(extent)).or_insert_with(none);
        let start = extent.start % ZONE_GRAINS;
        let is_new = zone.is_free(start, extent.grains);
        zone.mark(start, extent.grains);
        is_new
    }
}

impl SpaceMap {
    /// Takes note that an extent, which lies on the device, goes.
    ///
    /// # Errors
    /// Some of it is free, or goes already.
    pub(super) fn note_going(&mut self, extent: Extent, source: &dyn ZoneSource) -> Result<()> {
        let zone = zone_of(extent);
        self.load(zone, source)?;
        let start = extent.start % ZONE_GRAINS;
        let is_taken = self.with_zone(zone, |zone| zone.is_taken(start, extent.grains));
        if is_taken && self.held.going().is_without(extent) && self.going.note(extent) {
            return Ok(());
        }
        Err(Error::Damaged(Damage {
            what: "a freed block",
            place: format!("device offset {}", extent.start * GRAIN_BYTES),
            reason: "its space is free, or was given back already".to_owned(),
        }))
    }
}
