//! Transactions on a pool: a fork of the dataset, and a merge that is refused if anything that was
//! read or written has been changed by others (docs/decisions/0057-begin-and-commit.md).

use super::home::PoolHome;
use super::open::acting_for;
use crate::control::protocol::CommitSummary;
use crate::engine::changes::Changes;
use crate::engine::home::{CommitOrder, SeveralDatasets, Transactions, TwoPools};
use crate::engine::mounts::Mounts;
use crate::engine::transactions::{self, branch_of, summary_of};
use crate::error::{Error, Result};
use marram_history::{Branch, MergeOptions, MergePart, MergeSides, Touched};
use marram_pool::{Health, Pool};
use marram_posix::{Posix, hold_together};
use marram_store::{DatasetName, ForkBegin, Source, Store};

impl Transactions for PoolHome {
    fn begin(&self, dataset: &DatasetName, id: &str) -> Result<Source> {
        transactions::begin(store(self.pool()), dataset, id)
    }

    fn base(&self, fork: &Source) -> Result<(Source, u64)> {
        transactions::base(store(self.pool()), fork)
    }

    fn commit(&self, order: &CommitOrder<'_>, mounts: &dyn Mounts) -> Result<CommitSummary> {
        // It is where its base is in the order of all changes, and nothing is to be made durable.
        if store(self.pool()).is_unchanged(&order.fork.dataset)? {
            return Ok(CommitSummary { committed: true, ..CommitSummary::default() });
        }
        let branch = branch_of(&**self.pool(), order.fork)?;
        // What is inside of another transaction is an operation of that one's.
        let pool = match branch.parent.dataset.transaction() {
            Some(_) => self.pool().without_author(),
            None => acting_for(self.pool(), order.author).expecting_merge(),
        };
        let was_online = is_online(self.pool());
        match transactions::merge(&self.shown(&pool, mounts), &branch, order) {
            Err(error) if was_online && !is_online(self.pool()) => Ok(unknown(error)),
            done => done,
        }
    }

    fn discard(&self, fork: &Source) -> Result<()> {
        store(self.pool()).end_fork(&fork.dataset)?;
        Ok(())
    }

    fn several(&self) -> Option<&dyn SeveralDatasets> {
        Some(self)
    }

    fn two_pools(&self) -> Option<&dyn TwoPools> {
        Some(self)
    }
}

impl SeveralDatasets for PoolHome {
    fn begin_in(&self, datasets: &[DatasetName], id: &str) -> Result<Vec<Source>> {
        let (mut names, mut roots) = (Vec::new(), Vec::new());
        for (place, dataset) in datasets.iter().enumerate() {
            names.push(DatasetName::of_transaction_at(id, place)?);
            roots.push(self.pool().report(&Source::live(dataset.clone()))?.root_object);
        }
        let begins = datasets.iter().zip(&names).zip(roots);
        let begins =
            begins.map(|((dataset, name), root_object)| ForkBegin { dataset, name, root_object });
        store(self.pool()).begin_forks(&begins.collect::<Vec<_>>())?;
        Ok(names.into_iter().map(Source::live).collect())
    }

    fn commit_all(
        &self,
        orders: &[CommitOrder<'_>],
        mounts: &dyn Mounts,
    ) -> Result<Vec<CommitSummary>> {
        let mut is_unchanged = true;
        for order in orders {
            is_unchanged = is_unchanged && store(self.pool()).is_unchanged(&order.fork.dataset)?;
        }
        if is_unchanged {
            let same = CommitSummary { committed: true, ..CommitSummary::default() };
            return Ok(vec![same; orders.len()]);
        }
        let mut is_inside = false;
        for order in orders {
            let parent = branch_of(&**self.pool(), order.fork)?.parent;
            is_inside = is_inside || parent.dataset.transaction().is_some();
        }
        let pool = match (is_inside, orders.first()) {
            (false, Some(order)) => acting_for(self.pool(), order.author),
            _ => self.pool().without_author(),
        };
        let was_online = is_online(self.pool());
        match merge_orders(self, &pool, (orders, mounts), false) {
            Err(error) if was_online && !is_online(self.pool()) => Ok(vec![unknown(error)]),
            done => done,
        }
    }
}

/// Whether the pool takes changes. One that takes none any more since a commit may have that
/// commit on its device: it is not known before the pool is opened again.
fn is_online(pool: &Pool) -> bool {
    pool.status().health == Health::Online
}

fn unknown(error: Error) -> CommitSummary {
    CommitSummary { unknown: Some(error), ..CommitSummary::default() }
}

/// Merges what transactions have changed into their datasets through `pool`, a handle of the
/// pool, as one step; with `always` also what has changed nothing, whose reads are compared.
///
/// # Errors
/// As for [`SeveralDatasets::commit_all`].
pub(super) fn merge_orders(
    home: &PoolHome,
    pool: &Pool,
    (orders, mounts): (&[CommitOrder<'_>], &dyn Mounts),
    always: bool,
) -> Result<Vec<CommitSummary>> {
    let branches = orders.iter().map(|order| branch_of(&**home.pool(), order.fork));
    let branches: Vec<Branch> = branches.collect::<Result<_>>()?;
    let overlaps: Vec<_> =
        orders.iter().map(|order| |touched: &Touched| order.reads.overlaps(touched)).collect();
    let options: Vec<MergeOptions<'_>> = overlaps
        .iter()
        .map(|strict| MergeOptions { strict: Some(strict), always, ..MergeOptions::default() })
        .collect();
    let sides = branches.iter().map(|branch| MergeSides {
        dataset: &branch.parent.dataset,
        base: &branch.base,
        fork: &branch.fork,
        root: branch.root,
    });
    let merges: Vec<_> = sides.zip(&options).collect();
    let parents: Vec<Source> = branches.iter().map(|branch| branch.parent.clone()).collect();
    let shown = home.shown(pool, mounts);
    let (files, reports) = shown.on_all(&parents, &|files| {
        let mut parts = Vec::with_capacity(files.len());
        for (parent, (sides, options)) in files.iter().zip(&merges) {
            let parent: &Posix = parent;
            parts.push(MergePart { parent, sides: *sides, options });
        }
        let all: Vec<&Posix> = files.iter().map(|files| &**files).collect();
        let hold = || Ok(hold_together(&all));
        Ok(marram_history::merge_together(pool, &parts, &hold)?)
    })?;
    let mut summaries = Vec::with_capacity(reports.len());
    for ((parent, files), report) in parents.iter().zip(&files).zip(reports) {
        summaries.push(summary_of(&report));
        mounts.changed(parent, &**files, &Changes::from(report.change_set));
    }
    Ok(summaries)
}

/// The methods of all stores.
fn store(pool: &Pool) -> &dyn Store {
    pool
}
