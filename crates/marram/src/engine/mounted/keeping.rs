//! Snapshots of many datasets and their thinning, as mounts show it.

use super::Shown;
use crate::control::protocol::{Answer, ThinReport, ThinRequest};
use crate::engine::store_operations;
use crate::engine::thinning::Thinning;
use crate::error::Result;
use marram_store::{DatasetName, Source};
use std::collections::BTreeSet;

/// Takes a snapshot of a dataset and of all below it.
///
/// # Errors
/// Whatever refuses it or fails.
pub(crate) fn snapshot_below(
    shown: &Shown<'_>,
    dataset: &DatasetName,
    name: &str,
) -> Result<Answer> {
    let answer = store_operations::snapshot_below(shown.store, dataset, name)?;
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
pub(crate) fn thin_by(shown: &Shown<'_>, request: &ThinRequest) -> Result<Answer> {
    let mounted: BTreeSet<Source> = shown.mounts.mounted().into_iter().collect();
    let thinning = Thinning::plan(shown.store, request, &mounted)?;
    thin(shown, thinning, request.dry_run).map(Answer::Thinned)
}

/// Destroys what was found to be too many, and has the mounts show it.
///
/// # Errors
/// Whatever refuses it or fails.
pub(crate) fn thin(shown: &Shown<'_>, thinning: Thinning, dry_run: bool) -> Result<ThinReport> {
    let goes = thinning.goes().to_vec();
    let withheld = (!dry_run).then(|| shown.mounts.withhold(&goes));
    let report = thinning.perform(shown.store, dry_run);
    drop(withheld);
    if !dry_run {
        shown.mounts.members_changed(&goes);
    }
    report
}
