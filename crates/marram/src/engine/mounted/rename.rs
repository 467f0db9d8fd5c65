//! Other names for datasets and snapshots.

use super::shown::Shown;
use crate::control::protocol::Answer;
use crate::engine::store_operations::timed;
use crate::error::Result;
use marram_store::Source;

/// Gives a dataset or snapshot another name.
///
/// # Errors
/// A dataset that is mounted; whatever else refuses it.
pub(crate) fn rename(shown: &Shown<'_>, from: &Source, to: &Source) -> Result<Answer> {
    shown.refuse_mounted_dataset(from)?;
    shown.mounts.refuse_mounted(std::slice::from_ref(from))?;
    shown.with_members(|| Ok(shown.store.rename(from, to)?))?;
    Ok(Answer::Done)
}

/// Lets a clone take over the snapshots that it began as.
///
/// # Errors
/// One of these is mounted; whatever else refuses it.
pub(crate) fn promote(shown: &Shown<'_>, clone: &Source) -> Result<Answer> {
    let origin = shown.store.report(clone)?.origin;
    if let Some(origin) = &origin {
        let all = shown.store.list()?.into_iter().map(|report| report.source);
        let of_it = |source: &Source| source.dataset == origin.dataset && source.snapshot.is_some();
        shown.mounts.refuse_mounted(&all.filter(of_it).collect::<Vec<_>>())?;
    }
    let done = timed(|| shown.with_members(|| Ok(shown.store.promote(&clone.dataset)?)))?;
    // Which of the two is a fork of the other has changed.
    let other = origin.map(|origin| Source::live(origin.dataset));
    shown.mounts.members_changed(&other.into_iter().chain([clone.clone()]).collect::<Vec<_>>());
    Ok(done)
}
