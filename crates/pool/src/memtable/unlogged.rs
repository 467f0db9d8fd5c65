//! What of a layer no frame has yet.

use marram_store::Key;

/// Notes are merged when there are more than twice as many as entries in the layer, and this many.
const NOTES_SLACK: usize = 1024;
/// Places that remember where the note of a key is, found by a hash of the key: operations that
/// follow each other change the same directory, the same file and the same sums.
const PLACES: usize = 1024;

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
    /// Indices of notes, as far as they are still true: a use of one looks at the note.
    places: Vec<u32>,
    bytes: u64,
}

fn place(key: Key) -> usize {
    let mixed = key.object ^ key.offset.rotate_left(24) ^ (u64::from(key.kind) << 56);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PLACES
}

impl Unlogged {
    /// An entry has changed.
    pub(crate) fn note(&mut self, key: Key, changed: Extent) {
        if self.places.is_empty() {
            self.places = vec![0; PLACES];
        }
        let index = &mut self.places[place(key)];
        match self.notes.get_mut(*index as usize).filter(|(noted, _)| *noted == key) {
            Some((_, extent)) => *extent = extent.and(changed),
            None => {
                *index = u32::try_from(self.notes.len()).unwrap_or(u32::MAX);
                self.notes.push((key, changed));
            }
        }
    }

    /// The changes brought `bytes` of content; the layer has `entries` now.
    pub(crate) fn note_bytes(&mut self, bytes: u64, entries: usize) {
        self.bytes += bytes;
        if self.notes.len() > 2 * entries + NOTES_SLACK {
            merge(&mut self.notes);
        }
    }

    /// Bytes of content that were noted: what a frame would hold at most, beside values and blocks
    /// that other items had already.
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
        let Unlogged { notes, places: _, bytes } = self;
        notes.clear();
        *bytes = 0;
    }

    /// Each key once, in order.
    pub(crate) fn sorted(&self) -> Vec<(Key, Extent)> {
        let mut sorted = self.notes.clone();
        merge(&mut sorted);
        sorted
    }
}

/// Brings notes into order, each key once.
fn merge(notes: &mut Vec<(Key, Extent)>) {
    notes.sort_unstable_by_key(|(key, _)| *key);
    notes.dedup_by(|again, first| {
        let same = again.0 == first.0;
        if same {
            first.1 = first.1.and(again.1);
        }
        same
    });
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
