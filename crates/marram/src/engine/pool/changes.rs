//! What differs between two states of a dataset, as mounts take it.

use crate::engine::changes::{ChangedInode, Changes};
use marram_history::Touched;
use marram_store::{Source, Store};

impl From<Touched> for Changes {
    fn from(touched: Touched) -> Changes {
        let inodes = touched.inodes.into_iter();
        let inodes = inodes.map(|inode| ChangedInode { ino: inode.ino, content: inode.content });
        Changes { inodes: inodes.collect(), names: touched.names }
    }
}

/// What differs between two snapshots. Costs what has changed.
///
/// # Errors
/// A failed read.
pub(super) fn between(
    store: &dyn Store,
    before: &Source,
    after: &Source,
) -> marram_vfs::Result<Changes> {
    marram_history::touched(store, before, after).map(Changes::from)
}
