//! Transactions on a cluster home: a fork that is of this daemon alone, and a merge that is one
//! publication (docs/decisions/0091-transactions-in-a-cluster-home.md).

use super::home::{ClusterHome, acting_for};
use crate::control::protocol::CommitSummary;
use crate::engine::home::{CommitOrder, Transactions};
use crate::engine::mounted::Shown;
use crate::engine::mounts::Mounts;
use crate::engine::transactions;
use crate::error::{Error, Result};
use marram_store::{DatasetName, Source, Store};

impl Transactions for ClusterHome {
    fn begin(&self, dataset: &DatasetName, id: &str) -> Result<Source> {
        transactions::begin(&self.store().without_author(), dataset, id)
    }

    fn base(&self, fork: &Source) -> Result<(Source, u64)> {
        transactions::base(self.store(), fork)
    }

    fn commit(&self, order: &CommitOrder<'_>, mounts: &dyn Mounts) -> Result<CommitSummary> {
        let has_begun = self.store().has_begun(&order.fork.dataset);
        if matches!(has_begun, Ok(false) | Err(marram_store::Error::NoDataset(_))) {
            return Err(Error::failed(
                "the fork of the transaction is gone: others had taken this daemon for lost, or \
                 have destroyed it: nothing of it was committed",
            )
            .hint("run it again"));
        }
        has_begun?;
        let branch = transactions::branch_of(self.store(), order.fork)?;
        // What is inside of another transaction is an operation of that one's.
        let store = &match branch.parent.dataset.transaction() {
            Some(_) => self.store().without_author(),
            None => acting_for(self.store(), order.author),
        };
        let shown = Shown { store, commits: store, mounts, user: None };
        let was_in_doubt = self.store().is_in_doubt();
        match transactions::merge(&shown, &branch, order) {
            // It is in the log of the home, also where it is inside of another one; what has failed
            // came after that. The kernel has not heard of it.
            Err(_) if store.has_merged() => {
                self.forget(mounts);
                Ok(CommitSummary { committed: true, ..CommitSummary::default() })
            }
            Err(error) if !was_in_doubt && self.store().is_in_doubt() => {
                Ok(CommitSummary { unknown: Some(error), ..CommitSummary::default() })
            }
            done => done,
        }
    }

    fn discard(&self, fork: &Source) -> Result<()> {
        let store: &dyn Store = &self.store().without_author();
        match store.end_fork(&fork.dataset) {
            // Others had taken this daemon for lost.
            Ok(()) | Err(marram_store::Error::NoDataset(_)) => Ok(()),
            Err(error) => {
                self.discard_later(&fork.dataset);
                Err(error.into())
            }
        }
    }
}
