//! Checkpoints: what a power cut leaves where pages are written back in any order.
//!
//! There the live state may be torn after a power cut, and is not looked at. A checkpoint is a copy
//! of the slots at one moment. All pages that it reaches are held, as by a snapshot, so none of
//! them changes until the next one is durable. Its place is one of two in the header's page, each
//! in a sector of its own; the other one is still that of the checkpoint before.
//!
//! One word says for which run of the machine the live state is right: in that run the kernel's
//! cache has all stores, whatever became of the process. Where it is 0, the image has been closed,
//! and the live state is right everywhere.

use crate::error::ImageError;
use crate::layout::{INTENT, NUMBER_LIMIT, NUMBER_MAX, REDO, SLOTS, SPARE, SPARE_WORDS};
use crate::memory::Memory;
use crate::space::Space;
use crate::state::State;
use crate::state::scan::{NEVER, Pages};
use crate::state::sharing::Branch;
use marram_vfs::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Where the word is that says for which run of the machine the live state is right.
const LIVES_FOR: u64 = 528;
/// No run of the machine has this number.
const NO_RUN: u64 = u64::MAX;
/// Copies of a page of slots: one of the checkpoint, and one that is made while that is held.
const COPIES: u64 = 2;
/// No checkpoint has this sequence number, or a greater one.
const SEQUENCE_MAX: u64 = 1 << 63;
/// Words of a checkpoint in its place.
const WORDS: u64 = 4;
/// Where a checkpoint can be.
const PLACES: [u64; 2] = [1024, 1536];

/// A checkpoint, as it stands in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Of two, the greater one is newer.
    sequence: u64,
    /// The address of the first page of its slots.
    pub(crate) slots: u64,
    /// All numbers that were given away are below this one.
    number_limit: u64,
}

/// A checkpoint, and what it holds.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) at: Checkpoint,
    /// The pages of its slots.
    pub(crate) pages: Vec<u64>,
    /// The tops of its states.
    pub(crate) tops: Vec<Branch>,
}

impl Checkpoint {
    fn words(self) -> [u64; 4] {
        let words = [self.sequence, self.slots, self.number_limit];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let [sequence, slots, number_limit] = words;
        [xxh3_64(&bytes), sequence, slots, number_limit]
    }

    /// Where it stands.
    fn place(self) -> u64 {
        PLACES[(self.sequence % 2) as usize]
    }

    fn read(memory: &Memory, place: u64) -> Result<Option<Checkpoint>> {
        let word = |which: u64| memory.word(place + which * 8);
        let found = Checkpoint { sequence: word(1)?, slots: word(2)?, number_limit: word(3)? };
        let is_whole = found.words()[0] == word(0)? && found.place() == place;
        let is_sane = found.sequence < SEQUENCE_MAX && found.number_limit <= NUMBER_MAX;
        Ok((is_whole && is_sane).then_some(found))
    }

    /// The newest one.
    pub(crate) fn newest(memory: &Memory) -> Result<Option<Checkpoint>> {
        let [first, second] = PLACES.map(|place| Checkpoint::read(memory, place));
        Ok(first?.into_iter().chain(second?).max_by_key(|found| found.sequence))
    }
}

fn no_checkpoint() -> Error {
    Error::Damaged("it was not closed, and has no checkpoint".to_owned())
}

impl State {
    /// The checkpoint that has to stay, if there is one.
    pub(crate) fn kept_checkpoint(&self) -> Result<Option<Checkpoint>> {
        match self.memory.word(LIVES_FOR)? {
            0 => Ok(None),
            _ => Checkpoint::newest(&self.memory),
        }
    }

    /// Makes the words durable that a mount goes by. A process that was killed may have left them
    /// in the kernel's cache alone, and then the medium still needs the checkpoint before. The
    /// store makes a page dirty that a failed write-back has left as if it were clean.
    pub(crate) fn settle_words(&mut self) -> Result<()> {
        if self.memory.host().is_none() {
            return Ok(());
        }
        self.set_lives_for(self.memory.word(LIVES_FOR)?)?;
        self.memory.write_back()
    }

    /// Notes that what was stored could not be written back. The kernel takes such pages for clean,
    /// so the next mount goes back to the checkpoint, in this run of the machine too.
    pub(crate) fn fail_write_back(&mut self, error: &Error) {
        if self.memory.word(LIVES_FOR).is_ok_and(|word| word != 0) {
            let _fails_as_the_rest_did = self.set_lives_for(NO_RUN);
        }
        self.fail(error);
    }

    /// Whether the image has been closed: the live state is right everywhere.
    pub(crate) fn is_closed_on_medium(&self) -> Result<bool> {
        Ok(self.memory.word(LIVES_FOR)? == 0)
    }

    /// Whether the live state is right here and now.
    pub(crate) fn is_live(&self) -> Result<bool> {
        let lives_for = self.memory.word(LIVES_FOR)?;
        Ok(lives_for == 0 || self.memory.host() == Some(lives_for))
    }

    /// Goes back to the newest checkpoint. A crash meanwhile leaves the same to be done again.
    ///
    /// # Errors
    /// There is none, or it makes no sense.
    pub(crate) fn restore(&mut self) -> std::result::Result<(), ImageError> {
        let found = Checkpoint::newest(&self.memory)?.ok_or_else(no_checkpoint)?;
        let pages = self.hold_checkpoint(found)?.pages;
        // One page of slots has its place, and needs no other: then nothing has to be looked
        // through for one that is free.
        if pages.len() > 1 {
            self.space = self.scan_checkpoint(found)?;
        }
        // What was spare may be among the pages that are given away here.
        for word_at in (SPARE..).step_by(8).take(SPARE_WORDS) {
            if self.memory.word(word_at)? != 0 {
                self.memory.store(word_at, 8, 0)?;
            }
        }
        self.memory.persist();
        let mut next = 0;
        for (which, copy) in pages.iter().enumerate().rev() {
            let mut bytes = self.page(*copy)?;
            bytes[..8].copy_from_slice(&u64::to_le_bytes(next));
            next = if which == 0 { SLOTS } else { self.take_page()? };
            self.memory.fill(next, &bytes)?;
        }
        let limit = self.memory.word(NUMBER_LIMIT)?.max(found.number_limit);
        self.memory.store(NUMBER_LIMIT, 8, limit)?;
        self.memory.store(REDO, 1, 0)?;
        self.memory.store(INTENT, 1, 0)?;
        self.memory.persist();
        self.fresh.clear();
        self.memory.store(LIVES_FOR, 8, self.memory.host().unwrap_or(0))?;
        self.memory.persist();
        Ok(())
    }

    /// The pages of a checkpoint's slots, and the tops of its states.
    ///
    /// # Errors
    /// The slots make no sense.
    pub(crate) fn hold_checkpoint(&self, at: Checkpoint) -> Result<Held> {
        let (mut pages, mut tops) = (vec![self.page_address(at.slots)?], Vec::new());
        let slots = self.read_slots(at.slots, &mut |at| {
            let is_new = !pages.contains(&at);
            pages.push(self.page_address(at)?);
            if is_new { Ok(()) } else { Err(Error::Damaged("slots in a circle".to_owned())) }
        })?;
        for slot in slots.iter() {
            tops.extend(self.top(slot)?);
        }
        Ok(Held { at, pages, tops })
    }

    /// Which pages a checkpoint reaches.
    fn scan_checkpoint(&self, found: Checkpoint) -> Result<Space> {
        let mut pages = Pages::of(self, &NEVER);
        pages.hold(found)?;
        Ok(pages.into_space())
    }

    /// Says for which run of the machine the live state is right; 0 for all.
    pub(crate) fn set_lives_for(&mut self, lives_for: u64) -> Result<()> {
        self.memory.store(LIVES_FOR, 8, lives_for)?;
        self.memory.persist();
        Ok(())
    }

    /// Copies of so many pages of slots that there have to be room for.
    fn copies(&self, pages: u64) -> u64 {
        if self.memory.host().is_some() { COPIES * pages } else { 0 }
    }

    /// Pages that have to stay free, so that there can always be another checkpoint.
    pub(crate) fn kept_for_checkpoint(&self) -> u64 {
        let made = self.held.as_ref().map_or(0, |held| held.pages.len() as u64);
        self.copies(self.slots.pages()).saturating_sub(made)
    }

    /// Pages that have to stay free, so that a full image can be emptied too.
    pub(crate) fn kept_for_removals(&self) -> u64 {
        self.space.reserved() + self.kept_for_checkpoint()
    }

    /// A page for slots: it brings that a checkpoint needs more.
    pub(crate) fn take_slot_page(&mut self) -> Result<u64> {
        self.take_page_beside(self.copies(1))
    }

    /// Takes a checkpoint of this moment, and holds what it reaches; none if nothing was stored
    /// since the last one. It is none before it stands in its place.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; then there is none.
    pub(crate) fn begin_checkpoint(&mut self) -> Result<Option<Held>> {
        if self.checkpointed_at == Some(self.memory.tally().stored_bytes) {
            return Ok(None);
        }
        let last = Checkpoint::newest(&self.memory)?;
        let mut tops = Vec::new();
        for slot in self.slots.iter() {
            tops.extend(self.top(slot)?);
        }
        let pages = self.copy_slots()?;
        let number_limit = self.memory.word(NUMBER_LIMIT)?;
        let sequence = last.map_or(1, |last| last.sequence + 1);
        let slots = pages.first().copied().unwrap_or(0);
        tops.iter().for_each(|top| self.space.share(top.at));
        self.fresh.clear();
        self.memory.persist();
        self.checkpointed_at = Some(self.memory.tally().stored_bytes);
        Ok(Some(Held { at: Checkpoint { sequence, slots, number_limit }, pages, tops }))
    }

    /// Copies the pages of slots. Of those at the end that are as they were, the last checkpoint's
    /// copies serve again.
    fn copy_slots(&mut self) -> Result<Vec<u64>> {
        let (mut live, mut page) = (Vec::new(), SLOTS);
        while page != 0 {
            live.push(page);
            page = self.memory.word(page)?;
        }
        let last = self.held.as_ref().map_or(Vec::new(), |held| held.pages.clone());
        let (mut copies, mut next) = (Vec::new(), 0);
        let mut shared = Vec::new();
        for (which, page) in live.iter().enumerate().rev() {
            let mut bytes = self.page(*page)?;
            bytes[..8].copy_from_slice(&u64::to_le_bytes(next));
            let old = last.get(which).copied();
            let is_same =
                old.map(|old| self.page(old)).transpose()?.is_some_and(|old| old == bytes);
            next = match old.filter(|_| is_same) {
                Some(old) => {
                    shared.push(old);
                    old
                }
                None => {
                    let copy = self.take_page()?;
                    self.memory.fill(copy, &bytes)?;
                    copy
                }
            };
            copies.push(next);
        }
        shared.into_iter().for_each(|page| self.space.share(page));
        copies.reverse();
        Ok(copies)
    }

    /// Puts a checkpoint in its place. What it reaches is durable.
    pub(crate) fn place_checkpoint(&mut self, held: &Held) -> Result<()> {
        let place = held.at.place();
        for (which, word) in (0..).zip(held.at.words()) {
            self.memory.store(place + which * 8, 8, word)?;
        }
        self.memory.persist();
        // What others have stored meanwhile waits for the next one.
        self.checkpointed_at = self.checkpointed_at.map(|stored| stored + WORDS * 8);
        Ok(())
    }

    /// A checkpoint is durable: what the one before has held is let go.
    pub(crate) fn end_checkpoint(&mut self, held: Held) {
        let last = self.held.replace(held);
        self.drop_stale();
        if let Some(last) = last {
            self.release_held(last);
        }
    }

    /// Wipes the place of the checkpoint before the one that is held. What that reaches is free
    /// now: if the newer one could not be read one day, it would be taken for a state.
    pub(crate) fn drop_stale(&mut self) {
        let Some(held) = &self.held else { return };
        let stale = PLACES[((held.at.sequence + 1) % 2) as usize];
        if self.memory.store(stale, 8, 0).is_ok() {
            self.memory.persist();
            self.checkpointed_at = self.checkpointed_at.map(|stored| stored + 8);
        }
    }

    /// Lets go of what a checkpoint holds that is no more, or never came to be.
    pub(crate) fn release_held(&mut self, held: Held) {
        self.freed.extend(held.tops);
        self.release_freed();
        for page in held.pages {
            self.space.release(page);
        }
    }
}
