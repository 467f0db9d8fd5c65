//! Where free space is, and how it is given out.
//!
//! A device is divided into zones of 64 MiB; each has a bitmap that is an item of the pool's own
//! tree and is loaded when it is first needed. What the group being committed allocates and frees
//! is remembered, so that a failed commit can be taken back.
//!
//! **A freed grain is not allocated again before the commit that freed it is durable.** Until then
//! a crash leads back to the last commit, which still uses the grain.
//!
//! Writing the bitmaps allocates nodes of the pool's own tree, which changes bitmaps. What is
//! allocated and freed after [`SpaceMap::serialize`] therefore stands in the **tail** of the commit
//! instead, and enters the bitmaps of the next one.

mod going;
mod held;
mod zone;

use crate::base::planted::{PlantedBug, is_planted};
use going::Going;
use held::Held;
use marram_format::pointer::{
    Extent, GRAIN_BYTES, PIECES_MAX, SCATTERED_PIECES_MAX, can_be_scattered,
};
use marram_format::space::{SUMMARY_ZONES, Tail, ZONE_BITMAP_BYTES, ZONE_GRAINS};
use marram_format::superblock::DATA_START_BYTES;
use marram_store::{Damage, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zone::Zone;

/// What an allocation is for; each purpose fills its own zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Content of files.
    Data,
    /// The first copy of a tree node.
    Metadata,
    /// The second copy of a tree node, away from the first.
    MetadataCopy,
}

/// Where bitmaps that are not in memory come from.
pub(crate) trait ZoneSource {
    /// The bitmap of a zone as the last commit has it; `None` if the zone was never used.
    fn bitmap(&self, zone: u64) -> Result<Option<[u8; ZONE_BITMAP_BYTES]>>;
}

#[derive(Debug)]
enum Slot {
    Unloaded { free_grains: u32 },
    Loaded(Box<Zone>),
}

#[derive(Clone, Copy, Debug)]
struct Cursor {
    zone: usize,
    grain: u64,
}

/// A bitmap to write, with what the summary says of its zone.
pub(crate) struct ZoneImage {
    pub(crate) zone: u64,
    pub(crate) bitmap: [u8; ZONE_BITMAP_BYTES],
    pub(crate) free_grains: u32,
}

/// How much space there is, readable without the lock of the map.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    total_grains: AtomicU64,
    free_grains: AtomicU64,
}

impl Gauge {
    /// Grains that exist, without those of the superblocks.
    pub(crate) fn total_grains(&self) -> u64 {
        self.total_grains.load(Ordering::Acquire)
    }

    /// Grains that can be allocated now.
    pub(crate) fn free_grains(&self) -> u64 {
        self.free_grains.load(Ordering::Acquire)
    }

    /// Grains that are kept back so that a full pool can be emptied: a 32nd, at least 8 MiB, at
    /// most a quarter.
    pub(crate) fn reserved_grains(&self) -> u64 {
        let total = self.total_grains();
        (total / 32).max((8 << 20) / GRAIN_BYTES).min(total / 4)
    }
}

/// The free space of one device.
#[derive(Debug)]
pub(crate) struct SpaceMap {
    total_grains: u64,
    free_grains: u64,
    gauge: Arc<Gauge>,
    slots: Vec<Slot>,
    cursors: [Cursor; 3],
    dirty: BTreeSet<usize>,
    /// Zones whose bitmaps this commit has written: dirty again if it fails.
    written: BTreeSet<usize>,
    allocated: Vec<Extent>,
    freed: Vec<Extent>,
    /// The same as `freed`, to find what is freed twice.
    going: Going,
    held: Held,
    /// How many of `allocated` and `freed` the written bitmaps contain.
    serialized: Option<(usize, usize)>,
    /// Grains that there were before this commit made them more.
    grown_from: Option<u64>,
}

const HEAD_GRAINS: u64 = DATA_START_BYTES / GRAIN_BYTES;

impl SpaceMap {
    /// A device of which everything behind the superblocks is free.
    pub(crate) fn new(total_grains: u64) -> SpaceMap {
        let mut map = SpaceMap {
            total_grains: 0,
            free_grains: 0,
            gauge: Arc::default(),
            slots: Vec::new(),
            cursors: [Cursor { zone: 0, grain: HEAD_GRAINS }; 3],
            dirty: BTreeSet::new(),
            written: BTreeSet::new(),
            allocated: Vec::new(),
            freed: Vec::new(),
            going: Going::default(),
            held: Held::default(),
            serialized: None,
            grown_from: None,
        };
        map.extend(total_grains);
        map.cursors[1] = start_at(total_grains / 3);
        map.cursors[2] = start_at(total_grains * 2 / 3);
        map
    }

    /// Takes over what a pool's summaries say: `free` has the zones whose counts were stored.
    pub(crate) fn with_summary(total_grains: u64, free: &[(u64, u32)]) -> SpaceMap {
        let mut map = SpaceMap::new(total_grains);
        for (zone, free_grains) in free {
            let Some(slot) = usize::try_from(*zone).ok().and_then(|zone| map.slots.get_mut(zone))
            else {
                continue;
            };
            map.free_grains -= u64::from(free_of(slot));
            map.free_grains += u64::from(*free_grains);
            *slot = Slot::Unloaded { free_grains: *free_grains };
        }
        map.show();
        map
    }

    /// Adds space at the end. The zone that was last is loaded by then, or was full size.
    fn extend(&mut self, total_grains: u64) {
        let zones = total_grains.div_ceil(ZONE_GRAINS);
        let old = self.slots.len() as u64;
        for index in old..zones {
            let mut zone = Zone::empty(grains_in(index, total_grains));
            if index == 0 {
                zone.mark(0, u32::try_from(HEAD_GRAINS.min(ZONE_GRAINS)).unwrap_or(u32::MAX));
            }
            self.free_grains += u64::from(zone.free_grains());
            let free_grains = zone.free_grains();
            self.slots.push(if index == 0 {
                Slot::Loaded(Box::new(zone))
            } else {
                Slot::Unloaded { free_grains }
            });
        }
        self.total_grains = total_grains;
        self.show();
    }

    /// The device has grown to `total_grains`.
    pub(crate) fn grow(&mut self, total_grains: u64, source: &dyn ZoneSource) -> Result<()> {
        let grown_from = self.total_grains;
        if let Some(last) = self.slots.len().checked_sub(1) {
            self.load(last, source)?;
            let zone_end = grains_in(last as u64, total_grains);
            let old_end = grains_in(last as u64, self.total_grains);
            self.dirty.insert(last);
            if let Slot::Loaded(zone) = &mut self.slots[last]
                && zone_end > old_end
            {
                zone.release(old_end, u32::try_from(zone_end - old_end).unwrap_or(u32::MAX));
                self.free_grains += zone_end - old_end;
            }
        }
        self.extend(total_grains);
        self.grown_from = Some(grown_from);
        Ok(())
    }

    /// The device has not grown after all. Nothing is allocated in what it grew by.
    fn shrink_back(&mut self, total_grains: u64) {
        let zones = usize::try_from(total_grains.div_ceil(ZONE_GRAINS)).unwrap_or(usize::MAX);
        let gone = self.slots.drain(zones.min(self.slots.len())..);
        self.free_grains -= gone.map(|slot| u64::from(free_of(&slot))).sum::<u64>();
        if let Some(last) = self.slots.len().checked_sub(1) {
            let end = grains_in(last as u64, total_grains);
            let more = grains_in(last as u64, self.total_grains) - end;
            self.with_zone(last, |zone| zone.mark(end, u32::try_from(more).unwrap_or(u32::MAX)));
        }
        self.total_grains = total_grains;
        self.dirty.retain(|zone| *zone < zones);
        for cursor in &mut self.cursors {
            if cursor.zone >= zones {
                *cursor = Cursor { zone: 0, grain: HEAD_GRAINS };
            }
        }
        self.show();
    }

    /// Grains that exist, without those of the superblocks.
    pub(crate) fn total_grains(&self) -> u64 {
        self.total_grains.saturating_sub(HEAD_GRAINS)
    }

    /// The zones with the grains from `first` to `end`, the last not included.
    pub(crate) fn zones_between(&self, first: u64, end: u64) -> Range<usize> {
        let zone = |grain: u64| usize::try_from(grain).unwrap_or(usize::MAX).min(self.slots.len());
        zone(first / ZONE_GRAINS)..zone(end.div_ceil(ZONE_GRAINS))
    }

    /// What of a zone is free, and was so before this commit.
    pub(crate) fn free_runs(
        &mut self,
        index: usize,
        source: &dyn ZoneSource,
    ) -> Result<Vec<Extent>> {
        if self.slots.get(index).is_none_or(|slot| free_of(slot) == 0) {
            return Ok(Vec::new());
        }
        self.load(index, source)?;
        let Slot::Loaded(zone) = &self.slots[index] else { return Ok(Vec::new()) };
        let before = index as u64 * ZONE_GRAINS;
        let run = |(start, grains)| Extent { device: 0, start: before + start, grains };
        Ok(zone.free_runs().map(run).collect())
    }

    /// The gauge of this map.
    pub(crate) fn gauge(&self) -> Arc<Gauge> {
        self.gauge.clone()
    }

    fn show(&self) {
        self.gauge.total_grains.store(self.total_grains(), Ordering::Release);
        let free_grains = self.free_grains + self.held.grains();
        self.gauge.free_grains.store(free_grains, Ordering::Release);
    }

    /// Grains that are free once this commit is durable.
    pub(crate) fn free_grains_after(&self) -> u64 {
        let freed = self.freed.iter().map(|extent| u64::from(extent.grains)).sum::<u64>();
        self.free_grains + self.held.grains() + freed
    }

    /// Takes over the tail of the last commit: its bitmaps do not have it yet.
    pub(crate) fn replay(&mut self, tail: &Tail, source: &dyn ZoneSource) -> Result<()> {
        for (extents, freed) in [(&tail.allocated, false), (&tail.freed, true)] {
            for extent in extents {
                self.replay_extent(*extent, freed, source)?;
            }
        }
        Ok(())
    }

    fn replay_extent(
        &mut self,
        extent: Extent,
        freed: bool,
        source: &dyn ZoneSource,
    ) -> Result<()> {
        self.check(extent, "the tail of the last commit")?;
        let zone = zone_of(extent);
        self.load(zone, source)?;
        self.dirty.insert(zone);
        let within = extent.start % ZONE_GRAINS;
        self.with_zone(zone, |zone| {
            zone.mark(within, extent.grains);
            if freed {
                zone.release(within, extent.grains);
            }
        });
        Ok(())
    }

    /// Refuses an extent, read from media, that does not lie on the device.
    fn check(&self, extent: Extent, what: &'static str) -> Result<()> {
        if extent.device == 0 && extent.end() <= self.total_grains {
            return Ok(());
        }
        let reason = format!("it names {extent:?}, past the end");
        Err(Error::Damaged(Damage { what, place: "its pointer".to_owned(), reason }))
    }

    /// Runs a change of a loaded zone and keeps the sum of free grains.
    fn with_zone<T>(&mut self, index: usize, change: impl FnOnce(&mut Zone) -> T) -> T {
        let Slot::Loaded(zone) = &mut self.slots[index] else {
            panic!("zone {index} is changed before it is loaded");
        };
        let before = u64::from(zone.free_grains());
        let result = change(zone);
        self.free_grains = self.free_grains - before + u64::from(zone.free_grains());
        self.show();
        result
    }

    fn load(&mut self, index: usize, source: &dyn ZoneSource) -> Result<()> {
        let Slot::Unloaded { free_grains } = self.slots[index] else { return Ok(()) };
        let grains = grains_in(index as u64, self.total_grains);
        let mut zone = match source.bitmap(index as u64)? {
            Some(bitmap) => Zone::from_bitmap(&bitmap, grains),
            None => Zone::empty(grains),
        };
        if index == 0 {
            zone.mark(0, u32::try_from(HEAD_GRAINS.min(ZONE_GRAINS)).unwrap_or(u32::MAX));
        }
        self.free_grains =
            self.free_grains - u64::from(free_grains) + u64::from(zone.free_grains());
        self.slots[index] = Slot::Loaded(Box::new(zone));
        self.show();
        Ok(())
    }

    /// Takes `grains` grains, in one piece if there is one; `None` if there are not enough in
    /// [`PIECES_MAX`] pieces. Data, of which there is one copy, may be in as many pieces as a
    /// pointer has room for. What is held back for a reader is used when nothing else is left.
    pub(crate) fn allocate(
        &mut self,
        grains: u32,
        purpose: Purpose,
        source: &dyn ZoneSource,
    ) -> Result<Option<Vec<Extent>>> {
        let found = self.allocate_unheld(grains, purpose, source)?;
        match found.is_none() && self.break_hold() {
            true => self.allocate_unheld(grains, purpose, source),
            false => Ok(found),
        }
    }

    fn allocate_unheld(
        &mut self,
        grains: u32,
        purpose: Purpose,
        source: &dyn ZoneSource,
    ) -> Result<Option<Vec<Extent>>> {
        if self.free_grains < u64::from(grains) {
            return Ok(None);
        }
        if let Some(extent) = self.allocate_run(grains, purpose, source)? {
            return Ok(Some(vec![extent]));
        }
        match self.allocate_pieces(grains, PIECES_MAX, source)? {
            None if purpose == Purpose::Data => {
                self.allocate_pieces(grains, SCATTERED_PIECES_MAX, source)
            }
            found => Ok(found),
        }
    }

    fn allocate_run(
        &mut self,
        grains: u32,
        purpose: Purpose,
        source: &dyn ZoneSource,
    ) -> Result<Option<Extent>> {
        let Cursor { mut zone, mut grain } = self.cursors[purpose as usize];
        loop {
            self.load(zone, source)?;
            if let Some(start) = self.with_zone(zone, |zone| zone.find(grain, grains)) {
                let extent = self.take(zone, start, grains);
                let grain = start + u64::from(grains);
                self.cursors[purpose as usize] = Cursor { zone, grain: grain % ZONE_GRAINS };
                return Ok(Some(extent));
            }
            let Some(next) = self.choose_zone(zone, grains, purpose) else { return Ok(None) };
            (zone, grain) = (next, 0);
        }
    }

    /// The zone to go on in: rather an empty one that no other purpose fills, rather a near one.
    /// Each zone that was searched in vain no longer counts, so a search comes to an end.
    fn choose_zone(&self, from: usize, grains: u32, purpose: Purpose) -> Option<usize> {
        let count = self.slots.len();
        let others: Vec<usize> = [Purpose::Data, Purpose::Metadata, Purpose::MetadataCopy]
            .into_iter()
            .filter(|other| *other != purpose)
            .map(|other| self.cursors[other as usize].zone)
            .collect();
        (1..=count)
            .map(|step| (from + step) % count)
            .filter(|zone| may_hold(&self.slots[*zone], grains))
            .max_by_key(|zone| {
                let quarters = free_of(&self.slots[*zone]) / (ZONE_GRAINS as u32 / 4);
                let near = count - (*zone + count - from - 1) % count;
                (!others.contains(zone), quarters, near)
            })
    }

    /// The longest runs of the emptiest zones.
    fn allocate_pieces(
        &mut self,
        grains: u32,
        pieces_max: usize,
        source: &dyn ZoneSource,
    ) -> Result<Option<Vec<Extent>>> {
        let mut zones: Vec<usize> = (0..self.slots.len()).collect();
        zones.sort_by_key(|zone| std::cmp::Reverse(free_of(&self.slots[*zone])));
        let mut pieces = Vec::new();
        let mut missing = grains;
        for zone in zones {
            if missing == 0 || pieces.len() == pieces_max {
                break;
            }
            self.load(zone, source)?;
            for (start, run) in self.longest_runs(zone, pieces_max - pieces.len()) {
                let piece = self.take(zone, start, run.min(missing));
                missing -= piece.grains;
                pieces.push(piece);
                if missing == 0 {
                    break;
                }
            }
        }
        if missing == 0 && (pieces.len() <= PIECES_MAX || can_be_scattered(&pieces)) {
            return Ok(Some(pieces));
        }
        for piece in pieces {
            self.release(piece);
            self.allocated.retain(|extent| *extent != piece);
        }
        Ok(None)
    }

    fn longest_runs(&self, zone: usize, count: usize) -> Vec<(u64, u32)> {
        let Slot::Loaded(loaded) = &self.slots[zone] else { return Vec::new() };
        let mut runs: Vec<(u64, u32)> = loaded.free_runs().collect();
        runs.sort_by_key(|(_, run)| std::cmp::Reverse(*run));
        runs.truncate(count);
        runs
    }

    fn take(&mut self, zone: usize, start: u64, grains: u32) -> Extent {
        self.with_zone(zone, |zone| zone.take(start, grains));
        self.dirty.insert(zone);
        let extent = Extent { device: 0, start: zone as u64 * ZONE_GRAINS + start, grains };
        self.allocated.push(extent);
        extent
    }

    /// Gives an extent back as of the commit that is being made.
    ///
    /// # Errors
    /// It does not lie on the device, or some of it is free, or was given back already.
    pub(crate) fn free(&mut self, extent: Extent, source: &dyn ZoneSource) -> Result<()> {
        self.check(extent, "a freed block")?;
        self.note_going(extent, source)?;
        let zone = zone_of(extent);
        self.dirty.insert(zone);
        if is_planted(PlantedBug::EarlyReuse) && self.serialized.is_none() {
            let grain = extent.start % ZONE_GRAINS;
            self.with_zone(zone, |zone| zone.release(grain, extent.grains));
            self.cursors = [Cursor { zone, grain }; 3];
            return Ok(());
        }
        self.freed.push(extent);
        Ok(())
    }

    /// The bitmaps of all zones that have changed since they were last written, as they are once
    /// this commit is durable. What follows goes to the tail.
    pub(crate) fn serialize(&mut self) -> Vec<ZoneImage> {
        assert!(self.serialized.is_none(), "bitmaps are written once a commit");
        self.serialized = Some((self.allocated.len(), self.freed.len()));
        self.written = std::mem::take(&mut self.dirty);
        let mut freed: BTreeMap<usize, Vec<Extent>> = BTreeMap::new();
        for extent in &self.freed {
            freed.entry(zone_of(*extent)).or_default().push(*extent);
        }
        let none = Vec::new();
        let image = |zone: &usize| self.image(*zone, freed.get(zone).unwrap_or(&none));
        self.written.iter().map(image).collect()
    }

    /// Free grains of each zone of a run, as bitmaps on media have them if the zone is not among
    /// those that this commit writes.
    pub(crate) fn free_counts(&self, run: u64) -> Vec<u32> {
        let first = usize::try_from(run * SUMMARY_ZONES).unwrap_or(usize::MAX);
        let slots = self.slots.iter().enumerate().skip(first).take(SUMMARY_ZONES as usize);
        slots.map(|(zone, slot)| free_of(slot) + self.held.grains_of_zone(zone)).collect()
    }

    fn image(&self, index: usize, freed: &[Extent]) -> ZoneImage {
        let Slot::Loaded(zone) = &self.slots[index] else {
            panic!("zone {index} is dirty without being loaded");
        };
        let mut after = zone.clone();
        for extent in freed.iter().chain(self.held.of_zone(index)) {
            after.release(extent.start % ZONE_GRAINS, extent.grains);
        }
        let grains = grains_in(index as u64, self.total_grains);
        let free_grains = after.free_grains();
        ZoneImage { zone: index as u64, bitmap: after.bitmap(grains), free_grains }
    }

    /// What was allocated and freed since the bitmaps were written.
    pub(crate) fn tail(&self) -> Tail {
        let (allocated, freed) = self.serialized.expect("the tail follows the bitmaps");
        Tail {
            allocated: self.allocated[allocated..].to_vec(),
            freed: self.freed[freed..].to_vec(),
        }
    }

    /// The commit is durable: what it freed can be allocated.
    pub(crate) fn finish(&mut self) {
        for extent in std::mem::take(&mut self.freed) {
            self.give_back(extent);
        }
        self.show();
        self.allocated.clear();
        self.going.clear();
        self.written.clear();
        self.serialized = None;
        self.grown_from = None;
    }

    fn release(&mut self, extent: Extent) {
        self.with_zone(zone_of(extent), |zone| {
            zone.release(extent.start % ZONE_GRAINS, extent.grains);
        });
    }

    /// The commit has failed: everything is as before it.
    pub(crate) fn roll_back(&mut self) {
        for extent in std::mem::take(&mut self.allocated) {
            self.release(extent);
        }
        self.freed.clear();
        self.going.clear();
        self.serialized = None;
        let written = std::mem::take(&mut self.written);
        self.dirty.extend(written);
        if let Some(total_grains) = self.grown_from.take() {
            self.shrink_back(total_grains);
        }
    }
}

/// Purposes begin far from each other, also where the device is a single zone: a write that goes
/// astray must not hit both copies of a node.
fn start_at(grain: u64) -> Cursor {
    let zone = usize::try_from(grain / ZONE_GRAINS).unwrap_or(usize::MAX);
    Cursor { zone, grain: grain % ZONE_GRAINS }
}

fn zone_of(extent: Extent) -> usize {
    usize::try_from(extent.start / ZONE_GRAINS).unwrap_or(usize::MAX)
}

/// How many grains of a zone exist on a device of `total_grains`.
fn grains_in(zone: u64, total_grains: u64) -> u64 {
    total_grains.saturating_sub(zone * ZONE_GRAINS).min(ZONE_GRAINS)
}

fn free_of(slot: &Slot) -> u32 {
    match slot {
        Slot::Unloaded { free_grains } => *free_grains,
        Slot::Loaded(zone) => zone.free_grains(),
    }
}

fn may_hold(slot: &Slot, grains: u32) -> bool {
    match slot {
        Slot::Unloaded { free_grains } => *free_grains >= grains,
        Slot::Loaded(zone) => zone.may_hold(grains),
    }
}

#[cfg(test)]
mod tests;
