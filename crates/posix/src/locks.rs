//! Who may look at and change which inode at the same time.
//!
//! Inodes are spread over a fixed number of read-write locks. An operation takes all the locks
//! that it needs at once and in ascending order, each once, and takes no further one while it
//! holds them: so no two operations can wait for each other. An operation that learns only from a
//! directory which other inodes it is about looks without the lock first, takes the locks, looks
//! again, and starts over when something has changed: it starts over only when another operation
//! has got through.
//!
//! Besides these there is one lock for moving directories to other parents: it keeps still who is
//! whose ancestor. It is taken before the others.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Number of locks; also the number of counters of inodes, see `counters`.
pub(crate) const SHARDS: usize = 1024;
const SHARD_BITS: u32 = SHARDS.trailing_zeros();
/// Most inodes that one operation changes.
const INODES_MAX: usize = 4;

/// The locks of a file system.
pub(crate) struct Locks {
    shards: Vec<RwLock<()>>,
    moves: Mutex<()>,
}

/// Locks held for a change.
pub(crate) struct WriteGuards<'a> {
    _held: [Option<RwLockWriteGuard<'a, ()>>; INODES_MAX],
}

/// Which lock an inode has.
pub(crate) fn shard_of(ino: u64) -> usize {
    let scattered = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHARD_BITS);
    usize::try_from(scattered).expect("ten bits are a usize")
}

impl Locks {
    pub(crate) fn new() -> Locks {
        let shards = (0..SHARDS).map(|_| RwLock::new(())).collect();
        Locks { shards, moves: Mutex::new(()) }
    }

    /// Keeps others from changing `ino`.
    pub(crate) fn read(&self, ino: u64) -> RwLockReadGuard<'_, ()> {
        self.shards[shard_of(ino)].read()
    }

    /// Keeps others from seeing or changing these inodes, of which there are at most four.
    pub(crate) fn write(&self, inos: &[u64]) -> WriteGuards<'_> {
        let mut shards = [usize::MAX; INODES_MAX];
        for (shard, ino) in shards.iter_mut().zip(inos) {
            *shard = shard_of(*ino);
        }
        assert!(inos.len() <= INODES_MAX, "an operation changes at most four inodes");
        shards.sort_unstable();
        let mut last = usize::MAX;
        let held = shards.map(|shard| {
            let needed = shard != usize::MAX && shard != last;
            last = shard;
            needed.then(|| self.shards[shard].write())
        });
        WriteGuards { _held: held }
    }

    /// Keeps other directories from moving.
    pub(crate) fn moves(&self) -> MutexGuard<'_, ()> {
        self.moves.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::{Locks, SHARDS, shard_of};

    #[test]
    fn inodes_of_one_lock_can_be_taken_together() {
        let locks = Locks::new();
        let twin = (2..).find(|ino| shard_of(*ino) == shard_of(1)).unwrap();
        let held = locks.write(&[1, twin, 1, 5]);
        assert!(locks.shards[shard_of(twin)].try_read().is_none());
        drop(held);
        assert!(locks.shards[shard_of(twin)].try_read().is_some());
    }

    #[test]
    fn inodes_are_spread_over_all_locks() {
        let used: std::collections::HashSet<_> = (0..20_000).map(shard_of).collect();
        assert_eq!(used.len(), SHARDS);
    }
}
