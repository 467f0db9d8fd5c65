//! Rewriting one unit after the other, in steps that a commit ends.
//!
//! **A step is small, and committed before the next begins.** What is rewritten waits in memory
//! like anything else, so the next sync of any program would carry it into the intent log. So a
//! step brings no more than a frame of the log can hold.
//!
//! **Little space stops it.** New blocks are written before the old ones come back. Where there is
//! not that much left, such a batch could make the store empty its trash, or take the last space
//! from a program that needs it.

use super::unit;
use super::unit::{Region, Unit};
use crate::frame::change::Change;
use crate::frame::damage;
use crate::frame::flags::flags_of;
use crate::volume::Volume;
use bytes::Bytes;
use marram_format::record::{Inode, InodeKind, state};
use marram_records::failure::from_store;
use marram_records::section_edits::SectionEdits;
use marram_records::sections::{Section, section_key};
use marram_store::{Block, Error as StoreError};
use marram_vfs::{Error, InodeFlags, Result};

/// Bytes that one step rewrites; the unit that passes it comes along.
const STEP_BYTES: u64 = 4 << 20;
/// Items that one step changes, likewise.
const STEP_ITEMS: u64 = 256;
/// Less free space than this ends the work, in bytes: what a step may need at worst while it waits
/// for its commit. In a small pool a quarter of it does.
const FREE_BYTES_MIN: u64 = 48 << 20;
const FREE_PART_OF_SMALL: u64 = 4;
/// To bring sections together, one part in so many of the store must be free.
const FREE_PART: u64 = 20;

/// What came of looking at content and rewriting it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragmentTotals {
    /// Bytes of content that were looked at.
    pub content_bytes: u64,
    /// Bytes that were written anew.
    pub rewritten_bytes: u64,
    /// Sections of files that there are fewer.
    pub joined_sections: u64,
    /// Bytes that the blocks took which were let go of.
    pub released_bytes: u64,
    /// Bytes that would have been worth it, but somebody else has their blocks: a snapshot, a
    /// fork, another file.
    pub held_bytes: u64,
    /// Units that somebody wrote to at the same moment.
    pub overtaken: u64,
    /// Units that could not be read. They stay as they are.
    pub unreadable: u64,
}

impl DefragmentTotals {
    /// Adds what another sum has grown by.
    pub fn add_since(&mut self, now: DefragmentTotals, before: DefragmentTotals) {
        self.content_bytes += now.content_bytes - before.content_bytes;
        self.rewritten_bytes += now.rewritten_bytes - before.rewritten_bytes;
        self.joined_sections += now.joined_sections - before.joined_sections;
        self.released_bytes += now.released_bytes - before.released_bytes;
        self.held_bytes += now.held_bytes - before.held_bytes;
        self.overtaken += now.overtaken - before.overtaken;
        self.unreadable += now.unreadable - before.unreadable;
    }
}

/// Why a unit was not rewritten.
enum Left {
    /// Something about it has changed.
    Overtaken,
    /// It is about a file that is going away.
    NotNow,
    Unreadable {
        section: Box<Section>,
        error: StoreError,
    },
}

/// How to go about it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// Nothing is changed.
    pub(super) dry_run: bool,
    /// Also what lies in many places on the device, though it is cut well.
    pub(super) by_place: bool,
    /// Only files that have not been changed since this moment, in seconds since 1970.
    pub(super) unchanged_since: Option<i64>,
}

/// What a step has done so far.
#[derive(Default)]
pub(super) struct Step {
    bytes: u64,
    items: u64,
}

impl Step {
    /// Whether it has done enough.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= STEP_BYTES || self.items >= STEP_ITEMS
    }

    /// Commits what it has done.
    ///
    /// # Errors
    /// The commit failed.
    pub(super) fn commit(&mut self, files: &Volume) -> Result<()> {
        match std::mem::take(self).items {
            0 => Ok(()),
            _ => files.view.commit().map_err(from_store),
        }
    }
}

/// Rewrites what of a region is worth it. Returns whether there was space for all.
pub(crate) fn rewrite_region(
    volume: &Volume,
    region: &Region,
    how: How,
    step: &mut Step,
    totals: &mut DefragmentTotals,
) -> Result<bool> {
    let with_block = region.sections.iter().filter(|section| section.block.is_some());
    totals.content_bytes += with_block.map(|section| section.len).sum::<u64>();
    let choice = unit::choose(volume, region, how.by_place)?;
    totals.held_bytes += choice.held_bytes;
    for unit in choice.units {
        if !how.dry_run {
            if !has_room_for(volume, &unit) {
                return Ok(false);
            }
            match rewrite_unit(volume, region.ino, &unit.sections, how)? {
                Ok(items) => {
                    (step.bytes, step.items) = (step.bytes + unit.bytes, step.items + items)
                }
                Err(left) => {
                    note_left(volume, region.ino, left, totals);
                    continue;
                }
            }
        }
        totals.rewritten_bytes += unit.bytes;
        totals.joined_sections += unit.joined;
        totals.released_bytes += unit.released_bytes;
        if step.is_full() {
            step.commit(volume)?;
        }
    }
    Ok(true)
}

fn note_left(volume: &Volume, ino: u64, left: Left, totals: &mut DefragmentTotals) {
    match left {
        Left::Overtaken => totals.overtaken += 1,
        Left::NotNow => (),
        Left::Unreadable { section, error } => {
            totals.unreadable += 1;
            if let StoreError::Damaged(damage) = &error {
                damage::report_damage(volume, ino, section.at, section.len, damage.to_string());
            }
        }
    }
}

fn has_room_for(volume: &Volume, unit: &Unit) -> bool {
    let space = volume.view.space();
    let least = FREE_BYTES_MIN.min(space.total_bytes / FREE_PART_OF_SMALL);
    let gives_back = unit.released_bytes > unit.bytes;
    let wanted = if gives_back { least } else { least.max(space.total_bytes / FREE_PART) };
    space.free_bytes >= wanted + unit.bytes
}

/// Puts new blocks in place of the sections of a unit. Returns how many items that changed.
fn rewrite_unit(
    volume: &Volume,
    ino: u64,
    unit: &[Section],
    how: How,
) -> Result<std::result::Result<u64, Left>> {
    let read = {
        let _held = volume.locks.read(ino);
        match may_rewrite(volume, ino, unit, how)? {
            Ok(_) => content_of_unit(volume, unit),
            Err(left) => Err(left),
        }
    };
    let contents = match read {
        Ok(contents) => contents,
        Err(left) => return Ok(Err(left)),
    };
    let _held = volume.locks.write(&[ino]);
    let inode = match may_rewrite(volume, ino, unit, how)? {
        Ok(inode) => inode,
        Err(left) => return Ok(Err(left)),
    };
    if !unit::is_still_own(volume, ino, unit)? {
        return Ok(Err(Left::Overtaken));
    }
    put_anew(volume, ino, &inode, unit, &contents).map(Ok)
}

/// The record of a file of which a unit can be rewritten: all its sections are as they were.
/// What is not there any more, and what a cut has left past the end, is about to be freed.
fn may_rewrite(
    volume: &Volume,
    ino: u64,
    unit: &[Section],
    how: How,
) -> Result<std::result::Result<Inode, Left>> {
    volume.check_running()?;
    let inode = match volume.load_inode(ino) {
        Ok(inode) => inode,
        Err(Error::Stale) => return Ok(Err(Left::NotNow)),
        Err(error) => return Err(error),
    };
    let is_going = inode.links == 0 || inode.state & state::TAIL != 0;
    let is_busy = how.unchanged_since.is_some_and(|since| inode.modified.seconds > since);
    if inode.kind != InodeKind::Regular || is_going || is_busy {
        return Ok(Err(Left::NotNow));
    }
    for section in unit {
        if !is_as_it_was(volume, ino, section)? {
            return Ok(Err(Left::Overtaken));
        }
    }
    Ok(Ok(inode))
}

fn is_as_it_was(volume: &Volume, ino: u64, section: &Section) -> Result<bool> {
    let item = volume.view.get(section_key(ino, section.at)).map_err(from_store)?;
    let block = |item: &marram_store::Item| item.block.clone();
    Ok(item.is_some_and(|item| {
        let is_same_block = block(&item).zip(section.block.as_ref());
        item.value == section.value()[..] && is_same_block.is_some_and(|(a, b)| a.same(b))
    }))
}

/// The bytes of each section, read from the device: what is written anew must be what is
/// there, and a walk through everything must not fill the cache.
fn content_of_unit(volume: &Volume, unit: &[Section]) -> std::result::Result<Vec<Bytes>, Left> {
    let mut known: Vec<(&Block, Bytes)> = Vec::new();
    let mut contents = Vec::with_capacity(unit.len());
    for section in unit {
        let Some(block) = &section.block else {
            return Err(Left::Overtaken);
        };
        let content = match known.iter().find(|(other, _)| other.same(block)) {
            Some((_, content)) => content.clone(),
            None => {
                let content = volume.view.read_block_anew(block).map_err(|error| {
                    Left::Unreadable { section: Box::new(section.clone()), error }
                })?;
                known.push((block, content.clone()));
                content
            }
        };
        let start = section.block_start as usize;
        let len = usize::try_from(section.len).expect("a block has at most 1 MiB");
        assert!(start + len <= content.len(), "a store returns whole blocks");
        contents.push(content.slice(start..start + len));
    }
    Ok(contents)
}

fn put_anew(
    volume: &Volume,
    ino: u64,
    inode: &Inode,
    unit: &[Section],
    contents: &[Bytes],
) -> Result<u64> {
    let mut change = Change::begin(volume)?;
    let mut edits = SectionEdits::default();
    for section in unit {
        edits.cut(std::slice::from_ref(section), section.at, section.end());
    }
    new_sections(volume, unit, contents).into_iter().for_each(|section| edits.put(section));
    if flags_of(inode).any(InodeFlags::NO_COMPRESSION) {
        edits.keep_as_is();
    }
    // The record is not written: nothing that it tells has changed. What it tells is not
    // counted upon, as it may be damaged.
    let bytes = unit.iter().map(|section| section.len).sum();
    let mut sums = Inode { data_bytes: bytes, ..inode.clone() };
    let edits = edits.settle(&mut sums);
    assert_eq!(sums.data_bytes, bytes, "as much content comes as goes");
    let items = edits.len() as u64;
    for (offset, section) in edits {
        let key = section_key(ino, offset);
        match section {
            Some(section) => change.batch.put(key, section.into_item()),
            None => change.batch.remove(key),
        };
    }
    change.commit()?;
    Ok(items)
}

/// The same content in new blocks, one for each window.
fn new_sections(volume: &Volume, unit: &[Section], contents: &[Bytes]) -> Vec<Section> {
    let window_bytes = volume.record_bytes();
    let mut new: Vec<(u64, Vec<u8>)> = Vec::new();
    for (section, content) in unit.iter().zip(contents) {
        let (mut at, mut rest) = (section.at, &content[..]);
        while !rest.is_empty() {
            let window_end = (at / window_bytes + 1) * window_bytes;
            let len = usize::try_from(window_end - at).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at(len);
            match new.last_mut() {
                Some((start, block))
                    if *start + block.len() as u64 == at && !at.is_multiple_of(window_bytes) =>
                {
                    block.extend_from_slice(part);
                }
                _ => new.push((at, part.to_vec())),
            }
            (at, rest) = (at + len as u64, after);
        }
    }
    let section = |(at, content): (u64, Vec<u8>)| Section {
        at,
        len: content.len() as u64,
        block_start: 0,
        block: Some(Block::fresh(content)),
    };
    new.into_iter().map(section).collect()
}
