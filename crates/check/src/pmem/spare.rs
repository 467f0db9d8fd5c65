//! Pages that are said to be free: nothing may lead to them.

use super::memory::Checked;
use super::{Check, PAGE, Problem};
use crate::finding::FindingKind as Kind;
use xxhash_rust::xxh3::xxh3_64;

/// Where the words are, and how many.
const WORDS_AT: u64 = 2048;
const WORDS: usize = 256;

/// The first page of a run, and how many there are; none if the word says nothing.
fn run(word: u64) -> Option<(u64, u64)> {
    let (first, count) = (word & 0x7fff_ffff, word >> 31 & 0x1fff);
    let checked = xxh3_64(&[first.to_le_bytes(), count.to_le_bytes()].concat());
    (count > 0 && word >> 44 == checked & 0xf_ffff).then_some((first, count))
}

impl Check<'_, '_> {
    /// Looks whether a page that is said to be free is in use. All states have been looked at.
    pub(super) fn check_spare(&mut self) -> Checked<()> {
        for at in (WORDS_AT..).step_by(8).take(WORDS) {
            let Some((first, count)) = run(self.image.word(at)?) else { continue };
            if let Some(page) = (first..first + count).find(|page| self.pages.is_used(*page)) {
                let detail = format!("the page at {:#x} is said to be free", page * PAGE);
                self.tell(Problem::new(Kind::PageDouble, at, detail));
            }
        }
        Ok(())
    }
}
