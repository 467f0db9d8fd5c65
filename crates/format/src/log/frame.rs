//! Frames as they are read.

use super::{CHECKSUM_OFFSET, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, FRAME_MAGIC, FREEZES_MAX};
use super::{LOG_CONTENT_BYTES_MAX, LOG_VALUE_BYTES_MAX, MERGE_BIT, edit_kind};
use crate::FormatError;
use crate::dataset::DATASETS_MAX;
use crate::key::Key;
use crate::operation::{OperationKind, OperationRecord};
use crate::pointer::Pointer;
use crate::reader::Reader;
use xxhash_rust::xxh3::Xxh3;

const WHAT: &str = "frame of the intent log";

/// What the first bytes of a frame say, before the rest of it is read. Nothing is verified by
/// them: only [`decode_frame`] says whether there is a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The frame's position, in grains since the pool was made.
    pub position: u64,
    /// Bytes of the frame, the header included, without what fills its last grain; at least
    /// [`FRAME_HEADER_BYTES`] and at most [`FRAME_BYTES_MAX`].
    pub len_bytes: u32,
}

/// The edits of one dataset in a frame, at most one for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart<'a> {
    /// The freeze that takes the edits in, below [`FREEZES_MAX`]: a superblock that includes it
    /// has them.
    pub freeze: u64,
    /// The dataset, below [`DATASETS_MAX`].
    pub dataset: u64,
    /// If the edits are the batch of a merge, which has a freeze of its own: its entry for the log
    /// of operations, as far as that is known before a commit. Its kind is merge, its subject the
    /// dataset, and its end of keeping later than its time. It undoes nothing, and has neither a
    /// group nor states before and after.
    pub merge: Option<OperationRecord>,
    /// The edits, at least one, by ascending keys.
    pub edits: Vec<LogEdit<'a>>,
}

/// An edit of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEdit<'a> {
    /// The item is there no more.
    Remove {
        /// Its key.
        key: Key,
    },
    /// The item is this.
    Put {
        /// Its key.
        key: Key,
        /// Its value, at most [`LOG_VALUE_BYTES_MAX`] bytes.
        value: &'a [u8],
        /// Its block.
        block: LogBlock<'a>,
    },
    /// The item has this value, and its block, which no commit has written yet, has `data` at
    /// `at`; it is extended, with zeros before `at`, where it ends earlier.
    Patch {
        /// The item's key.
        key: Key,
        /// Its value, at most [`LOG_VALUE_BYTES_MAX`] bytes.
        value: &'a [u8],
        /// Where in the block the data goes.
        at: u32,
        /// The data; it ends within [`LOG_CONTENT_BYTES_MAX`]. Empty if only the value is new.
        data: &'a [u8],
    },
}

/// The block of an item that is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogBlock<'a> {
    /// It has none.
    None,
    /// One that the last group has in use: an encoded [`Pointer`].
    Stored(&'a [u8]),
    /// One with this content, 1 to [`LOG_CONTENT_BYTES_MAX`] bytes.
    Content(&'a [u8]),
    /// The one that came into this part as the n-th content, counted from 0.
    Earlier(u32),
}

impl LogEdit<'_> {
    /// The key of the item.
    pub fn key(&self) -> Key {
        match self {
            LogEdit::Remove { key } | LogEdit::Put { key, .. } | LogEdit::Patch { key, .. } => *key,
        }
    }
}

/// What the start of a frame says. `None` if no frame of this pool begins here at this position:
/// never an error, because anything may lie behind the last frame. `first_grain` has the first
/// [`FRAME_HEADER_BYTES`] bytes at least.
pub fn frame_header(first_grain: &[u8], pool_id: &[u8; 16], position: u64) -> Option<FrameHeader> {
    let mut from = Reader::new(WHAT, first_grain.get(..FRAME_HEADER_BYTES)?);
    let ours = from.array("magic").ok()? == FRAME_MAGIC
        && from.array("pool id").ok()? == *pool_id
        && from.u64("position").ok()? == position;
    let len_bytes = from.u32("length").ok()?;
    let len = usize::try_from(len_bytes).ok()?;
    let fits = (FRAME_HEADER_BYTES..=FRAME_BYTES_MAX).contains(&len);
    (ours && fits).then_some(FrameHeader { position, len_bytes })
}

/// Decodes a frame from bytes that start with it; what follows it is passed over.
///
/// `None` if there is no whole frame of this pool at this position: the end of the log, or a
/// frame that was torn or damaged. `Some(Err(_))` if the checksum, seeded with the pool's secret
/// `seed`, is right, and yet the content is malformed: the program that wrote it was at fault.
pub fn decode_frame<'a>(
    bytes: &'a [u8],
    pool_id: &[u8; 16],
    seed: u64,
    position: u64,
) -> Option<Result<Vec<LogPart<'a>>, FormatError>> {
    let header = frame_header(bytes, pool_id, position)?;
    let frame = bytes.get(..usize::try_from(header.len_bytes).ok()?)?;
    let (before, rest) = frame.split_at(CHECKSUM_OFFSET);
    let (expected, after) = rest.split_first_chunk::<16>()?;
    let mut hash = Xxh3::with_seed(seed);
    hash.update(before);
    hash.update(&[0; 16]);
    hash.update(after);
    (hash.digest128() == u128::from_le_bytes(*expected)).then(|| take_parts(frame))
}

fn take_parts(frame: &[u8]) -> Result<Vec<LogPart<'_>>, FormatError> {
    let mut from = Reader::new(WHAT, frame);
    from.take("start", CHECKSUM_OFFSET - 4)?;
    let count = from.u32("number of parts")?;
    from.take("checksum", 16)?;
    let mut parts = Vec::new();
    for _ in 0..count {
        parts.push(take_part(&mut from)?);
    }
    from.finish()?;
    Ok(parts)
}

fn take_part<'a>(from: &mut Reader<'a>) -> Result<LogPart<'a>, FormatError> {
    let offset = from.at();
    let number = from.u64("freeze of a part")?;
    let (freeze, is_merge) = (number & !MERGE_BIT, number & MERGE_BIT != 0);
    if freeze >= FREEZES_MAX {
        return Err(from.unexpected("freeze of a part", offset, freeze, "less than 2^62"));
    }
    let dataset = from.u64_below("dataset of a part", DATASETS_MAX, "less than 2^62")?;
    let offset = from.at();
    let count = from.u32("number of edits")?;
    let len_bytes = from.u32("bytes of a part")?;
    if count == 0 {
        return Err(from.unexpected("number of edits", offset, 0, "at least 1"));
    }
    let start = from.at();
    let merge = is_merge.then(|| take_merge(from, dataset)).transpose()?;
    let mut edits = Vec::new();
    let mut contents = 0;
    for index in 0..usize::try_from(count).unwrap_or(usize::MAX) {
        let offset = from.at();
        let edit = take_edit(from, &mut contents)?;
        if edits.last().is_some_and(|last: &LogEdit<'_>| last.key() >= edit.key()) {
            return Err(FormatError::Order { what: WHAT, field: "key of edit", index, offset });
        }
        edits.push(edit);
    }
    if u32::try_from(from.at() - start) != Ok(len_bytes) {
        let (found, expected) = (u64::from(len_bytes), "as many as are there");
        return Err(from.unexpected("bytes of a part", offset + 4, found, expected));
    }
    Ok(LogPart { freeze, dataset, merge, edits })
}

/// Reads the entry of a merge into a dataset.
fn take_merge(from: &mut Reader<'_>, dataset: u64) -> Result<OperationRecord, FormatError> {
    let len = usize::from(from.u16("length of an entry")?);
    let offset = from.at();
    let entry = OperationRecord::decode(from.take("entry of a merge", len)?)?;
    if (entry.kind, entry.subject) != (OperationKind::Merge, dataset) {
        let expected = "that of a merge into the dataset of its part";
        return Err(from.unexpected("entry of a merge", offset, entry.subject, expected));
    }
    for (field, found) in [
        ("group of a merge", entry.group.0),
        ("entry taken back by a merge", entry.undoes),
        ("state before a merge", entry.before),
        ("state after a merge", entry.after),
    ] {
        if found != 0 {
            return Err(from.unexpected(field, offset, found, "0 before a commit"));
        }
    }
    if entry.kept_until_seconds <= entry.seconds {
        let found = u64::try_from(entry.kept_until_seconds).unwrap_or(0);
        let expected = "later than its time";
        return Err(from.unexpected("end of keeping of a merge", offset, found, expected));
    }
    Ok(entry)
}

/// Reads an edit; `contents` counts the blocks that came with their content into its part.
fn take_edit<'a>(from: &mut Reader<'a>, contents: &mut u32) -> Result<LogEdit<'a>, FormatError> {
    let offset = from.at();
    let kind = from.u8("kind of an edit")?;
    let key = Key::decode(&from.array("key")?);
    if kind == edit_kind::REMOVE {
        return Ok(LogEdit::Remove { key });
    }
    if kind == edit_kind::PATCH {
        return take_patch(from, key);
    }
    let value = take_value(from)?;
    let block = match kind {
        edit_kind::PUT => LogBlock::None,
        edit_kind::PUT_STORED => take_stored(from)?,
        edit_kind::PUT_CONTENT => {
            *contents += 1;
            take_content(from)?
        }
        edit_kind::PUT_EARLIER => take_earlier(from, *contents)?,
        _ => {
            return Err(from.unexpected("kind of an edit", offset, u64::from(kind), "0 to 5"));
        }
    };
    Ok(LogEdit::Put { key, value, block })
}

fn take_value<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], FormatError> {
    let offset = from.at();
    let len = usize::from(from.u16("length of a value")?);
    if len > LOG_VALUE_BYTES_MAX {
        let found = u64::try_from(len).unwrap_or(u64::MAX);
        return Err(from.unexpected("length of a value", offset, found, "at most 4096"));
    }
    from.take("value", len)
}

fn take_stored<'a>(from: &mut Reader<'a>) -> Result<LogBlock<'a>, FormatError> {
    let len = usize::from(from.u16("length of a pointer")?);
    let pointer = from.take("pointer", len)?;
    Pointer::decode(pointer)?;
    Ok(LogBlock::Stored(pointer))
}

fn take_content<'a>(from: &mut Reader<'a>) -> Result<LogBlock<'a>, FormatError> {
    let offset = from.at();
    let len_bytes = from.u32("length of a block")?;
    match usize::try_from(len_bytes) {
        Ok(len @ 1..=LOG_CONTENT_BYTES_MAX) => Ok(LogBlock::Content(from.take("block", len)?)),
        _ => {
            let found = u64::from(len_bytes);
            Err(from.unexpected("length of a block", offset, found, "1 to 2^20"))
        }
    }
}

fn take_earlier<'a>(from: &mut Reader<'a>, contents: u32) -> Result<LogBlock<'a>, FormatError> {
    let offset = from.at();
    let number = from.u32("number of an earlier block")?;
    if number >= contents {
        let (found, expected) = (u64::from(number), "that of a block before it in the part");
        return Err(from.unexpected("number of an earlier block", offset, found, expected));
    }
    Ok(LogBlock::Earlier(number))
}

fn take_patch<'a>(from: &mut Reader<'a>, key: Key) -> Result<LogEdit<'a>, FormatError> {
    let value = take_value(from)?;
    let offset = from.at();
    let at = from.u32("place of a patch")?;
    let len_bytes = from.u32("length of a patch")?;
    let end = u64::from(at) + u64::from(len_bytes);
    if end > LOG_CONTENT_BYTES_MAX as u64 {
        return Err(from.unexpected("end of a patch", offset, end, "at most 2^20"));
    }
    let len = usize::try_from(len_bytes).expect("at most 2^20");
    Ok(LogEdit::Patch { key, value, at, data: from.take("patch", len)? })
}
