//! Patches and what they wait for.
//!
//! Dependencies are complete when a patch is made, so no patch ever comes to wait for itself. A
//! change that joins an older patch adds to it only patches that wait for nothing.

use crate::plan::Owner;
use crate::undo::{Piece, Undo};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// A bug that is put in, for tests of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The change of this number in each plan waits for nothing.
    Unordered(usize),
    /// A patch that waits keeps no older bytes, as if nothing ever took it back.
    NothingKept,
    /// A change does not wait for its group.
    GroupDropped,
}

/// Most patches of a unit that a change looks at for one that it can join.
const JOIN_SEARCH_MAX: usize = 8;

/// What the medium writes whole: a part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Unit {
    /// The block.
    pub(crate) block: u64,
    /// Where in the block it begins, in bytes.
    pub(crate) start: usize,
}

/// Names a patch for ever: one that is committed is not found any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatchId {
    index: usize,
    generation: u64,
}

/// Changes of one unit.
#[derive(Debug)]
struct Patch {
    generation: u64,
    /// What it changes; none if it only stands for what it waits for.
    unit: Option<Unit>,
    /// What the changes belong to that it waits for.
    owner: Owner,
    /// It may come to wait for more, and is not committed meanwhile.
    is_held: bool,
    /// What takes it back; none if nothing ever has to.
    undo: Option<Undo>,
    /// What has to be committed first.
    waits: Vec<usize>,
    /// What waits for it.
    dependents: Vec<usize>,
}

/// How a change became part of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// A patch of its own.
    New,
    /// A part of another one.
    Joined,
}

/// Patches with all that they wait for, and the units that these change.
#[derive(Debug, Default)]
pub(crate) struct Closure {
    pub(crate) patches: HashSet<usize>,
    pub(crate) units: BTreeSet<Unit>,
}

/// All patches that are not committed.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    patches: Vec<Option<Patch>>,
    vacant: Vec<usize>,
    generation: u64,
    /// Patches of each unit, oldest first.
    units: BTreeMap<Unit, Vec<usize>>,
    count: usize,
    pub(crate) planted: Option<Bug>,
}

impl Graph {
    fn patch(&self, index: usize) -> &Patch {
        self.patches[index].as_ref().expect("a patch is there until it is committed")
    }

    fn patch_mut(&mut self, index: usize) -> &mut Patch {
        self.patches[index].as_mut().expect("a patch is there until it is committed")
    }

    fn id(&self, index: usize) -> PatchId {
        PatchId { index, generation: self.patch(index).generation }
    }

    /// Where a patch is that is not committed.
    fn find(&self, id: PatchId) -> Option<usize> {
        let patch = self.patches.get(id.index)?.as_ref()?;
        (patch.generation == id.generation).then_some(id.index)
    }

    /// Whether a patch is durable.
    pub(crate) fn is_committed(&self, id: PatchId) -> bool {
        self.find(id).is_none()
    }

    /// How many patches there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Units that have patches, in the order of the medium.
    pub(crate) fn units(&self) -> impl Iterator<Item = Unit> {
        self.units.keys().copied()
    }

    /// Whether a unit has patches.
    pub(crate) fn is_dirty(&self, unit: Unit) -> bool {
        self.units.contains_key(&unit)
    }

    /// The patches that may have changed these bytes of a unit.
    pub(crate) fn patches_of(&self, unit: Unit, range: Range<usize>) -> Vec<PatchId> {
        let own = self.units.get(&unit).into_iter().flatten();
        let may_meet = |index: &&usize| {
            let undo = self.patch(**index).undo.as_ref();
            undo.is_none_or(|undo| undo.meets_range(range.clone()))
        };
        own.filter(may_meet).map(|index| self.id(*index)).collect()
    }

    /// Patches that have not been committed, of a unit.
    pub(crate) fn all_of(&self, unit: Unit) -> impl Iterator<Item = PatchId> {
        self.units.get(&unit).into_iter().flatten().map(|index| self.id(*index))
    }

    /// Makes a patch of no unit that is held: what waits for it waits until it is released.
    pub(crate) fn hold(&mut self) -> PatchId {
        let index = self.insert((None, Owner::default()), None, Vec::new());
        self.patch_mut(index).is_held = true;
        self.id(index)
    }

    /// Lets a held patch be committed as soon as others are. What they wait for is no patch that
    /// waits for the held one.
    pub(crate) fn release(&mut self, held: PatchId, after: &[PatchId]) {
        let Some(index) = self.find(held) else { return };
        let waits: Vec<usize> = after.iter().filter_map(|id| self.find(*id)).collect();
        waits.into_iter().for_each(|other| self.wait(index, other));
        self.patch_mut(index).is_held = false;
        if self.patch(index).waits.is_empty() {
            self.commit(&[index]);
        }
    }

    /// Some patches that are not committed, and all that they wait for.
    pub(crate) fn closure(&self, roots: &[PatchId]) -> Closure {
        let mut left: Vec<usize> = roots.iter().filter_map(|id| self.find(*id)).collect();
        let mut closure = Closure::default();
        while let Some(index) = left.pop() {
            if closure.patches.insert(index) {
                let patch = self.patch(index);
                closure.units.extend(patch.unit);
                left.extend(&patch.waits);
            }
        }
        closure
    }

    fn insert(
        &mut self,
        (unit, owner): (Option<Unit>, Owner),
        undo: Option<Undo>,
        waits: Vec<usize>,
    ) -> usize {
        self.generation += 1;
        self.count += 1;
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.patches.push(None);
            self.patches.len() - 1
        });
        waits.iter().for_each(|other| self.patch_mut(*other).dependents.push(index));
        let (generation, dependents) = (self.generation, Vec::new());
        let is_held = false;
        let patch = Patch { generation, unit, owner, is_held, undo, waits, dependents };
        self.patches[index] = Some(patch);
        if let Some(unit) = unit {
            self.units.entry(unit).or_default().push(index);
        }
        index
    }

    fn wait(&mut self, patch: usize, other: usize) {
        if patch != other && !self.patch(patch).waits.contains(&other) {
            self.patch_mut(patch).waits.push(other);
            self.patch_mut(other).dependents.push(patch);
        }
    }

    /// Makes a change of a unit, which now has the bytes `before`, part of the graph.
    pub(crate) fn change(
        &mut self,
        (unit, owner): (Unit, Owner),
        before: &[u8],
        pieces: &[Piece],
        after: &[PatchId],
    ) -> (PatchId, Made) {
        let own = self.units.get(&unit).cloned().unwrap_or_default();
        let free = own.iter().copied().find(|index| self.patch(*index).undo.is_none());
        let mut waits: Vec<usize> = after.iter().filter_map(|id| self.find(*id)).collect();
        if self.planted == Some(Bug::GroupDropped) {
            waits.retain(|other| self.patch(*other).unit.is_some());
        }
        waits.sort_unstable();
        waits.dedup();
        // It is written with this one in any case.
        waits.retain(|index| Some(*index) != free);
        let met: Vec<usize> =
            own.iter().copied().filter(|index| self.meets(*index, pieces)).collect();
        if waits.is_empty() && met.is_empty() {
            let (index, made) = match free {
                Some(index) => (index, Made::Joined),
                None => (self.insert((Some(unit), owner), None, Vec::new()), Made::New),
            };
            return (self.id(index), made);
        }
        if let Some(index) = self.joinable((&own, owner), &met, &waits) {
            waits.into_iter().chain(free).for_each(|other| self.wait(index, other));
            let undo = self.patch_mut(index).undo.as_mut().expect("it is not the free one");
            undo.keep(before, pieces);
            return (self.id(index), Made::Joined);
        }
        let mut undo = Undo::default();
        if self.planted != Some(Bug::NothingKept) {
            undo.keep(before, pieces);
        }
        waits.extend(met.into_iter().chain(free));
        waits.sort_unstable();
        waits.dedup();
        let index = self.insert((Some(unit), owner), Some(undo), waits);
        (self.id(index), Made::New)
    }

    fn meets(&self, index: usize, pieces: &[Piece]) -> bool {
        self.patch(index).undo.as_ref().is_some_and(|undo| undo.meets(pieces))
    }

    /// The patch of the same unit that a change can join. No path may lead from the change to it
    /// over another patch: so all that the change waits for is waited for already, or waits for
    /// nothing.
    fn joinable(
        &self,
        (own, owner): (&[usize], Owner),
        met: &[usize],
        waits: &[usize],
    ) -> Option<usize> {
        let may = |index: &usize, needs_leaves: bool| {
            let patch = self.patch(*index);
            patch.undo.is_some()
                && patch.owner == owner
                && waits.iter().all(|other| {
                    other == index
                        || patch.waits.contains(other)
                        || needs_leaves && self.patch(*other).waits.is_empty()
                })
        };
        match met {
            [only] => Some(*only).filter(|index| may(index, true)),
            [] => {
                let newest = own.iter().rev().take(JOIN_SEARCH_MAX);
                newest.copied().find(|index| may(index, false))
            }
            _ => None,
        }
    }

    /// The patches of a unit that may be written now: what they wait for is committed, or is
    /// written with them.
    pub(crate) fn ready(&self, unit: Unit) -> Vec<usize> {
        let own = self.units[&unit].iter().copied();
        let mut ready: Vec<usize> = own.filter(|it| self.patch(*it).waits.is_empty()).collect();
        // What others of the unit still wait for, as far as they have been met here.
        let mut left: HashMap<usize, usize> = HashMap::new();
        let mut next = 0;
        while let Some(index) = ready.get(next).copied() {
            next += 1;
            for other in self.patch(index).dependents.iter().copied() {
                let dependent = self.patch(other);
                if dependent.unit != Some(unit) {
                    continue;
                }
                let left = left.entry(other).or_insert(dependent.waits.len());
                *left -= 1;
                if *left == 0 {
                    ready.push(other);
                }
            }
        }
        ready
    }

    /// Takes all patches of a unit but the ready ones back out of a copy of it; how many.
    pub(crate) fn roll_back(&self, unit: Unit, ready: &[usize], copy: &mut [u8]) -> usize {
        let ready: HashSet<&usize> = ready.iter().collect();
        let own = self.units[&unit].iter().rev();
        let mut count = 0;
        for index in own.filter(|index| !ready.contains(index)) {
            let undo = self.patch(*index).undo.as_ref();
            undo.expect("a patch that waits has something to take it back").take_back(copy);
            count += 1;
        }
        count
    }

    /// Notes that patches are durable, and with them those that only stood for them.
    pub(crate) fn commit(&mut self, durable: &[usize]) {
        let mut left = durable.to_vec();
        let mut left_units: HashSet<Unit> = HashSet::new();
        while let Some(index) = left.pop() {
            let patch = self.patches[index].take().expect("a patch is committed once");
            self.vacant.push(index);
            self.count -= 1;
            left_units.extend(patch.unit);
            for other in patch.dependents {
                // One that was written with it may be gone already.
                let Some(dependent) = self.patches[other].as_mut() else { continue };
                dependent.waits.retain(|waited| *waited != index);
                let stands_for_none = dependent.unit.is_none() && dependent.waits.is_empty();
                if stands_for_none && !dependent.is_held {
                    left.push(other);
                }
            }
        }
        self.leave_units(&left_units);
    }

    /// Takes the patches that are gone off the lists of their units.
    fn leave_units(&mut self, units: &HashSet<Unit>) {
        for unit in units {
            let own = self.units.get_mut(unit).expect("it had a patch");
            own.retain(|index| self.patches[*index].is_some());
            if own.is_empty() {
                self.units.remove(unit);
            }
        }
    }

    /// Bytes that are kept to take patches back.
    pub(crate) fn undo_bytes(&self) -> usize {
        let patches = self.patches.iter().flatten();
        patches.filter_map(|patch| patch.undo.as_ref()).map(Undo::bytes).sum()
    }

    /// Patches that wait, for a report of one that waits for ever.
    pub(crate) fn waiting(&self) -> String {
        let patches = self.patches.iter().enumerate();
        let waiting = patches.filter_map(|(index, patch)| {
            let patch = patch.as_ref()?;
            Some(format!("{index} of {:?} waits for {:?}", patch.unit, patch.waits))
        });
        waiting.take(16).collect::<Vec<_>>().join("; ")
    }
}
