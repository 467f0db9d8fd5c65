//! Patches and what they wait for.
//!
//! Dependencies are complete when a patch is made. A change that joins an older patch adds to it
//! only what does not lead back to it, so no patch ever comes to wait for itself.

mod joins;
mod thesis;

use crate::plan::{Owner, WORD_BYTES};
use crate::study::Study;
use crate::undo::Undo;
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

/// Changes that become durable together.
#[derive(Debug)]
struct Patch {
    generation: u64,
    /// What it changes, as far as that is not durable; none if it only stands for what it waits
    /// for. One of several units waits for nothing.
    units: Vec<Unit>,
    /// What the changes belong to that it waits for.
    owner: Owner,
    /// It may come to wait for more, and is not committed meanwhile.
    is_held: bool,
    /// What takes it back; none if nothing ever has to.
    undo: Option<Undo>,
    /// Which words it changes, if nothing takes it back and that is known: a bit for each.
    words: Vec<u64>,
    /// What has to be committed first, in ascending order.
    waits: Vec<usize>,
    /// What waits for it.
    dependents: Vec<usize>,
    /// The wave before which it was made.
    wave: u64,
}

impl Patch {
    /// Whether it changes this unit and no other.
    fn is_only_of(&self, unit: Unit) -> bool {
        self.units == [unit]
    }
}

/// The bits of the words in which a range of bytes lies, each in its part of a list of bits.
fn bits_of(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words = range.start / WORD_BYTES..range.end.div_ceil(WORD_BYTES);
    words.map(|word| (word / 64, 1 << (word % 64)))
}

/// Whether some word of a range is among these.
fn meets_words(words: &[u64], range: Range<usize>) -> bool {
    bits_of(range).any(|(part, bit)| words.get(part).is_some_and(|known| known & bit != 0))
}

/// Where a change is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) unit: Unit,
    /// What it belongs to.
    pub(crate) owner: Owner,
    /// The whole block belongs to the owner.
    pub(crate) is_own: bool,
}

/// How changes became part of the graph.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Made {
    /// Patches that nothing ever takes back.
    pub(crate) hard: u64,
    /// Patches that can be taken back.
    pub(crate) soft: u64,
    /// Changes that became a part of one that nothing takes back.
    pub(crate) into_hard: u64,
    /// Changes that became a part of one whose bytes they overwrite.
    pub(crate) into_overlapped: u64,
    /// Changes that became a part of another one of their unit.
    pub(crate) into_near: u64,
    /// Bytes that were kept to take patches back.
    pub(crate) kept_bytes: u64,
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
    /// Patches of each unit that wait for nothing.
    ready: BTreeSet<(Unit, usize)>,
    /// The patch of several units of each owner that takes more of them.
    open: HashMap<u64, usize>,
    count: usize,
    /// Waves so far.
    wave: u64,
    pub(crate) made: Made,
    pub(crate) study: Study,
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
    /// All patches that wait for one, also by way of others.
    pub(crate) fn behind(&self, patch: PatchId) -> HashSet<PatchId> {
        let mut left: Vec<usize> = self.find(patch).into_iter().collect();
        let (mut seen, mut all) = (HashSet::new(), HashSet::new());
        while let Some(index) = left.pop() {
            for other in self.patch(index).dependents.iter().copied() {
                if seen.insert(other) {
                    all.insert(self.id(other));
                    left.push(other);
                }
            }
        }
        all
    }

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

    /// Units that may have patches that can be written now, in the order of the medium.
    pub(crate) fn units_to_write(&self) -> Vec<Unit> {
        if !self.study.has_ready_lists {
            return self.units().collect();
        }
        let mut units: Vec<Unit> = self.ready.iter().map(|(unit, _)| *unit).collect();
        units.dedup();
        units
    }

    /// Whether a unit has patches.
    pub(crate) fn is_dirty(&self, unit: Unit) -> bool {
        self.units.contains_key(&unit)
    }

    /// The patches that may have changed these bytes of a unit.
    pub(crate) fn patches_of(&self, unit: Unit, range: Range<usize>) -> Vec<PatchId> {
        let own = self.units.get(&unit).into_iter().flatten();
        let may_meet = |index: &&usize| {
            let patch = self.patch(**index);
            match &patch.undo {
                Some(undo) => undo.meets_range(range.clone()),
                None => patch.words.is_empty() || meets_words(&patch.words, range.clone()),
            }
        };
        own.filter(may_meet).map(|index| self.id(*index)).collect()
    }

    /// Patches that have not been committed, of a unit.
    pub(crate) fn all_of(&self, unit: Unit) -> impl Iterator<Item = PatchId> {
        self.units.get(&unit).into_iter().flatten().map(|index| self.id(*index))
    }

    /// Makes a patch of no unit that is held: what waits for it waits until it is released.
    pub(crate) fn hold(&mut self) -> PatchId {
        let index = self.insert(None, Owner::default(), None, Vec::new());
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
            self.settle(vec![index]);
        }
    }

    /// Makes a patch of no unit that is committed when all of these are.
    pub(crate) fn stand_for(&mut self, after: &[PatchId]) -> PatchId {
        let held = self.hold();
        self.release(held, after);
        held
    }

    /// Lets a held patch, which nothing waits for, wait for more.
    pub(crate) fn add(&mut self, held: PatchId, more: &[PatchId]) {
        let Some(index) = self.find(held) else { return };
        let more: Vec<usize> = more.iter().filter_map(|id| self.find(*id)).collect();
        more.into_iter().for_each(|other| self.wait(index, other));
    }

    /// All patches that change something.
    pub(crate) fn all_with_units(&self) -> Vec<PatchId> {
        let all = self.patches.iter().enumerate();
        let with_units = |(index, patch): (usize, &Option<Patch>)| {
            patch.as_ref().filter(|it| !it.units.is_empty()).map(|_| self.id(index))
        };
        all.filter_map(with_units).collect()
    }

    /// Some patches that are not committed, and all that they wait for.
    pub(crate) fn closure(&self, roots: &[PatchId]) -> Closure {
        let mut left: Vec<usize> = roots.iter().filter_map(|id| self.find(*id)).collect();
        let mut closure = Closure::default();
        while let Some(index) = left.pop() {
            if closure.patches.insert(index) {
                let patch = self.patch(index);
                closure.units.extend(&patch.units);
                left.extend(&patch.waits);
            }
        }
        closure
    }

    /// Takes out of a closure what has been committed since, if no patch has been made since.
    pub(crate) fn drop_committed(&self, closure: &mut Closure) {
        closure.patches.retain(|index| self.patches[*index].is_some());
        let patches = &closure.patches;
        let waits = |unit: &Unit| {
            self.units.get(unit).is_some_and(|own| own.iter().any(|it| patches.contains(it)))
        };
        closure.units.retain(waits);
    }

    fn insert(
        &mut self,
        unit: Option<Unit>,
        owner: Owner,
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
        let (generation, dependents, wave) = (self.generation, Vec::new(), self.wave);
        let (units, is_held) = (Vec::new(), false);
        let words = Vec::new();
        let patch =
            Patch { generation, units, owner, is_held, undo, words, waits, dependents, wave };
        self.patches[index] = Some(patch);
        unit.into_iter().for_each(|unit| self.reach(index, unit));
        index
    }

    /// Lets a patch change one more unit.
    fn reach(&mut self, index: usize, unit: Unit) {
        let patch = self.patch_mut(index);
        patch.units.push(unit);
        if patch.waits.is_empty() {
            self.ready.insert((unit, index));
        }
        self.units.entry(unit).or_default().push(index);
    }

    fn wait(&mut self, index: usize, other: usize) {
        if index == other {
            return;
        }
        let waits = &mut self.patch_mut(index).waits;
        let Err(place) = waits.binary_search(&other) else { return };
        let was_ready = waits.is_empty();
        waits.insert(place, other);
        self.patch_mut(other).dependents.push(index);
        if was_ready {
            for unit in self.patch(index).units.clone() {
                self.ready.remove(&(unit, index));
            }
        }
    }

    /// The patches of a unit that wait for nothing.
    fn waiting_for_nothing(&self, unit: Unit) -> Vec<usize> {
        if self.study.has_ready_lists {
            let all = (unit, 0)..=(unit, usize::MAX);
            return self.ready.range(all).map(|(_, index)| *index).collect();
        }
        let own = self.units[&unit].iter().copied();
        own.filter(|it| self.patch(*it).waits.is_empty()).collect()
    }

    /// The patches of a unit that may be written now: what they wait for is committed, or is
    /// written with them.
    pub(crate) fn ready(&self, unit: Unit) -> Vec<usize> {
        let mut ready = self.waiting_for_nothing(unit);
        // What others of the unit still wait for, as far as they have been met here.
        let mut left: HashMap<usize, usize> = HashMap::new();
        let mut next = 0;
        while let Some(index) = ready.get(next).copied() {
            next += 1;
            if !self.patch(index).is_only_of(unit) {
                continue;
            }
            for other in self.patch(index).dependents.iter().copied() {
                let dependent = self.patch(other);
                if !dependent.is_only_of(unit) {
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

    /// Notes that these patches of units are durable there.
    pub(crate) fn commit(&mut self, written: &[(Unit, Vec<usize>)]) {
        self.wave += 1;
        let mut durable = Vec::new();
        let mut parts: HashMap<usize, HashSet<Unit>> = HashMap::new();
        for (unit, patches) in written {
            self.leave(*unit, patches);
            for index in patches {
                if self.patch(*index).is_only_of(*unit) {
                    durable.push(*index);
                } else {
                    parts.entry(*index).or_default().insert(*unit);
                }
            }
        }
        for (index, gone) in parts {
            let units = &mut self.patch_mut(index).units;
            units.retain(|unit| !gone.contains(unit));
            if units.is_empty() {
                durable.push(index);
            }
        }
        self.settle(durable);
    }

    /// Takes patches off the list of a unit.
    fn leave(&mut self, unit: Unit, patches: &[usize]) {
        let own = self.units.get_mut(&unit).expect("it had a patch");
        let gone: HashSet<usize> = patches.iter().copied().collect();
        own.retain(|index| !gone.contains(index));
        if own.is_empty() {
            self.units.remove(&unit);
        }
        for index in patches {
            self.ready.remove(&(unit, *index));
        }
    }

    /// Forgets patches that are durable, and with them those that only stood for them.
    fn settle(&mut self, durable: Vec<usize>) {
        let mut left = durable;
        while let Some(index) = left.pop() {
            let patch = self.patches[index].take().expect("a patch is committed once");
            self.vacant.push(index);
            self.count -= 1;
            if self.open.get(&patch.owner.0) == Some(&index) {
                self.open.remove(&patch.owner.0);
            }
            for other in patch.dependents {
                // One that was written with it may be gone already.
                let Some(dependent) = self.patches[other].as_mut() else { continue };
                if let Ok(place) = dependent.waits.binary_search(&index) {
                    dependent.waits.remove(place);
                }
                if !dependent.waits.is_empty() {
                    continue;
                }
                if dependent.units.is_empty() && !dependent.is_held {
                    left.push(other);
                }
                self.ready.extend(dependent.units.iter().map(|unit| (*unit, other)));
            }
        }
    }

    /// Bytes that are kept to take patches back.
    pub(crate) fn undo_bytes(&self) -> usize {
        let patches = self.patches.iter().flatten();
        patches.filter_map(|patch| patch.undo.as_ref()).map(Undo::bytes).sum()
    }

    /// Memory of the graph, in bytes: patches, what they wait for, and what takes them back.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of = |patch: &Patch| {
            let numbers = patch.waits.capacity() + patch.dependents.capacity();
            let places = patch.units.capacity() * size_of::<Unit>();
            let lists = patch.units.len() * (2 * size_of::<(Unit, usize)>() + size_of::<usize>());
            let undo = patch.undo.as_ref().map_or(0, Undo::memory_bytes);
            let numbers = numbers + patch.words.capacity();
            size_of::<Patch>() + numbers * size_of::<usize>() + places + lists + undo
        };
        self.patches.iter().flatten().map(of).sum()
    }

    /// Patches that wait, for a report of one that waits for ever.
    pub(crate) fn waiting(&self) -> String {
        let patches = self.patches.iter().enumerate();
        let waiting = patches.filter_map(|(index, patch)| {
            let patch = patch.as_ref()?;
            Some(format!("{index} of {:?} waits for {:?}", patch.units, patch.waits))
        });
        waiting.take(16).collect::<Vec<_>>().join("; ")
    }
}
