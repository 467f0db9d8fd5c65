//! A file's new content, cut into slices of old blocks and what is new.

use super::Slice;
use bytes::Bytes;
use marram_codec::delta::{Match, OldContent};
use marram_format::record::Section;
use marram_store::{Block, Item, Key, SharedContent, kind};
use std::sync::Arc;

/// New content that is searched at once, in bytes.
const RUN_BYTES_MAX: usize = 16 << 20;
/// What a section costs in rows beside its content, in bytes: sharing has to save more.
const SECTION_COST_BYTES: usize = 256;
/// The shortest slice that is shared, in bytes.
const SLICE_BYTES_MIN: usize = 512;
/// Shortest slices that fit into a record, where that makes them longer.
const SLICES_OF_A_RECORD: usize = 64;

/// Neighbouring sections of new content.
pub(crate) struct Run {
    at: u64,
    /// The keys of the sections.
    pub(crate) keys: Vec<Key>,
    content: Vec<u8>,
    is_as_is: bool,
}

/// An old slice with its content.
pub(crate) struct OldSlice {
    slice: Slice,
    content: Bytes,
    block: Block,
}

impl OldSlice {
    /// Of a slice, and the whole content of its block; none if the two do not fit.
    pub(crate) fn new(slice: Slice, whole: &Bytes) -> Option<OldSlice> {
        let range = slice.start as usize..slice.end() as usize;
        if whole.len() != slice.reference.len as usize || range.end > whole.len() {
            return None;
        }
        let content = whole.slice(range);
        let of_memory = |bytes: &Bytes| SharedContent {
            bytes: bytes.clone(),
            held_bytes: bytes.len(),
            memory_bytes: bytes.len(),
        };
        let block = Block::fresh_in(of_memory(whole));
        if let Block::Fresh(fresh) = &block {
            fresh.set_stored(slice.reference.token());
        }
        Some(OldSlice { slice, content, block })
    }
}

/// The runs of new content among the edits of one object's sections, which are in order. None if
/// they are no sections of a file.
pub(crate) fn runs(edits: &[(Key, Option<Item>)]) -> Option<Vec<Run>> {
    let (mut runs, mut end): (Vec<Run>, u64) = (Vec::new(), 0);
    for (key, item) in edits {
        let Some(item) = item else { continue };
        let block_bytes = item.block.as_ref().map(|block| block.len() as u64);
        let section = Section::decode(&item.value, key.offset, block_bytes).ok()?;
        if key.offset < end {
            return None;
        }
        let goes_on = key.offset == end;
        end = key.offset + section.len_bytes;
        let Some(Block::Fresh(fresh)) = &item.block else { continue };
        if fresh.stored().is_some() || fresh.form().is_some() {
            continue;
        }
        let from = section.block_start as usize;
        let content = &fresh.data()[from..from + usize::try_from(section.len_bytes).ok()?];
        match runs.last_mut() {
            Some(run) if goes_on && run.goes_on_with(key.offset, content.len()) => {
                run.keys.push(*key);
                run.content.extend_from_slice(content);
                run.is_as_is &= fresh.is_as_is();
            }
            _ => runs.push(Run {
                at: key.offset,
                keys: vec![*key],
                content: content.to_vec(),
                is_as_is: fresh.is_as_is(),
            }),
        }
    }
    Some(runs)
}

impl Run {
    fn goes_on_with(&self, at: u64, bytes: usize) -> bool {
        self.end() == at && self.content.len() + bytes <= RUN_BYTES_MAX
    }

    /// Where in the file it begins.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Where in the file it ends.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.content.len() as u64
    }
}

/// The sections of a run, as slices of old blocks and what is new; none if that saves nothing.
/// Blocks of what is new are at most records.
pub(crate) fn recut(
    run: &Run,
    old: &[OldSlice],
    record_bytes: usize,
    give_up_bytes: usize,
) -> Option<Vec<(Key, Item)>> {
    let cell_bytes = SLICE_BYTES_MIN.max(record_bytes / SLICES_OF_A_RECORD);
    let parts = old.iter().map(|slice| &slice.content[..]).collect();
    let matches = OldContent::new(parts, cell_bytes).find(&run.content, give_up_bytes);
    let sections = Cut { run, old, record_bytes, sections: Vec::new() }.made(&matches);
    let saved: usize = matches.iter().map(|found| found.len).sum();
    let more = sections.len().saturating_sub(run.keys.len());
    (saved > more * SECTION_COST_BYTES).then_some(sections)
}

struct Cut<'r> {
    run: &'r Run,
    old: &'r [OldSlice],
    record_bytes: usize,
    sections: Vec<(Key, Item)>,
}

impl Cut<'_> {
    fn made(mut self, matches: &[Match]) -> Vec<(Key, Item)> {
        let mut done = 0;
        for found in matches {
            self.put_new(done, found.at);
            let OldSlice { slice, block, .. } = &self.old[found.part];
            let from = u32::try_from(found.from).expect("a place in a block");
            self.put((found.at, found.len), slice.start + from, block.clone());
            done = found.at + found.len;
        }
        self.put_new(done, self.run.content.len());
        self.sections
    }

    /// What is new between two places of the run.
    fn put_new(&mut self, from: usize, to: usize) {
        let content = &self.run.content[from..to];
        for (number, bytes) in content.chunks(self.record_bytes).enumerate() {
            let mut block = Block::fresh(bytes.to_vec());
            if self.run.is_as_is {
                block.keep_as_is();
            }
            self.put((from + number * self.record_bytes, bytes.len()), 0, block);
        }
    }

    fn put(&mut self, (at, len): (usize, usize), block_start: u32, block: Block) {
        let key = Key::new(self.run.keys[0].object, kind::SECTION, self.run.at + at as u64);
        let value = Section { len_bytes: len as u64, block_start }.encode();
        self.sections.push((key, Item::with_block(value.to_vec(), block)));
    }
}

/// Whether an item is still the one that was looked at.
pub(crate) fn is_same(one: Option<&Item>, other: Option<&Item>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let blocks = (&one.block, &other.block);
            one.value == other.value
                && match blocks {
                    (Some(Block::Fresh(one)), Some(Block::Fresh(other))) => Arc::ptr_eq(one, other),
                    (Some(one), Some(other)) => one.same(other),
                    (None, None) => true,
                    _ => false,
                }
        }
        (None, None) => true,
        _ => false,
    }
}
