//! Which pages are in use, and which ones several pointers lead to. Nothing of it is on media: a
//! scan finds it again.
//!
//! A page that an operation has freed is given away again only after that operation is durable.
//!
//! Before the scan has ended nothing is known of the pages that the image had: each of them is
//! taken for one that the states at the mount hold. Pointers that lead to them from elsewhere are
//! counted. Only pages that are said to be free on the medium are given away.

use crate::layout::{FIRST_PAGE, PAGE};
use crate::state::spare::{RUN_MAX, Run, Spare};
use foldhash::{HashMap, HashMapExt};
use marram_vfs::{Error, Result};

/// Of so many pages one is kept for what gives space back.
const RESERVED_SHARE: u64 = 32;
/// Most pages that are kept for that.
const RESERVED_MAX: u64 = 256;

/// The pages of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// One bit a page, set if it is in use; before the scan has ended, if it was given away since
    /// the mount.
    used: Vec<u64>,
    /// How many pointers lead to a page beside the first.
    shared: HashMap<u64, u32>,
    pages: u64,
    free: u64,
    /// Where the search for a free page goes on.
    next: u64,
    /// Pages that can be given away although the scan has not ended; none if it has.
    ready: Option<Vec<u64>>,
    /// Runs of free pages that are not given away, by their pages.
    spare: Vec<Spare>,
    /// How many pages these have.
    spare_pages: u64,
}

impl Space {
    /// All free but the pages at fixed places.
    pub(crate) fn new(pages: u64) -> Space {
        let used = vec![0; usize::try_from(pages.div_ceil(64)).unwrap_or(usize::MAX)];
        let shared = HashMap::new();
        let (next, ready, spare) = (FIRST_PAGE, None, Vec::new());
        let (free, spare_pages) = (pages, 0);
        let mut space = Space { used, shared, pages, free, next, ready, spare, spare_pages };
        for page in 0..FIRST_PAGE {
            space.mark(page * PAGE);
        }
        space
    }

    /// Nothing is known yet but some pages that are free.
    pub(crate) fn unknown(pages: u64, spare: Vec<Spare>) -> Space {
        let used = vec![0; usize::try_from(pages.div_ceil(64)).unwrap_or(usize::MAX)];
        let (shared, ready) = (HashMap::new(), Some(Vec::new()));
        let (free, next, spare_pages) = (0, FIRST_PAGE, 0);
        let mut space =
            Space { used, shared, pages, free, next, ready, spare: Vec::new(), spare_pages };
        space.set_spare(spare);
        space
    }

    /// Whether it is known which pages are free.
    pub(crate) fn is_known(&self) -> bool {
        self.ready.is_none()
    }

    /// Takes in what a scan has found of the pages that the image had.
    ///
    /// # Errors
    /// The number of a page that was said to be free, and is in use.
    pub(crate) fn learn(&mut self, found: Space, said: &[Run]) -> std::result::Result<(), u64> {
        let is_used = |page: &u64| found.is_used(page * PAGE);
        if let Some(page) = said.iter().flat_map(|run| run.first..run.end()).find(is_used) {
            return Err(page);
        }
        let given = std::mem::replace(&mut self.used, found.used);
        let shared = std::mem::replace(&mut self.shared, found.shared);
        self.free = found.free;
        for (known, given) in self.used.iter_mut().zip(given) {
            *known |= given;
            self.free -= u64::from(given.count_ones());
        }
        for (page, pointers) in shared {
            *self.shared.entry(page).or_insert(0) += pointers;
        }
        self.ready = None;
        Ok(())
    }

    /// The spare runs.
    pub(crate) fn spare(&self) -> &[Spare] {
        &self.spare
    }

    /// Sets the spare runs; returns those that were.
    pub(crate) fn set_spare(&mut self, spare: Vec<Spare>) -> Vec<Spare> {
        self.spare_pages = spare.iter().map(|spare| spare.run.count).sum();
        std::mem::replace(&mut self.spare, spare)
    }

    /// Takes the last spare run away.
    pub(crate) fn pop_spare(&mut self) -> Option<Spare> {
        let spare = self.spare.pop()?;
        self.spare_pages -= spare.run.count;
        Some(spare)
    }

    /// Puts what is left of the last spare run back.
    pub(crate) fn push_spare(&mut self, spare: Spare) {
        if spare.run.count > 0 {
            self.spare_pages += spare.run.count;
            self.spare.push(spare);
        }
    }

    /// Pages can be given away before the scan has ended.
    pub(crate) fn give(&mut self, run: Run) {
        if let Some(ready) = &mut self.ready {
            ready.extend((run.first..run.end()).rev());
        }
    }

    /// Whether there is a page beside `kept` ones that stay free, and the spare ones.
    pub(crate) fn has_room(&self, kept: u64) -> bool {
        match &self.ready {
            Some(ready) => !ready.is_empty(),
            None => self.free > kept && self.free - kept > self.spare_pages,
        }
    }

    /// The first page of those before `end` that are all in use, or all free.
    fn alike_before(&self, mut end: u64, is_used: bool) -> u64 {
        while end > FIRST_PAGE {
            let last = end - 1;
            let bits = self.used[(last / 64) as usize] << (63 - last % 64);
            let alike = if is_used { bits.leading_ones() } else { bits.leading_zeros() };
            let alike = u64::from(alike).min(last % 64 + 1);
            end -= alike;
            if alike <= last % 64 {
                break;
            }
        }
        end.max(FIRST_PAGE)
    }

    /// Runs of free pages, from the end of the image: together `wanted` pages at most, each of at
    /// least `shortest`.
    pub(crate) fn last_runs(&self, wanted: u64, shortest: u64, runs_max: usize) -> Vec<Run> {
        let (mut runs, mut left, mut end) = (Vec::new(), wanted, self.pages);
        while left > 0 && runs.len() < runs_max && end > FIRST_PAGE {
            let free_end = self.alike_before(end, true);
            let free_begin = self.alike_before(free_end, false);
            let count = (free_end - free_begin).min(RUN_MAX).min(left);
            end = free_end - count;
            if count == 0 {
                break;
            }
            if count >= shortest.min(left) {
                left -= count;
                runs.push(Run { first: end, count });
            } else {
                end = free_begin;
            }
        }
        runs
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
        debug_assert!(!self.is_known() || self.is_used(address), "{address:#x} is in use");
        *self.shared.entry(address / PAGE).or_insert(0) += 1;
    }

    /// Whether several pointers lead to a page, or could.
    pub(crate) fn is_shared(&self, address: u64) -> bool {
        let is_held = !self.is_known() && !self.is_used(address);
        is_held || self.shared.contains_key(&(address / PAGE))
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
        match &mut self.ready {
            Some(ready) => ready.push(address / PAGE),
            None => self.free += 1,
        }
        true
    }

    /// A free page, which is now in use; `kept` pages stay free, and the spare ones.
    pub(crate) fn take(&mut self, kept: u64) -> Result<u64> {
        if !self.has_room(kept) {
            return Err(Error::NoSpace);
        }
        if let Some(page) = self.ready.as_mut().and_then(Vec::pop) {
            self.used[(page / 64) as usize] |= 1 << (page % 64);
            return Ok(page * PAGE);
        }
        loop {
            if self.next >= self.pages {
                self.next = FIRST_PAGE;
            }
            let before = self.spare.partition_point(|spare| spare.run.first <= self.next);
            let end = before.checked_sub(1).map_or(0, |which| self.spare[which].run.end());
            if self.next < end {
                self.next = end;
                continue;
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

    /// How many pages behind the one at an address are known to be free, up to `most`.
    pub(crate) fn free_behind(&self, address: u64, most: u64) -> u64 {
        let first = address / PAGE + 1;
        let mut end = first;
        while self.is_known() && end < self.pages && end - first < most {
            let bits = self.used[(end / 64) as usize] >> (end % 64);
            let left = 64 - end % 64;
            let free = u64::from(bits.trailing_zeros()).min(left);
            end += free;
            if free < left {
                break;
            }
        }
        end.min(self.pages).min(first + most) - first
    }

    /// Whether the same pages are in use, and as many pointers lead to each.
    pub(crate) fn same_pages(&self, other: &Space) -> bool {
        self.used == other.used && self.free == other.free && self.shared == other.shared
    }
}

#[cfg(test)]
mod tests {
    use super::{Run, Space, Spare};
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

    #[test]
    fn free_pages_behind_another_are_counted() {
        let mut space = Space::new(300);
        for page in [100, 130, 199] {
            assert!(space.mark(page * PAGE));
        }
        let behind = |page: u64, most| space.free_behind(page * PAGE, most);
        assert_eq!([behind(100, 64), behind(130, 64), behind(198, 64)], [29, 64, 0]);
        assert_eq!([behind(131, 64), behind(199, 500), behind(299, 9)], [64, 100, 0]);
        assert_eq!(Space::unknown(300, Vec::new()).free_behind(100 * PAGE, 64), 0);
    }

    #[test]
    fn spare_pages_are_the_last_free_ones_and_are_not_given_away() {
        let mut space = Space::new(300);
        for page in [298, 200, 130] {
            assert!(space.mark(page * PAGE));
        }
        let run = |first, count| Run { first, count };
        assert_eq!(space.last_runs(3, 1, 9), [run(299, 1), run(296, 2)]);
        assert_eq!(space.last_runs(120, 64, 9), [run(201, 97), run(177, 23)]);
        assert_eq!(space.last_runs(500, 1, 2), [run(299, 1), run(201, 97)]);
        space.set_spare(vec![Spare { word_at: 0, run: run(201, 97) }]);
        let taken: Vec<u64> = std::iter::from_fn(|| space.take(0).ok()).collect();
        assert_eq!(taken.len() as u64, 300 - FIRST_PAGE - 3 - 97);
        assert!(taken.iter().all(|at| !(201..298).contains(&(at / PAGE))));
        space.set_spare(Vec::new());
        assert!(space.take(0).is_ok());
    }

    #[test]
    fn what_is_not_known_is_held_until_a_scan_has_ended() {
        let (old, run) = (9, Run { first: 100, count: 2 });
        let mut space = Space::unknown(300, Vec::new());
        assert_eq!(space.take(0), Err(Error::NoSpace));
        space.give(run);
        space.share(old * PAGE);
        let page = space.take(50).unwrap();
        assert!(space.is_shared(old * PAGE) && !space.is_shared(page));
        assert!(!space.release(old * PAGE) && space.is_shared(old * PAGE));
        let found = || {
            let mut found = Space::new(300);
            found.mark(old * PAGE);
            found
        };
        assert_eq!(space.clone().learn(found(), &[Run { first: 8, count: 3 }]), Err(old));
        assert_eq!(space.learn(found(), &[run]), Ok(()));
        assert!(space.is_known() && !space.is_shared(old * PAGE) && space.is_used(page));
        assert_eq!(space.free(), 300 - FIRST_PAGE - 2);
    }
}
