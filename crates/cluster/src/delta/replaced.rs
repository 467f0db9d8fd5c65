//! Slices of blocks that files have lost of late.
//!
//! A file is often cut to nothing in one publication, and written anew in the next. What is kept
//! here is references, in memory and bounded: one that is forgotten is a chance to save.

use crate::format::{Reference, StoredItem};
use marram_format::record::Section;
use marram_store::Key;
use std::collections::{BTreeMap, VecDeque};

/// Slices that are kept of one file, and of all.
const SLICES_OF_A_FILE_MAX: usize = 8192;
/// See [`SLICES_OF_A_FILE_MAX`].
const SLICES_MAX: usize = 1 << 16;
/// Searches in one file that may find nothing before most are left out.
const FRUITLESS_MAX: u32 = 4;
/// Then one of so many is made.
const TRIED_ANEW: u32 = 16;
/// Files whose searches are counted.
const COUNTED_MAX: usize = 4096;

/// A dataset, and an object of it.
pub(crate) type File = (u64, u64);

/// A slice of a block that a file has, or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Where in the file it begins.
    pub(crate) at: u64,
    /// The block.
    pub(crate) reference: Reference,
    /// Where in the block it begins.
    pub(crate) start: u32,
    /// Bytes of it.
    pub(crate) len: u32,
}

impl Slice {
    /// The slice that an item is, if it is a section with a block.
    pub(crate) fn of(key: Key, item: &StoredItem) -> Option<Slice> {
        let reference = item.block?;
        let section = Section::decode(&item.value, key.offset, Some(u64::from(reference.len)));
        let section = section.ok()?;
        let len = u32::try_from(section.len_bytes).ok()?;
        Some(Slice { at: key.offset, reference, start: section.block_start, len })
    }

    /// Where in the block it ends.
    pub(crate) fn end(&self) -> u32 {
        self.start + self.len
    }
}

/// Slices that files have lost, and how searches in them have ended.
#[derive(Default)]
pub(crate) struct Replaced {
    slices: BTreeMap<File, Vec<Slice>>,
    /// The files in the order in which they came.
    order: VecDeque<File>,
    count: usize,
    fruitless: BTreeMap<File, u32>,
}

impl Replaced {
    /// The slices that a file has lost, the last at the end.
    pub(crate) fn of(&self, file: File) -> &[Slice] {
        self.slices.get(&file).map_or(&[], Vec::as_slice)
    }

    /// A file has lost a slice.
    pub(crate) fn note(&mut self, file: File, slice: Slice) {
        let slices = self.slices.entry(file).or_insert_with(|| {
            self.order.push_back(file);
            Vec::new()
        });
        if slices.len() == SLICES_OF_A_FILE_MAX {
            self.count -= slices.drain(..SLICES_OF_A_FILE_MAX / 2).len();
        }
        slices.push(slice);
        self.count += 1;
        while self.count > SLICES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.count -= self.slices.remove(&oldest).map_or(0, |slices| slices.len());
        }
    }

    /// Whether a search in this file is worth a try, by those before.
    pub(crate) fn is_promising(&mut self, file: File) -> bool {
        let Some(fruitless) = self.fruitless.get_mut(&file) else { return true };
        *fruitless = fruitless.saturating_add(1);
        *fruitless <= FRUITLESS_MAX || fruitless.is_multiple_of(TRIED_ANEW)
    }

    /// A search in a file has ended.
    pub(crate) fn searched(&mut self, file: File, has_found: bool) {
        if has_found {
            self.fruitless.remove(&file);
        } else if self.fruitless.len() < COUNTED_MAX {
            self.fruitless.entry(file).or_insert(1);
        } else {
            self.fruitless.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Replaced, SLICES_MAX, SLICES_OF_A_FILE_MAX, Slice};
    use crate::format::Reference;

    fn slice(at: u64) -> Slice {
        Slice { at, reference: Reference { id: [1; 32], len: 9 }, start: 0, len: 9 }
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let mut replaced = Replaced::default();
        for at in 0..2 * SLICES_OF_A_FILE_MAX as u64 {
            replaced.note((1, 2), slice(at));
        }
        let kept = replaced.of((1, 2));
        assert!(kept.len() <= SLICES_OF_A_FILE_MAX);
        assert_eq!(kept.last(), Some(&slice(2 * SLICES_OF_A_FILE_MAX as u64 - 1)));
        for object in 0..2 * SLICES_MAX as u64 {
            replaced.note((1, 10 + object), slice(object));
        }
        assert!(replaced.of((1, 2)).is_empty());
        assert_eq!(replaced.count, replaced.slices.values().map(Vec::len).sum::<usize>());
        assert!(replaced.count <= SLICES_MAX);
    }

    #[test]
    fn a_file_in_which_nothing_is_ever_found_is_seldom_searched() {
        let mut replaced = Replaced::default();
        let mut search = |has_found: bool| {
            let is_made = replaced.is_promising((1, 2));
            if is_made {
                replaced.searched((1, 2), has_found);
            }
            is_made
        };
        let made = (0..160).filter(|_| search(false)).count();
        assert!((4..=16).contains(&made), "{made}");
        while !search(true) {}
        assert!(search(false), "it was worth it");
    }
}
