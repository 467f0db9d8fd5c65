//! What each page is used for. Several states can have a page, and then agree on it; in one state
//! one pointer leads to it.

use super::memory::{Checked, Problem};
use super::{FIRST_PAGE, PAGE};
use crate::finding::FindingKind as Kind;

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Slots.
    Slots,
    /// Inodes at the bottom, and pointers above; how high, and how many pointers count.
    Inodes(u64, u64),
    /// The same, with content, entries or attributes at the bottom.
    Bytes(u64, u64),
}

impl Use {
    /// A number that is never 0.
    fn code(self) -> u16 {
        let code = match self {
            Use::Slots => 3,
            Use::Inodes(height, pointers) => 1 | height << 2 | pointers << 5,
            Use::Bytes(height, pointers) => 2 | height << 2 | pointers << 5,
        };
        code as u16
    }
}

/// The pages of an image.
pub(super) struct Pages {
    /// Of each page, what a state uses it for; 0 if none does.
    uses: Vec<u16>,
    /// One bit a page: the state that is looked at has it.
    met: Vec<u64>,
}

impl Pages {
    pub(super) fn new(pages: u64) -> Pages {
        let (pages, words) = (pages as usize, pages.div_ceil(64) as usize);
        Pages { uses: vec![0; pages], met: vec![0; words] }
    }

    /// Goes on with another state.
    pub(super) fn begin_state(&mut self) {
        self.met.fill(0);
    }

    /// Whether a page is in use.
    pub(super) fn is_used(&self, page: u64) -> bool {
        self.uses.get(page as usize).is_some_and(|code| *code != 0)
    }

    /// How many pages are in use: such as lead to others, and such as do not.
    pub(super) fn used(&self) -> (u64, u64) {
        let content = Use::Bytes(0, 0).code();
        let used = |is_content: bool| {
            self.uses.iter().filter(|code| **code != 0 && (**code == content) == is_content).count()
        };
        (used(false) as u64, used(true) as u64)
    }

    /// Meets a page that the word at `from` leads to.
    pub(super) fn meet(&mut self, from: u64, at: u64, found: Use) -> Checked<()> {
        let page = at / PAGE;
        let is_page = at.is_multiple_of(PAGE) && page >= FIRST_PAGE;
        let Some(known) = self.uses.get_mut(page as usize).filter(|_| is_page) else {
            let detail = format!("a pointer to {at:#x}");
            return Err(Problem::new(Kind::PointerRange, from, detail));
        };
        let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
        let is_double = self.met[word] & bit != 0;
        if is_double || *known != 0 && *known != found.code() {
            let what = if is_double { "two pointers of one state lead" } else { "two uses lead" };
            let detail = format!("{what} to the page at {at:#x}");
            return Err(Problem::new(Kind::PageDouble, from, detail));
        }
        self.met[word] |= bit;
        *known = found.code();
        Ok(())
    }
}
