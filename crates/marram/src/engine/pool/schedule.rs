//! What automatic snapshots ask of a pool.

use crate::engine::automatic::Scheduling;
use crate::error::Result;
use marram_pool::Pool;
use marram_store::{DatasetName, Scheduled, Store};

/// A pool: a handle that acts for nobody.
pub(super) struct OfPool<'p>(pub(super) &'p Pool);

impl Scheduling for OfPool<'_> {
    fn scheduled(&self) -> Result<Vec<Scheduled>> {
        Ok(self.0.scheduled()?)
    }

    fn has_changed(&self, of: &Scheduled) -> Result<bool> {
        Ok(marram_history::has_changed(self.0, &of.dataset, of.newest.as_ref())?)
    }

    fn take(&self, due: &[Scheduled], name: &str) -> Result<Vec<DatasetName>> {
        let datasets: Vec<DatasetName> = due.iter().map(|of| of.dataset.clone()).collect();
        self.0.snapshot_together(&datasets, name)?;
        Ok(datasets)
    }
}
