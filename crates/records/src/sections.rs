//! Sections of files, as the store has them.
//!
//! A file is an ordered list of sections that do not overlap. Each is a slice of a block, or has
//! none and reads as zeros; what no section covers is a hole. Nothing here depends on how a file
//! was cut: sections of any length at any place are right.

use crate::failure::{from_record, from_store};
use marram_format::FormatError;
use marram_format::record::{self, SECTION_BYTES};
use marram_store::{BLOCK_BYTES_MAX, Block, Item, Key, Properties, View, kind};
use marram_vfs::Result;

/// Record size of a store that names none.
const RECORD_BYTES_DEFAULT: u64 = 131_072;
const RECORD_BYTES_MIN: u64 = 4096;

/// One section.
#[derive(Clone, Debug)]
pub struct Section {
    /// Where in the file it begins.
    pub at: u64,
    /// Bytes that it covers.
    pub len: u64,
    /// Where in the block they begin.
    pub block_start: u32,
    /// The block; without one the section is reserved.
    pub block: Option<Block>,
}

/// The key of the section that begins at `offset`.
pub fn section_key(ino: u64, offset: u64) -> Key {
    Key::new(ino, kind::SECTION, offset)
}

impl Section {
    /// Where in the file it ends.
    pub fn end(&self) -> u64 {
        self.at + self.len
    }

    /// The part of it between two places, of which it covers some.
    pub fn part(&self, from: u64, to: u64) -> Section {
        let at = self.at.max(from);
        let end = self.end().min(to);
        let skipped = if self.block.is_some() { at - self.at } else { 0 };
        let skipped = u32::try_from(skipped).expect("a block has at most 1 MiB");
        Section {
            at,
            len: end - at,
            block_start: self.block_start + skipped,
            block: self.block.clone(),
        }
    }

    /// The value of its item.
    pub fn value(&self) -> [u8; SECTION_BYTES] {
        record::Section { len_bytes: self.len, block_start: self.block_start }.encode()
    }

    /// Its item.
    pub fn into_item(self) -> Item {
        Item { value: self.value().to_vec().into(), block: self.block }
    }

    /// Reads it from its item.
    ///
    /// # Errors
    /// A record that makes no sense.
    pub fn decode(key: Key, item: &Item) -> std::result::Result<Section, FormatError> {
        let block_bytes = item.block.as_ref().map(|block| block.len() as u64);
        let section = record::Section::decode(&item.value, key.offset, block_bytes)?;
        Ok(Section {
            at: key.offset,
            len: section.len_bytes,
            block_start: section.block_start,
            block: item.block.clone(),
        })
    }
}

/// Largest new block of a file by these properties, in bytes: a power of two.
pub fn record_bytes(properties: &Properties) -> u64 {
    let value = properties.0.get("recordsize").and_then(|text| text.parse().ok());
    value
        .filter(|bytes: &u64| bytes.is_power_of_two())
        .unwrap_or(RECORD_BYTES_DEFAULT)
        .clamp(RECORD_BYTES_MIN, BLOCK_BYTES_MAX as u64)
}

/// Sections around a range.
#[derive(Debug)]
pub struct Run {
    /// The last section that begins before the range, if it ends before it too.
    pub before: Option<Section>,
    /// Those that overlap the range, in order.
    pub sections: Vec<Section>,
}

/// The last section that begins at or before `offset`.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn section_at(view: &dyn View, ino: u64, offset: u64) -> Result<Option<Section>> {
    let found = view.last(section_key(ino, 0), section_key(ino, offset));
    let Some((key, item)) = found.map_err(from_store)? else {
        return Ok(None);
    };
    Section::decode(key, &item).map(Some).map_err(|error| from_record(ino, &error))
}

/// The sections that overlap a range, at most `max` of them.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn run(view: &dyn View, ino: u64, from: u64, to: u64, max: usize) -> Result<Run> {
    let mut run = Run { before: None, sections: Vec::new() };
    match section_at(view, ino, from)? {
        Some(section) if section.end() > from => run.sections.push(section),
        before => run.before = before,
    }
    if run.sections.len() < max && !run.covers(to) {
        visit_sections(view, ino, from + 1, to - 1, &mut |section| {
            run.sections.push(section);
            run.sections.len() < max
        })?;
    }
    Ok(run)
}

/// As [`run`], without what comes before.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn sections(view: &dyn View, ino: u64, from: u64, to: u64, max: usize) -> Result<Vec<Section>> {
    Ok(run(view, ino, from, to, max)?.sections)
}

/// Visits the sections that begin from `first` to `last`, until the visitor returns false.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn visit_sections(
    view: &dyn View,
    ino: u64,
    first: u64,
    last: u64,
    visit: &mut dyn FnMut(Section) -> bool,
) -> Result<()> {
    if first > last {
        return Ok(());
    }
    let mut failure = None;
    let mut decode = |key: Key, item: &Item| match Section::decode(key, item) {
        Ok(section) => visit(section),
        Err(error) => {
            failure = Some(from_record(ino, &error));
            false
        }
    };
    view.scan(section_key(ino, first), section_key(ino, last), &mut decode).map_err(from_store)?;
    failure.map_or(Ok(()), Err)
}

impl Run {
    /// Whether the first section reaches `to`.
    fn covers(&self, to: u64) -> bool {
        self.sections.first().is_some_and(|section| section.end() >= to)
    }
}

/// Where an operation in pieces has to stop, given the sections that it found up to `max`: at the
/// end of the last one if there may be more.
pub fn piece_end(sections: &[Section], max: usize, end: u64) -> u64 {
    match sections.last() {
        Some(last) if sections.len() >= max => last.end().min(end),
        _ => end,
    }
}
