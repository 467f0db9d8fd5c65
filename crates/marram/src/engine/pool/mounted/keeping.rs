//! Snapshots of many datasets and their thinning, as mounts show it.

use super::shown::Shown;
use crate::control::protocol::{Answer, ThinRequest};
use crate::engine::pool::keeping::{self, Thinning};
use crate::error::Result;
use marram_store::{DatasetName, Source};
use std::collections::BTreeSet;

/// Takes a snapshot of a dataset and of all below it.
///
/// # Errors
/// Whatever refuses it or fails.
pub(super) fn snapshot_below(
    shown: &Shown<'_>,
    dataset: &DatasetName,
    name: &str,
) -> Result<Answer> {
    let answer = keeping::snapshot_below(shown.pool, dataset, name)?;
    if let Answer::Snapshots { names, .. } = &answer {
        let names: std::result::Result<Vec<Source>, _> =
            names.iter().map(|name| name.parse()).collect();
        shown.mounts.members_changed(&names?);
    }
    Ok(answer)
}

/// Destroys automatic snapshots that are too many; none that is mounted.
///
/// # Errors
/// Whatever refuses it or fails.
pub(super) fn thin(shown: &Shown<'_>, request: &ThinRequest) -> Result<Answer> {
    let mounted: BTreeSet<Source> = shown.mounts.mounted().into_iter().collect();
    let thinning = Thinning::plan(shown.pool, request, &mounted)?;
    let goes = thinning.goes().to_vec();
    let withheld = (!request.dry_run).then(|| shown.mounts.withhold(&goes));
    let report = thinning.perform(shown.pool, request.dry_run);
    drop(withheld);
    if !request.dry_run {
        shown.mounts.members_changed(&goes);
    }
    Ok(Answer::Thinned(report?))
}
