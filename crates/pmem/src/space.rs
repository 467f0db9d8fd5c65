//! Which pages are in use, and which ones several pointers lead to. Nothing of it is on media: a
//! scan finds it again.
//!
//! A page that an operation has freed is given away again only after that operation is durable.

use crate::layout::{FIRST_PAGE, PAGE};
use marram_vfs::{Error, Result};
use std::collections::HashMap;

/// Of so many pages one is kept for what gives space back.
const RESERVED_SHARE: u64 = 32;
/// Most pages that are kept for that.
const RESERVED_MAX: u64 = 256;

/// The pages of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// One bit a page, set if it is in use.
    used: Vec<u64>,
    /// How many pointers lead to a page beside the first.
    shared: HashMap<u64, u32>,
    pages: u64,
    free: u64,
    /// Where the search for a free page goes on.
    next: u64,
}

impl Space {
    /// All free but the pages at fixed places.
    pub(crate) fn new(pages: u64) -> Space {
        let used = vec![0; usize::try_from(pages.div_ceil(64)).unwrap_or(usize::MAX)];
        let shared = HashMap::new();
        let mut space = Space { used, shared, pages, free: pages, next: FIRST_PAGE };
        for page in 0..FIRST_PAGE {
            space.mark(page * PAGE);
        }
        space
    }

    /// Pages in all.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Pages that are free.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Pages that are kept for what gives space back.
    pub(crate) fn reserved(&self) -> u64 {
        (self.pages / RESERVED_SHARE).min(RESERVED_MAX)
    }

    /// The bit of the page at an address, if there is such a page.
    fn bit(&self, address: u64) -> Option<(usize, u64)> {
        let page = address / PAGE;
        let is_page = address.is_multiple_of(PAGE) && page < self.pages;
        is_page.then_some(((page / 64) as usize, 1 << (page % 64)))
    }

    /// Whether the page at an address is in use.
    pub(crate) fn is_used(&self, address: u64) -> bool {
        self.bit(address).is_some_and(|(word, bit)| self.used[word] & bit != 0)
    }

    /// Marks the page at an address as in use; false if it is already, or is no page.
    pub(crate) fn mark(&mut self, address: u64) -> bool {
        let Some((word, bit)) = self.bit(address) else { return false };
        if self.used[word] & bit != 0 {
            return false;
        }
        self.used[word] |= bit;
        self.free -= 1;
        true
    }

    /// One more pointer leads to a page in use.
    pub(crate) fn share(&mut self, address: u64) {
        debug_assert!(self.is_used(address), "{address:#x} is in use");
        *self.shared.entry(address / PAGE).or_insert(0) += 1;
    }

    /// Whether several pointers lead to a page.
    pub(crate) fn is_shared(&self, address: u64) -> bool {
        self.shared.contains_key(&(address / PAGE))
    }

    /// Pointers that lead to a page in use.
    pub(crate) fn pointers(&self, address: u64) -> u32 {
        1 + self.shared.get(&(address / PAGE)).copied().unwrap_or(0)
    }

    /// One pointer less leads to the page at an address; whether it was the last, and the page is
    /// free.
    pub(crate) fn release(&mut self, address: u64) -> bool {
        if let Some(others) = self.shared.get_mut(&(address / PAGE)) {
            *others -= 1;
            if *others == 0 {
                self.shared.remove(&(address / PAGE));
            }
            return false;
        }
        let Some((word, bit)) = self.bit(address) else { return false };
        debug_assert!(self.used[word] & bit != 0, "{address:#x} is freed once");
        if self.used[word] & bit == 0 {
            return false;
        }
        self.used[word] &= !bit;
        self.free += 1;
        true
    }

    /// A free page, which is now in use; `kept` pages stay free.
    pub(crate) fn take(&mut self, kept: u64) -> Result<u64> {
        if self.free <= kept {
            return Err(Error::NoSpace);
        }
        loop {
            if self.next >= self.pages {
                self.next = FIRST_PAGE;
            }
            let word = self.used[(self.next / 64) as usize] >> (self.next % 64);
            if word & 1 == 0 {
                let address = self.next * PAGE;
                self.next += 1;
                self.mark(address);
                return Ok(address);
            }
            let ones = u64::from(word.trailing_ones());
            self.next = (self.next + ones).min((self.next / 64 + 1) * 64);
        }
    }

    /// Whether the same pages are in use, and as many pointers lead to each.
    pub(crate) fn same_pages(&self, other: &Space) -> bool {
        self.used == other.used && self.free == other.free && self.shared == other.shared
    }
}

#[cfg(test)]
mod tests {
    use super::Space;
    use crate::layout::{FIRST_PAGE, PAGE};
    use marram_vfs::Error;

    #[test]
    fn every_page_is_given_away_once() {
        let mut space = Space::new(300);
        let mut taken: Vec<u64> = (FIRST_PAGE..300).map(|_| space.take(0).unwrap()).collect();
        assert_eq!(space.take(0), Err(Error::NoSpace));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len() as u64, 300 - FIRST_PAGE);
        assert!(space.release(77 * PAGE));
        assert!(!space.mark(78 * PAGE) && !space.mark(300 * PAGE) && !space.mark(77 * PAGE + 8));
        assert_eq!((space.take(1), space.take(0)), (Err(Error::NoSpace), Ok(77 * PAGE)));
    }

    #[test]
    fn a_page_is_free_when_its_last_pointer_is_gone() {
        let mut space = Space::new(300);
        let page = space.take(0).unwrap();
        space.share(page);
        assert!(space.is_shared(page) && space.pointers(page) == 2);
        assert!(!space.release(page) && !space.is_shared(page));
        assert!(space.is_used(page) && space.release(page) && !space.is_used(page));
    }
}
