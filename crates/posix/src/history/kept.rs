//! Snapshots of the pool's own: what is live is kept for as long as it is compared.

use crate::failure::from_store;
use marram_store::{DatasetName, Error as StoreError, Source, Store};
use marram_vfs::{Error, Result};

/// Numbers that are tried for the name of a snapshot: so many may be in use, or left by a crash.
const NUMBERS_MAX: u32 = 1 << 16;

/// A snapshot to work with; one that was taken for that goes when this does.
pub(super) struct Kept<'a> {
    store: &'a dyn Store,
    pub(super) source: Source,
    taken: bool,
}

impl<'a> Kept<'a> {
    /// The snapshot that `source` names, or one of the present state of the dataset that it names,
    /// called by `purpose` and a number.
    pub(super) fn of(store: &'a dyn Store, source: &Source, purpose: &str) -> Result<Kept<'a>> {
        if source.snapshot.is_some() {
            return Ok(Kept { store, source: source.clone(), taken: false });
        }
        Kept::take(store, &source.dataset, purpose)
    }

    /// A snapshot of the present state of a dataset.
    pub(super) fn take(
        store: &'a dyn Store,
        dataset: &DatasetName,
        purpose: &str,
    ) -> Result<Kept<'a>> {
        for number in 1..=NUMBERS_MAX {
            let name = format!("{purpose}:{number}");
            match store.snapshot(dataset, &name) {
                Ok(()) => {
                    let source = Source { dataset: dataset.clone(), snapshot: Some(name) };
                    return Ok(Kept { store, source, taken: true });
                }
                Err(StoreError::DatasetExists(_)) => (),
                Err(error) => return Err(from_store(error)),
            }
        }
        Err(Error::Io(format!("{dataset} has too many snapshots named {purpose}:N")))
    }
}

impl Drop for Kept<'_> {
    /// One that cannot be destroyed stays, as after a crash: it is in nobody's way.
    fn drop(&mut self) {
        if self.taken {
            let _stays = self.store.destroy(&self.source, false);
        }
    }
}
