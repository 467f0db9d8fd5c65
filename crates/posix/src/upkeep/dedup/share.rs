//! Sharing blocks of two ranges if they hold the same bytes.
//!
//! The locks of both inodes are held from the first read to the end of the batch, so what was
//! compared is what is shared. Nothing that a user can see changes: the target's sections get
//! other blocks with the same bytes, and its record is not written.
//!
//! **The copy that stays is read from the device**, not from the cache: the other one is about to
//! be let go of, and content in memory says nothing about a sector that has gone bad since.

use super::window;
use crate::filesystem::Posix;
use crate::frame::change::Change;
use crate::frame::content::{PIECE_SECTIONS, range_end};
use crate::operations::copy::Place;
use crate::operations::read;
use crate::volume::Volume;
use bytes::Bytes;
use marram_format::record::Inode;
use marram_records::failure::from_store;
use marram_records::inode::check_regular;
use marram_records::section_edits::SectionEdits;
use marram_records::sections;
use marram_records::sections::{Section, section_key};
use marram_store::{Block, Error as StoreError};
use marram_vfs::{Error, Ino, Result};
use std::collections::BTreeMap;

/// A batch is made when so many bytes have been compared; the section that passes it comes along.
const PIECE_BYTES: u64 = 1 << 20;
/// Beside the first, so many bytes of a section must come with each slice that replaces it: a
/// reference costs about a hundred.
const SLICE_BYTES: u64 = 4096;

/// What came of comparing two ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Bytes that are the same, and were stored twice.
    pub equal_bytes: u64,
    /// Bytes of them that are shared now.
    pub shared_bytes: u64,
    /// Bytes that the target's slices of the blocks took, as they were stored. They come back when
    /// nothing else refers to those blocks, a snapshot least of all.
    pub released_bytes: u64,
    /// Bytes that are stored once already.
    pub already_bytes: u64,
    /// Ranges that could not be read, on either side, and why the first could not.
    pub unreadable: u64,
    /// See `unreadable`.
    pub reason: Option<Error>,
}

impl Sharing {
    pub(super) fn add(&mut self, other: Sharing) {
        self.equal_bytes += other.equal_bytes;
        self.shared_bytes += other.shared_bytes;
        self.released_bytes += other.released_bytes;
        self.already_bytes += other.already_bytes;
        self.unreadable += other.unreadable;
        self.reason = self.reason.take().or(other.reason);
    }
}

/// Where what is to be shared is, and where it shall be seen too.
#[derive(Clone, Copy)]
struct Ranges {
    from: Place,
    to: Place,
    len: u64,
}

/// A read that failed.
struct Unread {
    in_source: bool,
    section: Section,
    error: StoreError,
}

/// What is to be done about one piece.
#[derive(Default)]
struct Plan {
    edits: SectionEdits,
    /// The last new section of the target, which the next one may go on.
    last: Option<Section>,
    /// The source's sections that are put anew, so that the store sees their references.
    kept: BTreeMap<u64, Section>,
    sharing: Sharing,
    unread: Vec<Unread>,
}

/// Lets sections of `to` that hold the same bytes as `from` of `source`, which is this file
/// system or another one of the same store, share its blocks; with `dry_run`, only reports what
/// would be. Sections that do not lie wholly in the range, and those that differ, stay as they
/// are. Done in pieces, each a batch of its own; content, times, sizes and holes never change.
///
/// # Errors
/// [`Error::InvalidArgument`] for two ranges of one file that overlap; [`Error::NoSpace`],
/// [`Error::QuotaExceeded`], [`Error::ReadOnly`]: the pieces before that are shared. Content that
/// cannot be read is no error, but reported in the result.
pub fn share_if_equal(
    files: &Posix,
    source: &Posix,
    (from, from_offset): (Ino, u64),
    (to, to_offset): (Ino, u64),
    len: u64,
    dry_run: bool,
) -> Result<Sharing> {
    let (volume, source) = (&files.volume, &source.volume);
    let mut ranges = Ranges {
        from: Place { ino: from.0, offset: from_offset },
        to: Place { ino: to.0, offset: to_offset },
        len,
    };
    let (from_end, to_end) = (range_end(from_offset, len)?, range_end(to_offset, len)?);
    let is_same_file = std::ptr::eq(volume, source) && from == to;
    if is_same_file && from_offset < to_end && to_offset < from_end {
        return Err(Error::InvalidArgument("overlapping ranges"));
    }
    let mut all = Sharing::default();
    while ranges.len > 0 {
        volume.check_running()?;
        source.check_running()?;
        let (sharing, done) = share_piece(volume, source, ranges, dry_run)?;
        all.add(sharing);
        ranges = ranges.after(done);
    }
    Ok(all)
}

/// Does a piece; returns how many bytes of the range it was about.
fn share_piece(
    volume: &Volume,
    source: &Volume,
    ranges: Ranges,
    dry_run: bool,
) -> Result<(Sharing, u64)> {
    let (from, to) = (ranges.from, ranges.to);
    let held = match std::ptr::eq(volume, source) {
        true => (None, volume.locks.write(&[from.ino, to.ino])),
        false => {
            let (read, written) = volume.locks.write_from(to.ino, &source.locks, from.ino);
            (Some(read), written)
        }
    };
    let target = volume.load_inode(to.ino)?;
    let sizes = (regular(source, from.ino)?.size, target.size);
    check_regular(&target)?;
    let ranges = ranges.inside(sizes);
    let (plan, done) = plan_piece(volume, source, ranges)?;
    let Plan { mut edits, last, kept, mut sharing, unread } = plan;
    if !dry_run && sharing.shared_bytes > 0 {
        last.into_iter().for_each(|last| edits.put(last));
        apply_plan(volume, source, ranges, edits, kept, &target)?;
    }
    drop(held);
    if dry_run {
        sharing.shared_bytes = 0;
    }
    for unread in unread {
        let (files, ino) = if unread.in_source { (source, from.ino) } else { (volume, to.ino) };
        let error = window::report_unread(files, ino, &unread.section, unread.error);
        sharing.unreadable += 1;
        sharing.reason.get_or_insert(error);
    }
    Ok((sharing, done))
}

fn regular(volume: &Volume, ino: u64) -> Result<Inode> {
    let inode = volume.load_inode(ino)?;
    check_regular(&inode)?;
    Ok(inode)
}

fn plan_piece(volume: &Volume, source: &Volume, ranges: Ranges) -> Result<(Plan, u64)> {
    let mut plan = Plan::default();
    if ranges.len == 0 {
        return Ok((plan, u64::MAX));
    }
    let end = ranges.to.offset + ranges.len;
    let sections =
        sections::sections(&*volume.view, ranges.to.ino, ranges.to.offset, end, PIECE_SECTIONS)?;
    let mut compared_bytes = 0;
    for section in &sections {
        let is_inside = section.at >= ranges.to.offset && section.end() <= end;
        if !is_inside || !is_worth_it(volume, section) {
            continue;
        }
        plan_section(volume, source, ranges, section, &mut plan)?;
        compared_bytes += section.len;
        if compared_bytes >= PIECE_BYTES {
            return Ok((plan, section.end() - ranges.to.offset));
        }
    }
    let last = sections.last().filter(|_| sections.len() >= PIECE_SECTIONS);
    Ok((plan, last.map_or(u64::MAX, |last| last.end().min(end) - ranges.to.offset)))
}

/// Whether something is gained when a section lets go of its block.
fn is_worth_it(volume: &Volume, section: &Section) -> bool {
    section.block.as_ref().is_some_and(|block| volume.view.stored_bytes(block) > 0)
}

fn plan_section(
    volume: &Volume,
    source: &Volume,
    ranges: Ranges,
    section: &Section,
    plan: &mut Plan,
) -> Result<()> {
    let Some(slices) = slices_at(source, ranges, section)? else {
        return Ok(());
    };
    let is_other = !std::ptr::eq(volume, source);
    if slices.iter().all(|slice| is_same_place(volume, source, section, &slice.part)) {
        plan.sharing.already_bytes += section.len;
        return Ok(());
    }
    if is_other && slices.iter().any(|slice| !can_be_adopted(&slice.part)) {
        return Ok(());
    }
    if !is_equal(volume, source, section, &slices, &mut plan.unread) {
        return Ok(());
    }
    plan.edits.cut(std::slice::from_ref(section), section.at, section.end());
    for Slice { part, of } in slices {
        let mut part = part;
        if is_other {
            let adopt = |block| volume.view.adopt(&*source.view, block).map_err(from_store);
            part.block = part.block.as_ref().map(adopt).transpose()?;
        } else {
            plan.kept.insert(of.at, of);
        }
        plan.put(part);
    }
    plan.sharing.equal_bytes += section.len;
    plan.sharing.shared_bytes += section.len;
    plan.sharing.released_bytes += stored_part(volume, section);
    Ok(())
}

/// What the source has in place of a section of the target, as it would stand there; nothing
/// if it has a hole there, or too many slices.
fn slices_at(volume: &Volume, ranges: Ranges, section: &Section) -> Result<Option<Vec<Slice>>> {
    let from = ranges.from.offset + (section.at - ranges.to.offset);
    let (to, slices_max) = (from + section.len, 1 + section.len / SLICE_BYTES);
    let max = usize::try_from(slices_max).map_or(PIECE_SECTIONS, |max| max + 1);
    let found = sections::sections(&*volume.view, ranges.from.ino, from, to, max)?;
    let mut slices: Vec<Slice> = Vec::with_capacity(found.len());
    let mut at = from;
    for of in found {
        let part = of.part(from, to);
        if part.block.is_none() || part.at != at {
            return Ok(None);
        }
        at = part.end();
        slices.push(Slice { part: Section { at: part.at - from + section.at, ..part }, of });
    }
    let is_complete = at == to && slices.len() < max;
    Ok(is_complete.then_some(slices))
}

/// Whether both are the same bytes of the same block.
fn is_same_place(volume: &Volume, source: &Volume, section: &Section, slice: &Section) -> bool {
    let (Some(own), Some(other)) = (&section.block, &slice.block) else {
        return false;
    };
    let start = u64::from(section.block_start) + (slice.at - section.at);
    let address = volume.view.place_of(own).address;
    let is_same_block =
        own.same(other) || (address.is_some() && address == source.view.place_of(other).address);
    start == u64::from(slice.block_start) && is_same_block
}

/// Another file system gets no block of what no commit has written, but a copy.
fn can_be_adopted(slice: &Section) -> bool {
    match &slice.block {
        Some(Block::Fresh(fresh)) => fresh.stored().is_some(),
        Some(Block::Stored(_)) => true,
        None => false,
    }
}

fn is_equal(
    volume: &Volume,
    source: &Volume,
    section: &Section,
    slices: &[Slice],
    unread: &mut Vec<Unread>,
) -> bool {
    let mut failed = |in_source, section: &Section, error| {
        unread.push(Unread { in_source, section: section.clone(), error });
        false
    };
    let own = match read::content_of(volume, section) {
        Ok(own) => own,
        Err(error) => return failed(false, section, error),
    };
    let mut rest: &[u8] = &own;
    for Slice { part, of } in slices {
        let other = match content_on_media(source, part) {
            Ok(other) => other,
            Err(error) => return failed(true, of, error),
        };
        if !rest.starts_with(&other) {
            return false;
        }
        rest = &rest[other.len()..];
    }
    rest.is_empty()
}

/// As `content_of`, from the device if it is there.
fn content_on_media(volume: &Volume, section: &Section) -> std::result::Result<Bytes, StoreError> {
    let Some(block) = &section.block else {
        return Ok(Bytes::new());
    };
    let content = volume.view.read_block_anew(block)?;
    let start = section.block_start as usize;
    let len = usize::try_from(section.len).expect("a block has at most 1 MiB");
    assert!(start + len <= content.len(), "a store returns whole blocks");
    Ok(content.slice(start..start + len))
}

/// Bytes that a section's slice of its block takes.
fn stored_part(volume: &Volume, section: &Section) -> u64 {
    let Some(block) = &section.block else {
        return 0;
    };
    let stored = u128::from(volume.view.stored_bytes(block)) * u128::from(section.len);
    u64::try_from(stored / block.len().max(1) as u128).unwrap_or(u64::MAX)
}

fn apply_plan(
    volume: &Volume,
    source: &Volume,
    ranges: Ranges,
    mut edits: SectionEdits,
    kept: BTreeMap<u64, Section>,
    target: &Inode,
) -> Result<()> {
    let mut change = Change::begin(volume)?;
    let is_same_file = std::ptr::eq(volume, source) && ranges.from.ino == ranges.to.ino;
    for section in kept.into_values() {
        if is_same_file {
            edits.keep(&section);
        } else {
            let key = section_key(ranges.from.ino, section.at);
            change.batch.put(key, section.into_item());
        }
    }
    // As much data comes as goes, so the sums in the record stay what they are.
    for (offset, section) in edits.settle(&mut target.clone()) {
        let key = section_key(ranges.to.ino, offset);
        match section {
            Some(section) => change.batch.put(key, section.into_item()),
            None => change.batch.remove(key),
        };
    }
    change.commit()
}

impl Plan {
    /// Puts a new section of the target; one that goes on where the last one ends, in the file and
    /// in the block, is one with it.
    fn put(&mut self, section: Section) {
        if let Some(last) = &mut self.last {
            let goes_on = last.end() == section.at
                && u64::from(last.block_start) + last.len == u64::from(section.block_start)
                && last.block.as_ref().zip(section.block.as_ref()).is_some_and(|(a, b)| a.same(b));
            if goes_on {
                last.len += section.len;
                return;
            }
        }
        if let Some(last) = self.last.replace(section) {
            self.edits.put(last);
        }
    }
}

/// A slice of the source's in place of a section of the target.
struct Slice {
    /// As it stands in the target.
    part: Section,
    /// The source's section that it is of.
    of: Section,
}

impl Ranges {
    fn after(self, bytes: u64) -> Ranges {
        let bytes = bytes.min(self.len);
        let moved = |place: Place| Place { offset: place.offset + bytes, ..place };
        Ranges { from: moved(self.from), to: moved(self.to), len: self.len - bytes }
    }

    /// The part of them that lies in files of these sizes.
    fn inside(self, (source, target): (u64, u64)) -> Ranges {
        let present = source.saturating_sub(self.from.offset);
        let present = present.min(target.saturating_sub(self.to.offset));
        Ranges { len: self.len.min(present), ..self }
    }
}
