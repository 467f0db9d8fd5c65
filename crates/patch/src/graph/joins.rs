//! A change becomes a part of an older patch, or a patch of its own.

use super::{Bug, Graph, PatchId, Place, bits_of};
use crate::plan::Owner;
use crate::study::Merging;
use crate::undo::{Piece, Undo};

/// Most patches of a unit that a change looks at for one that it can join.
const JOIN_SEARCH_MAX: usize = 8;
/// Most patches that are looked at for a way from what a change waits for to the one it joins.
const WAY_SEARCH_MAX: usize = 64;

/// A change on its way into the graph.
pub(super) struct Coming<'c> {
    pub(super) place: Place,
    /// The unit as it is before the change.
    pub(super) before: &'c [u8],
    pub(super) pieces: &'c [Piece],
    /// What it waits for, in ascending order.
    pub(super) waits: Vec<usize>,
    /// Patches of its unit, oldest first.
    pub(super) own: Vec<usize>,
}

impl Graph {
    /// Makes a change of a unit, which now has the bytes `before`, part of the graph.
    pub(crate) fn change(
        &mut self,
        place: Place,
        before: &[u8],
        pieces: &[Piece],
        after: &[PatchId],
    ) -> PatchId {
        let own = self.units.get(&place.unit).cloned().unwrap_or_default();
        let mut waits: Vec<usize> = after.iter().filter_map(|id| self.find(*id)).collect();
        if self.planted == Some(Bug::GroupDropped) {
            waits.retain(|other| !self.patch(*other).units.is_empty());
        }
        waits.sort_unstable();
        waits.dedup();
        let coming = Coming { place, before, pieces, waits, own };
        let index = match self.study.merging {
            Merging::Owned => self.change_owned(coming),
            merging => self.change_as_thesis(coming, merging),
        };
        self.id(index)
    }

    fn change_owned(&mut self, coming: Coming<'_>) -> usize {
        let Coming { place, before, pieces, mut waits, own } = coming;
        let free = own.iter().copied().find(|index| self.patch(*index).undo.is_none());
        // It is written with this one in any case.
        waits.retain(|index| Some(*index) != free || !self.patch(*index).is_only_of(place.unit));
        let met: Vec<usize> =
            own.iter().copied().filter(|index| self.meets(*index, pieces)).collect();
        if waits.is_empty() && met.is_empty() {
            return self.change_free(place, pieces, free);
        }
        if let Some(index) = self.joinable((&own, place.owner), &met, &waits) {
            waits.extend(met.iter().copied());
            waits.into_iter().for_each(|other| self.wait(index, other));
            match met.is_empty() {
                true => self.made.into_near += 1,
                false => self.made.into_overlapped += 1,
            }
            self.keep(index, before, pieces);
            return index;
        }
        waits.extend(met);
        waits.sort_unstable();
        waits.dedup();
        self.insert_soft(place, before, pieces, waits)
    }

    /// A change that nothing ever takes back.
    fn change_free(&mut self, place: Place, pieces: &[Piece], free: Option<usize>) -> usize {
        let is_shared = !place.is_own || place.owner == Owner::default();
        let open = self.open.get(&place.owner.0).copied().filter(|_| !is_shared);
        match (free, open) {
            (Some(index), _) => {
                self.made.into_hard += 1;
                if !self.patch(index).words.is_empty() {
                    self.note_words(index, pieces);
                }
                index
            }
            (None, Some(index)) => {
                self.made.into_hard += 1;
                self.reach(index, place.unit);
                index
            }
            (None, None) => {
                self.made.hard += 1;
                let index = self.insert(Some(place.unit), place.owner, None, Vec::new());
                match is_shared {
                    true => self.note_words(index, pieces),
                    false => {
                        self.open.insert(place.owner.0, index);
                    }
                }
                index
            }
        }
    }

    /// Notes which words of its unit a patch changes that nothing takes back.
    fn note_words(&mut self, index: usize, pieces: &[Piece]) {
        let words = &mut self.patch_mut(index).words;
        for piece in pieces {
            for (part, bit) in bits_of(piece.at..piece.at + piece.bytes.len()) {
                words.resize(words.len().max(part + 1), 0);
                words[part] |= bit;
            }
        }
    }

    /// A patch that can be taken back.
    pub(super) fn insert_soft(
        &mut self,
        place: Place,
        before: &[u8],
        pieces: &[Piece],
        waits: Vec<usize>,
    ) -> usize {
        self.made.soft += 1;
        let index = self.insert(Some(place.unit), place.owner, Some(Undo::default()), waits);
        if self.planted != Some(Bug::NothingKept) {
            self.keep(index, before, pieces);
        }
        index
    }

    /// Keeps what takes a change back, if its patch can be taken back.
    pub(super) fn keep(&mut self, index: usize, before: &[u8], pieces: &[Piece]) {
        let undo = self.patch_mut(index).undo.as_mut();
        self.made.kept_bytes += undo.map_or(0, |undo| undo.keep(before, pieces));
    }

    fn meets(&self, index: usize, pieces: &[Piece]) -> bool {
        self.patch(index).undo.as_ref().is_some_and(|undo| undo.meets(pieces))
    }

    /// The patch of the same unit that a change can join: of the same owner, and the newest one
    /// whose bytes the change overwrites, so that it is taken back before the others.
    fn joinable(
        &self,
        (own, owner): (&[usize], Owner),
        met: &[usize],
        waits: &[usize],
    ) -> Option<usize> {
        let may = |index: &usize| {
            let patch = self.patch(*index);
            let others: Vec<usize> =
                waits.iter().chain(met).copied().filter(|other| other != index).collect();
            let is_late = others.iter().any(|other| self.would_be_late(*index, *other));
            patch.undo.is_some()
                && patch.owner == owner
                && !is_late
                && !self.leads_to(&others, *index)
        };
        match met.last() {
            Some(newest) => Some(*newest).filter(may),
            None => own.iter().rev().take(JOIN_SEARCH_MAX).copied().find(may),
        }
    }

    /// Whether a patch that is to wait for one more would be written later than the wave that it
    /// was made for: else what comes again and again would hold it back for ever.
    fn would_be_late(&self, index: usize, other: usize) -> bool {
        let (patch, other_patch) = (self.patch(index), self.patch(other));
        let is_open_group = other_patch.units.is_empty() && other_patch.waits.is_empty();
        patch.wave != self.wave && !is_open_group && patch.waits.binary_search(&other).is_err()
    }

    /// Whether some way leads from patches over what they wait for to another one; also if that is
    /// not known after so many patches. What that one waits for does not lead to it.
    pub(super) fn leads_to(&self, from: &[usize], goal: usize) -> bool {
        let known = self.patch(goal);
        if known.dependents.is_empty() {
            return false;
        }
        let mut seen: Vec<usize> = Vec::with_capacity(from.len());
        let mut left = from.to_vec();
        while let Some(index) = left.pop() {
            let patch = self.patch(index);
            if patch.waits.binary_search(&goal).is_ok() {
                return true;
            }
            let is_behind = known.waits.binary_search(&index).is_ok();
            if is_behind || patch.waits.is_empty() || seen.contains(&index) {
                continue;
            }
            if seen.len() == WAY_SEARCH_MAX {
                return true;
            }
            seen.push(index);
            left.extend(&patch.waits);
        }
        false
    }
}
