//! Pages that are free, and are said to be so on the medium: what a mount gives away before it
//! knows which others are free.
//!
//! They stand in words of the header's page, a run of pages in each. As long as a run stands there
//! its pages are not given away, so it is right whenever the image is left. A word is changed
//! before its pages are used, and durable before anything leads to them.

use crate::layout::{FIRST_PAGE, PAGE, SPARE, SPARE_WORDS};
use crate::memory::Memory;
use crate::state::State;
use marram_vfs::Result;
use xxhash_rust::xxh3::xxh3_64;

/// Of so many pages one is kept.
const SPARE_SHARE: u64 = 32;
/// Of so many free pages one is kept at most.
const FREE_SHARE: u64 = 4;
/// Most pages that are kept.
const SPARE_MAX: u64 = 1 << 16;
/// Pages that are given away by one store of a word.
const GIVEN_AT_ONCE: u64 = 32;
/// Shorter runs are kept only if there are no longer ones.
const LONG_RUN: u64 = 64;
/// Most pages of a run.
pub(crate) const RUN_MAX: u64 = (1 << 13) - 1;
/// Where a word has the length of its run, and where a checksum.
const COUNT_SHIFT: u32 = 31;
const CHECK_SHIFT: u32 = 44;

/// Pages that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The number of the first.
    pub(crate) first: u64,
    /// How many.
    pub(crate) count: u64,
}

impl Run {
    /// The page behind it.
    pub(crate) fn end(self) -> u64 {
        self.first + self.count
    }

    /// The word; 0 for no pages.
    fn encode(self) -> u64 {
        let Run { first, count } = self;
        let bytes = [first.to_le_bytes(), count.to_le_bytes()].concat();
        let word = first | count << COUNT_SHIFT | xxh3_64(&bytes) << CHECK_SHIFT;
        if count == 0 { 0 } else { word }
    }

    /// Takes a word apart; `None` if it is none.
    fn decode(word: u64) -> Option<Run> {
        let first = word & ((1 << COUNT_SHIFT) - 1);
        let run = Run { first, count: word >> COUNT_SHIFT & RUN_MAX };
        (run.count > 0 && run.encode() == word).then_some(run)
    }
}

/// A run, and the address of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spare {
    pub(crate) word_at: u64,
    pub(crate) run: Run,
}

/// The runs that stand in an image, by their pages. None of two that have a page in common is
/// right: a crash cannot leave them.
pub(crate) fn read_spare(memory: &Memory) -> Result<Vec<Spare>> {
    let mut found: Vec<Spare> = Vec::new();
    for word_at in (SPARE..).step_by(8).take(SPARE_WORDS) {
        let run = Run::decode(memory.word(word_at)?);
        let is_inside = |run: &Run| run.first >= FIRST_PAGE && run.end() <= memory.bytes() / PAGE;
        found.extend(run.filter(is_inside).map(|run| Spare { word_at, run }));
    }
    found.sort_by_key(|spare| spare.run.first);
    let meet = |one: &Spare, other: &Spare| {
        one.word_at != other.word_at
            && one.run.first < other.run.end()
            && other.run.first < one.run.end()
    };
    let is_apart = |spare: &Spare| !found.iter().any(|other| meet(spare, other));
    Ok(found.iter().filter(|spare| is_apart(spare)).copied().collect())
}

impl State {
    /// Makes room for a page, if only spare ones are left. `kept` pages stay free.
    pub(crate) fn use_spare(&mut self, kept: u64) -> Result<()> {
        if self.space.has_room(kept) {
            return Ok(());
        }
        if self.space.is_known() {
            return self.drop_spare();
        }
        if let Some(Spare { word_at, run }) = self.space.pop_spare() {
            let given = run.count.min(GIVEN_AT_ONCE);
            let left = Run { count: run.count - given, ..run };
            self.memory.store(word_at, 8, left.encode())?;
            self.space.give(Run { first: left.end(), count: given });
            self.space.push_spare(Spare { word_at, run: left });
        }
        Ok(())
    }

    /// No page is kept any more.
    pub(crate) fn drop_spare(&mut self) -> Result<()> {
        if self.space.spare().is_empty() {
            return Ok(());
        }
        for spare in self.space.set_spare(Vec::new()) {
            self.memory.store(spare.word_at, 8, 0)?;
        }
        self.memory.persist();
        Ok(())
    }

    /// Keeps pages for the next mount, as many as can be spared.
    pub(crate) fn fill_spare(&mut self) -> Result<()> {
        let pages = self.space.pages() / SPARE_SHARE;
        let free = self.space.free().saturating_sub(self.kept_for_removals());
        let wanted = pages.min(SPARE_MAX).min(free / FREE_SHARE);
        let mut runs = self.space.last_runs(wanted, LONG_RUN, SPARE_WORDS);
        if runs.iter().map(|run| run.count).sum::<u64>() < wanted {
            runs = self.space.last_runs(wanted, 1, SPARE_WORDS);
        }
        let words = (SPARE..).step_by(8).take(SPARE_WORDS);
        let mut spare: Vec<Spare> =
            words.clone().zip(&runs).map(|(word_at, run)| Spare { word_at, run: *run }).collect();
        let encoded = runs.iter().map(|run| run.encode()).chain(std::iter::repeat(0));
        let mut changed = Vec::new();
        for (word_at, word) in words.zip(encoded) {
            let before = self.memory.word(word_at)?;
            if before != word {
                changed.push((word_at, before, word));
            }
        }
        // An old run and a new one that have pages in common never stand there together: what is
        // left of one when the other has been given away would be wrong.
        let mut stored = 0;
        for (word_at, _, _) in changed.iter().filter(|(_, before, _)| *before != 0) {
            self.memory.store(*word_at, 8, 0)?;
            stored += 8;
        }
        self.memory.persist();
        for (word_at, _, word) in changed.iter().filter(|(_, _, word)| *word != 0) {
            self.memory.store(*word_at, 8, *word)?;
            stored += 8;
        }
        self.memory.persist();
        // It changes no state: no checkpoint is due for it.
        self.checkpointed_at = self.checkpointed_at.map(|before| before + stored);
        spare.sort_by_key(|spare| spare.run.first);
        self.space.set_spare(spare);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{RUN_MAX, Run};

    /// The example of the specification is what the code makes.
    #[test]
    fn the_specification_has_these_bytes() {
        let text = include_str!("../../../../docs/format-pmem.md");
        let word = Run { first: 160, count: 96 }.encode().to_le_bytes();
        let bytes = word.map(|byte| format!("{byte:02x}")).join(" ");
        assert!(text.contains(&format!("`{bytes}`")), "{bytes}");
    }

    #[test]
    fn a_run_comes_back_and_other_words_are_none() {
        for run in [Run { first: 4, count: 1 }, Run { first: (1 << 31) - 1, count: RUN_MAX }] {
            let word = run.encode();
            assert_eq!(Run::decode(word), Some(run));
            assert!((0..64).all(|bit| Run::decode(word ^ 1 << bit).is_none()));
        }
        assert_eq!((Run { first: 9, count: 0 }.encode(), Run::decode(0)), (0, None));
    }
}
