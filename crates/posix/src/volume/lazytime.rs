//! Access times that are kept in memory (`lazytime`).
//!
//! A read then costs no change of the store: the time waits here, every answer shows it,
//! and it is written with the next change of the inode, with a sync, at the latest a day after it
//! was moved or when the file system is closed. A crash loses what waits, and nothing else.
//!
//! A time is put here under the inode's lock for reading, and taken away by a change under the
//! lock for writing that has already taken it over: so none is lost in between.

use crate::volume::locks::{SHARDS, shard_of};
use marram_format::record::{Inode, Time};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Most inodes whose time waits; those of more are written at once.
const WAITING_MAX: usize = 1 << 16;
/// How long a time waits at most, in seconds.
const WAIT_SECONDS_MAX: i64 = 86_400;
/// No time waits.
const NEVER: i64 = i64::MAX;

/// Access times by inode, as far as they are newer than the inode's record.
pub(crate) struct LazyTimes {
    shards: Vec<Mutex<HashMap<u64, Time>>>,
    waiting: AtomicUsize,
    /// When the first of them began to wait, in seconds since 1970.
    since_seconds: AtomicI64,
}

impl LazyTimes {
    pub(crate) fn new() -> LazyTimes {
        LazyTimes {
            shards: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect(),
            waiting: AtomicUsize::new(0),
            since_seconds: AtomicI64::new(NEVER),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// Puts a time here; false if there is no room. The inode's lock is held.
    pub(crate) fn put(&self, ino: u64, at: Time) -> bool {
        let mut shard = self.shards[shard_of(ino)].lock();
        if let Some(time) = shard.get_mut(&ino) {
            *time = at;
            return true;
        }
        if self.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return false;
        }
        shard.insert(ino, at);
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.since_seconds.fetch_min(at.seconds, Ordering::AcqRel);
        true
    }

    /// Lets the record of an inode have the time that waits for it.
    pub(crate) fn fill(&self, ino: u64, inode: &mut Inode) {
        if self.is_empty() {
            return;
        }
        if let Some(at) = self.shards[shard_of(ino)].lock().get(&ino) {
            inode.accessed = *at;
        }
    }

    /// The record of an inode has been written, or is gone. Its lock is held for writing.
    pub(crate) fn forget(&self, ino: u64) {
        if !self.is_empty() && self.shards[shard_of(ino)].lock().remove(&ino).is_some() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn has(&self, ino: u64) -> bool {
        !self.is_empty() && self.shards[shard_of(ino)].lock().contains_key(&ino)
    }

    /// No time waits any more. All locks are held.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock()).len();
            self.waiting.fetch_sub(gone, Ordering::AcqRel);
        }
    }

    /// All are about to be written: none has waited since.
    pub(crate) fn begin_writing(&self) {
        self.since_seconds.store(NEVER, Ordering::Release);
    }

    /// Some could not be written and go on waiting.
    pub(crate) fn go_on_waiting(&self, now_seconds: i64) {
        if !self.is_empty() {
            self.since_seconds.fetch_min(now_seconds, Ordering::AcqRel);
        }
    }

    /// Whether the first of them has waited for long enough.
    pub(crate) fn is_due(&self, now_seconds: i64) -> bool {
        let since = self.since_seconds.load(Ordering::Acquire);
        since != NEVER && now_seconds.saturating_sub(since) >= WAIT_SECONDS_MAX
    }

    /// The inodes of one part of the table.
    pub(crate) fn inodes(&self, shard: usize) -> Vec<u64> {
        self.shards[shard].lock().keys().copied().collect()
    }
}
