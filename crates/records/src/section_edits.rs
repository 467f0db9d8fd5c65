//! Changes of a file's list of sections, gathered for one batch.
//!
//! A place may be touched more than once (a section is cut, and a new one put where it began), so
//! edits are kept by offset and the last one counts: a batch must not have one key twice.
//!
//! **Sharing.** When a section is cut in two, both parts are put; when a part of it moves, its
//! old item is put or removed in the same batch. So the store sees every reference that a batch
//! adds to a block together with the one that was there before.

use crate::sections::Section;
use marram_format::record::Inode;
use marram_store::Block;
use std::collections::BTreeMap;

/// Edits of the sections of one file.
#[derive(Debug, Default)]
pub struct SectionEdits {
    /// What is to be at an offset: a section, or none any more.
    by_offset: BTreeMap<u64, Option<Section>>,
    added: Covered,
    removed: Covered,
}

/// Bytes that sections cover.
#[derive(Clone, Copy, Debug, Default)]
struct Covered {
    data_bytes: u64,
    reserved_bytes: u64,
}

impl Covered {
    fn add(&mut self, section: &Section, bytes: u64) {
        match section.block {
            Some(_) => self.data_bytes += bytes,
            None => self.reserved_bytes += bytes,
        }
    }
}

impl SectionEdits {
    /// Takes the range from `from` to `to` away from sections that the file has.
    pub fn cut(&mut self, sections: &[Section], from: u64, to: u64) {
        for section in sections {
            if section.end() <= from || section.at >= to {
                continue;
            }
            let lost = section.end().min(to) - section.at.max(from);
            self.removed.add(section, lost);
            let front = (section.at < from).then(|| section.part(section.at, from));
            self.by_offset.insert(section.at, front);
            if section.end() > to {
                self.by_offset.insert(to, Some(section.part(to, section.end())));
            }
        }
    }

    /// Puts a new section where nothing is, or where all has been cut away.
    pub fn put(&mut self, section: Section) {
        self.added.add(&section, section.len);
        self.by_offset.insert(section.at, Some(section));
    }

    /// A section grows by `bytes` without an edit here.
    pub fn grow_data(&mut self, bytes: u64) {
        self.added.data_bytes += bytes;
    }

    /// Puts a section as it is, unless it has been edited, so that the store sees its reference.
    pub fn keep(&mut self, section: &Section) {
        self.by_offset.entry(section.at).or_insert_with(|| Some(section.clone()));
    }

    /// Lets the store write new blocks as they are. Blocks that others hold stay what they are.
    pub fn keep_as_is(&mut self) {
        let blocks = self.by_offset.values_mut().flatten().filter_map(|edit| edit.block.as_mut());
        blocks.for_each(Block::keep_as_is);
    }

    /// Brings the sums in the file's record in step. Returns what is to be at which offset.
    pub fn settle(self, inode: &mut Inode) -> BTreeMap<u64, Option<Section>> {
        let moved = |bytes: u64, added: u64, removed: u64| {
            bytes.saturating_add(added).saturating_sub(removed)
        };
        let (added, removed) = (self.added, self.removed);
        inode.data_bytes = moved(inode.data_bytes, added.data_bytes, removed.data_bytes);
        inode.reserved_bytes =
            moved(inode.reserved_bytes, added.reserved_bytes, removed.reserved_bytes);
        self.by_offset
    }
}
