//! Writing.
//!
//! A write becomes new blocks, one for each record-aligned window that it touches, and what it
//! overlaps is cut: the rest of an old block stays in use. Three rules keep that cheap:
//!
//! - A write that begins inside or at the end of a section whose block no commit has written yet
//!   patches that block: small sequential writes cost nothing but their bytes.
//! - What is left of a section beside the write is copied into the new block if it is short
//!   ([`REST_BYTES`]), so files do not fragment. A whole page is not, as a write of pages would
//!   then read a record from the device to copy a page of it.
//! - A short section that ends where the write begins is copied too, if it is small or not much
//!   longer than the write. So a log that is synced after each line has records of a useful size,
//!   and each byte is copied only a few times.
//!
//! A copy that fails because the old bytes are damaged is not made: the section is cut instead,
//! and the write goes through.
//!
//! What comes in memory that may be kept is not copied where a window is written wholly: the new
//! block is a part of that memory (docs/decisions/0013-requests-and-transport.md).

use crate::frame::change::Change;
use crate::frame::content::range_end;
use crate::frame::flags::flags_of;
use crate::frame::{content, privileges};
use crate::operations::{marks, read};
use crate::volume::Volume;
use bytes::Bytes;
use marram_format::record::Inode;
use marram_records::failure::{from_record, from_store};
use marram_records::inode::check_regular;
use marram_records::section_edits::SectionEdits;
use marram_records::sections;
use marram_records::sections::{Run, Section, section_key};
use marram_store::{Admission, Batch, Block, Error as StoreError, SharedContent};
use marram_vfs::{InodeFlags, Result, WriteOptions};

/// Longest write that is one operation, in bytes. Longer ones are done in pieces of this size.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// What is left of a cut section is copied if it is shorter than this, in bytes: a block of its own
/// takes as much space. What is copied goes into the intent log too, so more of it would cost every
/// small synced overwrite more than the sections that it saves.
const REST_BYTES: u64 = 4 << 10;
/// A section that ends where a write begins is copied up to this length, in bytes.
const CONTINUED_BYTES: u64 = 16 << 10;

/// A range to be written.
#[derive(Clone, Copy)]
struct Span<'d> {
    offset: u64,
    data: &'d [u8],
    /// What the data is a part of, if blocks may keep that.
    memory: Option<&'d Bytes>,
}

impl<'d> Span<'d> {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    fn contains(&self, from: u64, to: u64) -> bool {
        self.offset <= from && to <= self.end()
    }

    /// The part of it up to `end`, and the rest.
    fn split_at(self, end: u64) -> (Span<'d>, Span<'d>) {
        let len = usize::try_from(end - self.offset).expect("a part of the data");
        let (head, rest) = self.data.split_at(len);
        (Span { data: head, ..self }, Span { offset: end, data: rest, ..self })
    }
}

/// What is beside a range and goes into its new blocks.
#[derive(Default)]
struct Beside {
    front: Option<(Section, Bytes)>,
    tail: Option<(Section, Bytes)>,
}

/// Writes `data`, which may be a part of memory that may be kept.
pub(crate) fn write_content(
    volume: &Volume,
    ino: u64,
    offset: u64,
    data: &[u8],
    options: WriteOptions<'_>,
) -> Result<()> {
    volume.check_writable()?;
    if data.is_empty() {
        return check_regular(&volume.load_inode(ino)?);
    }
    if let Err(error) = range_end(offset, data.len() as u64) {
        return check_regular(&volume.load_inode(ino)?).and(Err(error));
    }
    let mut at = offset;
    for piece in data.chunks(WRITE_BYTES_MAX) {
        write_piece(
            volume,
            ino,
            Span { offset: at, data: piece, memory: options.memory },
            options,
        )?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// The same at the end of the file; each piece goes to the end as it is then. Returns where the
/// first one went.
pub(crate) fn append_content(
    volume: &Volume,
    ino: u64,
    data: &[u8],
    options: WriteOptions<'_>,
) -> Result<u64> {
    volume.check_writable()?;
    let append = |piece: &[u8]| -> Result<u64> {
        let _held = volume.locks.write(&[ino]);
        let end = content::content_inode(volume, ino)?.size;
        range_end(end, piece.len() as u64)?;
        if !piece.is_empty() {
            let span = Span { offset: end, data: piece, memory: options.memory };
            write_held(volume, ino, span, options)?;
        }
        Ok(end)
    };
    let (first, rest) = data.split_at(data.len().min(WRITE_BYTES_MAX));
    let began = append(first)?;
    rest.chunks(WRITE_BYTES_MAX).try_for_each(|piece| append(piece).map(drop))?;
    Ok(began)
}

fn write_piece(volume: &Volume, ino: u64, span: Span<'_>, options: WriteOptions<'_>) -> Result<()> {
    let _held = volume.locks.write(&[ino]);
    write_held(volume, ino, span, options)
}

/// Writes one piece, with the lock of the inode held.
fn write_held(volume: &Volume, ino: u64, span: Span<'_>, options: WriteOptions<'_>) -> Result<()> {
    match try_write(volume, ino, span, options, true)? {
        Ok(()) => Ok(()),
        Err(StoreError::NotFresh) => {
            try_write(volume, ino, span, options, false)?.map_err(from_store)
        }
        Err(error) => Err(from_store(error)),
    }
}

fn try_write(
    volume: &Volume,
    ino: u64,
    span: Span<'_>,
    options: WriteOptions<'_>,
    may_patch: bool,
) -> Result<std::result::Result<(), StoreError>> {
    let inode = content::content_inode(volume, ino)?;
    marks::check_write(volume, ino, &inode, span.offset, span.data, options.accepted)?;
    let mut change = Change::begin(volume)?;
    if options.accepted {
        change.batch.admission = Admission::Accepted;
    }
    let mut edits = SectionEdits::default();
    let mut run = run_under(volume, ino, &inode, span)?;
    let mut rest = span;
    let window_end = window_end(volume, span.offset).min(span.end());
    let mut covered_to = None;
    if may_patch && let Some(old) = take_patchable(volume, &mut run, span, window_end) {
        let (head, after) = span.split_at(window_end);
        patch(&mut change.batch, ino, &old, head);
        edits.grow_data(window_end.saturating_sub(old.end()));
        covered_to = Some(old.end());
        rest = after;
    }
    write_blocks(volume, &mut edits, &mut run, rest, covered_to);
    drop(run);
    if flags_of(&inode).any(InodeFlags::NO_COMPRESSION) {
        edits.keep_as_is();
    }
    change.know(ino, inode);
    change.put_sections(ino, edits)?;
    if options.keep_times {
        let inode = change.inode_mut(ino)?;
        inode.size = inode.size.max(span.end());
    } else {
        change.touch_up_to(ino, span.end())?;
    }
    match options.clear_privileges {
        true => privileges::clear_privileges(volume, &mut change, ino)?,
        false => privileges::drop_capability(volume, &mut change, ino)?,
    }
    Ok(change.commit_patches())
}

/// The sections that a write is about: an append overlaps none, and a file without content has
/// none. A range that was reserved is written as a hole is: what lies before it is continued.
fn run_under(volume: &Volume, ino: u64, inode: &Inode, span: Span<'_>) -> Result<Run> {
    if inode.data_bytes == 0 && inode.reserved_bytes == 0 {
        return Ok(Run { before: None, sections: Vec::new() });
    }
    if span.offset >= inode.size && inode.reserved_bytes == 0 {
        let before = section_before_append(volume, ino, span.offset)?;
        return Ok(Run { before, sections: Vec::new() });
    }
    let mut run = sections::run(&*volume.view, ino, span.offset, span.end(), usize::MAX)?;
    let begins_reserved = |section: &Section| section.at == span.offset && is_reserved(section);
    if span.offset > 0 && run.sections.first().is_some_and(begins_reserved) {
        run.before = sections::section_at(&*volume.view, ino, span.offset - 1)?;
    }
    Ok(run)
}

/// The last section before an append. What was written from the beginning of a window on is
/// one section, so it is asked for by its key first: that is less work than a search for the
/// last one, and if it ends where the append begins nothing lies between.
fn section_before_append(volume: &Volume, ino: u64, offset: u64) -> Result<Option<Section>> {
    let key = section_key(ino, window_start(volume, offset.saturating_sub(1)));
    if let Some(item) = volume.view.get(key).map_err(from_store)? {
        let section = Section::decode(key, &item).map_err(|error| from_record(ino, &error))?;
        if section.end() == offset {
            return Ok(Some(section));
        }
    }
    sections::section_at(&*volume.view, ino, offset)
}

/// Where the window of a place begins.
fn window_start(volume: &Volume, offset: u64) -> u64 {
    offset & !(volume.record_bytes() - 1)
}

/// Where the window of a place ends.
fn window_end(volume: &Volume, offset: u64) -> u64 {
    window_start(volume, offset) + volume.record_bytes()
}

/// Takes the section out of the run whose block the part of a write up to `end` (in the
/// first window) can go into. Its block is let go of: only so need the store not copy it.
fn take_patchable(volume: &Volume, run: &mut Run, span: Span<'_>, end: u64) -> Option<Section> {
    let offset = span.offset;
    let is_under = |section: &&Section| section.at <= offset && !is_reserved(section);
    let first = run.sections.first().filter(is_under);
    let inside = first.is_some();
    let section = first.or(run.before.as_ref().filter(|before| before.end() == offset))?;
    let Some(Block::Fresh(fresh)) = &section.block else {
        return None;
    };
    let block_end = u64::from(section.block_start) + section.end().max(end) - section.at;
    let fits = block_end <= volume.record_bytes().max(fresh.data().len() as u64);
    let same_window = section.at >= window_start(volume, offset);
    let covers_rest = section.end() <= end || end == span.end();
    if fresh.stored().is_some() || !fits || !same_window || !covers_rest {
        return None;
    }
    let mut taken = if inside { run.sections.remove(0) } else { run.before.take()? };
    taken.block = None;
    Some(taken)
}

/// Writes a range, perhaps empty, into new blocks. If a section before it has been patched,
/// everything from the place up to which that section reached is cut.
fn write_blocks(
    volume: &Volume,
    edits: &mut SectionEdits,
    run: &mut Run,
    span: Span<'_>,
    patched_from: Option<u64>,
) {
    let mut beside = Beside::default();
    if patched_from.is_none() {
        beside.front = front_of(volume, run, span);
    }
    if !span.data.is_empty() {
        beside.tail = tail_of(volume, run, span);
    }
    let from = beside.front.as_ref().map_or(span.offset, |(section, _)| section.at);
    let to = beside.tail.as_ref().map_or(span.end(), |(section, _)| section.end());
    if let Some(before) = run.before.take().filter(|before| before.end() > from) {
        run.sections.insert(0, before);
    }
    edits.cut(&run.sections, patched_from.unwrap_or(from), to);
    let windows = windows(volume, from, to);
    let kept = Kept::of(span, &windows);
    for (at, end) in windows {
        let part = kept.as_ref().and_then(|kept| kept.part(span, at, end));
        let block = match part {
            Some(part) => Block::fresh_in(part),
            None => Block::fresh(content_between(at, end, span, &beside)),
        };
        edits.put(Section { at, len: end - at, block_start: 0, block: Some(block) });
    }
}

/// The windows of a range, the first and the last as far as they lie in it.
fn windows(volume: &Volume, from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut windows = Vec::new();
    let mut at = from;
    while at < to {
        let end = window_end(volume, at).min(to);
        windows.push((at, end));
        at = end;
    }
    windows
}

/// What is to be copied from before a range: the rest of a section that it cuts, or a short
/// section that it continues.
fn front_of(volume: &Volume, run: &Run, span: Span<'_>) -> Option<(Section, Bytes)> {
    let from = window_start(volume, span.offset);
    let cut = run.sections.first().filter(|section| section.at < span.offset);
    let (section, short) = match (cut, &run.before) {
        (Some(cut), _) => (cut, REST_BYTES - 1),
        (None, Some(before)) if before.end() == span.offset => {
            (before, CONTINUED_BYTES.max(2 * span.data.len() as u64))
        }
        _ => return None,
    };
    let front = section.part(section.at, span.offset);
    if section.at < from || front.len > short {
        return None;
    }
    copy_of(volume, front)
}

/// What is to be copied from after a range: the rest of a section that it cuts.
fn tail_of(volume: &Volume, run: &Run, span: Span<'_>) -> Option<(Section, Bytes)> {
    let end = span.end();
    let section = run.sections.last().filter(|section| section.end() > end)?;
    let tail = section.part(end, section.end());
    if tail.end() > window_end(volume, end - 1) || tail.len >= REST_BYTES {
        return None;
    }
    copy_of(volume, tail)
}

fn copy_of(volume: &Volume, section: Section) -> Option<(Section, Bytes)> {
    section.block.as_ref()?;
    let content = read::content_of(volume, &section).ok()?;
    Some((section, content))
}

fn is_reserved(section: &Section) -> bool {
    section.block.is_none()
}

/// Writes data into the block of a section, which then reaches at least to the end of the data.
fn patch<'d>(batch: &mut Batch<'d>, ino: u64, old: &Section, span: Span<'d>) {
    let new = Section { len: old.end().max(span.end()) - old.at, ..old.clone() };
    let at = u64::from(old.block_start) + span.offset - old.at;
    let at = usize::try_from(at).expect("a place in a block");
    batch.patch(section_key(ino, old.at), new.value().to_vec().into(), at, span.data);
}

/// Memory of a write that its blocks keep.
struct Kept<'d> {
    memory: &'d Bytes,
    /// Bytes of the data that lie in blocks which keep it.
    kept_bytes: u64,
}

impl<'d> Kept<'d> {
    /// `None` if less than half of the memory would be in use.
    fn of(span: Span<'d>, windows: &[(u64, u64)]) -> Option<Kept<'d>> {
        let memory = span.memory?;
        let within = windows.iter().filter(|(at, end)| span.contains(*at, *end));
        let kept_bytes = within.map(|(at, end)| end - at).sum();
        (2 * kept_bytes >= memory.len() as u64).then_some(Kept { memory, kept_bytes })
    }

    /// The content of a window that is written wholly. Its share of the memory is rounded up, so
    /// that the shares of all are at least the whole.
    fn part(&self, span: Span<'d>, at: u64, end: u64) -> Option<SharedContent> {
        if !span.contains(at, end) {
            return None;
        }
        let index = |place: u64| usize::try_from(place - span.offset).expect("a place in memory");
        let bytes = self.memory.slice_ref(&span.data[index(at)..index(end)]);
        let memory_bytes = self.memory.len();
        let held = ((end - at) * memory_bytes as u64).div_ceil(self.kept_bytes);
        let held_bytes = usize::try_from(held).expect("at most twice the content");
        Some(SharedContent { bytes, held_bytes, memory_bytes })
    }
}

/// What a file has from `at` to `end`: data, and what is beside it.
fn content_between(at: u64, end: u64, span: Span<'_>, beside: &Beside) -> Vec<u8> {
    let len = usize::try_from(end - at).expect("a record fits memory");
    let mut content = Vec::with_capacity(len);
    let mut add = |from: u64, bytes: &[u8]| {
        let to = from + bytes.len() as u64;
        let (first, last) = (from.max(at), to.min(end));
        if first < last {
            let index = |place: u64| usize::try_from(place - from).expect("a place in memory");
            content.extend_from_slice(&bytes[index(first)..index(last)]);
        }
    };
    if let Some((section, bytes)) = &beside.front {
        add(section.at, bytes);
    }
    add(span.offset, span.data);
    if let Some((section, bytes)) = &beside.tail {
        add(section.at, bytes);
    }
    content
}
