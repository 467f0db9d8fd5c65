//! What all steps of a check share.

use crate::CheckOptions;
use crate::blocks::{BadCopy, Blocks, Copies, Reading, Unreadable};
use crate::finding::{FindingKind, Place};
use crate::owners::{Meeting, Owners};
use crate::reporter::Reporter;
use crate::space::Space;
use crate::summary::Summary;
use bytes::Bytes;
use marram_format::group::Group;
use marram_format::pointer::{Extent, GRAIN_BYTES, Pointer};

/// The state of a check.
pub(crate) struct Checker<'a> {
    pub(crate) options: CheckOptions,
    pub(crate) blocks: Blocks<'a>,
    pub(crate) report: Reporter<'a>,
    pub(crate) space: Space,
    pub(crate) summary: Summary,
    /// Nothing has been lost that would be needed to know what is in use.
    pub(crate) complete: bool,
    /// Blocks that have several owners.
    pub(crate) owners: Owners,
    /// Trees may have nodes that were written for other datasets with numbers below this: they have
    /// taken over what those had.
    pub(crate) foreign_below: u64,
    /// Nodes that look-ups for messages may still read.
    pub(crate) lookup_nodes_left: usize,
    /// Whether the superblock has the feature of blocks in many pieces.
    pub(crate) may_be_scattered: bool,
    /// Blocks may have several owners.
    pub(crate) may_be_owned: bool,
}

/// Where a block begins on the device, in bytes.
pub(crate) fn offset_of(pointer: &Pointer) -> Option<u64> {
    pointer.extents().next().map(|extent| extent.start * GRAIN_BYTES)
}

fn describe(bad: &[BadCopy]) -> String {
    let describe = |copy: &BadCopy| match copy.offset_bytes {
        Some(offset) => format!("copy {} at {offset:#x}: {}", copy.number, copy.reason),
        None => format!("copy {}: {}", copy.number, copy.reason),
    };
    bad.iter().map(describe).collect::<Vec<_>>().join("; ")
}

impl Checker<'_> {
    /// A block was met by the tree that it belongs to; false if it shares its space with another.
    pub(crate) fn reach(&mut self, pointer: &Pointer, place: &Place) -> bool {
        self.reach_extents(pointer.extents(), place)
    }

    /// An owner of a block of content was met. A block that has several is met by each of them.
    pub(crate) fn reach_content(&mut self, pointer: &Pointer, place: &Place) {
        match self.owners.meet(pointer) {
            Meeting::First => {
                self.reach(pointer, place);
            }
            Meeting::Again => {}
            Meeting::Another => {
                let place = place.clone().at(offset_of(pointer));
                let detail = "another owner has another block there".to_owned();
                self.report.report(FindingKind::SpaceDouble, place, detail);
            }
        }
    }

    /// The same for space that no pointer leads to.
    pub(crate) fn reach_extents(
        &mut self,
        extents: impl Iterator<Item = Extent>,
        place: &Place,
    ) -> bool {
        let faults = self.space.reach(extents);
        let alone = faults.iter().all(|fault| fault.kind == FindingKind::SpaceFree);
        for fault in faults {
            let place = place.clone().at(Some(fault.grain.saturating_mul(GRAIN_BYTES)));
            self.report.report(fault.kind, place, fault.detail);
        }
        alone
    }

    /// A pointer is younger than what holds it, or than the last commit.
    pub(crate) fn check_birth(&mut self, pointer: &Pointer, limit: Group, place: &Place) {
        if pointer.birth == Group(0) || pointer.birth > limit {
            let detail = format!("it was born in group {}, not 1 to {limit}", pointer.birth);
            let place = place.clone().at(offset_of(pointer));
            self.report.report(FindingKind::PointerBirth, place, detail);
        }
    }

    /// Reads one of the pool's own structures, and tells what is wrong with it.
    pub(crate) fn read_metadata(
        &mut self,
        pointer: &Pointer,
        copies: Copies,
        place: &Place,
    ) -> Option<Bytes> {
        let reading = self.blocks.read(pointer, copies);
        self.report_copies(&reading, place);
        let place = place.clone().at(offset_of(pointer));
        match reading.content {
            Ok(content) => Some(content),
            Err(Unreadable::Lost) => {
                self.report.report(FindingKind::MetadataLost, place, describe(&reading.bad));
                None
            }
            Err(Unreadable::Content(reason)) => {
                self.report.report(FindingKind::MetadataMalformed, place, reason);
                None
            }
        }
    }

    /// Verifies all copies of a block of content; returns what was read if anything is wrong.
    pub(crate) fn verify(&mut self, pointer: &Pointer) -> Option<Reading> {
        let reading = self.blocks.read(pointer, Copies::All);
        self.summary.verified_bytes += u64::from(pointer.physical_len);
        (reading.content.is_err() || !reading.bad.is_empty()).then_some(reading)
    }

    /// Reports what is wrong with a block of content; returns whether it is lost.
    pub(crate) fn report_content(
        &mut self,
        pointer: &Pointer,
        reading: &Reading,
        place: &Place,
    ) -> bool {
        self.report_copies(reading, place);
        let place = place.clone().at(offset_of(pointer));
        let (kind, detail) = match &reading.content {
            Ok(_) => return false,
            Err(Unreadable::Lost) => (FindingKind::BlockLost, describe(&reading.bad)),
            Err(Unreadable::Content(reason)) => (FindingKind::BlockContent, reason.clone()),
        };
        self.report.report(kind, place, detail);
        true
    }

    /// Reports bad copies of a block that has a good one.
    fn report_copies(&mut self, reading: &Reading, place: &Place) {
        if matches!(reading.content, Err(Unreadable::Lost)) {
            return;
        }
        for copy in &reading.bad {
            let place = place.clone().at(copy.offset_bytes);
            let detail = format!("copy {}: {}", copy.number, copy.reason);
            self.report.report(FindingKind::CopyDamaged, place, detail);
        }
    }
}
