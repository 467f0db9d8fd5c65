//! The thesis's own rules of merging, for studies: whole units of one patch, without owners.

use super::joins::Coming;
use super::{Graph, Unit};
use crate::study::Merging;

impl Graph {
    /// Makes a change part of the graph by the rules of sections 2.2.1 to 2.2.3.
    pub(super) fn change_as_thesis(&mut self, coming: Coming<'_>, merging: Merging) -> usize {
        let Coming { place, before, pieces, mut waits, own } = coming;
        let is_hard = |graph: &Graph, index: usize| graph.patch(index).undo.is_none();
        let hard = own.iter().copied().find(|index| is_hard(self, *index));
        if merging.is_hard() && self.may_be_hard(place.unit, &waits, &own) {
            waits.retain(|other| !own.contains(other));
            let Some(index) = hard.or(own.first().copied()) else {
                self.made.hard += 1;
                return self.insert(Some(place.unit), place.owner, None, waits);
            };
            self.made.into_hard += 1;
            self.harden(index, place.unit);
            waits.into_iter().for_each(|other| self.wait(index, other));
            return index;
        }
        // A hard patch cannot be taken back, so it counts as overlapped whole.
        let overlaps = |index: &usize| {
            let undo = self.patch(*index).undo.as_ref();
            undo.is_none_or(|undo| undo.meets(pieces))
        };
        let met: Vec<usize> = own.iter().copied().filter(overlaps).collect();
        if let Some(index) = met.last().copied().filter(|_| merging.is_overlapping()) {
            let others: Vec<usize> =
                waits.iter().chain(&met).copied().filter(|other| *other != index).collect();
            if !self.leads_to(&others, index) {
                match is_hard(self, index) {
                    true => self.made.into_hard += 1,
                    false => self.made.into_overlapped += 1,
                }
                others.into_iter().for_each(|other| self.wait(index, other));
                self.keep(index, before, pieces);
                return index;
            }
        }
        waits.extend(met);
        waits.sort_unstable();
        waits.dedup();
        self.insert_soft(place, before, pieces, waits)
    }

    /// Whether nothing can ever force a change to be taken back: nothing outside of its unit waits
    /// for the unit, so nothing that the change waits for does.
    fn may_be_hard(&self, unit: Unit, waits: &[usize], own: &[usize]) -> bool {
        let is_elsewhere = |other: &usize| {
            let patch = self.patch(*other);
            // What stands for others and is not waited for leads nowhere.
            let leads_nowhere = patch.units.is_empty() && patch.dependents.is_empty();
            !patch.is_only_of(unit) && !leads_nowhere
        };
        let mut dependents = own.iter().flat_map(|index| &self.patch(*index).dependents);
        let others: Vec<usize> = waits.iter().copied().filter(|it| !own.contains(it)).collect();
        !dependents.any(is_elsewhere) && !own.iter().any(|index| self.leads_to(&others, *index))
    }

    /// Makes all patches of a unit one, which nothing takes back. The others stand for it.
    fn harden(&mut self, index: usize, unit: Unit) {
        self.patch_mut(index).undo = None;
        let own = self.units[&unit].clone();
        let others: Vec<usize> = own.iter().copied().filter(|other| *other != index).collect();
        self.leave(unit, &others);
        for each in &own {
            self.patch_mut(*each).dependents.retain(|other| !own.contains(other));
        }
        let left = &mut self.patch_mut(index).waits;
        left.retain(|other| !others.contains(other));
        let is_ready = left.is_empty();
        for other in others {
            let patch = self.patch_mut(other);
            (patch.undo, patch.units) = (None, Vec::new());
            let waits = std::mem::take(&mut patch.waits);
            let outside = waits.into_iter().filter(|other| !own.contains(other));
            outside.for_each(|outside| self.wait(index, outside));
            self.wait(other, index);
        }
        if is_ready && self.patch(index).waits.is_empty() {
            self.ready.insert((unit, index));
        }
    }
}
