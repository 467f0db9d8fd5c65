//! What the pool can do beside the core of a store: each operation forwards to the room that has
//! it.

use crate::front::Pool;
use crate::snapshots::{datasets, ephemeral, forks, limits, merge_commit, properties, usage};
use crate::views::frozen;
use bytes::Bytes;
use marram_store::{
    Applied, Batch, DatasetName, EphemeralSnapshots, ForkBegin, FrozenViews, Holds, Lineage,
    MergeInto, MergedFrom, OperationLog, Result, SeveralDatasets, Source, SpaceUsage, Usage, View,
    VolatileForks,
};
use std::sync::Arc;

impl EphemeralSnapshots for Pool {
    fn ephemeral_snapshot(&self, dataset: &DatasetName, purpose: &str) -> Result<Source> {
        ephemeral::take(&self.session, dataset, purpose)
    }

    fn discard_ephemeral(&self, snapshot: &Source) -> bool {
        ephemeral::discard(&self.session, snapshot)
    }

    fn is_overtaken(&self, snapshot: &Source) -> bool {
        ephemeral::is_overtaken(&self.session, snapshot)
    }
}

impl SpaceUsage for Pool {
    fn usage(&self, exact: bool) -> Result<Usage> {
        usage::usage(&self.session.state, exact)
    }
}

impl FrozenViews for Pool {
    fn frozen(&self, source: &Source) -> Result<Arc<dyn View>> {
        frozen::open(&self.session.state, source)
    }
}

impl OperationLog for Pool {
    fn apply_merge(
        &self,
        view: &dyn View,
        batch: Batch<'_>,
        merged: &MergedFrom<'_>,
    ) -> Result<Applied> {
        merge_commit::enter_merge(&self.session, MergeInto { view, batch, merged })
    }

    fn settle_merges(&self) -> Result<()> {
        merge_commit::settle(&self.session)
    }

    fn set_owner_limit(&self, name: &DatasetName, owner: u64, limit: Option<Bytes>) -> Result<()> {
        limits::enter_limit(&self.session, name, owner, limit)
    }
}

impl Holds for Pool {
    fn hold(&self, snapshot: &Source, tag: &str) -> Result<()> {
        properties::hold(&self.session, snapshot, tag)
    }

    fn release(&self, snapshot: &Source, tag: &str) -> Result<()> {
        properties::release(&self.session, snapshot, tag)
    }
}

impl VolatileForks for Pool {
    fn begin_fork(
        &self,
        dataset: &DatasetName,
        name: &DatasetName,
        root_object: u64,
    ) -> Result<()> {
        forks::begin(&self.session, &[ForkBegin { dataset, name, root_object }])
    }

    fn end_fork(&self, name: &DatasetName) -> Result<()> {
        forks::end(&self.session, name)
    }

    fn is_unchanged(&self, name: &DatasetName) -> Result<bool> {
        forks::is_unchanged(&self.session, name)
    }

    fn present_state(&self, dataset: &DatasetName, purpose: &str) -> Result<Option<Source>> {
        ephemeral::present(&self.session, dataset, purpose)
    }
}

impl SeveralDatasets for Pool {
    fn begin_forks(&self, forks: &[ForkBegin<'_>]) -> Result<()> {
        forks::begin(&self.session, forks)
    }

    fn apply_merges(&self, merges: Vec<MergeInto<'_>>) -> Result<()> {
        merge_commit::enter_merges(&self.session, merges)
    }
}

impl Lineage for Pool {
    fn rollback(&self, to: &Source, keep: &str) -> Result<()> {
        datasets::rollback(&self.session, to, keep)
    }

    fn promote(&self, name: &DatasetName) -> Result<()> {
        datasets::promote(&self.session, name)
    }
}
