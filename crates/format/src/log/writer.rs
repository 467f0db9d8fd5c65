//! Frames as they are written.

use super::{CHECKSUM_OFFSET, FRAME_BYTES_MAX, FRAME_HEADER_BYTES};
use super::{FRAME_MAGIC, FREEZES_MAX, LOG_CONTENT_BYTES_MAX, LOG_VALUE_BYTES_MAX, LogBlock};
use super::{MERGE_BIT, PART_HEADER_BYTES, POSITIONS_MAX, edit_kind};
use crate::dataset::DATASETS_MAX;
use crate::key::Key;
use crate::operation::{OperationKind, OperationRecord};
use crate::pointer::{GRAIN_BYTES, POINTER_BYTES_MAX};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Where in a part's header the number of its edits is.
const EDIT_COUNT_OFFSET: usize = 16;

/// Makes a frame, edit by edit.
#[derive(Debug)]
pub struct FrameWriter {
    /// The frame; position, lengths, counts and checksum are put in later.
    out: Vec<u8>,
    part_count: u32,
    part: Option<OpenPart>,
}

/// The part that edits go to.
#[derive(Debug)]
struct OpenPart {
    freeze: u64,
    dataset: u64,
    /// The encoded entry of a merge whose batch it is.
    merge: Option<Bytes>,
    /// Where its header is; `None` before its first edit, so that no part is empty.
    start: Option<usize>,
    /// Key of the last edit.
    last: Option<Key>,
    edit_count: u32,
    content_count: u32,
}

impl Default for FrameWriter {
    fn default() -> FrameWriter {
        FrameWriter::new()
    }
}

impl FrameWriter {
    /// An empty frame.
    pub fn new() -> FrameWriter {
        FrameWriter { out: vec![0; FRAME_HEADER_BYTES], part_count: 0, part: None }
    }

    /// What comes now are edits of `dataset` that `freeze` will take in, by ascending keys. A part
    /// to which no edit comes is not written.
    ///
    /// # Panics
    /// If a number is out of its range.
    pub fn begin_part(&mut self, freeze: u64, dataset: u64) {
        self.begin(freeze, dataset, None);
    }

    /// The same of edits that are the batch of a merge, which has this entry.
    ///
    /// # Panics
    /// If a number is out of its range, or the entry is not as [`super::LogPart`] says.
    pub fn begin_merge(&mut self, freeze: u64, entry: &OperationRecord) {
        assert!(entry.kind == OperationKind::Merge, "the entry is of a merge");
        let known_by_commits = [entry.group.0, entry.undoes, entry.before, entry.after];
        assert!(known_by_commits == [0; 4], "no commit has taken the merge in");
        assert!(entry.seconds < entry.kept_until_seconds, "an undo of it is possible for a time");
        self.begin(freeze, entry.subject, Some(entry.encode()));
    }

    fn begin(&mut self, freeze: u64, dataset: u64, merge: Option<Bytes>) {
        assert!(freeze < FREEZES_MAX, "the number of a freeze is below 2^62");
        assert!(dataset < DATASETS_MAX, "the number of a dataset is below 2^62");
        self.end_part();
        self.part = Some(OpenPart {
            freeze,
            dataset,
            merge,
            start: None,
            last: None,
            edit_count: 0,
            content_count: 0,
        });
    }

    /// The item at `key` is this.
    ///
    /// # Panics
    /// If there is no part, or its last key is not smaller, or something is longer than
    /// [`super::LogEdit`] says, or no content of that number came into the part.
    pub fn put(&mut self, key: Key, value: &[u8], block: LogBlock<'_>) {
        let kind = match block {
            LogBlock::None => edit_kind::PUT,
            LogBlock::Stored(_) => edit_kind::PUT_STORED,
            LogBlock::Content(_) => edit_kind::PUT_CONTENT,
            LogBlock::Earlier(_) => edit_kind::PUT_EARLIER,
        };
        self.begin_edit(kind, key);
        self.put_value(value);
        match block {
            LogBlock::None => {}
            LogBlock::Stored(pointer) => {
                assert!(
                    (1..=POINTER_BYTES_MAX).contains(&pointer.len()),
                    "a pointer has at most {POINTER_BYTES_MAX} bytes"
                );
                self.put_u16_len(pointer.len());
                self.out.extend_from_slice(pointer);
            }
            LogBlock::Content(content) => {
                assert!(
                    (1..=LOG_CONTENT_BYTES_MAX).contains(&content.len()),
                    "a block has 1 to 2^20 bytes"
                );
                self.open_part().content_count += 1;
                self.put_data(content);
            }
            LogBlock::Earlier(number) => {
                let before = self.open_part().content_count;
                assert!(number < before, "block {number} of {before} came before");
                self.out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// The item at `key` has this value, and its block, not written yet, has `data` at `at`.
    ///
    /// # Panics
    /// If there is no part, or its last key is not smaller, or something is longer than
    /// [`super::LogEdit`] says.
    pub fn patch(&mut self, key: Key, value: &[u8], at: u32, data: &[u8]) {
        let end = usize::try_from(at).ok().and_then(|at| at.checked_add(data.len()));
        assert!(
            end.is_some_and(|end| end <= LOG_CONTENT_BYTES_MAX),
            "a patch ends inside the largest block"
        );
        self.begin_edit(edit_kind::PATCH, key);
        self.put_value(value);
        self.out.extend_from_slice(&at.to_le_bytes());
        self.put_data(data);
    }

    /// The item at `key` is there no more.
    ///
    /// # Panics
    /// If there is no part, or its last key is not smaller.
    pub fn remove(&mut self, key: Key) {
        self.begin_edit(edit_kind::REMOVE, key);
    }

    /// Bytes of the frame as it stands, without what will fill its last grain.
    pub fn len_bytes(&self) -> usize {
        self.out.len()
    }

    /// Whether it has no edits.
    pub fn is_empty(&self) -> bool {
        self.out.len() == FRAME_HEADER_BYTES
    }

    /// The frame for this pool and position, its checksum seeded with the pool's secret `seed`,
    /// filled up with zeros to whole grains.
    ///
    /// # Panics
    /// If it is longer than [`FRAME_BYTES_MAX`], or the position is out of its range.
    pub fn finish(mut self, pool_id: &[u8; 16], seed: u64, position: u64) -> Vec<u8> {
        self.end_part();
        let len = self.out.len();
        assert!(len <= FRAME_BYTES_MAX, "a frame of {len} bytes is longer than {FRAME_BYTES_MAX}");
        assert!(position < POSITIONS_MAX, "a position is below 2^56");
        let len_bytes = u32::try_from(len).expect("at most FRAME_BYTES_MAX");
        let mut out = self.out;
        out[..8].copy_from_slice(&FRAME_MAGIC);
        out[8..24].copy_from_slice(pool_id);
        out[24..32].copy_from_slice(&position.to_le_bytes());
        out[32..36].copy_from_slice(&len_bytes.to_le_bytes());
        out[36..40].copy_from_slice(&self.part_count.to_le_bytes());
        let checksum = xxh3_128_with_seed(&out, seed).to_le_bytes();
        out[CHECKSUM_OFFSET..FRAME_HEADER_BYTES].copy_from_slice(&checksum);
        let grain = usize::try_from(GRAIN_BYTES).expect("4096 fits");
        out.resize(len.next_multiple_of(grain), 0);
        out
    }

    fn open_part(&mut self) -> &mut OpenPart {
        self.part.as_mut().expect("an edit belongs to a part")
    }

    fn begin_edit(&mut self, kind: u8, key: Key) {
        let part = self.part.as_mut().expect("an edit belongs to a part");
        if part.start.is_none() {
            part.start = Some(self.out.len());
            self.part_count += 1;
            let merge_bit = if part.merge.is_some() { MERGE_BIT } else { 0 };
            self.out.extend_from_slice(&(part.freeze | merge_bit).to_le_bytes());
            self.out.extend_from_slice(&part.dataset.to_le_bytes());
            self.out.extend_from_slice(&[0; PART_HEADER_BYTES - EDIT_COUNT_OFFSET]);
            if let Some(entry) = &part.merge {
                let len = u16::try_from(entry.len()).expect("an entry is short");
                self.out.extend_from_slice(&len.to_le_bytes());
                self.out.extend_from_slice(entry);
            }
        }
        assert!(part.last.is_none_or(|last| last < key), "the keys of a part ascend");
        part.last = Some(key);
        part.edit_count += 1;
        self.out.push(kind);
        self.out.extend_from_slice(&key.encode());
    }

    fn put_value(&mut self, value: &[u8]) {
        assert!(value.len() <= LOG_VALUE_BYTES_MAX, "a value has at most 4096 bytes");
        self.put_u16_len(value.len());
        self.out.extend_from_slice(value);
    }

    fn put_data(&mut self, data: &[u8]) {
        let len_bytes = u32::try_from(data.len()).expect("at most 2^20");
        self.out.extend_from_slice(&len_bytes.to_le_bytes());
        self.out.extend_from_slice(data);
    }

    fn put_u16_len(&mut self, len: usize) {
        let len = u16::try_from(len).expect("values and pointers are short");
        self.out.extend_from_slice(&len.to_le_bytes());
    }

    /// Puts the counts of the open part into its header.
    fn end_part(&mut self) {
        let Some(OpenPart { start: Some(start), edit_count, .. }) = self.part.take() else {
            return;
        };
        let len = self.out.len() - start - PART_HEADER_BYTES;
        let len_bytes = u32::try_from(len).expect("a frame is shorter than 4 GiB");
        let counts = start + EDIT_COUNT_OFFSET;
        self.out[counts..counts + 4].copy_from_slice(&edit_count.to_le_bytes());
        self.out[counts + 4..counts + 8].copy_from_slice(&len_bytes.to_le_bytes());
    }
}
