//! The states of an image at its mount, looked through while operations go on.
//!
//! All pages that they reach are held, as by a snapshot: an operation that changes one of them
//! changes a copy. So they can be read without a lock, however long it takes. When all of them have
//! been met, what they hold is let go, as with a checkpoint that has been replaced.

use crate::layout::{NUMBER_LIMIT, NUMBER_MAX, PAGE, SLOTS, SlotKind, slot_field};
use crate::space::Space;
use crate::state::checkpoint::{Checkpoint, Held};
use crate::state::directory::Directory;
use crate::state::scan::{FoundDataset, Names, Pages};
use crate::state::sharing::{Branch, Leaves};
use crate::state::slots::Slots;
use crate::state::spare::{Run, read_spare};
use crate::state::tree::UNSIZED;
use crate::state::{Left, State};
use marram_vfs::{Error, Result};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

/// A dataset or snapshot as it was.
#[derive(Clone, Copy, Debug)]
struct FrozenSlot {
    number: u64,
    kind: SlotKind,
    root: u64,
}

impl FrozenSlot {
    fn top(&self) -> Result<Option<Branch>> {
        Branch::top(self.root, UNSIZED, Leaves::Inodes)
    }
}

/// All states at one moment.
pub(crate) struct Frozen {
    /// Reads what they reach.
    reader: State,
    /// The pages of the live slots.
    slot_pages: Vec<u64>,
    slots: Vec<FrozenSlot>,
    checkpoint: Option<Checkpoint>,
    /// Pages that were said to be free.
    said: Vec<Run>,
}

/// What is found of them.
pub(crate) struct Found {
    space: Space,
    /// What was held.
    tops: Vec<Branch>,
    checkpoint: Option<Held>,
    datasets: Vec<(FrozenSlot, FoundDataset)>,
    said: Vec<Run>,
}

impl State {
    /// Reads the slots, and their pages.
    pub(crate) fn all_slots(&self) -> Result<(Slots, Vec<u64>)> {
        let (mut pages, mut met) = (Vec::new(), BTreeSet::new());
        let slots = self.read_slots(SLOTS, &mut |at| {
            pages.push(self.page_address(at)?);
            match met.insert(at) {
                true => Ok(()),
                false => Err(Error::Damaged(format!("page {at:#x} is used twice"))),
            }
        })?;
        Ok((slots, pages))
    }

    /// Holds all states, with the checkpoint that has to stay, until they have been looked through.
    ///
    /// # Errors
    /// The slots make no sense.
    pub(crate) fn freeze(&mut self) -> Result<Frozen> {
        let (slots, slot_pages) = self.all_slots()?;
        self.next_number = self.memory.word(NUMBER_LIMIT)?;
        if self.next_number > NUMBER_MAX {
            let said = format!("the bound of numbers is {}", self.next_number);
            return Err(Error::Damaged(said));
        }
        if let Some(slot) = slots.iter().find(|slot| slot.number >= self.next_number) {
            let (number, bound) = (slot.number, self.next_number);
            let said = format!("a slot has the number {number}, and the bound is {bound}");
            return Err(Error::Damaged(said));
        }
        let checkpoint = self.kept_checkpoint()?;
        let spare = read_spare(&self.memory)?;
        let said = spare.iter().map(|spare| spare.run).collect();
        self.space = Space::unknown(self.memory.bytes() / PAGE, spare);
        let mut frozen = Vec::new();
        for slot in slots.iter() {
            let root = self.memory.word(slot.at + slot_field::ROOT)?;
            let slot = FrozenSlot { number: slot.number, kind: slot.kind, root };
            slot.top()?.iter().for_each(|top| self.space.share(top.at));
            frozen.push(slot);
        }
        self.slots = slots;
        self.held = checkpoint.map(|at| self.hold_checkpoint(at)).transpose()?;
        if let Some(held) = &self.held {
            let tops = held.tops.iter().map(|top| top.at);
            tops.chain(held.pages.iter().copied()).for_each(|at| self.space.share(at));
        }
        let reader = State::unscanned(self.memory.reader());
        Ok(Frozen { reader, slot_pages, slots: frozen, checkpoint, said })
    }

    /// Takes in what was found, and lets go of what was held for it. Inodes that a crash has left
    /// are known from then on.
    ///
    /// # Errors
    /// A page that was said to be free is in use.
    pub(crate) fn learn(&mut self, found: Found) -> Result<()> {
        self.space.learn(found.space, &found.said).map_err(|page| {
            Error::Damaged(format!("page {:#x} was said to be free, and is used", page * PAGE))
        })?;
        self.freed.extend(found.tops);
        self.release_freed();
        if let Some(held) = found.checkpoint {
            self.release_held(held);
        }
        for (slot, found) in found.datasets {
            if self.enter(slot.number).is_err() {
                continue;
            }
            // What has not changed since is as it was found.
            if self.memory.word(self.dataset.root_at())? == slot.root {
                self.dataset.inodes_used = Some(found.inodes_used);
                for (ino, entries) in found.directories {
                    let directories = &mut self.dataset.directories;
                    directories.entry(ino).or_insert_with(|| Directory::with(entries));
                }
            }
            self.dataset.left = Left { nameless: found.nameless, empty: found.empty };
        }
        Ok(())
    }

    /// Takes away what a crash has left and what waits for space, and keeps pages for the next
    /// mount.
    pub(crate) fn settle_in(&mut self) -> Result<()> {
        self.kept_free = self.kept_for_checkpoint();
        self.shed_left()?;
        self.drop_waiting();
        self.fill_spare()
    }
}

impl Frozen {
    /// Looks through all of it, or until `stop` says so.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the image makes no sense, and what of it.
    pub(crate) fn look(&self, stop: &AtomicBool) -> Result<Found> {
        let mut pages = Pages::of(&self.reader, stop);
        pages.slots(&self.slot_pages)?;
        let mut tops = Vec::new();
        for slot in &self.slots {
            if let Some(top) = slot.top()? {
                pages.below(top)?;
                tops.push(top);
            }
        }
        let checkpoint = self.checkpoint.map(|kept| pages.hold(kept)).transpose()?;
        let space = pages.into_space();
        let mut datasets = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.kind == SlotKind::Dataset) {
            datasets.push((*slot, Names::run(&self.reader, slot.root, stop)?));
        }
        Ok(Found { space, tops, checkpoint, datasets, said: self.said.clone() })
    }
}

/// What is under way of looking through the states at the mount.
pub(crate) enum Work {
    /// It has not begun.
    Todo(Box<Frozen>),
    /// It has ended, and is to be taken in.
    Done(Result<Box<Found>>),
    /// It was taken in.
    Taken,
}

impl Work {
    /// Looks, unless that has been done.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        if let Work::Todo(frozen) = self {
            *self = Work::Done(frozen.look(stop).map(Box::new));
        }
    }
}
