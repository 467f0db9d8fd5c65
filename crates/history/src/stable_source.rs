//! Sources that stay as they are while they are compared: a live dataset gets an ephemeral snapshot
//! for as long as that takes.

use marram_records::failure::from_store;
use marram_store::{DatasetName, Source, Store};
use marram_vfs::Result;

/// A source that does not change; an ephemeral snapshot that was taken for that goes with it.
pub struct StableSource<'a> {
    store: &'a dyn Store,
    pub(crate) source: Source,
    taken: bool,
    is_in_memory: bool,
}

impl<'a> StableSource<'a> {
    /// The snapshot that `source` names, or the present state of the dataset that it names, kept
    /// under a name that begins with `purpose`.
    ///
    /// # Errors
    /// No such dataset, a failed commit.
    pub fn of(store: &'a dyn Store, source: &Source, purpose: &str) -> Result<StableSource<'a>> {
        if source.snapshot.is_some() {
            return Ok(StableSource {
                store,
                source: source.clone(),
                taken: false,
                is_in_memory: false,
            });
        }
        StableSource::take(store, &source.dataset, purpose)
    }

    /// The same, as a snapshot on media, which nothing overtakes.
    ///
    /// # Errors
    /// No such dataset, a store that is full or takes no changes.
    pub fn on_media(
        store: &'a dyn Store,
        source: &Source,
        purpose: &str,
    ) -> Result<StableSource<'a>> {
        if source.snapshot.is_some() {
            return Ok(StableSource {
                store,
                source: source.clone(),
                taken: false,
                is_in_memory: false,
            });
        }
        let source = store.numbered_snapshot(&source.dataset, purpose).map_err(from_store)?;
        Ok(StableSource { store, source, taken: true, is_in_memory: false })
    }

    /// The present state of a dataset, without a commit, if the store can keep that.
    ///
    /// # Errors
    /// No such dataset.
    pub(crate) fn in_memory(
        store: &'a dyn Store,
        dataset: &DatasetName,
        purpose: &str,
    ) -> Result<Option<StableSource<'a>>> {
        let source = store.present_state(dataset, purpose).map_err(from_store)?;
        Ok(source.map(|source| StableSource { store, source, taken: true, is_in_memory: true }))
    }

    /// Whether it is [`StableSource::in_memory`].
    pub(crate) fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// The snapshot, or what is named as one.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether, after an error, the work is to begin anew with a snapshot on media.
    pub fn is_overtaken(&self) -> bool {
        self.taken && self.store.is_overtaken(&self.source)
    }

    /// The present state of a dataset.
    pub(crate) fn take(
        store: &'a dyn Store,
        dataset: &DatasetName,
        purpose: &str,
    ) -> Result<StableSource<'a>> {
        let source = store.ephemeral_snapshot(dataset, purpose).map_err(from_store)?;
        Ok(StableSource { store, source, taken: true, is_in_memory: false })
    }
}

/// Destroys what a crash has left: snapshots of the store's own that no comparison needs any more,
/// forks of transactions, and datasets into which a stream was being received, but for those that
/// can go on. The daemon of a store calls it before anything else uses the store. Returns what has
/// gone.
///
/// # Errors
/// A store that takes no changes, or a snapshot that something began as: the rest stays then.
pub fn destroy_leftovers(store: &dyn Store) -> Result<Vec<Source>> {
    let reports = store.list().map_err(from_store)?;
    let left = reports.into_iter().map(|report| report.source);
    let stays = |source: &Source| {
        let is_base = source.merge_base().is_some() || source.former_base().is_some();
        source.is_fork_base() || is_base || source.dataset.is_partial()
    };
    // The snapshots of a transaction's fork go with it.
    let goes_along =
        |source: &Source| source.snapshot.is_some() && source.dataset.transaction().is_some();
    let is_left = |source: &Source| source.is_own() && !stays(source) && !goes_along(source);
    let left: Vec<Source> = left.filter(is_left).collect();
    // A transaction's fork may have begun in another one.
    let (forks, others): (Vec<Source>, Vec<Source>) =
        left.iter().cloned().partition(|source| source.dataset.transaction().is_some());
    if !forks.is_empty() {
        store.destroy_together(&forks, false).map_err(from_store)?;
    }
    for source in &others {
        store.destroy(source, false).map_err(from_store)?;
    }
    Ok(left)
}

impl Drop for StableSource<'_> {
    /// One that cannot be destroyed stays, as after a crash, until [`destroy_leftovers`].
    fn drop(&mut self) {
        if self.taken {
            self.store.discard_snapshot(&self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{StableSource, destroy_leftovers};
    use marram_store::memory::MemoryStore;
    use marram_store::{DatasetName, Source, Store};

    #[test]
    fn what_a_crash_left_goes_and_all_else_stays() {
        let store = MemoryStore::new();
        let (root, fork) = (DatasetName::root(), "forks/f".parse().unwrap());
        store.snapshot(&root, "kept").unwrap();
        store.fork(&root, &fork, 1).unwrap();
        let names = || -> Vec<String> {
            store.list().unwrap().iter().map(|report| report.source.to_string()).collect()
        };
        let before = names();
        for purpose in ["diff", "merge"] {
            std::mem::forget(
                StableSource::of(&store, &Source::live(root.clone()), purpose).unwrap(),
            );
        }
        assert_eq!(names().len(), before.len() + 2);
        let [transaction, inner] = ["1", "0"].map(|id| DatasetName::of_transaction(id).unwrap());
        store.fork(&root, &transaction, 1).unwrap();
        store.fork(&transaction, &inner, 1).unwrap();
        std::mem::forget(
            StableSource::of(&store, &Source::live(transaction.clone()), "merge").unwrap(),
        );
        let gone = destroy_leftovers(&store).unwrap();
        assert_eq!(
            gone.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["root@diff:1", "root@merge:1", "tx:0", "tx:1"]
        );
        assert_eq!(names(), before);
    }
}
