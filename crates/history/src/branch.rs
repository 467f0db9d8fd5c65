//! A fork as a branch of what it was forked from: where they parted, and the newest state that
//! both have.
//!
//! A merge keeps the state of the fork that it has read, an update that of the parent: from then on
//! it is the **base**, since both sides have all of it. `docs/decisions/0047-a-fork-is-a-branch.md`
//! has the rules.

use marram_records::failure::from_store;
use marram_store::{DatasetName, DatasetReport, Source, Store, merge_bases};
use marram_vfs::{Ino, Result};

/// A fork, and what it was forked from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The fork.
    pub fork: Source,
    /// What it was forked from.
    pub parent: Source,
    /// The snapshot of the parent that the fork began as.
    pub origin: Source,
    /// The newest state that both have: the origin, or what the last merge or update has read.
    pub base: Source,
    /// The directory that is the root of the fork.
    pub root: Ino,
}

/// What goes where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The fork's changes into the parent.
    Merge,
    /// The parent's changes into the fork.
    Update,
}

impl Branch {
    /// The branch that a dataset is; `None` if it is no fork.
    ///
    /// # Errors
    /// No such dataset.
    pub fn of(store: &dyn Store, fork: &DatasetName) -> Result<Option<Branch>> {
        let fork = Source::live(fork.clone());
        let report = store.report(&fork).map_err(from_store)?;
        if report.fork_base().is_none() {
            return Ok(None);
        }
        Ok(Branch::among(&store.list().map_err(from_store)?, &report))
    }

    /// The same, of a fork in a list of all that there is.
    pub fn among(all: &[DatasetReport], fork: &DatasetReport) -> Option<Branch> {
        let origin = fork.fork_base()?;
        let parent = Source::live(origin.dataset.clone());
        let base = merge_bases(all, &fork.source.dataset, &parent.dataset).pop();
        Some(Branch {
            fork: fork.source.clone(),
            base: base.unwrap_or_else(|| origin.clone()),
            origin: origin.clone(),
            parent,
            root: Ino(fork.root_object),
        })
    }

    /// The two between which a base is compared with what has it: `None` if they are nothing of the
    /// kind, or have the same numbers.
    pub(crate) fn between(
        store: &dyn Store,
        base: &Source,
        taker: &Source,
    ) -> Result<Option<Branch>> {
        if base.merge_base().is_none() || base.dataset == taker.dataset {
            return Ok(None);
        }
        for fork in [&taker.dataset, &base.dataset] {
            if let Some(branch) = Branch::of(store, fork)?.filter(|branch| branch.base == *base) {
                return Ok(Some(branch));
            }
        }
        Ok(None)
    }
}
