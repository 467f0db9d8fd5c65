//! Access times that are kept in memory (`lazytime`).
//!
//! A read then costs no change of the store: the time waits here, everyone who asks is told it,
//! and it is written with the next change of the inode, with a sync, at the latest a day after it
//! was moved or when the file system is closed. A crash loses what waits, and nothing else.
//!
//! A time is put here under the inode's lock for reading, and taken away by a change under the
//! lock for writing that has already taken it over: so none is lost in between.

use crate::filesystem::Posix;
use crate::locks::{SHARDS, shard_of};
use marram_format::record::{Inode, Time};
use marram_vfs::Result;
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

    fn is_empty(&self) -> bool {
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

    fn has(&self, ino: u64) -> bool {
        !self.is_empty() && self.shards[shard_of(ino)].lock().contains_key(&ino)
    }

    /// No time waits any more. All locks are held.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock()).len();
            self.waiting.fetch_sub(gone, Ordering::AcqRel);
        }
    }

    /// The inodes of one part of the table.
    fn inodes(&self, shard: usize) -> Vec<u64> {
        self.shards[shard].lock().keys().copied().collect()
    }
}

impl Posix {
    /// Writes the access time that waits for an inode. That it cannot be written (a full pool) is
    /// no reason to fail whatever asked for it: it goes on waiting.
    pub(crate) fn write_lazy_time(&self, ino: u64) {
        if self.lazy_times.has(ino) {
            let _held = self.locks.write(&[ino]);
            let _goes_on_waiting = self.write_time(ino);
        }
    }

    /// Writes all access times that wait.
    pub(crate) fn write_lazy_times(&self) {
        if self.lazy_times.is_empty() {
            return;
        }
        self.lazy_times.since_seconds.store(NEVER, Ordering::Release);
        for ino in (0..SHARDS).flat_map(|shard| self.lazy_times.inodes(shard)) {
            self.write_lazy_time(ino);
        }
        if !self.lazy_times.is_empty() {
            let now = self.options.clock.now().seconds;
            self.lazy_times.since_seconds.fetch_min(now, Ordering::AcqRel);
        }
    }

    /// Writes all of them if the first has waited for long enough.
    pub(crate) fn write_old_lazy_times(&self) {
        let since = self.lazy_times.since_seconds.load(Ordering::Acquire);
        let now = self.options.clock.now().seconds;
        if since != NEVER && now.saturating_sub(since) >= WAIT_SECONDS_MAX {
            self.write_lazy_times();
        }
    }

    /// The record that a change reads has the time already. The lock is held for writing.
    fn write_time(&self, ino: u64) -> Result<()> {
        if self.find_inode(ino)?.is_none() {
            self.lazy_times.forget(ino);
            return Ok(());
        }
        let mut change = self.change()?;
        change.inode_mut(ino)?;
        change.commit()
    }
}
