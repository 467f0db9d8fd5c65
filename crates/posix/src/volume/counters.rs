//! Inode numbers and the count of inodes.
//!
//! **Numbers** are handed out in chunks: the counters item says which number has never been used,
//! and moves on by a whole chunk before the first of the chunk is given away. After a crash the
//! rest of a chunk is lost, and no number is ever used twice.
//!
//! **The count** is a sum of counters, one for each lock of `locks`. An operation that makes or
//! frees an inode changes the counter of a lock that it holds anyway, in the same batch: the sum
//! is exact after every crash, and no two operations wait for each other because of it.

use crate::volume::locks::{SHARDS, shard_of};
use crate::volume::seen::apply;
use marram_format::record::{Counters, NEXT_INODE_MAX, NameRule};
use marram_records::counters::{put_count, put_counters, read_counters, visit_counts};
use marram_records::failure::from_store;
use marram_store::{Batch, View};
use marram_vfs::{Error, Ino, Result};
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicI64, Ordering};

/// Numbers taken at once.
const CHUNK_INODES: u64 = 4096;

/// The counters of a file system.
pub(crate) struct InodeCounters {
    seed: u64,
    names: NameRule,
    numbers: Mutex<Numbers>,
    counts: Vec<AtomicI64>,
}

struct Numbers {
    next: u64,
    /// Where the chunk ends of which numbers are given away.
    end: u64,
    /// What the counters item says. Others that have the dataset open take chunks behind it.
    limit: u64,
}

/// A change of the count that goes into a batch.
#[derive(Clone, Copy)]
pub(crate) struct CountChange {
    shard: usize,
    by: i64,
}

impl CountChange {
    /// A change by an operation that holds the lock of `ino` for writing.
    pub(crate) fn new(ino: u64, by: i64) -> CountChange {
        CountChange { shard: shard_of(ino), by }
    }

    /// Several changes in one batch add up on the lock of the first.
    pub(crate) fn and(self, by: i64) -> CountChange {
        CountChange { by: self.by + by, ..self }
    }
}

/// Numbers that no other operation can take meanwhile.
pub(crate) struct HeldNumbers<'a> {
    counters: &'a InodeCounters,
    numbers: MutexGuard<'a, Numbers>,
}

impl HeldNumbers<'_> {
    /// The first number that has never been used, nor kept for use.
    pub(crate) fn first(&self) -> u64 {
        self.numbers.limit
    }

    /// Adds to a batch that all numbers below `limit` are used.
    pub(crate) fn put(&self, batch: &mut Batch<'_>, limit: u64) {
        let InodeCounters { seed, names, .. } = *self.counters;
        let counters = Counters { next_inode: limit, name_seed: seed, names };
        put_counters(batch, &counters);
    }

    /// The batch has been applied.
    pub(crate) fn applied(&mut self, limit: u64) {
        *self.numbers = Numbers { next: limit, end: limit, limit };
    }
}

impl InodeCounters {
    /// The counters of a new file system, and the items to begin with.
    pub(crate) fn create(seed: u64, names: NameRule, batch: &mut Batch<'_>) -> InodeCounters {
        let next = Ino::ROOT.0 + 1;
        let counters = Counters { next_inode: next, name_seed: seed, names };
        put_counters(batch, &counters);
        put_count(batch, 0, 1);
        let counts: Vec<AtomicI64> = (0..SHARDS).map(|_| AtomicI64::new(0)).collect();
        counts[0].store(1, Ordering::Relaxed);
        let numbers = Mutex::new(Numbers { next, end: next, limit: next });
        InodeCounters { seed, names, numbers, counts }
    }

    /// Reads the counters; `None` if there is no file system yet.
    pub(crate) fn open(view: &dyn View) -> Result<Option<InodeCounters>> {
        let Some(counters) = read_counters(view)? else {
            return Ok(None);
        };
        let counts: Vec<AtomicI64> = (0..SHARDS).map(|_| AtomicI64::new(0)).collect();
        visit_counts(view, &mut |place, count| counts[place].store(count, Ordering::Relaxed))?;
        let next = counters.next_inode;
        let numbers = Mutex::new(Numbers { next, end: next, limit: next });
        let Counters { name_seed: seed, names, .. } = counters;
        Ok(Some(InodeCounters { seed, names, numbers, counts }))
    }

    /// The state is another one, on another history: reads its counts. Numbers that have been given
    /// away, or were taken for that, are not given away again: others may have taken them there.
    pub(crate) fn read_again(&self, view: &dyn View) -> Result<()> {
        let found = self.found_anew(view)?;
        for (count, found) in self.counts.iter().zip(&found.counts) {
            count.store(found.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut numbers = self.numbers.lock();
        let next = numbers.limit.max(found.numbers.lock().limit);
        *numbers = Numbers { next, end: next, limit: next };
        Ok(())
    }

    /// Others have changed the state: reads the counts, and which numbers they have taken. All
    /// locks are held.
    pub(crate) fn read_counts(&self, view: &dyn View) -> Result<()> {
        let found = self.found_anew(view)?;
        for (count, found) in self.counts.iter().zip(&found.counts) {
            count.store(found.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let limit = found.numbers.lock().limit;
        let mut numbers = self.numbers.lock();
        numbers.limit = numbers.limit.max(limit);
        Ok(())
    }

    /// The counters of the same file system, as they are now.
    fn found_anew(&self, view: &dyn View) -> Result<InodeCounters> {
        let found = InodeCounters::open(view)?;
        let found = found.ok_or_else(|| Error::Damaged("no counters of inodes".to_owned()))?;
        // One that had not been published when its client was taken for lost: by its hashes no name
        // of the other one would be found.
        match found.seed == self.seed {
            true => Ok(found),
            false => Err(Error::Damaged(
                "another client has made the file system: mount it again".to_owned(),
            )),
        }
    }

    /// The seed of the hashes of names.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// When two names of a directory are the same.
    pub(crate) fn names(&self) -> NameRule {
        self.names
    }

    /// A number that has never been used.
    pub(crate) fn next_ino(&self, view: &dyn View) -> Result<u64> {
        let mut numbers = self.numbers.lock();
        if numbers.next == numbers.end {
            let begin = numbers.limit;
            let limit = begin.checked_add(CHUNK_INODES);
            let limit = limit.filter(|limit| *limit <= NEXT_INODE_MAX).ok_or(Error::NoSpace)?;
            let counters = Counters { next_inode: limit, name_seed: self.seed, names: self.names };
            let mut batch = Batch::new();
            put_counters(&mut batch, &counters);
            apply(view, batch).map_err(from_store)?;
            *numbers = Numbers { next: begin, end: limit, limit };
        }
        numbers.next += 1;
        Ok(numbers.next - 1)
    }

    /// Keeps others from taking numbers while many are taken.
    pub(crate) fn hold_numbers(&self) -> HeldNumbers<'_> {
        HeldNumbers { counters: self, numbers: self.numbers.lock() }
    }

    /// Inodes in use.
    pub(crate) fn inodes(&self) -> u64 {
        let sum: i64 = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        u64::try_from(sum).unwrap_or(0)
    }

    /// Adds a change of the count to a batch.
    pub(crate) fn put(&self, batch: &mut Batch<'_>, change: CountChange) {
        let count = self.counts[change.shard].load(Ordering::Relaxed) + change.by;
        put_count(batch, change.shard, count);
    }

    /// The batch with the change has been applied.
    pub(crate) fn applied(&self, change: CountChange) {
        self.counts[change.shard].fetch_add(change.by, Ordering::Relaxed);
    }
}
