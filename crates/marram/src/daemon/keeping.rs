//! Snapshots of many datasets and their thinning, as mounts show it.

use super::Daemon;
use crate::control::protocol::{Answer, ThinRequest};
use crate::engine::keeping::{Thinning, snapshot_below};
use crate::error::Result;
use marram_pool::Pool;
use marram_store::{DatasetName, Source};
use std::collections::BTreeSet;

impl Daemon {
    /// Takes a snapshot of a dataset and of all below it.
    pub(super) fn snapshot_below(
        &self,
        pool: &Pool,
        dataset: &DatasetName,
        name: &str,
    ) -> Result<Answer> {
        let answer = snapshot_below(pool, dataset, name)?;
        if let Answer::Snapshots { names, .. } = &answer {
            let names: std::result::Result<Vec<Source>, _> =
                names.iter().map(|name| name.parse()).collect();
            self.shelves_changed(&names?);
        }
        Ok(answer)
    }

    /// Destroys automatic snapshots that are too many; none that is mounted.
    pub(super) fn thin(&self, pool: &Pool, request: &ThinRequest) -> Result<Answer> {
        let mounted: BTreeSet<Source> =
            self.mounts.served().into_iter().map(|mount| mount.source).collect();
        let thinning = Thinning::plan(pool, request, &mounted)?;
        let goes = thinning.goes().to_vec();
        let withheld = (!request.dry_run).then(|| self.mounts.withhold(&goes));
        if withheld.is_some() {
            self.evict(&goes);
        }
        let report = thinning.perform(pool, request.dry_run);
        drop(withheld);
        if !request.dry_run {
            self.shelves_changed(&goes);
        }
        Ok(Answer::Thinned(report?))
    }
}
