//! The bytes of an image, with what an interrupted operation still changes laid over them.

use super::{PAGE, PAGE_BYTES};
use crate::finding::FindingKind;
use marram_device::Device;
use std::collections::BTreeMap;

/// Something that is wrong, and where.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) kind: FindingKind,
    /// An address of the image, if there is one to name.
    pub(super) at: Option<u64>,
    pub(super) detail: String,
}

/// What was read, or what is wrong with it.
pub(super) type Checked<T> = Result<T, Problem>;

impl Problem {
    pub(super) fn new(kind: FindingKind, at: u64, detail: impl Into<String>) -> Problem {
        Problem { kind, at: Some(at), detail: detail.into() }
    }
}

/// An image.
pub(super) struct Image<'d> {
    device: &'d dyn Device,
    bytes: u64,
    /// Words that an interrupted operation changes.
    over: BTreeMap<u64, u64>,
}

/// The bytes of a page.
pub(super) type PageBytes = Box<[u8; PAGE_BYTES]>;

/// A number of up to eight bytes.
pub(super) fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl<'d> Image<'d> {
    pub(super) fn new(device: &'d dyn Device, bytes: u64) -> Image<'d> {
        Image { device, bytes, over: BTreeMap::new() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The page at an address that a page divides and that lies inside.
    pub(super) fn page(&self, at: u64) -> Checked<PageBytes> {
        let mut bytes: PageBytes = Box::new([0; PAGE_BYTES]);
        self.device
            .read(at, &mut bytes[..])
            .map_err(|error| Problem::new(FindingKind::PageUnreadable, at, error.to_string()))?;
        for (word_at, word) in self.over.range(at..at + PAGE) {
            let place = (word_at - at) as usize;
            bytes[place..place + 8].copy_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }

    /// The word at an address.
    ///
    /// # Errors
    /// It lies outside, or between two words.
    pub(super) fn word(&self, at: u64) -> Checked<u64> {
        if !at.is_multiple_of(8) || at >= self.bytes {
            let detail = format!("{at:#x} is no address of a word");
            return Err(Problem::new(FindingKind::PointerRange, at, detail));
        }
        Ok(number(&self.page(at / PAGE * PAGE)?[..], (at % PAGE) as usize, 8))
    }

    /// Lays a word over the image.
    pub(super) fn lay_over(&mut self, at: u64, word: u64) {
        self.over.insert(at, word);
    }
}
