//! Which datasets may have something that waits for a commit.
//!
//! A pool may have thousands of datasets, forks and snapshots, of which a few are in use. Commits
//! and syncs look at these alone: what they cost does not grow with what is there.

use crate::base::order::{self, Mutex};
use std::collections::BTreeSet;

/// The ids of datasets that have had a batch since a freeze last found nothing in them. Ids are
/// put in while a batch is applied, and taken out while none is under way.
pub(crate) struct DirtyDatasets(Mutex<BTreeSet<u64>>);

impl Default for DirtyDatasets {
    fn default() -> Self {
        DirtyDatasets(Mutex::new(order::DIRTY_DATASETS, BTreeSet::new()))
    }
}

impl DirtyDatasets {
    pub(crate) fn put(&self, id: u64) {
        self.0.lock().insert(id);
    }

    pub(crate) fn take(&self, id: u64) {
        self.0.lock().remove(&id);
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.0.lock().iter().copied().collect()
    }
}
