//! Which grains are in use, by what the bitmaps say and by what can be reached.
//!
//! Every block belongs to exactly one tree: to the oldest snapshot (or dataset) that has it, as
//! its birth says. So each is met once, and one bit for each grain is enough to find a grain that
//! two blocks claim.

use crate::finding::FindingKind;
use crate::grains::{GrainSet, Run};
use marram_format::pointer::{Extent, GRAIN_BYTES};
use marram_format::space::{SUMMARY_ZONES, Tail, ZONE_BITMAP_BYTES, ZONE_GRAINS};
use marram_format::superblock::DATA_START_BYTES;
use std::collections::BTreeMap;

/// Grains of the signature page and the rings, which are never free.
pub(crate) const HEAD_GRAINS: u64 = DATA_START_BYTES / GRAIN_BYTES;

/// Something wrong with where a block lies.
pub(crate) struct SpaceFault {
    pub(crate) kind: FindingKind,
    pub(crate) grain: u64,
    pub(crate) detail: String,
}

/// What is known of the space of the pool's device.
pub(crate) struct Space {
    total_grains: u64,
    /// In use by the bitmaps and, once it is taken in, the tail.
    recorded: GrainSet,
    /// In use by blocks that were met.
    reached: GrainSet,
    summaries: BTreeMap<u64, Vec<u32>>,
    /// Whether `recorded` is complete.
    settled: bool,
}

fn head() -> Extent {
    Extent { device: 0, start: 0, grains: u32::try_from(HEAD_GRAINS).unwrap_or(u32::MAX) }
}

impl Space {
    pub(crate) fn new(total_grains: u64) -> Space {
        let mut space = Space {
            total_grains,
            recorded: GrainSet::default(),
            reached: GrainSet::default(),
            summaries: BTreeMap::new(),
            settled: false,
        };
        space.reached.insert(head());
        space
    }

    fn zone_count(&self) -> u64 {
        self.total_grains.div_ceil(ZONE_GRAINS)
    }

    /// Takes in the bitmap of a zone; returns what is wrong with it.
    pub(crate) fn add_bitmap(
        &mut self,
        zone: u64,
        bitmap: &[u8; ZONE_BITMAP_BYTES],
    ) -> Option<SpaceFault> {
        let start = zone.saturating_mul(ZONE_GRAINS);
        let fault = |detail: String| {
            Some(SpaceFault { kind: FindingKind::SpaceEnd, grain: self.total_grains, detail })
        };
        if zone >= self.zone_count() {
            return fault(format!("there is no zone {zone}"));
        }
        let exists = (self.total_grains - start).min(ZONE_GRAINS);
        let past = (exists..ZONE_GRAINS).find(|grain| is_set(bitmap, *grain));
        let fault = past.and_then(|grain| fault(format!("grain {grain} of zone {zone}")));
        self.recorded.set_zone(zone, bitmap);
        fault
    }

    /// Takes in the summary of a run of zones.
    pub(crate) fn add_summary(&mut self, run: u64, free: Vec<u32>) {
        self.summaries.insert(run, free);
    }

    /// Compares summaries with bitmaps; returns zone and what is wrong with it.
    pub(crate) fn check_summaries(&self) -> Vec<(u64, String)> {
        let mut faults = Vec::new();
        for (run, counts) in &self.summaries {
            for (zone, stored) in (run.saturating_mul(SUMMARY_ZONES)..).zip(counts) {
                if zone >= self.zone_count() {
                    faults.push((zone, format!("there is no zone {zone}")));
                    break;
                }
                let found = self.free_in(zone);
                if u64::from(*stored) != found {
                    faults.push((zone, format!("{stored} free grains instead of {found}")));
                }
            }
        }
        for zone in self.recorded.zones() {
            let place = usize::try_from(zone % SUMMARY_ZONES).unwrap_or(usize::MAX);
            let run = self.summaries.get(&(zone / SUMMARY_ZONES));
            if run.is_none_or(|run| place >= run.len()) {
                faults.push((zone, format!("zone {zone} is in no summary")));
            }
        }
        faults
    }

    /// Free grains of a zone by its bitmap.
    fn free_in(&self, zone: u64) -> u64 {
        let exists = (self.total_grains - zone * ZONE_GRAINS).min(ZONE_GRAINS);
        let used = match (self.recorded.has_zone(zone), zone) {
            (true, _) => self.recorded.count_in(zone),
            (false, 0) => HEAD_GRAINS,
            (false, _) => 0,
        };
        exists.saturating_sub(used)
    }

    /// Takes in the tail, after all bitmaps; returns what contradicts them.
    pub(crate) fn settle(&mut self, tail: &Tail) -> Vec<SpaceFault> {
        if !self.recorded.has_zone(0) {
            self.recorded.insert(head());
        }
        let mut faults = Vec::new();
        for (extents, taken) in [(&tail.allocated, true), (&tail.freed, false)] {
            for extent in extents {
                let fault = |kind, grain, detail: &str| SpaceFault {
                    kind,
                    grain,
                    detail: format!("{} grains {detail}", extent.grains),
                };
                if !self.is_inside(*extent) {
                    let detail = "of its extent do not lie in the pool";
                    faults.push(fault(FindingKind::SpaceTail, extent.start, detail));
                    continue;
                }
                let detail =
                    if taken { "to be taken are not free" } else { "to be freed are free" };
                if let Some(grain) = self.recorded.find(*extent, taken) {
                    faults.push(fault(FindingKind::SpaceTail, grain, detail));
                }
                match taken {
                    true => self.recorded.insert(*extent),
                    false => self.recorded.remove(*extent),
                }
            }
        }
        self.settled = true;
        faults
    }

    fn is_inside(&self, extent: Extent) -> bool {
        extent.device == 0 && extent.start >= HEAD_GRAINS && extent.end() <= self.total_grains
    }

    /// A block was met, for the only time.
    pub(crate) fn reach(&mut self, extents: impl Iterator<Item = Extent>) -> Vec<SpaceFault> {
        let mut faults = Vec::new();
        for extent in extents {
            let mut fault = |kind, grain, detail: &str| {
                let detail = format!("{} grains from {} {detail}", extent.grains, extent.start);
                faults.push(SpaceFault { kind, grain, detail });
            };
            if !self.is_inside(extent) {
                fault(FindingKind::ExtentRange, extent.start, "do not lie in the pool");
                continue;
            }
            if let Some(grain) = self.reached.find(extent, true) {
                fault(FindingKind::SpaceDouble, grain, "are part of another block too");
            }
            if self.settled
                && let Some(grain) = self.recorded.find(extent, false)
            {
                fault(FindingKind::SpaceFree, grain, "are marked as free");
            }
            self.reached.insert(extent);
        }
        faults
    }

    /// Why nothing that is in use can lie there, once the bitmaps are known.
    pub(crate) fn unused(&self, extent: Extent) -> Option<&'static str> {
        if !self.is_inside(extent) {
            return Some("does not lie in the pool");
        }
        let free = self.recorded.find(extent, false);
        free.map(|_| "lies in space that is marked as free")
    }

    /// What was met before the bitmaps were known, and is free by them.
    pub(crate) fn reached_but_free(&self) -> Vec<Run> {
        self.reached.without(&self.recorded)
    }

    /// What is in use by the bitmaps, but was not met.
    pub(crate) fn leaks(&self) -> Vec<Run> {
        self.recorded.without(&self.reached)
    }

    /// Grains of blocks that were met.
    pub(crate) fn reached_grains(&self) -> u64 {
        self.reached.count().saturating_sub(HEAD_GRAINS)
    }

    /// Grains in use by bitmaps and tail, without those of the superblocks.
    pub(crate) fn recorded_grains(&self) -> u64 {
        self.recorded.count().saturating_sub(HEAD_GRAINS)
    }
}

fn is_set(bitmap: &[u8; ZONE_BITMAP_BYTES], grain: u64) -> bool {
    let byte = usize::try_from(grain / 8).unwrap_or(usize::MAX);
    bitmap.get(byte).is_some_and(|byte| byte >> (grain % 8) & 1 == 1)
}
