//! Space that has been promised by reserving and is not yet written.
//!
//! A reservation promises that there is as much space, and that no other takes it. So what was
//! reserved since the file system was opened is kept in mind for each inode, and the store keeps
//! the sum back ([`marram_store::AdmissionControl::promise`]), but for those writes that use it up.
//!
//! It is kept in memory, so what was reserved before is not in it: of an inode that has reserved
//! bytes of both kinds, those are taken to be used up first that were not promised. A fork has
//! promised nothing: were it otherwise, each would take as much space as all reserved bytes of the
//! directory, and could not be made at once.

use marram_store::View;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Most inodes that anything is promised to; what is reserved in more can be taken by others.
const INODES_MAX: usize = 1 << 16;

/// By how much an operation changes the reserved bytes of an inode whose lock it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReservedChange {
    pub(crate) ino: u64,
    pub(crate) before_bytes: u64,
    pub(crate) after_bytes: u64,
}

impl ReservedChange {
    /// What will be promised where so much is now: what is reserved anew comes to it, and there is
    /// never more than is reserved.
    fn promised_after(&self, promised: u64) -> u64 {
        let reserved_anew = self.after_bytes.saturating_sub(self.before_bytes);
        promised.saturating_add(reserved_anew).min(self.after_bytes)
    }
}

/// Bytes that are promised.
#[derive(Debug, Default)]
pub(crate) struct Reservations(Mutex<Promised>);

#[derive(Debug, Default)]
struct Promised {
    by_inode: HashMap<u64, u64>,
    sum: i128,
}

impl Promised {
    fn of(&self, ino: u64) -> u64 {
        self.by_inode.get(&ino).copied().unwrap_or(0)
    }

    fn set(&mut self, ino: u64, bytes: u64) {
        let before = match bytes {
            0 => self.by_inode.remove(&ino),
            _ if self.is_full_for(ino) => return,
            _ => self.by_inode.insert(ino, bytes),
        };
        self.sum += i128::from(bytes) - i128::from(before.unwrap_or(0));
    }

    /// The sum of all: at most as much as any store could have.
    fn all_bytes(&self) -> u64 {
        u64::try_from(self.sum).unwrap_or(u64::MAX)
    }

    fn is_full_for(&self, ino: u64) -> bool {
        self.by_inode.len() >= INODES_MAX && !self.by_inode.contains_key(&ino)
    }
}

impl Reservations {
    /// How many promised bytes are used up or given up by changes that are about to be made.
    pub(crate) fn used_by(&self, changes: &[ReservedChange]) -> u64 {
        if changes.is_empty() {
            return 0;
        }
        let promised = self.0.lock();
        let used = |change: &ReservedChange| {
            let bytes = promised.of(change.ino);
            bytes.saturating_sub(change.promised_after(bytes))
        };
        changes.iter().map(used).fold(0, u64::saturating_add)
    }

    /// Changes have been made; `view` learns what is promised from then on.
    pub(crate) fn moved(&self, changes: &[ReservedChange], view: &dyn View) {
        if changes.is_empty() {
            return;
        }
        let mut promised = self.0.lock();
        for change in changes {
            let bytes = change.promised_after(promised.of(change.ino));
            promised.set(change.ino, bytes);
        }
        view.promise(promised.all_bytes());
    }

    /// Inodes are in another state: nothing is known of what it has promised.
    pub(crate) fn forget(&self, inodes: impl Iterator<Item = u64>, view: &dyn View) {
        let mut promised = self.0.lock();
        if promised.sum > 0 {
            inodes.for_each(|ino| promised.set(ino, 0));
            view.promise(promised.all_bytes());
        }
    }

    /// All inodes are in another state.
    pub(crate) fn forget_all(&self, view: &dyn View) {
        *self.0.lock() = Promised::default();
        view.promise(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marram_store::memory::MemoryStore;
    use marram_store::{DatasetName, Source, Store};

    fn change(ino: u64, before_bytes: u64, after_bytes: u64) -> [ReservedChange; 1] {
        [ReservedChange { ino, before_bytes, after_bytes }]
    }

    fn sum(reservations: &Reservations) -> u64 {
        reservations.0.lock().all_bytes()
    }

    #[test]
    fn what_was_reserved_earlier_takes_nothing_from_what_is_promised() {
        let store = MemoryStore::new();
        let view = store.open(&Source::live(DatasetName::root())).unwrap();
        let reservations = Reservations::default();
        reservations.moved(&change(1, 0, 100), &*view);
        reservations.moved(&change(2, 500, 480), &*view);
        assert_eq!(sum(&reservations), 100);
        // Of 580 bytes 100 are promised: they are used last.
        reservations.moved(&change(2, 480, 580), &*view);
        assert_eq!(reservations.used_by(&change(2, 580, 130)), 0);
        assert_eq!(reservations.used_by(&change(2, 580, 70)), 30);
        reservations.moved(&change(2, 580, 70), &*view);
        assert_eq!(sum(&reservations), 170);
        reservations.moved(&change(2, 70, 0), &*view);
        assert_eq!(sum(&reservations), 100);
        reservations.forget([2, 1].into_iter(), &*view);
        assert_eq!(sum(&reservations), 0);
        reservations.moved(&change(7, 0, 7), &*view);
        reservations.forget_all(&*view);
        assert_eq!(sum(&reservations), 0);
    }

    #[test]
    fn no_more_inodes_are_kept_in_mind_than_the_limit() {
        let store = MemoryStore::new();
        let view = store.open(&Source::live(DatasetName::root())).unwrap();
        let reservations = Reservations::default();
        for ino in 0..INODES_MAX as u64 + 10 {
            reservations.moved(&change(ino, 0, 1), &*view);
        }
        assert_eq!(sum(&reservations), INODES_MAX as u64);
        reservations.moved(&change(0, 1, 3), &*view);
        assert_eq!(sum(&reservations), INODES_MAX as u64 + 2);
    }
}
