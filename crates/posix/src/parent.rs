//! The file system as the parent of a merge, and of one directory's way back.
//!
//! It is held still by all locks of its inodes and by its inode numbers. What it knows beside its
//! view is added to the batch, or forgotten, here: counters, limits, waiting access times, pins.

use crate::filesystem::Posix;
use crate::frame::{reclaim, together};
use crate::operations::rollback;
use crate::volume::Volume;
use crate::volume::counters::{CountChange, HeldNumbers};
use crate::volume::locks::{AllGuards, Locks};
use crate::volume::seen::seen;
use marram_format::record::{Inode, Time};
use marram_history::{HeldParent, Parent, ParentChange};
use marram_records::failure::from_store;
use marram_records::inode::time;
use marram_store::{Batch, View};
use marram_vfs::{Error, Ino, Result};

/// Items of removed inodes that are freed at a time.
const RECLAIM_ITEMS: usize = 1024;

impl Parent for Posix {
    fn view(&self) -> &dyn View {
        &*self.volume.view
    }

    fn root(&self) -> Ino {
        self.root_directory()
    }

    fn check_running(&self) -> Result<()> {
        self.volume.check_running()
    }

    fn hold_still(&self) -> Result<Box<dyn HeldParent + '_>> {
        let volume = &self.volume;
        let locks = volume.locks.all();
        Ok(Box::new(Held { volume, numbers: volume.counters.hold_numbers(), _locks: locks }))
    }

    fn with_space(&self, attempt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        // Beside other clients it is executed anew once they have changed what it has read.
        let volume = &self.volume;
        reclaim::with_reclaim(volume, || together::changing_slowly(volume, &mut *attempt))
    }

    fn free_removed(&self) -> Result<()> {
        while self.reclaim_step(RECLAIM_ITEMS)? {}
        Ok(())
    }

    fn give_back(&self, ino: u64) {
        reclaim::settle(&self.volume, Some(ino));
    }
}

/// Holds several file systems still, as [`Parent::hold_still`] does one: all of them at the same
/// time, each by its place among `all`. No two calls wait for each other, whatever their orders.
///
/// # Panics
/// In a debug build if one is given twice: it waits for itself.
pub fn hold_together<'a>(all: &[&'a Posix]) -> Vec<Box<dyn HeldParent + 'a>> {
    let locks: Vec<_> = all.iter().map(|files| &files.volume.locks).collect();
    let guards = Locks::all_of(&locks).into_iter();
    let held = all.iter().zip(guards).map(|(files, locks)| {
        let volume: &Volume = &files.volume;
        let numbers = volume.counters.hold_numbers();
        Box::new(Held { volume, numbers, _locks: locks }) as Box<dyn HeldParent>
    });
    held.collect()
}

/// Runs `turn`, after which several file systems, none of which is given twice, show other states
/// than before, while all operations on all of them wait. They go on with those. Waiting access
/// times are lost. If one of them cannot be read anew, `spoil` is run while all still wait: it has
/// to keep all of them from being used.
///
/// # Errors
/// Those of `turn`, which must not have changed anything then; a failed read afterwards: then all
/// must be opened again.
pub fn turn_together<E: From<Error>>(
    all: &[&Posix],
    turn: impl FnOnce() -> std::result::Result<(), E>,
    spoil: impl FnOnce(),
) -> std::result::Result<(), E> {
    let volumes: Vec<&Volume> = all.iter().map(|files| &files.volume).collect();
    rollback::turn_together(&volumes, turn, spoil)
}

/// The file system under all locks.
struct Held<'a> {
    volume: &'a Volume,
    numbers: HeldNumbers<'a>,
    _locks: AllGuards<'a>,
}

impl Held<'_> {
    /// The whole batch of a change.
    fn whole_batch(&self, change: &mut ParentChange<'_>) -> Batch<'static> {
        let mut batch = std::mem::take(&mut change.batch);
        batch.seen = seen();
        let usage = std::mem::take(&mut change.usage);
        usage.put(&mut batch, |owner, admission| self.volume.limits.at_most(owner, admission));
        self.volume.counters.put(&mut batch, self.count_of(change));
        if let Some(next) = change.next_number {
            self.numbers.put(&mut batch, next);
        }
        batch
    }

    fn count_of(&self, change: &ParentChange<'_>) -> CountChange {
        CountChange::new(self.volume.root(), change.inodes)
    }
}

impl HeldParent for Held<'_> {
    fn now(&self) -> Time {
        time(self.volume.options.clock.now())
    }

    fn first_number(&self) -> u64 {
        self.numbers.first()
    }

    fn is_in_use(&self, ino: u64) -> bool {
        // Nobody knows what other clients have open.
        self.volume.pins.pinned(ino) || together::has_company(self.volume)
    }

    fn complete(&self, ino: u64, inode: &mut Inode) {
        self.volume.lazy_times.fill(ino, inode);
    }

    fn dry_run(&self, change: ParentChange<'_>) -> Result<()> {
        let mut change = change;
        let batch = self.whole_batch(&mut change);
        self.volume.view.dry_run(batch).map_err(from_store)
    }

    fn complete_batch(&mut self, change: &mut ParentChange<'_>) -> Result<Batch<'static>> {
        Ok(self.whole_batch(change))
    }

    fn applied(&mut self, change: &ParentChange<'_>) {
        self.volume.counters.applied(self.count_of(change));
        if let Some(next) = change.next_number {
            self.numbers.applied(next);
        }
        let changed = change.changed;
        changed.iter().for_each(|ino| self.volume.lazy_times.forget(*ino));
        self.volume.reservations.forget(changed.iter().copied(), &*self.volume.view);
    }
}
