//! Datasets and snapshots: each has a slot with the root pointer of its inode table, so that a
//! snapshot, a clone and a rollback are one word, whatever the state holds.

use crate::layout::{
    NUMBER_LIMIT, NUMBER_MAX, PAGE, SLOT, SLOT_NAME_MAX, SlotHead, SlotKind, slot_field,
};
use crate::state::commit::Plan;
use crate::state::sharing::{Branch, Leaves};
use crate::state::tree::UNSIZED;
use crate::state::{Dataset, State};
use foldhash::{HashMap, HashMapExt};
use marram_vfs::{Error, Ino, Result, Timestamp};
use std::collections::BTreeMap;

/// The dataset that every image has.
pub(crate) const ROOT_NAME: &str = "root";
/// Numbers that are promised by one store.
const NUMBERS_PROMISED: u64 = 4096;
/// Slots in a page; the first has the address of the next page.
const SLOTS_IN_PAGE: u64 = PAGE / SLOT;
/// Most datasets and snapshots that go together.
const GONE_MAX: usize = 300;

/// A dataset, or a snapshot of it, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which<'a> {
    /// The dataset.
    pub dataset: &'a str,
    /// Its snapshot; `None` for the dataset as it is now.
    pub snapshot: Option<&'a str>,
}

/// A slot in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Its address.
    pub(crate) at: u64,
    /// What it holds.
    pub(crate) kind: SlotKind,
    /// The number of that.
    pub(crate) number: u64,
    /// The dataset of a snapshot; the snapshot that a dataset began as; 0 for none.
    pub(crate) of: u64,
    /// When it was made, in seconds since 1970.
    pub(crate) created: i64,
    /// Its name.
    pub(crate) name: String,
}

impl Slot {
    /// What no other slot shares with it.
    fn key(&self) -> (u64, String) {
        let dataset = if self.kind == SlotKind::Snapshot { self.of } else { 0 };
        (dataset, self.name.clone())
    }
}

/// The slots of an image.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    by_number: BTreeMap<u64, Slot>,
    by_name: HashMap<(u64, String), u64>,
    /// Addresses of slots that are free.
    free: Vec<u64>,
    /// The address of the first slot that was never used, or of the end of the last page.
    end: u64,
    /// How many pages they lie in, the first one too.
    pages: u64,
}

impl Slots {
    /// What has a number.
    pub(crate) fn get(&self, number: u64) -> Option<&Slot> {
        self.by_number.get(&number)
    }

    /// All, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Slot> {
        self.by_number.values()
    }

    /// How many pages they lie in, whether there is something in all of them or not.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    fn named(&self, dataset: u64, name: &str) -> Option<&Slot> {
        self.by_name.get(&(dataset, name.to_owned())).and_then(|number| self.get(*number))
    }

    /// A dataset or snapshot by its name.
    pub(crate) fn find(&self, which: Which<'_>) -> Result<&Slot> {
        let dataset = self.named(0, which.dataset).ok_or(Error::NotFound)?;
        match which.snapshot {
            None => Ok(dataset),
            Some(name) => self.named(dataset.number, name).ok_or(Error::NotFound),
        }
    }

    /// The snapshots of a dataset.
    pub(crate) fn snapshots_of(&self, dataset: u64) -> impl Iterator<Item = &Slot> {
        let is_of = move |slot: &&Slot| slot.kind == SlotKind::Snapshot && slot.of == dataset;
        self.iter().filter(is_of)
    }

    fn add(&mut self, slot: Slot) -> bool {
        let is_new = self.by_name.insert(slot.key(), slot.number).is_none();
        is_new & self.by_number.insert(slot.number, slot).is_none()
    }

    fn remove(&mut self, number: u64) {
        if let Some(slot) = self.by_number.remove(&number) {
            self.by_name.remove(&slot.key());
            self.free.push(slot.at);
        }
    }
}

fn damaged(at: u64, what: &str) -> Error {
    Error::Damaged(format!("the slot at {at:#x} {what}"))
}

/// Refuses what cannot be a name.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.contains(['@', '\0']) {
        return Err(Error::InvalidArgument("name of a dataset or snapshot"));
    }
    if name.len() > SLOT_NAME_MAX { Err(Error::NameTooLong) } else { Ok(()) }
}

/// What a new slot gets.
struct NewSlot<'n> {
    kind: SlotKind,
    of: u64,
    root: u64,
    name: &'n str,
}

impl State {
    /// Reads all slots from a page on, and hands out the other pages in which they lie.
    ///
    /// # Errors
    /// They make no sense.
    pub(crate) fn read_slots(
        &self,
        first: u64,
        meet_page: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Slots> {
        let mut slots = Slots::default();
        let mut page = first;
        loop {
            slots.end = page + PAGE;
            slots.pages += 1;
            for at in (1..SLOTS_IN_PAGE).map(|which| page + which * SLOT) {
                let head = SlotHead::decode(self.memory.word(at)?);
                match head.ok_or_else(|| damaged(at, "makes no sense"))? {
                    SlotHead::End => {
                        slots.end = at;
                        break;
                    }
                    SlotHead::Free => slots.free.push(at),
                    SlotHead::Used { kind, name_len } => {
                        let slot = self.read_slot(at, kind, name_len)?;
                        if !slots.add(slot) {
                            return Err(damaged(at, "has the name or number of another"));
                        }
                    }
                }
            }
            let next = self.memory.word(page)?;
            if next == 0 {
                break;
            }
            meet_page(next)?;
            page = next;
        }
        for slot in slots.iter().filter(|slot| slot.kind == SlotKind::Snapshot) {
            if slots.get(slot.of).is_none_or(|of| of.kind != SlotKind::Dataset) {
                return Err(damaged(slot.at, "is a snapshot of nothing"));
            }
        }
        if slots.named(0, ROOT_NAME).is_none() {
            return Err(Error::Damaged("there is no root dataset".to_owned()));
        }
        Ok(slots)
    }

    fn read_slot(&self, at: u64, kind: SlotKind, name_len: usize) -> Result<Slot> {
        let mut name = vec![0; name_len];
        self.memory.read(at + slot_field::NAME, &mut name)?;
        let name =
            String::from_utf8(name).map_err(|_| damaged(at, "has a name that is no text"))?;
        let word = |field: u64| self.memory.word(at + field);
        if word(slot_field::DIRECTORY)? != Ino::ROOT.0 {
            return Err(damaged(at, "has another root directory"));
        }
        let (number, of) = (word(slot_field::NUMBER)?, word(slot_field::OF)?);
        if number == 0 || number > NUMBER_MAX {
            return Err(damaged(at, "has no number"));
        }
        Ok(Slot { at, kind, number, of, created: word(slot_field::CREATED)? as i64, name })
    }

    /// Promises numbers up to an end, if they are not promised yet.
    pub(crate) fn promise(&mut self, end: u64) -> Result<()> {
        if end > NUMBER_MAX {
            return Err(Error::NoSpace);
        }
        if end > self.memory.word(NUMBER_LIMIT)? {
            let limit = NUMBER_MAX.min(end + NUMBERS_PROMISED);
            self.memory.store(NUMBER_LIMIT, 8, limit)?;
            self.memory.persist();
        }
        Ok(())
    }

    /// Gives back the numbers that were promised and not given away. No inode is made any more.
    pub(crate) fn give_back_numbers(&mut self) -> Result<()> {
        let all = self.others.values().chain([&self.dataset]).map(|dataset| &dataset.numbers);
        let last = all.filter(|numbers| numbers.end == self.next_number && !numbers.is_empty());
        let limit = last.map(|numbers| numbers.start).min().unwrap_or(self.next_number);
        self.memory.store(NUMBER_LIMIT, 8, limit)?;
        self.memory.persist();
        self.next_number = NUMBER_MAX;
        self.dataset.numbers = 0..0;
        self.others.values_mut().for_each(|other| other.numbers = 0..0);
        Ok(())
    }

    /// A slot that is not in use; one of a new page if there is no other.
    fn free_slot(&mut self) -> Result<u64> {
        if let Some(at) = self.slots.free.last() {
            return Ok(*at);
        }
        if !self.slots.end.is_multiple_of(PAGE) {
            return Ok(self.slots.end);
        }
        let last = self.slots.end - PAGE;
        let page = self.apart(|state| {
            let page = state.take_slot_page()?;
            state.memory.store(page, 8, 0)?;
            state.memory.store(page + SLOT, 8, 0)?;
            state.memory.persist();
            state.memory.store(last, 8, page)?;
            state.memory.persist();
            Ok(page)
        })?;
        self.slots.end = page + SLOT;
        self.slots.pages += 1;
        Ok(self.slots.end)
    }

    /// Writes a slot that is not there yet, and plans the store that makes it be there.
    fn plan_slot(&mut self, new: &NewSlot<'_>, now: Timestamp, plan: &mut Plan) -> Result<Slot> {
        let (number, at) = (self.next_number, self.free_slot()?);
        self.promise(number + 1)?;
        let words =
            [new.root, number, new.of, now.seconds as u64, Ino::ROOT.0].map(u64::to_le_bytes);
        self.memory.fill(at + slot_field::ROOT, &words.concat())?;
        self.memory.fill(at + slot_field::NAME, new.name.as_bytes())?;
        let next = at + SLOT;
        if at == self.slots.end && !next.is_multiple_of(PAGE) {
            self.memory.store(next, 1, 0)?;
        }
        let head = SlotHead::Used { kind: new.kind, name_len: new.name.len() };
        plan.edit(at + slot_field::HEAD, head.encode());
        let name = new.name.to_owned();
        Ok(Slot { at, kind: new.kind, number, of: new.of, created: now.seconds, name })
    }

    /// A slot that was planned is there.
    fn note_slot(&mut self, slot: Slot) {
        self.next_number += 1;
        if self.slots.free.last() == Some(&slot.at) {
            self.slots.free.pop();
        } else {
            self.slots.end = slot.at + SLOT;
        }
        self.slots.add(slot);
    }

    /// The page at the top of a state.
    pub(crate) fn top(&self, slot: &Slot) -> Result<Option<Branch>> {
        let root = self.memory.word(slot.at + slot_field::ROOT)?;
        Branch::top(root, UNSIZED, Leaves::Inodes)
    }

    /// One more pointer leads to the top of a state.
    fn share_top(&mut self, slot: &Slot) -> Result<()> {
        if let Some(top) = self.top(slot)? {
            self.space.share(top.at);
        }
        Ok(())
    }

    fn keep_as(&mut self, from: &Slot, new: NewSlot<'_>, now: Timestamp) -> Result<()> {
        let mut plan = Plan::default();
        let slot = self.plan_slot(&new, now, &mut plan)?;
        self.commit(&plan)?;
        self.note_slot(slot);
        self.share_top(from)
    }

    /// Keeps the present state of a dataset.
    pub(crate) fn snapshot(&mut self, dataset: &str, name: &str, now: Timestamp) -> Result<()> {
        check_name(name)?;
        let from = self.slots.find(Which { dataset, snapshot: None })?.clone();
        if self.slots.named(from.number, name).is_some() {
            return Err(Error::Exists);
        }
        let root = self.memory.word(from.at + slot_field::ROOT)?;
        let new = NewSlot { kind: SlotKind::Snapshot, of: from.number, root, name };
        self.keep_as(&from, new, now)
    }

    /// Makes a dataset that begins as a snapshot.
    pub(crate) fn clone_of(&mut self, from: Which<'_>, name: &str, now: Timestamp) -> Result<()> {
        check_name(name)?;
        let from = self.slots.find(from)?.clone();
        if from.kind != SlotKind::Snapshot {
            return Err(Error::InvalidArgument("a clone begins as a snapshot"));
        }
        if self.slots.named(0, name).is_some() {
            return Err(Error::Exists);
        }
        let root = self.memory.word(from.at + slot_field::ROOT)?;
        let new = NewSlot { kind: SlotKind::Dataset, of: from.number, root, name };
        self.keep_as(&from, new, now)
    }

    /// Lets a dataset go on from a snapshot of it; what it was is kept as another one.
    pub(crate) fn roll_back(
        &mut self,
        dataset: &str,
        (snapshot, keep): (&str, &str),
        now: Timestamp,
    ) -> Result<()> {
        check_name(keep)?;
        let live = self.slots.find(Which { dataset, snapshot: None })?.clone();
        let to = self.slots.find(Which { dataset, snapshot: Some(snapshot) })?.clone();
        if self.slots.named(live.number, keep).is_some() {
            return Err(Error::Exists);
        }
        let mut plan = Plan::default();
        let root = self.memory.word(live.at + slot_field::ROOT)?;
        let new = NewSlot { kind: SlotKind::Snapshot, of: live.number, root, name: keep };
        let kept = self.plan_slot(&new, now, &mut plan)?;
        let back = self.memory.word(to.at + slot_field::ROOT)?;
        plan.edit(live.at + slot_field::ROOT, back);
        self.commit(&plan)?;
        self.note_slot(kept);
        self.share_top(&to)?;
        self.enter(live.number)?;
        self.content_counts.drop_all(live.number);
        let mut before = std::mem::take(&mut self.dataset);
        self.forgotten.push(std::mem::take(&mut before.directories).into_iter());
        let (inodes_used, directories) = (None, HashMap::new());
        self.dataset = Dataset { inodes_used, directories, has_left: true, ..before };
        Ok(())
    }

    /// All that goes with some: the snapshots of a dataset go with it.
    pub(crate) fn going(&self, named: &[Which<'_>]) -> Result<Vec<Slot>> {
        let mut going: BTreeMap<u64, Slot> = BTreeMap::new();
        for which in named {
            let slot = self.slots.find(*which)?;
            if slot.kind == SlotKind::Dataset {
                if slot.name == ROOT_NAME {
                    return Err(Error::InvalidArgument("the root dataset stays"));
                }
                let snapshots = self.slots.snapshots_of(slot.number);
                going.extend(snapshots.map(|slot| (slot.number, slot.clone())));
            }
            going.insert(slot.number, slot.clone());
        }
        Ok(going.into_values().collect())
    }

    /// Destroys datasets and snapshots, all at once.
    pub(crate) fn destroy(&mut self, going: &[Slot]) -> Result<()> {
        if going.len() > GONE_MAX {
            return Err(Error::InvalidArgument("at most 300 can be destroyed together"));
        }
        let mut plan = Plan::default();
        let mut tops = Vec::new();
        for slot in going {
            plan.edit(slot.at + slot_field::HEAD, SlotHead::Free.encode());
            tops.extend(self.top(slot)?);
        }
        self.commit(&plan)?;
        self.freed.extend(tops);
        for slot in going {
            self.slots.remove(slot.number);
            self.others.remove(&slot.number);
            self.content_counts.drop_all(slot.number);
        }
        Ok(())
    }

    /// How many pages would be free if these were gone.
    pub(crate) fn would_free(&self, going: &[Slot]) -> Result<u64> {
        let mut left = Vec::new();
        for slot in going {
            left.extend(self.top(slot)?);
        }
        let (mut released, mut pages) = (HashMap::new(), 0);
        while let Some(branch) = left.pop() {
            let gone: &mut u32 = released.entry(branch.at).or_insert(0);
            *gone += 1;
            if *gone == self.space.pointers(branch.at) {
                pages += 1;
                left.extend(self.children(&branch)?);
            }
        }
        Ok(pages)
    }

    /// How many pages a state has, shared ones too. `known` keeps those of shared parts from one
    /// state to the next.
    pub(crate) fn pages_of(&self, slot: &Slot, known: &mut HashMap<u64, u64>) -> Result<u64> {
        self.top(slot)?.map_or(Ok(0), |top| self.pages_below(&top, known))
    }

    fn pages_below(&self, branch: &Branch, known: &mut HashMap<u64, u64>) -> Result<u64> {
        if let Some(pages) = known.get(&branch.at) {
            return Ok(*pages);
        }
        let mut pages = 1;
        for child in self.children(branch)? {
            pages += self.pages_below(&child, known)?;
        }
        if self.space.is_shared(branch.at) {
            known.insert(branch.at, pages);
        }
        Ok(pages)
    }
}
