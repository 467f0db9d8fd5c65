//! The names of directories by their keys, in memory.

use marram_format::record::NameRule;
use marram_vfs::{FileSystem, Ino, Name, Result};
use std::collections::{BTreeSet, HashMap};

/// Most names that are kept, in bytes of names and keys.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// What a name takes beside its bytes and those of its key.
const ENTRY_BYTES: usize = 96;

/// What all spellings of a name have in common.
fn key(name: &[u8]) -> Vec<u8> {
    NameRule::Folded.key(name).into_owned()
}

fn bytes_of(name: &[u8]) -> usize {
    ENTRY_BYTES + 2 * name.len()
}

/// The names of one directory.
#[derive(Debug, Default)]
struct Index {
    /// Names by key; those with one key in the order of their bytes.
    names: HashMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    bytes: usize,
}

impl Index {
    /// Reads the names of a directory.
    fn read(files: &dyn FileSystem, directory: Ino) -> Result<Index> {
        let mut index = Index::default();
        files.read_directory(directory, 0, false, &mut |entry| {
            index.insert(entry.name);
            true
        })?;
        Ok(index)
    }

    fn insert(&mut self, name: &[u8]) {
        if self.names.entry(key(name)).or_default().insert(name.to_vec()) {
            self.bytes += bytes_of(name);
        }
    }

    fn remove(&mut self, name: &[u8]) {
        let key = key(name);
        let Some(known) = self.names.get_mut(&key) else { return };
        if known.remove(name) {
            self.bytes -= bytes_of(name);
        }
        if known.is_empty() {
            self.names.remove(&key);
        }
    }

    /// The first of the names with the key of this one.
    fn find(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.names.get(&key(name)).and_then(|known| known.first().cloned())
    }
}

/// The names of the directories that were asked for last.
#[derive(Debug, Default)]
pub(crate) struct Indices {
    kept: HashMap<Ino, Index>,
    bytes: usize,
}

impl Indices {
    /// The name in a directory that another spelling stands for.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn find(
        &mut self,
        files: &dyn FileSystem,
        directory: Ino,
        name: Name<'_>,
    ) -> Result<Option<Vec<u8>>> {
        if files.is_shared() {
            // Others may have changed it since.
            self.kept.clear();
            self.bytes = 0;
            return Ok(Index::read(files, directory)?.find(name.as_bytes()));
        }
        if let Some(index) = self.kept.get(&directory) {
            return Ok(index.find(name.as_bytes()));
        }
        let index = Index::read(files, directory)?;
        let found = index.find(name.as_bytes());
        self.keep(directory, index);
        Ok(found)
    }

    /// Keeps an index, and as many of the others as there is room for.
    fn keep(&mut self, directory: Ino, index: Index) {
        if index.bytes > KEPT_BYTES_MAX {
            return;
        }
        if self.bytes + index.bytes > KEPT_BYTES_MAX {
            self.kept.clear();
            self.bytes = 0;
        }
        self.bytes += index.bytes + ENTRY_BYTES;
        self.kept.insert(directory, index);
    }

    fn change(&mut self, directory: Ino, change: impl FnOnce(&mut Index)) {
        let Some(index) = self.kept.get_mut(&directory) else { return };
        let before = index.bytes;
        change(index);
        self.bytes = self.bytes + index.bytes - before;
        if self.bytes > KEPT_BYTES_MAX {
            self.kept.clear();
            self.bytes = 0;
        }
    }

    /// Notes a name that was made.
    pub(crate) fn insert(&mut self, directory: Ino, name: &[u8]) {
        self.change(directory, |index| index.insert(name));
    }

    /// Notes a name that was removed.
    pub(crate) fn remove(&mut self, directory: Ino, name: &[u8]) {
        self.change(directory, |index| index.remove(name));
    }

    /// Forgets the names of a directory.
    pub(crate) fn forget(&mut self, directory: Ino) {
        if let Some(index) = self.kept.remove(&directory) {
            self.bytes -= index.bytes + ENTRY_BYTES;
        }
    }
}
