//! What a patch has changed in its unit, and what was there before.

use std::ops::Range;

/// A part of a change: some bytes of a unit, or some bits of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where in the unit.
    pub(crate) at: usize,
    /// The new bytes.
    pub(crate) bytes: Vec<u8>,
    /// Which bits of them are meant; none says all.
    pub(crate) mask: Option<Vec<u8>>,
}

impl Piece {
    /// Each byte that is meant: where, which bits, and the new byte.
    fn each(&self) -> impl Iterator<Item = (usize, u8, u8)> {
        self.bytes.iter().enumerate().map(|(index, byte)| {
            let mask = self.mask.as_ref().map_or(0xff, |mask| mask[index]);
            (self.at + index, mask, *byte)
        })
    }

    /// Puts the new bytes into a unit.
    pub(crate) fn put(&self, unit: &mut [u8]) {
        match &self.mask {
            None => unit[self.at..self.at + self.bytes.len()].copy_from_slice(&self.bytes),
            Some(_) => self.each().for_each(|(at, mask, byte)| mix(&mut unit[at], mask, byte)),
        }
    }
}

/// Replaces the bits of a mask.
fn mix(byte: &mut u8, mask: u8, new: u8) {
    *byte = *byte & !mask | new & mask;
}

/// What takes a patch back: the bits that it has changed, and what they were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undo {
    mask: Box<[u8]>,
    old: Box<[u8]>,
}

impl Undo {
    /// Whether a change meets bits that this patch has changed.
    pub(crate) fn meets(&self, pieces: &[Piece]) -> bool {
        let met = |(at, mask, _): (usize, u8, u8)| self.mask[at] & mask != 0;
        pieces.iter().any(|piece| piece.each().any(met))
    }

    /// Whether this patch has changed any of these bytes.
    pub(crate) fn meets_range(&self, range: Range<usize>) -> bool {
        self.mask[range].iter().any(|mask| *mask != 0)
    }

    /// Keeps what `unit` has where a change is about to be made. What this patch has changed
    /// already keeps its older bytes.
    pub(crate) fn keep(&mut self, unit: &[u8], pieces: &[Piece]) {
        if self.mask.is_empty() {
            self.mask = vec![0; unit.len()].into();
            self.old = vec![0; unit.len()].into();
        }
        for (at, mask, _) in pieces.iter().flat_map(Piece::each) {
            let fresh = mask & !self.mask[at];
            mix(&mut self.old[at], fresh, unit[at]);
            self.mask[at] |= mask;
        }
    }

    /// Takes the patch back out of a copy of its unit.
    pub(crate) fn take_back(&self, unit: &mut [u8]) {
        for (at, byte) in unit.iter_mut().enumerate() {
            mix(byte, self.mask[at], self.old[at]);
        }
    }

    /// Bytes that it keeps.
    pub(crate) fn bytes(&self) -> usize {
        self.mask.iter().filter(|mask| **mask != 0).count()
    }
}
