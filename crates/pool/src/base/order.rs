//! The order in which the locks of a pool are taken: a thread that holds one takes only those that
//! stand below it. Debug builds check that on every lock that is taken (`marram-locks`).
//!
//! Unit tests of this crate run the whole pool on locks that try out schedules.

use marram_locks::Rank;
#[cfg(not(test))]
pub(crate) use marram_locks::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};

#[cfg(test)]
pub(crate) use marram_locks::explored::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};

const fn rank(order: u32, name: &'static str) -> Rank {
    Rank { order, name }
}

// The locks of `posix` have ranks below 200: it calls into the pool while it holds them. Nothing
// here calls out of the pool but into devices, whose locks hold nothing up.
/// Held while a frame is written and flushed.
pub(crate) const LOG_WRITER: Rank = rank(200, "the log's writer");
/// Held by an operation that does more than commit, and while a dataset is opened.
pub(crate) const ADMINISTERING: Rank = rank(205, "the turn to administer");
/// Held while a commit is made, from the freeze to its last flush.
pub(crate) const COMMITTING: Rank = rank(210, "the turn to commit");
/// Held by the turn to commit while it looks for space.
pub(crate) const LAST_LOOK: Rank = rank(215, "what a look for space found");
pub(crate) const GATE: Rank = rank(220, "the gate of batches");
/// Nothing is taken under it.
pub(crate) const ADMITTED: Rank = rank(225, "what is being admitted");
/// Held while forks in memory come, go, or follow a commit.
pub(crate) const FORKS: Rank = rank(228, "the forks in memory");
/// Nothing is taken under it.
pub(crate) const MERGES: Rank = rank(229, "the merges that wait");
pub(crate) const DATASETS: Rank = rank(230, "the datasets");
/// One dataset at a time.
pub(crate) const DATASET: Rank = rank(240, "a dataset's state");
/// Taken with a dataset's state, or alone.
pub(crate) const DIRTY_DATASETS: Rank = rank(245, "the dirty datasets");
/// Taken with a dataset's state, or alone; nothing is waited for under it.
pub(crate) const ITEM_CACHE: Rank = rank(247, "the item cache");
pub(crate) const RECORDS: Rank = rank(250, "the records");
/// Held while a commit reads a bitmap.
pub(crate) const SPACE: Rank = rank(260, "the space map");
pub(crate) const SUPERBLOCK: Rank = rank(270, "the superblock");
pub(crate) const LOG_PLACES: Rank = rank(280, "the log's places");
pub(crate) const SIZE: Rank = rank(290, "the size");
pub(crate) const HEALTH: Rank = rank(300, "the health");
pub(crate) const HEALS: Rank = rank(310, "the copies to heal");
pub(crate) const DAMAGE: Rank = rank(320, "the damage report");
pub(crate) const WORK: Rank = rank(330, "the call for a commit");
/// Nothing is dropped under it that lets space go.
pub(crate) const EPHEMERAL: Rank = rank(335, "the ephemeral snapshots");
/// Of a stream in a file, which is no pool: taken alone.
pub(crate) const AT_HAND: Rank = rank(340, "the blocks at hand");
