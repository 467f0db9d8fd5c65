//! What a client had waiting when it was taken for lost is kept as forks.
//!
//! Another client that expels one which is alone, and may come back, forks each dataset in the same
//! entry: so the state on which the lost one worked stays. When that one comes back, it puts what
//! waited into the forks. They can be compared and merged as any fork.

use super::Cluster;
use crate::draft::Draft;
use crate::format::Role;
use crate::pending::Pending;
use marram_store::{Batch, DatasetName, Edit, Error, Result, Source, Store};

/// How often a rescue begins anew because others have changed the fork.
const TRIES_MAX: usize = 1000;

/// The name of the fork of a dataset for a client that is expelled by an entry.
fn name_of(entry: u64, dataset: u64) -> Result<DatasetName> {
    format!("lost-{entry}-{dataset}").parse()
}

/// Forks all datasets for a client that is expelled.
pub(crate) fn fork_for_lost(draft: &mut Draft) -> Result<()> {
    let entry = draft.entry();
    let records = draft.catalogue().records();
    let live = records.filter(|(_, record)| matches!(record.role, Role::Dataset { .. }));
    let live: Vec<_> =
        live.map(|(number, record)| (number, record.name.clone(), record.root_object)).collect();
    for (number, name, root_object) in live {
        draft.fork(&name.parse()?, &name_of(entry, number)?, root_object)?;
    }
    Ok(())
}

impl Cluster {
    /// Whether this client was taken for lost while something of it waited for its publication.
    pub fn has_lost(&self) -> bool {
        let state = self.shared.state.read();
        state.expelled_by.is_some() && !state.unpublished().is_empty()
    }

    /// Puts what waited here when this client was taken for lost into forks, through another client
    /// of the same store. Returns their names.
    ///
    /// # Errors
    /// The forks are not there, or the database fails; then it may be tried anew.
    pub fn rescue(&self, through: &Cluster) -> Result<Vec<DatasetName>> {
        let (entry, unpublished) = {
            let state = self.shared.state.read();
            let Some(entry) = state.expelled_by else { return Ok(Vec::new()) };
            (entry, state.unpublished())
        };
        let mut forks = Vec::new();
        for (dataset, items) in unpublished.datasets() {
            let name = name_of(entry, dataset)?;
            let view = through.open(&Source::live(name.clone()))?;
            let together = view.capabilities().together;
            let mut tries = 0;
            loop {
                let seen = together.map(|together| together.look()).transpose()?;
                let mut batch = Batch { seen, ..Batch::new() };
                batch.edits.extend(items.iter().map(|(key, item)| match item {
                    Some(item) => Edit::Put { key: *key, item: item.clone() },
                    None => Edit::Remove { key: *key },
                }));
                tries += 1;
                match view.apply(batch) {
                    Err(Error::Overtaken) if tries < TRIES_MAX => {}
                    applied => break applied?,
                }
            }
            view.sync()?;
            forks.push(name);
        }
        let mut state = self.shared.state.write();
        (state.frozen, state.pending) = (None, Pending::default());
        Ok(forks)
    }
}
