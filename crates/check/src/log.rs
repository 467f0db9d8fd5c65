//! The intent log: its head, and the frames that the next mount will take in.
//!
//! **What an interrupted write leaves is in order.** Where no frame is, the log ends; of the last
//! frame one copy may be torn. But a frame is written only after the one before it was flushed: so
//! whatever is missing before a whole frame was there once, and is damaged.

use crate::checker::Checker;
use crate::finding::{FindingKind, Place};
use crate::pool::PoolTree;
use marram_device::Device;
use marram_format::dataset::DatasetState;
use marram_format::group::Group;
use marram_format::key::Key;
use marram_format::log::{FRAME_HEADER_BYTES, LogBlock, LogEdit, LogHead, LogPart};
use marram_format::log::{decode_frame, frame_header};
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_format::superblock::Superblock;
use marram_format::version::feature;
use std::collections::HashSet;

/// Places behind the end at which something that begins like a frame is read as a whole: users
/// can write what begins like one, to make a check read long.
const LATER_FRAMES_MAX: usize = 64;
const GRAIN_LEN: usize = GRAIN_BYTES as usize;

/// The head that the superblock has, if it has one; its space is in use.
pub(crate) fn read_head(checker: &mut Checker<'_>, superblock: &Superblock) -> Option<LogHead> {
    let pointer = superblock.intent_log.as_ref()?;
    let place = Place::pool();
    checker.check_birth(pointer, superblock.group, &place);
    match LogHead::from_pointer(pointer) {
        Ok(head) => {
            checker.reach_extents(head.copies.iter().flatten().copied(), &place);
            Some(head)
        }
        Err(error) => {
            checker.report.report(FindingKind::LogHead, place, error.to_string());
            checker.complete = false;
            None
        }
    }
}

/// Checks the frames from the head's start on.
pub(crate) fn check(
    checker: &mut Checker<'_>,
    device: &dyn Device,
    superblock: &Superblock,
    head: &LogHead,
    pool: &PoolTree,
) {
    let ring = Ring { device, head, pool_id: superblock.pool_id, secret: superblock.secret };
    let mut waiting = Waiting { superblock, head, pool, fresh: HashSet::new() };
    let end = head.start + u64::from(head.grains);
    let mut position = head.start;
    let mut bad_copies: Vec<(Place, String)> = Vec::new();
    while position < end {
        let copies = [0, 1].map(|copy| ring.frame(copy, position));
        let Some(Ok(frame)) = copies.iter().find(|frame| frame.is_ok()) else {
            check_end(checker, &ring, position..end, &copies, bad_copies);
            return;
        };
        report_copies(checker, bad_copies);
        bad_copies = ring.bad_copies(position, &copies);
        let place = ring.place(0, position);
        match decode_frame(frame, &ring.pool_id, ring.secret, position) {
            Some(Ok(parts)) => waiting.take(checker, &parts, &place),
            Some(Err(error)) => {
                let detail = format!("at position {position}: {error}");
                checker.report.report(FindingKind::LogFrame, place, detail);
            }
            None => {}
        }
        position += frame.len().div_ceil(GRAIN_LEN) as u64;
    }
}

/// There is no frame where the next one would be.
fn check_end(
    checker: &mut Checker<'_>,
    ring: &Ring<'_>,
    rest: std::ops::Range<u64>,
    copies: &[Result<Vec<u8>, NoFrame>; 2],
    bad_copies: Vec<(Place, String)>,
) {
    let position = rest.start;
    let place = ring.place(0, position);
    if let Some(later) = ring.later_frame(rest.start + 1..rest.end) {
        report_copies(checker, bad_copies);
        let detail = format!("none is at position {position}, but one at {later}");
        checker.report.report(FindingKind::LogLost, place, detail);
        return;
    }
    // What was made durable is in both copies: one that can be read shows it.
    if let [Err(NoFrame::Unreadable(reason)), Err(NoFrame::Unreadable(_))] = copies {
        let detail = format!("whether one was at position {position}: {reason}");
        checker.report.report(FindingKind::LogLost, place, detail);
    }
}

fn report_copies(checker: &mut Checker<'_>, bad: Vec<(Place, String)>) {
    for (place, detail) in bad {
        checker.report.report(FindingKind::LogCopy, place, detail);
    }
}

/// Why there is no frame.
enum NoFrame {
    /// Something else is there: noise, an older frame, or one that is torn or damaged.
    Other,
    /// The device says so.
    Unreadable(String),
}

/// The log on a device.
struct Ring<'c> {
    device: &'c dyn Device,
    head: &'c LogHead,
    pool_id: [u8; 16],
    secret: u64,
}

impl Ring<'_> {
    /// Where a position is on the device.
    fn place(&self, copy: usize, position: u64) -> Place {
        let (offset_bytes, _) = self.piece_at(copy, position);
        Place::device(offset_bytes)
    }

    /// Where a position lies, in bytes of the device, and the grains that lie there in one piece.
    fn piece_at(&self, copy: usize, position: u64) -> (u64, u64) {
        let mut grain = position % u64::from(self.head.grains);
        for piece in &self.head.copies[copy] {
            let grains = u64::from(piece.grains);
            if grain < grains {
                return ((piece.start + grain) * GRAIN_BYTES, grains - grain);
            }
            grain -= grains;
        }
        unreachable!("the pieces of a decoded head add up to the ring")
    }

    fn read(&self, copy: usize, position: u64, len: usize) -> Result<Vec<u8>, NoFrame> {
        let mut bytes = vec![0; len];
        let mut rest = &mut bytes[..];
        let mut position = position;
        while !rest.is_empty() {
            let (offset, grains) = self.piece_at(copy, position);
            let left = usize::try_from(grains * GRAIN_BYTES).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at_mut(left.min(rest.len()));
            let read = self.device.read(offset, now);
            read.map_err(|error| NoFrame::Unreadable(error.to_string()))?;
            rest = later;
            position += grains;
        }
        Ok(bytes)
    }

    /// The bytes of the frame at a position of one copy; its checksum is right.
    fn frame(&self, copy: usize, position: u64) -> Result<Vec<u8>, NoFrame> {
        let start = self.read(copy, position, FRAME_HEADER_BYTES)?;
        let header = frame_header(&start, &self.pool_id, position).ok_or(NoFrame::Other)?;
        if u64::from(header.len_bytes) > u64::from(self.head.grains) * GRAIN_BYTES {
            return Err(NoFrame::Other);
        }
        let len = usize::try_from(header.len_bytes).unwrap_or(usize::MAX);
        let frame = self.read(copy, position, len)?;
        match decode_frame(&frame, &self.pool_id, self.secret, position) {
            Some(_) => Ok(frame),
            None => Err(NoFrame::Other),
        }
    }

    /// The first of these positions that has a frame in any copy.
    fn later_frame(&self, mut positions: std::ops::Range<u64>) -> Option<u64> {
        let mut left = LATER_FRAMES_MAX;
        positions.find(|position| {
            (0..2).any(|copy| {
                let begins = left > 0
                    && self
                        .read(copy, *position, FRAME_HEADER_BYTES)
                        .is_ok_and(|it| frame_header(&it, &self.pool_id, *position).is_some());
                left -= usize::from(begins);
                begins && self.frame(copy, *position).is_ok()
            })
        })
    }

    /// What is wrong with a frame of which one copy is good.
    fn bad_copies(
        &self,
        position: u64,
        copies: &[Result<Vec<u8>, NoFrame>; 2],
    ) -> Vec<(Place, String)> {
        let mut bad = Vec::new();
        for (copy, frame) in copies.iter().enumerate() {
            let reason = match frame {
                Ok(_) => continue,
                Err(NoFrame::Other) => "no whole frame is there",
                Err(NoFrame::Unreadable(reason)) => reason,
            };
            let detail = format!("copy {} at position {position}: {reason}", copy + 1);
            bad.push((self.place(copy, position), detail));
        }
        bad
    }
}

/// What the next mount will take in.
struct Waiting<'c> {
    superblock: &'c Superblock,
    head: &'c LogHead,
    pool: &'c PoolTree,
    /// Items that have a block which came with the log, by freeze and dataset.
    fresh: HashSet<(u64, u64, Key)>,
}

impl Waiting<'_> {
    fn take(&mut self, checker: &mut Checker<'_>, parts: &[LogPart<'_>], place: &Place) {
        let parts = parts.iter().filter(|part| part.freeze > self.head.included);
        let mut changes = 0;
        for part in parts {
            changes += part.edits.len() as u64;
            let place = self.place_of(checker, part, place);
            self.merge(checker, part, &place);
            for edit in &part.edits {
                self.edit(checker, part, edit, &place);
            }
        }
        checker.summary.log_changes += changes;
        checker.summary.log_frames += u64::from(changes > 0);
    }

    /// The place of the dataset's changes, and whether they can be taken in at all.
    fn place_of(&self, checker: &mut Checker<'_>, part: &LogPart<'_>, place: &Place) -> Place {
        let found = self.pool.datasets.get(&part.dataset).map(|found| &found.record);
        let name = found.map(|record| record.name.as_str());
        let place = Place::of(name).at(place.offset_bytes);
        let reason = match found.map(|record| record.state) {
            Some(DatasetState::Live) => return place,
            Some(DatasetState::Snapshot) => "it is a snapshot",
            Some(DatasetState::Destroying) => "it is being destroyed",
            None if !checker.complete => return place,
            None => "it has no record",
        };
        let detail = format!("dataset {}: {reason}", part.dataset);
        checker.report.report(FindingKind::LogDataset, place.clone(), detail);
        place
    }

    /// A program that does not know merges in frames has no way to see that it must not open the
    /// pool.
    fn merge(&self, checker: &mut Checker<'_>, part: &LogPart<'_>, place: &Place) {
        let is_known = self.superblock.features_incompatible & feature::LOGGED_MERGES != 0;
        if part.merge.is_some() && !is_known {
            let detail = "it has a merge, and the superblock lacks the feature logged-merges";
            checker.report.report(FindingKind::LogFrame, place.clone(), detail);
        }
    }

    fn edit(
        &mut self,
        checker: &mut Checker<'_>,
        part: &LogPart<'_>,
        edit: &LogEdit<'_>,
        place: &Place,
    ) {
        let item = |key| (part.freeze, part.dataset, key);
        match edit {
            LogEdit::Remove { key } => {
                self.fresh.remove(&item(*key));
            }
            LogEdit::Put { key, block: LogBlock::Content(_) | LogBlock::Earlier(_), .. } => {
                self.fresh.insert(item(*key));
            }
            LogEdit::Put { key, block: LogBlock::None, .. } => {
                self.fresh.remove(&item(*key));
            }
            LogEdit::Put { key, block: LogBlock::Stored(pointer), .. } => {
                self.fresh.remove(&item(*key));
                self.stored(checker, pointer, &place.clone().key(*key));
            }
            LogEdit::Patch { key, .. } if !self.fresh.contains(&item(*key)) => {
                let detail = "it changes a block that no frame has brought";
                let place = place.clone().key(*key);
                checker.report.report(FindingKind::LogFrame, place, detail);
            }
            LogEdit::Patch { .. } => {}
        }
    }

    /// The block of a logged item must be one that the last commit has.
    fn stored(&self, checker: &mut Checker<'_>, pointer: &[u8], place: &Place) {
        let Ok(pointer) = Pointer::decode(pointer) else { return };
        if pointer.adopted() != Some(Group(0)) {
            checker.check_birth(&pointer, self.superblock.group, place);
        }
        if !checker.complete {
            return;
        }
        for extent in pointer.extents() {
            if let Some(reason) = checker.space.unused(extent) {
                let (grains, start) = (extent.grains, extent.start);
                let detail = format!("a piece of {grains} grains from {start} {reason}");
                checker.report.report(FindingKind::LogBlock, place.clone(), detail);
            }
        }
    }
}
