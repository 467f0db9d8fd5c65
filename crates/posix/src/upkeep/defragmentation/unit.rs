//! Units: sections that are rewritten together, and whether that is worth it.
//!
//! A file is looked at in regions. A unit is what begins in one window of the region (the place of
//! a record), with the windows beside it that have a part of one of its blocks.
//!
//! **It comes to an end.** Each rewriting leaves fewer sections or less waste than there was, and
//! what it leaves is not worth another. Where blocks have come to lie on the device is looked at
//! only when somebody asks for it, since a new place need not be a better one.

use crate::volume::Volume;
use bytes::Bytes;
use marram_records::failure::from_store;
use marram_records::sections::{Section, section_key};
use marram_store::{Block, BlockPlace, Key};
use marram_vfs::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A file is looked at in pieces of so many bytes, which are whole windows.
pub(super) const REGION_BYTES: u64 = 1 << 20;
/// For one section less so many bytes may be rewritten.
const BYTES_PER_SECTION: u64 = 32 << 10;
/// For one extent less so many bytes may be rewritten, on request.
const BYTES_PER_EXTENT: u64 = 256 << 10;
/// Space that is not worth a rewriting, in bytes: what a block is rounded up to.
const GRAIN_BYTES: u64 = 4096;

/// Sections of one file that begin in one region, in order.
pub(super) struct Region {
    pub(super) ino: u64,
    pub(super) sections: Vec<Section>,
}

impl Region {
    pub(super) fn is_of(&self, ino: u64, offset: u64) -> bool {
        let first = self.sections.first().map(|section| section.at / REGION_BYTES);
        self.ino == ino && first == Some(offset / REGION_BYTES)
    }
}

/// Sections that are worth rewriting, in order.
pub(super) struct Unit {
    pub(super) sections: Vec<Section>,
    pub(super) bytes: u64,
    /// Bytes that the blocks took which go with it.
    pub(super) released_bytes: u64,
    /// By how many sections there will be fewer.
    pub(super) joined: u64,
}

/// What is to be done about a region.
#[derive(Default)]
pub(super) struct Choice {
    pub(super) units: Vec<Unit>,
    /// Bytes that it would be worth to rewrite, if nobody else held their blocks.
    pub(super) held_bytes: u64,
}

/// What rewriting some sections takes and gives.
struct Weight {
    bytes: u64,
    before: u64,
    after: u64,
    released_bytes: u64,
    /// What the new blocks will take if the content compresses as it did, in bytes.
    needed_bytes: u64,
}

impl Weight {
    fn joined(&self) -> u64 {
        self.before.saturating_sub(self.after)
    }

    /// At least a third of what is written comes back as space, or enough sections become one.
    fn is_worth_it(&self) -> bool {
        let saved = self.released_bytes.saturating_sub(self.needed_bytes);
        let frees = saved >= GRAIN_BYTES && saved.saturating_mul(4) >= self.released_bytes;
        frees || (self.bytes > 0 && self.joined() * BYTES_PER_SECTION >= self.bytes)
    }
}

/// The sections of a region by the blocks that they are of. Only blocks that a commit has written
/// count: what is still in memory may be patched at any time.
struct Blocks<'r> {
    sections: &'r [Section],
    by_place: BTreeMap<&'r Bytes, Vec<usize>>,
}

impl<'r> Blocks<'r> {
    fn of(sections: &'r [Section]) -> Blocks<'r> {
        let mut by_place: BTreeMap<&Bytes, Vec<usize>> = BTreeMap::new();
        for (index, section) in sections.iter().enumerate() {
            if let Some(place) = place_of(section) {
                by_place.entry(place).or_default().push(index);
            }
        }
        Blocks { sections, by_place }
    }

    /// The sections of the block of one; none if that cannot be rewritten.
    fn beside(&self, index: usize) -> &[usize] {
        let place = place_of(&self.sections[index]);
        place.and_then(|place| self.by_place.get(place)).map_or(&[], Vec::as_slice)
    }

    /// Cuts the region into ranges of sections that are rewritten together.
    fn ranges(&self, window_bytes: u64) -> Vec<Range<usize>> {
        let window = |index: usize| self.sections[index].at / window_bytes;
        let mut ranges = Vec::new();
        let mut start = 0;
        while start < self.sections.len() {
            let (mut end, mut last) = (start, start);
            while end < self.sections.len() && (end <= last || window(end) == window(end - 1)) {
                last = self.beside(end).last().map_or(last, |of_block| last.max(*of_block));
                end += 1;
            }
            ranges.push(start..end);
            start = end;
        }
        ranges
    }
}

/// What names the block of a section that a commit has written.
fn place_of(section: &Section) -> Option<&Bytes> {
    match &section.block {
        Some(Block::Stored(token)) => Some(&token.place),
        _ => None,
    }
}

/// Counts how often the device has to move on to read sections one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extents {
    pub(super) count: u64,
    last: Option<BlockPlace>,
}

impl Extents {
    /// Goes on with the next section of a file. Content beside its item is read with that.
    pub(super) fn add(&mut self, place: BlockPlace) {
        let Some((device, address)) = place.address else {
            return;
        };
        let goes_on = self.last.is_some_and(|last| {
            let is_same = last.address == place.address;
            let is_behind = last.end_address == Some(address);
            is_same || (is_behind && last.address.is_some_and(|(other, _)| other == device))
        });
        if !goes_on {
            self.count += 1;
        }
        self.count += if goes_on && place.pieces == 1 { 0 } else { place.pieces - 1 };
        self.last = Some(place);
    }

    /// Another file begins.
    pub(super) fn next_file(&mut self) {
        self.last = None;
    }
}

/// What of a region is worth rewriting; with `by_place`, also for where its blocks lie.
pub(crate) fn choose(volume: &Volume, region: &Region, by_place: bool) -> Result<Choice> {
    let blocks = Blocks::of(&region.sections);
    let mut choice = Choice::default();
    let all: Vec<&Section> = region.sections.iter().filter(|it| has_block(it)).collect();
    let was_scattered = by_place && is_scattered(volume, &all);
    for range in blocks.ranges(volume.record_bytes()) {
        let worth: Vec<usize> = range.filter(|index| has_block(&region.sections[*index])).collect();
        let chosen = |indexes: &[usize]| -> Vec<&Section> {
            indexes.iter().map(|index| &region.sections[*index]).collect()
        };
        let weight = weigh(volume, &chosen(&worth));
        if !was_scattered && !weight.is_worth_it() {
            continue;
        }
        let own = held_by_nobody_else(volume, region.ino, &blocks, &worth)?;
        let own = chosen(&own);
        let weight_of_own = weigh(volume, &own);
        choice.held_bytes += weight.bytes - weight_of_own.bytes;
        if weight_of_own.is_worth_it() || (was_scattered && !own.is_empty()) {
            choice.units.push(Unit {
                bytes: weight_of_own.bytes,
                released_bytes: weight_of_own.released_bytes,
                joined: weight_of_own.joined(),
                sections: own.into_iter().cloned().collect(),
            });
        }
    }
    let chosen = choice.units.iter().flat_map(|unit| &unit.sections).collect::<Vec<_>>();
    if was_scattered && !is_scattered(volume, &chosen) {
        choice
            .units
            .retain(|unit| weigh(volume, &unit.sections.iter().collect::<Vec<_>>()).is_worth_it());
    }
    Ok(choice)
}

/// Whether sections lie in so many places that it is worth to bring them together.
fn is_scattered(volume: &Volume, sections: &[&Section]) -> bool {
    let mut extents = Extents::default();
    let mut bytes = 0;
    for section in sections {
        if let Some(block) = &section.block {
            extents.add(volume.view.place_of(block));
            bytes += section.len;
        }
    }
    extents.count > 1 && (extents.count - 1) * BYTES_PER_EXTENT >= bytes
}

/// Those of the sections whose blocks come back when they let go of them.
fn held_by_nobody_else(
    volume: &Volume,
    ino: u64,
    blocks: &Blocks<'_>,
    sections: &[usize],
) -> Result<Vec<usize>> {
    let mut own = BTreeSet::new();
    for index in sections {
        let of_block = blocks.beside(*index);
        if of_block.first() != Some(index) {
            continue;
        }
        let keys: Vec<Key> =
            of_block.iter().map(|index| section_key(ino, blocks.sections[*index].at)).collect();
        let block = blocks.sections[*index].block.as_ref();
        let is_own = block.map(|block| volume.view.is_held_only_by(block, &keys));
        if is_own.transpose().map_err(from_store)?.unwrap_or(false) {
            own.extend(of_block);
        }
    }
    Ok(own.into_iter().collect())
}

/// Whether nobody else holds the blocks of a unit, as far as is known at this moment.
pub(crate) fn is_still_own(volume: &Volume, ino: u64, sections: &[Section]) -> Result<bool> {
    let blocks = Blocks::of(sections);
    let all: Vec<usize> = (0..sections.len()).collect();
    Ok(held_by_nobody_else(volume, ino, &blocks, &all)?.len() == sections.len())
}

fn weigh(volume: &Volume, sections: &[&Section]) -> Weight {
    let mut weight = Weight { bytes: 0, before: 0, after: 0, released_bytes: 0, needed_bytes: 0 };
    let mut used: BTreeMap<&Bytes, (&Block, u64)> = BTreeMap::new();
    let mut end_before = None;
    for section in sections {
        let (Some(place), Some(block)) = (place_of(section), &section.block) else {
            continue;
        };
        used.entry(place).or_insert((block, 0)).1 += section.len;
        weight.bytes += section.len;
        weight.before += 1;
        weight.after += new_windows(volume, section, end_before);
        end_before = Some(section.end());
    }
    for (block, bytes) in used.into_values() {
        let stored = volume.view.stored_bytes(block);
        let needed = u128::from(stored) * u128::from(bytes) / block.len().max(1) as u128;
        weight.released_bytes += stored;
        weight.needed_bytes += u64::try_from(needed).unwrap_or(stored).min(stored);
    }
    weight
}

/// How many new blocks a section makes necessary, if another one ends at `end_before`.
fn new_windows(volume: &Volume, section: &Section, end_before: Option<u64>) -> u64 {
    let window_bytes = volume.record_bytes();
    let (first, last) = (section.at / window_bytes, (section.end() - 1) / window_bytes);
    let goes_on = end_before == Some(section.at) && !section.at.is_multiple_of(window_bytes);
    last - first + u64::from(!goes_on)
}

/// Whether a section has a block that can be rewritten.
fn has_block(section: &Section) -> bool {
    place_of(section).is_some()
}
