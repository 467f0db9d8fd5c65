//! Going back to a snapshot while the file system is in use.
//!
//! All inodes are locked while the store goes back, so that no operation has read one state and
//! changes the other. What is kept in memory about the state is read anew then. Inode numbers go on
//! from where they were: whoever holds a number of an inode that is gone must not find another one
//! there.

use crate::failure::{from_record, from_store};
use crate::filesystem::Posix;
use marram_format::record::Entry;
use marram_store::{Item, ItemChange, Key, Source, Store, kind};
use marram_vfs::{Error, Ino, Result};

/// What is not as it was, for whoever remembers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Inodes whose attributes, content or entries differ, ascending.
    pub inodes: Vec<Ino>,
    /// Names that lead elsewhere, or nowhere, or somewhere now: directory and name.
    pub names: Vec<(Ino, Vec<u8>)>,
}

impl Posix {
    /// Whether somebody who was told of an inode has not forgotten it. The root is always known.
    pub fn is_known(&self, ino: Ino) -> bool {
        ino.0 == self.root() || self.pins.pinned(ino.0)
    }

    /// All inodes of which somebody has been told who has not forgotten them.
    pub fn known(&self) -> Vec<Ino> {
        self.pins.all().into_iter().map(Ino).collect()
    }

    /// Runs `go_back`, which lets the dataset that this file system has open go on from a snapshot
    /// of it ([`Store::rollback`]), while all operations wait.
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
        self.promises.forget();
        self.counters.read_again(&*self.view)?;
        Ok(self.reload_limits()?)
    }
}

/// What differs between two snapshots, as far as it can be remembered. Costs what has changed.
///
/// # Errors
/// A failed read.
pub fn touched(store: &dyn Store, before: &Source, after: &Source) -> Result<Touched> {
    let mut touched = Touched::default();
    let mut failure = None;
    let mut visit = |change: ItemChange| {
        failure = touched.add(&change).err();
        failure.is_none()
    };
    store.changes(before, after, Key::MIN, &mut visit).map_err(from_store)?;
    failure.map_or(Ok(touched), Err)
}

impl Touched {
    fn add(&mut self, change: &ItemChange) -> Result<()> {
        let ino = Ino(change.key.object);
        if ino.0 == 0 {
            return Ok(());
        }
        if self.inodes.last() != Some(&ino) {
            self.inodes.push(ino);
        }
        if change.key.kind == kind::ENTRY {
            let both = [&change.before, &change.after];
            for item in both.into_iter().flatten() {
                self.names.push((ino, name_of(ino, item)?));
            }
        }
        Ok(())
    }
}

fn name_of(directory: Ino, item: &Item) -> Result<Vec<u8>> {
    let entry = Entry::decode(&item.value).map_err(|error| from_record(directory.0, &error))?;
    Ok(entry.name.to_vec())
}
