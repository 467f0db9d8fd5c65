//! Which pages are in use. Nothing of it is on media: a scan finds it again.
//!
//! A page that an operation has freed is given away again only after that operation is durable.

use crate::layout::{FIRST_PAGE, PAGE};
use marram_vfs::{Error, Result};

/// The pages of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// One bit a page, set if it is in use.
    used: Vec<u64>,
    pages: u64,
    free: u64,
    /// Where the search for a free page goes on.
    next: u64,
}

impl Space {
    /// All free but the pages at fixed places.
    pub(crate) fn new(pages: u64) -> Space {
        let used = vec![0; usize::try_from(pages.div_ceil(64)).unwrap_or(usize::MAX)];
        let mut space = Space { used, pages, free: pages, next: FIRST_PAGE };
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

    /// Marks the page at an address as in use; false if it is already, or is no page.
    pub(crate) fn mark(&mut self, address: u64) -> bool {
        let page = address / PAGE;
        if !address.is_multiple_of(PAGE) || page >= self.pages {
            return false;
        }
        let word = &mut self.used[(page / 64) as usize];
        let bit = 1 << (page % 64);
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.free -= 1;
        true
    }

    /// Gives back the page at an address.
    pub(crate) fn release(&mut self, address: u64) {
        let page = address / PAGE;
        let word = &mut self.used[(page / 64) as usize];
        let bit = 1 << (page % 64);
        debug_assert!(*word & bit != 0, "page {page} is freed once");
        if *word & bit != 0 {
            *word &= !bit;
            self.free += 1;
        }
    }

    /// A free page, which is now in use.
    pub(crate) fn take(&mut self) -> Result<u64> {
        if self.free == 0 {
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

    /// Whether the same pages are in use.
    pub(crate) fn same_pages(&self, other: &Space) -> bool {
        self.used == other.used && self.free == other.free
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
        let mut taken: Vec<u64> = (FIRST_PAGE..300).map(|_| space.take().unwrap()).collect();
        assert_eq!(space.take(), Err(Error::NoSpace));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len() as u64, 300 - FIRST_PAGE);
        space.release(77 * PAGE);
        assert!(!space.mark(78 * PAGE) && !space.mark(300 * PAGE) && !space.mark(77 * PAGE + 8));
        assert_eq!(space.take(), Ok(77 * PAGE));
    }
}
