//! Inodes that wait for their space to be freed.
//!
//! An inode that loses its last name goes at once, in the same batch, if nobody has it open and
//! it is small. Else it gets an orphan item in that batch: so it is found again after a crash.
//! Orphans that are no longer in use, and files with a tail (see `truncate`), wait in a queue for
//! [`Posix::reclaim_step`], which removes their items in batches of bounded size. The orphan item
//! goes with the last of them.
//!
//! What a crash left is not searched for when a file system is opened, only on the first steps,
//! and only so many at a time: neither the time to mount nor the memory grows with it.

use crate::change::Change;
use crate::failure::from_store;
use crate::filesystem::Posix;
use marram_format::record::{InodeKind, OrphanReason, state};
use marram_store::{Admission, Item, Key, kind};
use marram_vfs::{Error, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Items that are removed together with the last name.
const INLINE_ITEMS_MAX: usize = 64;
/// Items that are removed at a time while the store is full.
const FULL_ITEMS: usize = 8;
/// Orphan items looked at in one go.
const SEARCH_ITEMS_MAX: usize = 1024;

/// The queue of inodes with something to reclaim.
pub(crate) struct Orphans {
    state: Mutex<Queue>,
}

struct Queue {
    inodes: VecDeque<u64>,
    /// Where to go on looking for what a crash left; `None` when all has been seen.
    search_from: Option<u64>,
}

/// What one step did.
struct Step {
    items: usize,
    more: bool,
}

pub(crate) fn orphan_key(ino: u64) -> Key {
    Key::new(0, kind::ORPHAN, ino)
}

impl Orphans {
    pub(crate) fn new() -> Orphans {
        Orphans { state: Mutex::new(Queue { inodes: VecDeque::new(), search_from: Some(0) }) }
    }

    /// There is something to reclaim of `ino`.
    pub(crate) fn push(&self, ino: u64) {
        self.state.lock().inodes.push_back(ino);
    }

    fn pop(&self) -> Option<u64> {
        self.state.lock().inodes.pop_front()
    }

    /// The state is another one: what waits in it is to be searched for from the beginning.
    pub(crate) fn search_again(&self) {
        *self.state.lock() = Queue { inodes: VecDeque::new(), search_from: Some(0) };
    }

    /// Whether a step could find something to do.
    pub(crate) fn pending(&self) -> bool {
        let queue = self.state.lock();
        !queue.inodes.is_empty() || queue.search_from.is_some()
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
            let Some(ino) = self.next_orphan()? else {
                return Ok(false);
            };
            let step = self.reclaim_what_fits(ino, left)?;
            left = left.saturating_sub(step.items.max(1));
            if step.more {
                self.orphans.push(ino);
            }
        }
        Ok(self.orphans.pending())
    }

    fn next_orphan(&self) -> Result<Option<u64>> {
        loop {
            if let Some(ino) = self.orphans.pop() {
                return Ok(Some(ino));
            }
            let Some(from) = self.orphans.state.lock().search_from else {
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
            let mut queue = self.orphans.state.lock();
            let all = found.len() < SEARCH_ITEMS_MAX;
            queue.search_from = found.last().filter(|_| !all).and_then(|ino| ino.checked_add(1));
            queue.inodes.extend(found);
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
        let keys = self.content_keys(ino, max_items)?;
        let more = keys.len() == max_items;
        let mut change = self.change()?;
        change.batch.admission = Admission::Freeing;
        for key in &keys {
            change.batch.remove(*key);
        }
        if !more {
            change.batch.remove(orphan_key(ino));
            change.batch.remove(crate::inode::inode_key(ino));
            change.uncount(ino, &inode);
        }
        change.commit()?;
        Ok(Step { items: keys.len() + 1, more })
    }

    /// Keys of at most `max` items of an inode, other than its record.
    pub(crate) fn content_keys(&self, ino: u64, max: usize) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        let mut visit = |key: Key, _: &Item| {
            keys.push(key);
            keys.len() < max
        };
        let (from, to) = (Key::new(ino, kind::ENTRY, 0), Key::new(ino, u8::MAX, u64::MAX));
        self.view.scan(from, to, &mut visit).map_err(from_store)?;
        Ok(keys)
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
            let keys = self.content_keys(ino, INLINE_ITEMS_MAX)?;
            if keys.len() < INLINE_ITEMS_MAX {
                for key in keys {
                    change.batch.remove(key);
                }
                if tail {
                    change.batch.remove(orphan_key(ino));
                }
                change.remove_inode(ino, locked)?;
                return Ok(None);
            }
        }
        let item = Item::plain(OrphanReason::Nameless.encode().to_vec());
        change.batch.put(orphan_key(ino), item);
        Ok(Some(ino))
    }

    /// An inode has become an orphan: its last pin, or the queue, takes care of it.
    pub(crate) fn settle(&self, orphan: Option<u64>) {
        if let Some(ino) = orphan
            && !self.pins.set_nameless(ino, true)
        {
            self.orphans.push(ino);
        }
    }

    /// Runs an operation, and once more if it found no space, or a limit in its way, while space
    /// waited to be freed.
    pub(crate) fn with_reclaim<T>(&self, operation: impl Fn() -> Result<T>) -> Result<T> {
        let result = operation();
        let full = matches!(result, Err(Error::NoSpace));
        let limited = matches!(result, Err(Error::QuotaExceeded));
        if !(full || limited) || !self.orphans.pending() {
            return result;
        }
        while self.reclaim_step(SEARCH_ITEMS_MAX)? {}
        if full {
            self.view.sync().map_err(from_store)?;
        }
        operation()
    }
}
