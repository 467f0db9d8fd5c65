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

/// Whether some bit is set.
fn has_any(mask: &[u8]) -> bool {
    mask.iter().fold(0, |all, byte| all | byte) != 0
}

/// Replaces the bits of a mask.
fn mix(byte: &mut u8, mask: u8, new: u8) {
    *byte = *byte & !mask | new & mask;
}

/// What takes a patch back: the bits that it has changed, and what they were. It has the bytes from
/// the first changed one to the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undo {
    /// Where in the unit the first byte is.
    at: usize,
    mask: Vec<u8>,
    old: Vec<u8>,
}

impl Undo {
    /// Which bits of a byte of the unit this patch has changed.
    fn mask_at(&self, place: usize) -> u8 {
        place.checked_sub(self.at).and_then(|index| self.mask.get(index)).copied().unwrap_or(0)
    }

    /// Whether a change meets bits that this patch has changed.
    pub(crate) fn meets(&self, pieces: &[Piece]) -> bool {
        let met = |(at, mask, _): (usize, u8, u8)| self.mask_at(at) & mask != 0;
        pieces.iter().any(|piece| match piece.mask {
            None => self.meets_range(piece.at..piece.at + piece.bytes.len()),
            Some(_) => piece.each().any(met),
        })
    }

    /// Whether this patch has changed any of these bytes.
    pub(crate) fn meets_range(&self, range: Range<usize>) -> bool {
        let known = self.at.max(range.start)..(self.at + self.mask.len()).min(range.end);
        !known.is_empty() && has_any(&self.mask[known.start - self.at..known.end - self.at])
    }

    /// Makes room for the bytes of a range.
    fn reach(&mut self, range: Range<usize>) {
        if self.mask.is_empty() {
            self.at = range.start;
        }
        let more = self.at.saturating_sub(range.start);
        for bytes in [&mut self.mask, &mut self.old] {
            bytes.splice(0..0, std::iter::repeat_n(0, more));
        }
        self.at -= more;
        let len = self.mask.len().max(range.end - self.at);
        self.mask.resize(len, 0);
        self.old.resize(len, 0);
    }

    /// Keeps what `unit` has where a change is about to be made. What this patch has changed
    /// already keeps its older bytes. Says how many bytes there are more.
    pub(crate) fn keep(&mut self, unit: &[u8], pieces: &[Piece]) -> u64 {
        let mut more = 0;
        for piece in pieces.iter().filter(|piece| !piece.bytes.is_empty()) {
            let range = piece.at..piece.at + piece.bytes.len();
            self.reach(range.clone());
            let own = range.start - self.at..range.end - self.at;
            // Most changes are of whole bytes, and the first of their patch.
            if piece.mask.is_none() && !has_any(&self.mask[own.clone()]) {
                more += own.len() as u64;
                self.mask[own.clone()].fill(0xff);
                self.old[own].copy_from_slice(&unit[range]);
                continue;
            }
            for (at, mask, _) in piece.each() {
                let index = at - self.at;
                let fresh = mask & !self.mask[index];
                more += u64::from(self.mask[index] == 0 && mask != 0);
                mix(&mut self.old[index], fresh, unit[at]);
                self.mask[index] |= mask;
            }
        }
        more
    }

    /// Takes the patch back out of a copy of its unit.
    pub(crate) fn take_back(&self, unit: &mut [u8]) {
        let own = unit[self.at..].iter_mut().zip(self.mask.iter().zip(&self.old));
        own.for_each(|(byte, (mask, old))| mix(byte, *mask, *old));
    }

    /// Bytes that it keeps.
    pub(crate) fn bytes(&self) -> usize {
        self.mask.iter().filter(|mask| **mask != 0).count()
    }

    /// Memory that it takes beside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.mask.capacity() + self.old.capacity()
    }
}
