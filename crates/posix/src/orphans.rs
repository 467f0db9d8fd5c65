//! Inodes that wait for their space to be freed.
//!
//! An inode that loses its last name goes at once, in the same batch, if nobody has it open and
//! it is small. Else it gets an orphan item in that batch: so it is found again after a crash.
//! Orphans that are no longer in use, and files with a tail (see `truncate`), wait in a queue for
//! [`Posix::reclaim_step`], which removes their items in batches of bounded size: of small ones
//! many in one (see `together`), of large ones each in several. The orphan item goes with the last
//! of them.
//!
//! What a crash left is not searched for when a file system is opened, only on the first steps,
//! and only so many at a time: neither the time to mount nor the memory grows with it. In the same
//! way those are found for which the queue had no room.
//!
//! Whoever finds the store full, or an owner's limit reached, waits before he says so: for others
//! who free something at that moment, and for inodes that have just lost their last name, since the
//! kernel lets go of those a little after the removal. A program that removes a file and writes
//! another one would else be told that there is no space.

mod together;

use self::together::{TOGETHER_INODES_MAX, Together};
use crate::change::Change;
use crate::filesystem::Posix;
use marram_format::record::{InodeKind, OrphanReason, state};
use marram_records::failure::from_store;
use marram_records::inode::{content_keys, inode_key};
use marram_records::orphans::{orphan_item, orphan_key};
use marram_store::{Admission, Item, Key};
use marram_vfs::{Error, Result, Timestamp};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Items that are removed together with the last name.
const INLINE_ITEMS_MAX: usize = 64;
/// Items that are removed at a time while the store is full.
const FULL_ITEMS: usize = 8;
/// Most inodes that wait in memory, of 8 bytes each: more are searched for when these are done.
const WAITING_MAX: usize = 1 << 20;
/// Orphan items looked at in one go.
const SEARCH_ITEMS_MAX: usize = 1024;
/// Inodes without a name that are known to be in use still; of older ones nobody expects that they
/// are let go of at any moment.
const LEAVING_MAX: usize = 256;
/// How much shorter than somebody who finds no space a sync of everything waits.
const SYNC_PATIENCE_DIVISOR: u32 = 20;
/// Most steps of [`SEARCH_ITEMS_MAX`] items that a sync of everything does.
const SYNC_STEPS_MAX: usize = 64;
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
    /// How often a search has been begun. What somebody found who began before that is of another
    /// state, and does not end the search.
    searches: u64,
    /// How many are reclaiming inodes at this moment.
    at_work: usize,
    /// Inodes in use that have lost their last name, and when; until they come into the queue.
    leaving: VecDeque<(u64, Timestamp)>,
}

/// Inodes that are being reclaimed.
struct AtWork<'a> {
    orphans: &'a Orphans,
    /// Each once; their numbers ascend.
    inos: Vec<u64>,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut queue = self.orphans.state.lock();
        queue.at_work -= 1;
        // While the lock is held: else somebody may see neither the work nor what it came to.
        self.orphans.pieces.fetch_add(1, Ordering::AcqRel);
        drop(queue);
        self.orphans.changed.notify_all();
    }
}

/// What one step did.
struct Step {
    items: usize,
    more: bool,
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

    fn pop(&self) -> Option<AtWork<'_>> {
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
    fn search(&self) -> Option<(u64, u64)> {
        let queue = self.state.lock();
        queue.search_from.map(|from| (queue.searches, from))
    }

    /// Takes in what a step of a search has found, unless another search has begun since.
    fn note_found(&self, search: u64, found: Vec<u64>) {
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
    fn note_freed(&self) {
        self.is_waiting_for_commit.store(true, Ordering::Release);
    }

    /// Waits until a step could find something to do or more than `pieces` pieces of work have been
    /// done, as long as there is hope for it: others are at work, or something that is still in use
    /// has lost its last name at a moment of which `is_recent` says so. What it waits is taken off
    /// `patience`.
    fn await_more(
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

impl Posix {
    /// Frees space of inodes that have no name and are not in use, and of files that were cut:
    /// removes about `max_items` items, and returns whether more is left to do. To be called in
    /// the background, and until it returns false before the file system is closed (what is left
    /// waits for the next time).
    ///
    /// # Errors
    /// A failed read or a full store. The inode at hand is left for the next mount, or, if there
    /// was no space even for so few, for the next call.
    pub fn reclaim_step(&self, max_items: usize) -> Result<bool> {
        if !self.view.writable() {
            return Ok(false);
        }
        self.write_old_lazy_times();
        let mut left = max_items.max(1);
        while left > 0 {
            let Some(work) = self.next_orphans()? else {
                return Ok(false);
            };
            left = left.saturating_sub(self.reclaim_some(&work.inos, left)?.max(1));
        }
        Ok(self.orphans.pending())
    }

    /// Frees space of some inodes, together as far as that can be; those that are not come to
    /// wait again. Returns how many items were removed.
    fn reclaim_some(&self, inos: &[u64], max_items: usize) -> Result<usize> {
        let Together { items, apart } = self.reclaim_together(inos);
        let mut removed = items;
        let mut apart = apart.into_iter();
        let mut outcome = Ok(());
        while outcome.is_ok()
            && removed < max_items
            && let Some(ino) = apart.next()
        {
            outcome = self.reclaim_what_fits(ino, max_items - removed).map(|step| {
                removed += step.items;
                if step.more {
                    self.orphans.push(ino);
                }
            });
        }
        apart.for_each(|ino| self.orphans.push(ino));
        if removed > 0 {
            self.orphans.note_freed();
        }
        outcome.map(|()| removed)
    }

    fn next_orphans(&self) -> Result<Option<AtWork<'_>>> {
        loop {
            if let Some(work) = self.orphans.pop() {
                return Ok(Some(work));
            }
            let Some((search, from)) = self.orphans.search() else {
                return Ok(None);
            };
            let mut found = Vec::new();
            let mut visit = |key: Key, _: &Item| {
                found.push(key.offset);
                found.len() < SEARCH_ITEMS_MAX
            };
            self.view
                .scan(orphan_key(from), orphan_key(u64::MAX), &mut visit)
                .map_err(from_store)?;
            self.orphans.note_found(search, found);
        }
    }

    /// A batch that removes much may change many nodes, and so is taken to need more space than a
    /// full store has left: then less is removed at a time. A small pool that one file had filled
    /// stayed full for good when its removal was always asked for in one large batch.
    fn reclaim_what_fits(&self, ino: u64, max_items: usize) -> Result<Step> {
        let mut items = max_items;
        loop {
            match self.reclaim(ino, items) {
                Err(Error::NoSpace) if items > FULL_ITEMS => items = (items / 8).max(FULL_ITEMS),
                Err(Error::NoSpace) => {
                    self.orphans.push(ino);
                    return Err(Error::NoSpace);
                }
                other => return other,
            }
        }
    }

    fn reclaim(&self, ino: u64, max_items: usize) -> Result<Step> {
        let _held = self.locks.write(&[ino]);
        let Some(inode) = self.find_inode(ino)? else {
            let mut change = self.change()?;
            change.batch.admission = Admission::Freeing;
            change.batch.remove(orphan_key(ino));
            change.commit()?;
            return Ok(Step { items: 1, more: false });
        };
        if inode.links > 0 && inode.state & state::TAIL != 0 {
            let more = self.remove_tail(ino, max_items)?;
            return Ok(Step { items: max_items, more });
        }
        if inode.links > 0 || self.pins.set_nameless(ino, true) {
            return Ok(Step { items: 0, more: false });
        }
        let keys = content_keys(&*self.view, ino, max_items)?;
        let more = keys.len() == max_items;
        let mut change = self.change()?;
        change.batch.admission = Admission::Freeing;
        for key in &keys {
            change.batch.remove(*key);
        }
        if !more {
            change.batch.remove(orphan_key(ino));
            change.batch.remove(inode_key(ino));
            change.uncount(ino, &inode);
        }
        change.commit()?;
        Ok(Step { items: keys.len() + 1, more })
    }

    /// An inode loses a name, and with the last one perhaps everything. `locked` is an inode
    /// whose lock the operation holds beside that of `ino`. Returns the inode if it becomes an
    /// orphan: to be given to [`Posix::settle`] when the batch has been applied.
    pub(crate) fn lose_name(
        &self,
        change: &mut Change<'_, '_>,
        ino: u64,
        locked: u64,
    ) -> Result<Option<u64>> {
        let now = change.now;
        let inode = change.inode_mut(ino)?;
        let is_directory = inode.kind == InodeKind::Directory;
        inode.links = if is_directory { 0 } else { inode.links.saturating_sub(1) };
        inode.changed = now;
        let tail = inode.state & state::TAIL != 0;
        if inode.links > 0 {
            return Ok(None);
        }
        if !self.pins.pinned(ino) {
            let keys = content_keys(&*self.view, ino, INLINE_ITEMS_MAX)?;
            if keys.len() < INLINE_ITEMS_MAX {
                for key in keys {
                    change.batch.remove(key);
                }
                if tail {
                    change.batch.remove(orphan_key(ino));
                }
                change.remove_inode(ino, locked)?;
                self.orphans.note_freed();
                return Ok(None);
            }
        }
        let item = orphan_item(OrphanReason::Nameless);
        change.batch.put(orphan_key(ino), item);
        Ok(Some(ino))
    }

    /// An inode has become an orphan: its last pin, or the queue, takes care of it.
    pub(crate) fn settle(&self, orphan: Option<u64>) {
        let Some(ino) = orphan else { return };
        if !self.options.patience.is_zero() {
            // Before it can be let go of, so that nobody sees it neither here nor there.
            self.orphans.state.lock().note_leaving(ino, self.options.clock.now());
        }
        if !self.pins.set_nameless(ino, true) {
            self.orphans.push(ino);
        }
    }

    /// Waits for something to free; see [`Orphans::await_more`].
    fn await_orphans(&self, pieces: u64, patience: &mut Duration) -> bool {
        let all = self.options.patience;
        self.orphans
            .await_more(pieces, patience, |lost| since(lost, self.options.clock.now()) < all)
    }

    /// Runs an operation, and again as long as it finds no space, or a limit in its way, and more
    /// is freed.
    pub(crate) fn with_reclaim<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        let mut pieces = self.orphans.pieces.load(Ordering::Acquire);
        let mut result = operation();
        let mut patience = self.options.patience;
        while let Err(Error::NoSpace | Error::QuotaExceeded) = &result {
            if !self.await_orphans(pieces, &mut patience) {
                break;
            }
            while self.reclaim_step(SEARCH_ITEMS_MAX)? {}
            pieces = self.orphans.pieces.load(Ordering::Acquire);
            result = operation();
        }
        result
    }

    /// Frees what has been removed so far, for a moment; what is left is freed in the background.
    /// Whether something has been freed since the last call that only a commit lets others use.
    pub(crate) fn reclaim_for_sync(&self) -> bool {
        if !self.view.writable() {
            return false;
        }
        let mut patience = self.options.patience / SYNC_PATIENCE_DIVISOR;
        for _ in 0..SYNC_STEPS_MAX {
            let pieces = self.orphans.pieces.load(Ordering::Acquire);
            // What cannot be freed now fails no sync: nothing of it is lost.
            if !self.await_orphans(pieces, &mut patience)
                || self.reclaim_step(SEARCH_ITEMS_MAX).is_err()
            {
                break;
            }
        }
        self.orphans.is_waiting_for_commit.swap(false, Ordering::AcqRel)
    }
}

/// How long ago `past` was; nothing if the clock has been set back.
fn since(past: Timestamp, now: Timestamp) -> Duration {
    let nanoseconds =
        |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let passed = nanoseconds(now).saturating_sub(nanoseconds(past));
    Duration::from_nanos(u64::try_from(passed.max(0)).unwrap_or(u64::MAX))
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
