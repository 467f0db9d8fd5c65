//! The queue of inodes that wait for their space to be freed.
//!
//! What a crash left is not searched for when a file system is opened, only on the first steps,
//! and only so many at a time: neither the time to mount nor the memory grows with it. In the same
//! way those are found for which the queue had no room. The work is `frame::reclaim`.

use marram_vfs::Timestamp;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Most inodes that wait in memory, of 8 bytes each: more are searched for when these are done.
const WAITING_MAX: usize = 1 << 20;
/// Orphan items looked at in one go.
pub(crate) const SEARCH_ITEMS_MAX: usize = 1024;
/// Inodes without a name that are known to be in use still; older ones are not expected to be
/// let go of at any moment.
const LEAVING_MAX: usize = 256;
/// Most inodes that are taken out at once, to be freed by one batch. The locks of all are held
/// meanwhile, which others may wait for.
const TOGETHER_INODES_MAX: usize = 16;
/// How often to look whether there is still hope, while nothing happens.
const TICK: Duration = Duration::from_millis(5);

/// The queue of inodes with something to reclaim.
pub(crate) struct Orphans {
    state: Mutex<Queue>,
    /// Something has come into the queue, or a piece of work is done.
    changed: Condvar,
    /// How many pieces of work have been done.
    pieces: AtomicU64,
    /// Space has been freed that only a commit lets others use.
    is_waiting_for_commit: AtomicBool,
}

struct Queue {
    inodes: VecDeque<u64>,
    /// Where to go on looking for what a crash left; `None` when all has been seen.
    search_from: Option<u64>,
    /// How often a search has been begun. What a search that began before has found is of another
    /// state, and does not end the search.
    searches: u64,
    /// How many are reclaiming inodes at this moment.
    at_work: usize,
    /// Inodes in use that have lost their last name, and when; until they come into the queue.
    leaving: VecDeque<(u64, Timestamp)>,
}

/// Inodes that are being reclaimed.
pub(crate) struct AtWork<'a> {
    orphans: &'a Orphans,
    /// Each once; their numbers ascend.
    pub(crate) inos: Vec<u64>,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut queue = self.orphans.state.lock();
        queue.at_work -= 1;
        // While the lock is held: else a waiter may see neither the work nor what it came to.
        self.orphans.pieces.fetch_add(1, Ordering::AcqRel);
        drop(queue);
        self.orphans.changed.notify_all();
    }
}

impl Orphans {
    pub(crate) fn new() -> Orphans {
        let (inodes, leaving) = (VecDeque::new(), VecDeque::new());
        let queue = Queue { inodes, search_from: Some(0), searches: 1, at_work: 0, leaving };
        Orphans {
            state: Mutex::new(queue),
            changed: Condvar::new(),
            pieces: AtomicU64::new(0),
            is_waiting_for_commit: AtomicBool::new(false),
        }
    }

    /// There is something to reclaim of `ino`.
    pub(crate) fn push(&self, ino: u64) {
        let mut queue = self.state.lock();
        queue.take_in(ino, WAITING_MAX);
        queue.leaving.retain(|(leaving, _)| *leaving != ino);
        drop(queue);
        self.changed.notify_all();
    }

    pub(crate) fn pop(&self) -> Option<AtWork<'_>> {
        let mut queue = self.state.lock();
        let count = queue.inodes.len().min(TOGETHER_INODES_MAX);
        let mut inos: Vec<u64> = queue.inodes.drain(..count).collect();
        if inos.is_empty() {
            return None;
        }
        queue.at_work += 1;
        inos.sort_unstable();
        inos.dedup();
        Some(AtWork { orphans: self, inos })
    }

    /// The state is another one: what waits in it is to be searched for from the beginning.
    pub(crate) fn search_again(&self) {
        let mut queue = self.state.lock();
        queue.inodes.clear();
        queue.begin_search();
        drop(queue);
        self.changed.notify_all();
    }

    /// Which search is under way, and where it is to go on.
    pub(crate) fn search(&self) -> Option<(u64, u64)> {
        let queue = self.state.lock();
        queue.search_from.map(|from| (queue.searches, from))
    }

    /// Takes in what a step of a search has found, unless another search has begun since.
    pub(crate) fn note_found(&self, search: u64, found: Vec<u64>) {
        let mut queue = self.state.lock();
        if queue.searches == search {
            let all = found.len() < SEARCH_ITEMS_MAX;
            queue.search_from = found.last().filter(|_| !all).and_then(|ino| ino.checked_add(1));
            queue.inodes.extend(found);
        }
    }

    /// Whether a step could find something to do.
    pub(crate) fn pending(&self) -> bool {
        self.state.lock().pending()
    }

    /// Space has been freed that can be used after the next commit.
    pub(crate) fn note_freed(&self) {
        self.is_waiting_for_commit.store(true, Ordering::Release);
    }

    /// An inode in use has lost its last name.
    pub(crate) fn note_leaving(&self, ino: u64, now: Timestamp) {
        self.state.lock().note_leaving(ino, now);
    }

    /// How many pieces of work have been done.
    pub(crate) fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::Acquire)
    }

    /// Whether space has been freed since the last call that only a commit lets others use.
    pub(crate) fn take_freed(&self) -> bool {
        self.is_waiting_for_commit.swap(false, Ordering::AcqRel)
    }

    /// Waits until a step could find something to do or more than `pieces` pieces of work have been
    /// done, as long as there is hope for it: others are at work, or something that is still in use
    /// has lost its last name at a moment of which `is_recent` says so. What it waits is taken off
    /// `patience`.
    pub(crate) fn await_more(
        &self,
        pieces: u64,
        patience: &mut Duration,
        is_recent: impl Fn(Timestamp) -> bool,
    ) -> bool {
        let mut queue = self.state.lock();
        loop {
            if queue.pending() || self.pieces.load(Ordering::Acquire) > pieces {
                return true;
            }
            let last = queue.leaving.back().map(|(_, lost_name)| *lost_name);
            let hope = queue.at_work > 0 || last.is_some_and(&is_recent);
            if !hope || patience.is_zero() {
                return false;
            }
            if self.changed.wait_for(&mut queue, TICK).timed_out() {
                *patience = patience.saturating_sub(TICK);
            }
        }
    }
}

impl Queue {
    fn pending(&self) -> bool {
        !self.inodes.is_empty() || self.search_from.is_some()
    }

    /// Takes an inode in as long as fewer wait than `max`. Those of more are left where all of them
    /// are: in their orphan items, through which a search goes once nothing waits here.
    fn take_in(&mut self, ino: u64, max: usize) {
        if self.inodes.len() < max {
            self.inodes.push_back(ino);
        } else {
            self.begin_search();
        }
    }

    /// Whatever has an orphan item is to be found.
    fn begin_search(&mut self) {
        self.search_from = Some(0);
        self.searches += 1;
    }

    fn note_leaving(&mut self, ino: u64, now: Timestamp) {
        if self.leaving.len() >= LEAVING_MAX {
            self.leaving.pop_front();
        }
        self.leaving.push_back((ino, now));
    }
}

#[cfg(test)]
mod tests {
    use super::Orphans;

    #[test]
    fn what_the_queue_has_no_room_for_is_searched_for() {
        const ROOM: usize = 3;
        let orphans = Orphans::new();
        let (first, _) = orphans.search().expect("the first search");
        orphans.note_found(first, Vec::new());
        assert!(!orphans.pending(), "nothing waits");
        (1..=10).for_each(|ino| orphans.state.lock().take_in(ino, ROOM));
        assert_eq!(orphans.state.lock().inodes, [1, 2, 3]);
        let (under_way, from) = orphans.search().expect("there are others");
        assert_eq!(from, 0);
        // Another one has no room while a search is under way and has passed its item.
        orphans.note_found(under_way, (4..4 + super::SEARCH_ITEMS_MAX as u64).collect());
        assert_ne!(orphans.search().expect("it goes on").1, 0);
        orphans.state.lock().take_in(2, ROOM);
        assert_eq!(orphans.search().expect("from the beginning").1, 0);
    }

    #[test]
    fn a_search_that_was_overtaken_by_another_state_does_not_end_the_new_one() {
        let orphans = Orphans::new();
        let (before, from) = orphans.search().expect("the first search");
        assert_eq!(from, 0);
        orphans.search_again();
        orphans.note_found(before, vec![7]);
        assert!(orphans.pending(), "the state of now has not been looked at");
        assert!(orphans.pop().is_none(), "what was found is of the state before");
        let (now, from) = orphans.search().expect("another search");
        assert_eq!(from, 0);
        orphans.note_found(now, vec![8]);
        assert_eq!(orphans.pop().expect("what is there now").inos, [8]);
        assert!(!orphans.pending());
    }
}
