//! What differs between two states of a dataset, as mounts take it.

use crate::engine::changes::{ChangedInode, Changes};
use marram_history::ChangeSet;
use marram_store::{Source, Store};

impl From<ChangeSet> for Changes {
    fn from(change_set: ChangeSet) -> Changes {
        let inodes = change_set.inodes.into_iter();
        let inodes = inodes.map(|inode| ChangedInode { ino: inode.ino, content: inode.content });
        Changes { inodes: inodes.collect(), names: change_set.names }
    }
}

/// What differs between two snapshots. Costs what has changed.
///
/// # Errors
/// A failed read.
pub(crate) fn between(
    store: &dyn Store,
    before: &Source,
    after: &Source,
) -> marram_vfs::Result<Changes> {
    marram_history::change_set(store, before, after).map(Changes::from)
}
