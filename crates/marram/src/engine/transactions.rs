//! Transactions on any store: a fork of the dataset, and a merge that is refused if anything that
//! was read or written has been changed by others (docs/decisions/0057-begin-and-commit.md).

use super::changes::Changes;
use super::history::conflict_row;
use super::home::CommitOrder;
use super::mounted::Shown;
use crate::control::protocol::CommitSummary;
use crate::error::{Error, Result};
use marram_history::{Branch, MergeOptions, MergeReport, MergeSides, Parent};
use marram_store::{DatasetName, Source, Store};

/// See [`super::home::Transactions::begin`].
///
/// # Errors
/// As there.
pub(super) fn begin(store: &dyn Store, dataset: &DatasetName, id: &str) -> Result<Source> {
    let fork = DatasetName::of_transaction(id)?;
    let root = store.report(&Source::live(dataset.clone()))?.root_object;
    store.begin_fork(dataset, &fork, root)?;
    Ok(Source::live(fork))
}

/// See [`super::home::Transactions::base`].
///
/// # Errors
/// As there.
pub(super) fn base(store: &dyn Store, fork: &Source) -> Result<(Source, u64)> {
    let report = store.report(fork)?;
    let base = report.origin.ok_or_else(|| no_fork(fork))?;
    Ok((base, report.root_object))
}

/// The fork of a transaction, and what it is merged into.
///
/// # Errors
/// There is no such fork.
pub(super) fn branch_of(store: &dyn Store, fork: &Source) -> Result<Branch> {
    Branch::of(store, &fork.dataset)?.ok_or_else(|| no_fork(fork))
}

fn no_fork(fork: &Source) -> Error {
    Error::failed(format!("{fork} is no fork"))
}

/// Merges what a transaction has changed into its dataset, through the store of `shown`, unless
/// others have changed what it has read or written. Programs see it before it is durable, as they
/// see all that is written.
///
/// # Errors
/// As for [`super::home::Transactions::commit`].
pub(super) fn merge(
    shown: &Shown<'_>,
    branch: &Branch,
    order: &CommitOrder<'_>,
) -> Result<CommitSummary> {
    let sides = MergeSides {
        dataset: &branch.parent.dataset,
        base: &branch.base,
        fork: &branch.fork,
        root: branch.root,
    };
    let overlaps = |touched: &_| order.reads.overlaps(touched);
    let options =
        MergeOptions { strict: Some(&overlaps), may_wait: true, ..MergeOptions::default() };
    let (files, report) = shown.on_whole(&branch.parent, |whole| {
        let files = whole.files(shown.store, &branch.parent)?;
        let report = marram_history::merge(&*files, shown.store, sides, &options)?;
        Ok((files, report))
    })?;
    let mut summary = summary_of(&report);
    shown.mounts.changed(&branch.parent, &*files, &Changes::from(report.change_set));
    if report.waits
        && let Err(error) = shown.store.settle_merges(files.view())
    {
        // It is there, and may be durable at some time.
        summary = CommitSummary { unknown: Some(error.into()), ..CommitSummary::default() };
    }
    Ok(summary)
}

/// Most conflicts that a refused commit names: an answer of any length would not be read.
const CONFLICTS_NAMED_MAX: usize = 10_000;

/// What a commit has done, as commands report it.
pub(super) fn summary_of(report: &MergeReport) -> CommitSummary {
    let conflicts = report.conflicts.iter().take(CONFLICTS_NAMED_MAX);
    CommitSummary {
        committed: report.applied,
        conflicts: conflicts.map(conflict_row).collect(),
        unknown: None,
    }
}
