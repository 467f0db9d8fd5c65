//! Locks of inodes: which operations run on an inode at the same time.
//!
//! Inodes are spread over a fixed number of read-write locks. An operation takes all the locks
//! that it needs at once and in ascending order, each once, and takes no further one while it
//! holds them: so no two operations can wait for each other. An operation that learns only from a
//! directory which other inodes it is about looks without the lock first, takes the locks, looks
//! again, and starts over when something has changed: it starts over only when another operation
//! has got through.
//!
//! A copy from one file system into another takes a lock of each: in the order in which the two
//! file systems were opened. So does a change of several as a whole, which takes all locks of each.
//!
//! Besides these there is one lock for moving directories to other parents: it keeps the
//! ancestors of a directory as they are. It is taken before the others.

use marram_locks::Rank;
#[cfg(not(test))]
use marram_locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use marram_records::counters::COUNTS_MAX;
use std::sync::atomic::{AtomicUsize, Ordering};

// Unit tests try out schedules.
#[cfg(test)]
use marram_locks::explored::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Number of locks; also the number of counters of inodes, see `counters`.
pub(crate) const SHARDS: usize = COUNTS_MAX;
const SHARD_BITS: u32 = SHARDS.trailing_zeros();
/// Most inodes that one operation changes.
const INODES_MAX: usize = 4;

/// A move of a directory to another parent takes this before any inode.
const MOVES: Rank = Rank { order: 100, name: "the lock of moves" };
/// Inodes, in the order of their shards.
const INODES: Rank = Rank { order: 110, name: "an inode's lock" };

/// How many file systems have been opened: it numbers their tables.
static TABLES: AtomicUsize = AtomicUsize::new(0);

/// The locks of a file system.
pub(crate) struct Locks {
    /// Its place among all tables.
    table: usize,
    shards: Vec<RwLock<()>>,
    moves: Mutex<()>,
}

/// Locks held for a change.
pub(crate) struct WriteGuards<'a> {
    _held: [Option<RwLockWriteGuard<'a, ()>>; INODES_MAX],
}

/// All locks, held for a change of everything.
pub(crate) struct AllGuards<'a> {
    held: Vec<RwLockWriteGuard<'a, ()>>,
    _moves: MutexGuard<'a, ()>,
}

impl Drop for AllGuards<'_> {
    /// The last that was taken goes first: what a thread holds is looked through from its end.
    fn drop(&mut self) {
        while self.held.pop().is_some() {}
    }
}

/// Which lock an inode has.
pub(crate) fn shard_of(ino: u64) -> usize {
    let scattered = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHARD_BITS);
    usize::try_from(scattered).expect("ten bits are a usize")
}

impl Locks {
    pub(crate) fn new() -> Locks {
        let table = TABLES.fetch_add(1, Ordering::Relaxed);
        let lock = |shard| RwLock::numbered(INODES, table * SHARDS + shard, ());
        let shards = (0..SHARDS).map(lock).collect();
        Locks { table, shards, moves: Mutex::numbered(MOVES, table, ()) }
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

    /// As [`Locks::write`], for any number of inodes that change in one go. The more
    /// there are, the more others wait.
    pub(crate) fn write_many(&self, inos: &[u64]) -> Vec<RwLockWriteGuard<'_, ()>> {
        let mut shards: Vec<usize> = inos.iter().copied().map(shard_of).collect();
        shards.sort_unstable();
        shards.dedup();
        shards.into_iter().map(|shard| self.shards[shard].write()).collect()
    }

    /// Keeps others from changing `from` of another file system, and from seeing or changing `to`
    /// of this one.
    pub(crate) fn write_from<'a>(
        &'a self,
        to: u64,
        source: &'a Locks,
        from: u64,
    ) -> (RwLockReadGuard<'a, ()>, WriteGuards<'a>) {
        match source.table < self.table {
            true => {
                let read = source.read(from);
                (read, self.write(&[to]))
            }
            false => {
                let written = self.write(&[to]);
                (source.read(from), written)
            }
        }
    }

    /// Keeps others from seeing or changing anything.
    pub(crate) fn all(&self) -> AllGuards<'_> {
        let moves = self.moves.lock();
        AllGuards { held: self.all_inodes(), _moves: moves }
    }

    /// The same of several file systems, none of which is given twice. The guards are in the order
    /// of the file systems as they are given, and the locks are taken in that of their tables.
    pub(crate) fn all_of<'a>(tables: &[&'a Locks]) -> Vec<AllGuards<'a>> {
        let mut ordered: Vec<(usize, &Locks)> = tables.iter().copied().enumerate().collect();
        ordered.sort_by_key(|(_, locks)| locks.table);
        let moves = ordered.iter().map(|(_, locks)| locks.moves.lock()).collect::<Vec<_>>();
        let mut all: Vec<(usize, AllGuards<'a>)> = Vec::with_capacity(tables.len());
        for ((place, locks), moves) in ordered.into_iter().zip(moves) {
            all.push((place, AllGuards { held: locks.all_inodes(), _moves: moves }));
        }
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, guards)| guards).collect()
    }

    fn all_inodes(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.shards.iter().map(RwLock::write).collect()
    }

    /// Keeps other directories from moving.
    pub(crate) fn moves(&self) -> MutexGuard<'_, ()> {
        self.moves.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::{Locks, SHARDS, shard_of};
    use shuttle::thread;
    use std::cell::Cell;
    use std::sync::Arc;

    const SCHEDULES: usize = 300;
    /// Of those in which all locks of two tables are taken: each takes thousands of steps.
    const SCHEDULES_OF_ALL: usize = 30;

    /// Another inode with the lock of `ino`.
    fn twin_of(ino: u64) -> u64 {
        (ino + 1..).find(|other| shard_of(*other) == shard_of(ino)).expect("locks are few")
    }

    #[test]
    fn operations_on_the_same_inodes_never_wait_for_each_other_in_a_ring() {
        shuttle::check_random(
            || {
                let locks = Arc::new(Locks::new());
                let twin = twin_of(1);
                let orders = [[1, 2, 3, 4], [4, 3, 2, twin], [2, twin, 1, 3]];
                let workers = orders.map(|inos| {
                    let locks = locks.clone();
                    thread::spawn(move || {
                        drop(locks.write(&inos));
                        drop(locks.write_many(&[5, inos[0], inos[1], inos[2], inos[3], 6]));
                        let moves = locks.moves();
                        drop(locks.write(&inos[..2]));
                        drop(moves);
                        drop(locks.read(inos[3]));
                    })
                });
                workers.into_iter().for_each(|worker| worker.join().expect("it ends"));
            },
            SCHEDULES,
        );
    }

    #[test]
    fn copies_both_ways_between_two_file_systems_never_wait_for_each_other() {
        shuttle::check_random(
            || {
                let (one, other) = (Arc::new(Locks::new()), Arc::new(Locks::new()));
                let ways = [(&one, &other), (&other, &one)];
                let workers = ways.map(|(source, target)| {
                    let (source, target) = (source.clone(), target.clone());
                    thread::spawn(move || drop(target.write_from(1, &source, 1)))
                });
                workers.into_iter().for_each(|worker| worker.join().expect("it ends"));
            },
            SCHEDULES,
        );
    }

    /// Several file systems are held still in any order, beside copies both ways, moves and changes
    /// in each: nobody waits in a ring, and a holder of all is alone in each.
    #[test]
    fn holds_of_several_file_systems_never_wait_for_each_other() {
        shuttle::check_random(
            || {
                let tables = [(); 2].map(|()| Arc::new(Locks::new()));
                let inside = [(); 2].map(|()| Arc::new(Alone::default()));
                let holders = [[0, 1], [1, 0]].map(|order| {
                    let (tables, inside) = (tables.clone(), inside.clone());
                    thread::spawn(move || {
                        let held = Locks::all_of(&order.map(|at| &*tables[at]));
                        inside.iter().for_each(|it| it.enter());
                        thread::yield_now();
                        inside.iter().for_each(|it| it.leave());
                        held.into_iter().rev().for_each(drop);
                    })
                });
                let changers = [(0, 1), (1, 0)].map(|(here, there)| {
                    let (tables, inside) = (tables.clone(), inside[here].clone());
                    thread::spawn(move || {
                        let moves = tables[here].moves();
                        drop(tables[here].write(&[1, 2]));
                        drop(moves);
                        let copied = tables[here].write_from(1, &tables[there], 1);
                        inside.enter();
                        thread::yield_now();
                        inside.leave();
                        drop(copied);
                    })
                });
                let all = holders.into_iter().chain(changers);
                all.for_each(|worker| worker.join().expect("it ends"));
            },
            SCHEDULES_OF_ALL,
        );
    }

    #[test]
    fn who_changes_an_inode_is_alone_with_it_and_its_twin() {
        shuttle::check_random(
            || {
                let locks = Arc::new(Locks::new());
                let inside = Arc::new(Alone::default());
                let workers = [[1, 5], [twin_of(1), 6]].map(|inos| {
                    let (locks, inside) = (locks.clone(), inside.clone());
                    thread::spawn(move || {
                        let _held = locks.write(&inos);
                        inside.enter();
                        thread::yield_now();
                        inside.leave();
                    })
                });
                let reader = locks.read(1);
                inside.enter();
                thread::yield_now();
                inside.leave();
                drop(reader);
                workers.into_iter().for_each(|worker| worker.join().expect("it ends"));
            },
            SCHEDULES,
        );
    }

    /// Panics when two are inside. All threads of a schedule are one of the system.
    #[derive(Default)]
    struct Alone(std::sync::Mutex<Cell<bool>>);

    impl Alone {
        fn enter(&self) {
            let was_taken = self.0.lock().expect("nobody panics in here").replace(true);
            assert!(!was_taken, "two at once");
        }

        fn leave(&self) {
            self.0.lock().expect("nobody panics in here").set(false);
        }
    }

    #[test]
    fn inodes_are_spread_over_all_locks() {
        let used: std::collections::HashSet<_> = (0..20_000).map(shard_of).collect();
        assert_eq!(used.len(), SHARDS);
    }
}
