//! What of a layer no frame has yet.

use marram_store::Key;
use std::collections::HashMap;

/// Notes are merged when there are more than twice as many as entries in the layer, and this many.
const NOTES_SLACK: usize = 1024;
/// So many notes are looked through for the key of the next one: operations that follow each other
/// change the same directory, the same file and the same sums.
const NOTES_RECENT: usize = 16;

/// How much of an entry has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// It is another entry.
    Whole,
    /// Its value, and this range of its fresh block, which is otherwise as a frame has it.
    Range {
        /// The first byte.
        from: usize,
        /// The byte behind the last.
        to: usize,
    },
}

impl Extent {
    fn and(self, other: Extent) -> Extent {
        match (self, other) {
            (Extent::Range { from, to }, Extent::Range { from: other_from, to: other_to }) => {
                Extent::Range { from: from.min(other_from), to: to.max(other_to) }
            }
            _ => Extent::Whole,
        }
    }
}

/// The keys of a layer that have changed since the last frame.
#[derive(Debug, Default)]
pub(crate) struct Unlogged {
    /// In any order, and a key may be there several times: noting must be cheap, as programs that
    /// never sync pay for it too.
    notes: Vec<(Key, Extent)>,
    bytes: u64,
}

impl Unlogged {
    /// An entry has changed.
    pub(crate) fn note(&mut self, key: Key, changed: Extent) {
        let recent = self.notes.len().saturating_sub(NOTES_RECENT);
        match self.notes[recent..].iter_mut().rev().find(|(noted, _)| *noted == key) {
            Some((_, extent)) => *extent = extent.and(changed),
            None => self.notes.push((key, changed)),
        }
    }

    /// The changes brought `bytes` of content; the layer has `entries` now.
    pub(crate) fn note_bytes(&mut self, bytes: u64, entries: usize) {
        self.bytes += bytes;
        if self.notes.len() > 2 * entries + NOTES_SLACK {
            self.notes = self.merged().into_iter().collect();
        }
    }

    /// Bytes of content that were noted: what a frame would hold at most, beside values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many notes there are, at least one for each changed key.
    pub(crate) fn len(&self) -> usize {
        self.notes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// A frame has them all.
    pub(crate) fn clear(&mut self) {
        *self = Unlogged::default();
    }

    /// Each key once, in order.
    pub(crate) fn sorted(&self) -> Vec<(Key, Extent)> {
        let mut sorted: Vec<_> = self.merged().into_iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        sorted
    }

    fn merged(&self) -> HashMap<Key, Extent> {
        let mut merged: HashMap<Key, Extent> = HashMap::with_capacity(self.notes.len());
        for (key, changed) in &self.notes {
            merged
                .entry(*key)
                .and_modify(|extent| *extent = extent.and(*changed))
                .or_insert(*changed);
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::{Extent, Unlogged};
    use marram_store::Key;

    #[test]
    fn changes_of_a_key_add_up() {
        let mut unlogged = Unlogged::default();
        let (a, b) = (Key::new(1, 1, 0), Key::new(2, 1, 0));
        unlogged.note(b, Extent::Range { from: 5, to: 9 });
        unlogged.note(a, Extent::Range { from: 1, to: 2 });
        unlogged.note(b, Extent::Range { from: 20, to: 21 });
        let both = Extent::Range { from: 5, to: 21 };
        assert_eq!(unlogged.sorted(), [(a, Extent::Range { from: 1, to: 2 }), (b, both)]);
        unlogged.note(a, Extent::Whole);
        unlogged.note(a, Extent::Range { from: 0, to: 1 });
        assert_eq!(unlogged.sorted(), [(a, Extent::Whole), (b, both)]);
    }

    #[test]
    fn notes_do_not_outgrow_the_layer() {
        let mut unlogged = Unlogged::default();
        for round in 0..100_000_u64 {
            unlogged.note(Key::new(round % 10, 1, 0), Extent::Whole);
            unlogged.note_bytes(1, 10);
        }
        assert!(unlogged.notes.len() < 2_000, "{}", unlogged.notes.len());
        assert_eq!((unlogged.sorted().len(), unlogged.bytes()), (10, 100_000));
    }
}
