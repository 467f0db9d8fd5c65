//! Transactions on a pool: a fork of the dataset, and a merge that is refused if anything that was
//! read or written has been changed by others (docs/decisions/0057-begin-and-commit.md).

use super::home::PoolHome;
use super::open::acting_for;
use crate::control::protocol::CommitSummary;
use crate::engine::changes::Changes;
use crate::engine::history::conflict_row;
use crate::engine::home::{CommitOrder, Transactions};
use crate::engine::mounts::Mounts;
use crate::error::{Error, Result};
use marram_history::{Branch, MergeOptions, MergeSides};
use marram_pool::Pool;
use marram_store::{DatasetName, Source, Store};

impl Transactions for PoolHome {
    fn begin(&self, dataset: &DatasetName, id: &str) -> Result<Source> {
        let fork = DatasetName::of_transaction(id)?;
        let root = self.pool().report(&Source::live(dataset.clone()))?.root_object;
        store(self.pool()).begin_fork(dataset, &fork, root)?;
        Ok(Source::live(fork))
    }

    fn base(&self, fork: &Source) -> Result<(Source, u64)> {
        let report = self.pool().report(fork)?;
        let base = report.origin.ok_or_else(|| Error::failed(format!("{fork} is no fork")))?;
        Ok((base, report.root_object))
    }

    fn commit(&self, order: &CommitOrder<'_>, mounts: &dyn Mounts) -> Result<CommitSummary> {
        // It is where its base is in the order of all changes, and nothing is to be made durable.
        if store(self.pool()).is_unchanged(&order.fork.dataset)? {
            return Ok(CommitSummary { committed: true, conflicts: Vec::new() });
        }
        let branch = Branch::of(&**self.pool(), &order.fork.dataset)?
            .ok_or_else(|| Error::failed(format!("{} is no fork", order.fork)))?;
        // What is inside of another transaction is an operation of that one's.
        let pool = match branch.parent.dataset.transaction() {
            Some(_) => self.pool().without_author(),
            None => acting_for(self.pool(), order.author),
        };
        let sides = MergeSides {
            dataset: &branch.parent.dataset,
            base: &branch.base,
            fork: &branch.fork,
            root: branch.root,
        };
        let overlaps = |touched: &_| order.reads.overlaps(touched);
        let options = MergeOptions { strict: Some(&overlaps), ..MergeOptions::default() };
        let shown = self.shown(&pool, mounts);
        let (files, report) = shown.on_whole(&branch.parent, |whole| {
            let files = whole.files(&pool, &branch.parent)?;
            let report = marram_history::merge(&*files, &pool, sides, &options)?;
            Ok((files, report))
        })?;
        mounts.changed(&branch.parent, &*files, &Changes::from(report.change_set));
        Ok(CommitSummary {
            committed: report.applied,
            conflicts: report.conflicts.iter().map(conflict_row).collect(),
        })
    }

    fn discard(&self, fork: &Source) -> Result<()> {
        store(self.pool()).end_fork(&fork.dataset)?;
        Ok(())
    }
}

/// The methods of all stores.
fn store(pool: &Pool) -> &dyn Store {
    pool
}
