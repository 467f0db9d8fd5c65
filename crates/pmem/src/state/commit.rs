//! How an operation takes effect: by one store.
//!
//! An operation first stores to memory that nothing refers to, which is made durable. Then its
//! [`Plan`] is carried out. A plan that changes one word is one store. One that changes more is
//! written to the redo record, which one store opens: from then on it has happened, and is carried
//! out again at the next mount if it was not finished.

use crate::image::{CREATED_AT, LABEL_AT};
use crate::layout::{
    EntryWord, HEADER_CHECKED, INODE, INODES, INTENT, INTENT_SLOT, Intent, PAGE, REDO,
    REDO_WORDS_MAX, SLOT, SLOTS, SlotHead, SlotKind, decode_intent, encode_intent, field,
    slot_field,
};
use crate::memory::Memory;
use crate::state::{Node, State};
use marram_vfs::{Error, Result};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// The redo record is open.
const OPEN: u64 = 1;
/// Where a run of a redo record has its length, in the word with its address.
const RUN_SHIFT: u32 = 48;

/// A store that an operation consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edit {
    at: u64,
    width: u64,
    value: u64,
}

/// The stores that make an operation happen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Stores that nobody sees, but that have to wait for what they refer to.
    early: Vec<(u64, u64)>,
    edits: Vec<Edit>,
}

/// The new value of a word, and the one narrow store that makes it.
struct Change {
    word: u64,
    narrow: Option<Edit>,
}

impl Plan {
    /// The word at `at` gets `value`.
    pub(crate) fn edit(&mut self, at: u64, value: u64) {
        self.narrow(at, 8, value);
    }

    /// Some bytes inside a word get a value.
    pub(crate) fn narrow(&mut self, at: u64, width: u64, value: u64) {
        self.edits.push(Edit { at, width, value });
    }

    /// A store that changes nothing that is seen, once all before it is durable.
    pub(crate) fn early(&mut self, at: u64, value: u64) {
        self.early.push((at, value));
    }

    /// The words that change, and to what.
    fn changes(&self, memory: &Memory) -> Result<BTreeMap<u64, Change>> {
        let mut changes: BTreeMap<u64, Change> = BTreeMap::new();
        for edit in &self.edits {
            let at = edit.at & !7;
            let shift = (edit.at & 7) * 8;
            let mask = u64::MAX >> (64 - edit.width * 8) << shift;
            let patched = |word: u64| word & !mask | edit.value << shift & mask;
            match changes.get_mut(&at) {
                Some(change) => *change = Change { word: patched(change.word), narrow: None },
                None => {
                    let word = patched(memory.word(at)?);
                    let narrow = (edit.width < 8).then_some(*edit);
                    changes.insert(at, Change { word, narrow });
                }
            }
        }
        Ok(changes)
    }
}

/// A redo record: runs of words that follow each other.
fn record(changes: &BTreeMap<u64, Change>) -> Vec<u64> {
    let mut words: Vec<u64> = Vec::new();
    let (mut head, mut expected) = (0, u64::MAX);
    for (at, change) in changes {
        if *at != expected {
            head = words.len();
            words.push(*at);
        }
        words[head] += 1 << RUN_SHIFT;
        words.push(change.word);
        expected = at + 8;
    }
    words
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn opening(words: &[u64]) -> u64 {
    let checksum = xxh3_64(&bytes_of(words)) & 0xffff_ffff;
    OPEN | (words.len() as u64) << 16 | checksum << 32
}

impl State {
    /// Carries out a plan: afterwards the operation has happened, and is durable.
    ///
    /// # Errors
    /// Nothing has changed: the plan is too large for a redo record.
    pub(crate) fn commit(&mut self, plan: &Plan) -> Result<()> {
        self.commit_with_times(plan)?;
        self.memory.persist();
        Ok(())
    }

    /// As [`State::commit`], but durable with the end of the operation: nothing but times may be
    /// stored until then.
    pub(crate) fn commit_with_times(&mut self, plan: &Plan) -> Result<()> {
        let changes = plan.changes(&self.memory)?;
        let words = if changes.len() > 1 { record(&changes) } else { Vec::new() };
        if words.len() > REDO_WORDS_MAX {
            return Err(Error::NoSpace);
        }
        self.memory.persist();
        for (at, value) in &plan.early {
            self.memory.store(*at, 8, *value)?;
            self.memory.persist();
        }
        self.fresh.clear();
        if !words.is_empty() {
            self.memory.fill(REDO + 8, &bytes_of(&words))?;
            self.memory.persist();
            self.memory.store(REDO, 8, opening(&words))?;
            self.memory.persist();
        }
        for (at, change) in &changes {
            match change.narrow {
                Some(edit) => self.memory.store(edit.at, edit.width, edit.value)?,
                None => self.memory.store(*at, 8, change.word)?,
            }
        }
        if !words.is_empty() {
            self.memory.persist();
            self.memory.store(REDO, 1, 0)?;
        }
        Ok(())
    }

    /// Notes which entry decides whether a link count has changed. The note holds nothing up: it
    /// becomes durable before the operation happens.
    pub(crate) fn intend(&mut self, intent: Intent, links: u32, entry: u64) -> Result<()> {
        let slot = self.dataset.slot;
        if self.memory.word(INTENT_SLOT)? != slot {
            self.memory.store(INTENT_SLOT, 8, slot)?;
        }
        self.memory.store(INTENT, 8, encode_intent(intent, links, entry))
    }

    /// The link count is as intended.
    pub(crate) fn close_intent(&mut self) -> Result<()> {
        self.memory.persist();
        self.memory.store(INTENT, 1, 0)?;
        self.memory.persist();
        Ok(())
    }

    /// Finishes what a crash has left in the redo record. It stands before all else.
    pub(crate) fn settle_redo(&mut self) -> Result<()> {
        let Some(changes) = pending(&self.memory)? else { return Ok(()) };
        for (at, value) in changes {
            self.memory.store(at, 8, value)?;
        }
        self.memory.persist();
        self.memory.write_back()?;
        self.memory.store(REDO, 1, 0)?;
        self.memory.persist();
        Ok(())
    }

    /// Finishes what a crash has left of a change of a link count.
    pub(crate) fn settle_intent(&mut self) -> Result<()> {
        let bad = |what: &str| Error::Damaged(format!("the intent word {what}"));
        let word = self.memory.word(INTENT)?;
        let Some((intent, links, at)) = decode_intent(word).map_err(|()| bad("makes no sense"))?
        else {
            return Ok(());
        };
        self.page_address(at / PAGE * PAGE)?;
        let entry = EntryWord::decode(self.memory.word(at)?);
        let is_there = entry.live && entry.units != 0;
        if is_there == (intent == Intent::Made) {
            let mut node = self.intended(entry.ino)?;
            if entry.kind == 4 {
                let parent = self.memory.word(node.field(field::SIZE))?;
                node = self.intended(parent)?;
            }
            self.memory.store(node.field(field::LINKS), 4, u64::from(links))?;
            self.memory.persist();
            self.memory.write_back()?;
        }
        self.close_intent()
    }

    /// Whether a crash has left something half done.
    pub(crate) fn is_unsettled(&self) -> Result<bool> {
        Ok(self.memory.byte(REDO)? != 0 || self.memory.byte(INTENT)? != 0)
    }

    /// Where an inode lies that an intent is about, before a scan.
    fn intended(&self, ino: u64) -> Result<Node> {
        let slot = self.memory.word(INTENT_SLOT)?;
        let head = match slot.is_multiple_of(SLOT) && slot >= SLOTS {
            true => SlotHead::decode(self.memory.word(slot)?),
            false => None,
        };
        let Some(SlotHead::Used { kind: SlotKind::Dataset, .. }) = head else {
            return Err(Error::Damaged(format!("the intent is about the slot {slot:#x}")));
        };
        match self.page_at(self.memory.word(slot + slot_field::ROOT)?, ino / INODES)? {
            0 => Err(Error::Damaged(format!("the intent names inode {ino}, which has no place"))),
            page => Ok(Node { ino, at: page + ino % INODES * INODE }),
        }
    }
}

/// Whether a record can change a range: the label with its checksum, slots, and what they lead to.
fn is_for_records(at: u64, end: u64, bytes: u64) -> bool {
    let (label, checked) = (LABEL_AT as u64..CREATED_AT as u64, HEADER_CHECKED as u64);
    let is_label = label.contains(&at) && end <= label.end;
    is_label || (at, end) == (checked, checked + 8) || (at >= SLOTS && end <= bytes)
}

/// What an open redo record says; `None` if there is none.
///
/// # Errors
/// [`Error::Damaged`] if it makes no sense.
pub(crate) fn pending(memory: &Memory) -> Result<Option<Vec<(u64, u64)>>> {
    let bad = |what: &str| Error::Damaged(format!("the redo record {what}"));
    let word = memory.word(REDO)?;
    if word & 0xff == 0 {
        return Ok(None);
    }
    let count = (word >> 16 & 0xffff) as usize;
    if word & 0xff != OPEN || count > REDO_WORDS_MAX {
        return Err(bad("has a senseless first word"));
    }
    let words = (1..=count as u64).map(|at| memory.word(REDO + at * 8));
    let words: Vec<u64> = words.collect::<Result<_>>()?;
    if opening(&words) != word {
        return Err(bad("does not match its checksum"));
    }
    let mut changes = Vec::new();
    let mut rest = words.as_slice();
    while let [head, following @ ..] = rest {
        let (at, len) = (head & ((1 << RUN_SHIFT) - 1), (head >> RUN_SHIFT) as usize);
        if len == 0 || len > following.len() || !at.is_multiple_of(8) {
            return Err(bad("has a run that makes no sense"));
        }
        let (run, left) = following.split_at(len);
        if !is_for_records(at, at + len as u64 * 8, memory.bytes()) {
            return Err(bad(&format!("leads to {at:#x}")));
        }
        changes.extend((at..).step_by(8).zip(run.iter().copied()));
        rest = left;
    }
    Ok(Some(changes))
}
