//! Going back to a snapshot while the file system is in use.
//!
//! All inodes are locked while the store goes back, so that no operation has read one state and
//! changes the other. What is kept in memory about the state is read anew then. Inode numbers go on
//! from where they were: whoever holds a number of an inode that is gone must not find another one
//! there.

use crate::filesystem::Posix;
use marram_vfs::{Error, Ino};

impl Posix {
    /// Whether somebody who was told of an inode has not forgotten it. The root is always known.
    pub fn is_known(&self, ino: Ino) -> bool {
        ino.0 == self.root() || self.pins.pinned(ino.0)
    }

    /// All inodes of which somebody has been told who has not forgotten them.
    pub fn known(&self) -> Vec<Ino> {
        self.pins.all().into_iter().map(Ino).collect()
    }

    /// How many those are.
    pub fn known_count(&self) -> usize {
        self.pins.count()
    }

    /// Runs `go_back`, which lets the dataset that this file system has open go on from a snapshot
    /// of it ([`marram_store::Store::rollback`]), while all operations wait.
    ///
    /// # Errors
    /// Those of `go_back`, which must not have changed anything then; a file system that is
    /// read-only or shut down; a failed read afterwards: then it must be opened again.
    pub fn roll_back<E: From<Error>>(
        &self,
        go_back: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.check_running()?;
        self.check_writable()?;
        self.write_lazy_times();
        let _all_waits = self.locks.all();
        go_back()?;
        self.lazy_times.clear();
        self.orphans.search_again();
        self.promises.forget_all(&*self.view);
        self.counters.read_again(&*self.view)?;
        Ok(self.reload_limits()?)
    }
}
