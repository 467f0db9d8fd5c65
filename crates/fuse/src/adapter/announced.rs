//! Announcements of callers, until the call comes that performs them; see `protocol::file_calls`
//! for why there are two calls.
//!
//! A caller that can open a file can announce something for it, and never perform it: so only so
//! many announcements are remembered, the oldest go first, and a call that finds its own gone does
//! no harm.

use crate::protocol::PREPARED_BYTES_MIN;
use marram_vfs::{Allocate, Error, Ino};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Most announcements that are remembered.
const ANNOUNCEMENTS_MAX: usize = 256;
/// Lengths that are handed out before they repeat.
const LENGTHS: u64 = 1 << 40;

/// An allocation to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allocation {
    pub(super) how: Allocate,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// A range of a file.
type Range = (u64, u64);

enum Announcement {
    /// Done by zeroing so many bytes.
    Allocation { zeroed: u64, allocation: Allocation },
    /// Done by copying into the range.
    Share(Range),
}

/// Announcements, the oldest first.
#[derive(Default)]
pub(super) struct Announced {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<(Ino, Announcement)>,
    count: u64,
}

impl Queue {
    fn push(&mut self, ino: Ino, announcement: Announcement) {
        if self.entries.len() == ANNOUNCEMENTS_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back((ino, announcement));
    }

    fn take(&mut self, wanted: impl Fn(&(Ino, Announcement)) -> bool) -> Option<Announcement> {
        let at = self.entries.iter().position(wanted)?;
        self.entries.remove(at).map(|(_, announcement)| announcement)
    }
}

impl Announced {
    /// Remembers an allocation; returns how many bytes to zero for it.
    pub(super) fn add_allocation(&self, ino: Ino, allocation: Allocation) -> u64 {
        let mut queue = self.queue.lock();
        queue.count += 1;
        let zeroed = PREPARED_BYTES_MIN + 1 + queue.count % LENGTHS;
        queue.push(ino, Announcement::Allocation { zeroed, allocation });
        zeroed
    }

    /// Remembers that what is copied into a range is to be shared.
    pub(super) fn add_share(&self, ino: Ino, range: Range) {
        self.queue.lock().push(ino, Announcement::Share(range));
    }

    /// The allocation that a zeroing of a range from the beginning on stands for, if it does.
    ///
    /// # Errors
    /// It looks as if it did, and nothing fits: there is no room for so many zeros.
    pub(super) fn take_allocation(
        &self,
        ino: Ino,
        (offset, len): Range,
    ) -> Result<Option<Allocation>, Error> {
        if offset != 0 || len <= PREPARED_BYTES_MIN {
            return Ok(None);
        }
        let is_it = |entry: &(Ino, Announcement)| {
            entry.0 == ino
                && matches!(entry.1, Announcement::Allocation { zeroed, .. } if zeroed == len)
        };
        match self.queue.lock().take(is_it) {
            Some(Announcement::Allocation { allocation, .. }) => Ok(Some(allocation)),
            _ => Err(Error::NoSpace),
        }
    }

    /// Whether what is copied into a range is to be shared. That is so once.
    pub(super) fn take_share(&self, ino: Ino, range: Range) -> bool {
        let is_it = |entry: &(Ino, Announcement)| {
            entry.0 == ino && matches!(entry.1, Announcement::Share(known) if known == range)
        };
        self.queue.lock().take(is_it).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{ANNOUNCEMENTS_MAX, Allocation, Announced};
    use crate::protocol::PREPARED_BYTES_MIN;
    use marram_vfs::{Allocate, Error, Ino};

    const COLLAPSE: Allocation = Allocation { how: Allocate::Collapse, offset: 3, len: 4 };

    #[test]
    fn an_announcement_is_for_one_file_and_counts_once() {
        let announced = Announced::default();
        let zeroed = announced.add_allocation(Ino(7), COLLAPSE);
        assert_eq!(announced.take_allocation(Ino(8), (0, zeroed)), Err(Error::NoSpace));
        assert_eq!(announced.take_allocation(Ino(7), (1, zeroed)), Ok(None), "not our business");
        assert_eq!(announced.take_allocation(Ino(7), (0, zeroed)), Ok(Some(COLLAPSE)));
        assert_eq!(announced.take_allocation(Ino(7), (0, zeroed)), Err(Error::NoSpace));
        announced.add_share(Ino(7), (1, 2));
        assert!(!announced.take_share(Ino(7), (1, 3)));
        assert!(announced.take_share(Ino(7), (1, 2)) && !announced.take_share(Ino(7), (1, 2)));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let announced = Announced::default();
        let first = announced.add_allocation(Ino(7), COLLAPSE);
        assert!(first > PREPARED_BYTES_MIN);
        for _ in 0..ANNOUNCEMENTS_MAX {
            announced.add_allocation(Ino(8), COLLAPSE);
        }
        assert_eq!(announced.queue.lock().entries.len(), ANNOUNCEMENTS_MAX);
        assert_eq!(announced.take_allocation(Ino(7), (0, first)), Err(Error::NoSpace));
    }
}
