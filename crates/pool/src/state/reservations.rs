//! What is kept free for datasets with a reservation.

use crate::memtable::dataset::Dataset;
use crate::state::State;
use crate::state::records::is_hidden;
use std::sync::atomic::Ordering;

impl State {
    /// After a commit that changed the records of these: datasets know what they refer to. Others
    /// are looked at only in a pool that keeps space free for one.
    pub(crate) fn note_referenced(&self, changed: &[u64]) {
        let is_reserving = {
            let datasets = self.datasets.read();
            let records = self.records.read();
            for id in changed {
                if let (Some(dataset), Some(record)) = (datasets.get(id), records.get(*id)) {
                    dataset.allowance.set_referenced(record.referenced_grains);
                }
            }
            let mut changed = changed.iter().filter_map(|id| datasets.get(id));
            changed.any(|dataset| dataset.allowance.is_reserving())
        };
        if is_reserving || self.ledger.kept_free_bytes.load(Ordering::Acquire) > 0 {
            self.sum_reservations();
        }
    }

    /// Sums up what is kept free for datasets; when a pool is opened, and when properties are set.
    pub(crate) fn sum_reservations(&self) {
        let datasets = self.datasets.read();
        let records = self.records.read();
        // What was read from a device may be any number.
        let mut kept_free = 0_u64;
        for (id, dataset) in datasets.iter().filter(|(_, dataset)| dataset.writable) {
            if let Some(record) = records.get(*id) {
                dataset.allowance.set_referenced(record.referenced_grains);
                // What is kept for an undo does not grow.
                if !is_hidden(record) {
                    kept_free = kept_free.saturating_add(dataset.allowance.kept_free());
                }
            }
        }
        self.ledger.kept_free_bytes.store(kept_free, Ordering::Release);
    }

    /// Bytes that are kept free for other datasets than this one.
    pub(crate) fn kept_free_for_others(&self, dataset: &Dataset) -> u64 {
        let all = self.ledger.kept_free_bytes.load(Ordering::Acquire);
        all.saturating_sub(dataset.allowance.kept_free())
    }
}
