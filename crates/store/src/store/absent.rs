//! What holds where a store does not have a capability, so that callers need not ask.
//!
//! Where there is no honest answer without it (a rollback, a hold, what holds the space), the
//! answer is [`Error::Unsupported`].

use super::{
    Applied, ForkBegin, FrozenViews, Holds, Lineage, MergeInto, MergedFrom, SeveralDatasets,
    SpaceUsage, Store,
};
use crate::name::{move_base, refuse_moved_base};
use crate::{Admission, Batch, DatasetName, Error, Item, Key, Result, Source, Usage, View, kind};
use bytes::Bytes;
use std::sync::Arc;

/// Numbers that are tried for the name of a numbered snapshot: so many may be in use, or left by a
/// crash.
const NUMBERS_MAX: u32 = 1 << 16;

/// The batch by which a limit is set: see [`crate::OperationLog::set_owner_limit`].
pub fn limit_batch(owner: u64, limit: Option<Bytes>) -> Batch<'static> {
    let key = Key::new(0, kind::LIMIT, owner);
    let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
    match limit {
        None => batch.remove(key),
        Some(limit) => batch.put(key, Item::plain(limit)),
    };
    batch
}

impl dyn Store + '_ {
    fn lineage(&self) -> Result<&dyn Lineage> {
        self.capabilities().lineage.ok_or(Error::Unsupported("rollback or promotion"))
    }

    fn holds(&self) -> Result<&dyn Holds> {
        self.capabilities().holds.ok_or(Error::Unsupported("holds on snapshots"))
    }

    /// [`crate::EphemeralSnapshots::ephemeral_snapshot`]; without it a numbered snapshot, which a
    /// list shows and a crash leaves.
    ///
    /// # Errors
    /// As there.
    pub fn ephemeral_snapshot(&self, dataset: &DatasetName, purpose: &str) -> Result<Source> {
        match self.capabilities().ephemeral {
            Some(it) => it.ephemeral_snapshot(dataset, purpose),
            None => self.numbered_snapshot(dataset, purpose),
        }
    }

    /// A snapshot on media of which the store chooses the name: `purpose` and a number. It is never
    /// overtaken.
    ///
    /// # Errors
    /// As for [`Store::snapshot`]; [`Error::Invalid`] if all numbers are in use.
    pub fn numbered_snapshot(&self, dataset: &DatasetName, purpose: &str) -> Result<Source> {
        for number in 1..=NUMBERS_MAX {
            let name = format!("{purpose}:{number}");
            match self.snapshot(dataset, &name) {
                Ok(()) => return Ok(Source { dataset: dataset.clone(), snapshot: Some(name) }),
                Err(Error::DatasetExists(_)) => (),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Invalid(format!("{dataset} has too many snapshots named {purpose}:N")))
    }

    /// Takes away an ephemeral or a numbered snapshot that nothing compares any more. One that
    /// cannot be destroyed stays, as after a crash.
    pub fn discard_snapshot(&self, snapshot: &Source) {
        if !self.capabilities().ephemeral.is_some_and(|it| it.discard_ephemeral(snapshot)) {
            let _stays = self.destroy(snapshot, false);
        }
    }

    /// [`crate::EphemeralSnapshots::is_overtaken`]; without it no snapshot is. What was done with
    /// one that is begins anew with a numbered snapshot.
    pub fn is_overtaken(&self, snapshot: &Source) -> bool {
        self.capabilities().ephemeral.is_some_and(|it| it.is_overtaken(snapshot))
    }

    /// [`crate::VolatileForks::begin_fork`]; without it [`Store::fork`].
    ///
    /// # Errors
    /// As there.
    pub fn begin_fork(
        &self,
        dataset: &DatasetName,
        name: &DatasetName,
        root_object: u64,
    ) -> Result<()> {
        match self.capabilities().volatile {
            Some(it) => it.begin_fork(dataset, name, root_object),
            None => self.fork(dataset, name, root_object),
        }
    }

    fn several(&self) -> Result<&dyn SeveralDatasets> {
        let several: Option<&dyn SeveralDatasets> = self.capabilities().several;
        several.ok_or(Error::Unsupported("transactions over several datasets"))
    }

    /// [`SeveralDatasets::begin_forks`]; of one dataset as without that capability. Else it is
    /// refused without.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`].
    pub fn begin_forks(&self, forks: &[ForkBegin<'_>]) -> Result<()> {
        match forks {
            [ForkBegin { dataset, name, root_object }] => {
                self.begin_fork(dataset, name, *root_object)
            }
            forks => self.several()?.begin_forks(forks),
        }
    }

    /// [`SeveralDatasets::apply_merges`]; into one dataset as without that capability: then it is
    /// durable when [`OperationLog::apply_merge`](crate::OperationLog::apply_merge) says so, and
    /// with the next [`View::sync`] at the latest. Else it is refused without.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`].
    pub fn apply_merges(&self, merges: Vec<MergeInto<'_>>) -> Result<()> {
        match <[MergeInto<'_>; 1]>::try_from(merges) {
            Ok([MergeInto { view, batch, merged }]) => {
                self.apply_merge(view, batch, merged).map(|_| ())
            }
            Err(merges) => self.several()?.apply_merges(merges),
        }
    }

    /// [`crate::VolatileForks::end_fork`]; without it the fork is destroyed. So is one that an
    /// earlier run has left.
    ///
    /// # Errors
    /// As there.
    pub fn end_fork(&self, name: &DatasetName) -> Result<()> {
        let ended = self.capabilities().volatile.map(|it| it.end_fork(name));
        match ended {
            None | Some(Err(Error::NoDataset(_))) => {
                self.destroy(&Source::live(name.clone()), false).map(|_| ())
            }
            Some(ended) => ended,
        }
    }

    /// [`crate::VolatileForks::is_unchanged`]; without it no fork is known to be.
    ///
    /// # Errors
    /// As there.
    pub fn is_unchanged(&self, name: &DatasetName) -> Result<bool> {
        self.capabilities().volatile.map_or(Ok(false), |it| it.is_unchanged(name))
    }

    /// [`crate::VolatileForks::present_state`]; without it none.
    ///
    /// # Errors
    /// As there.
    pub fn present_state(&self, dataset: &DatasetName, purpose: &str) -> Result<Option<Source>> {
        match self.capabilities().volatile {
            Some(it) => it.present_state(dataset, purpose),
            None => Ok(None),
        }
    }

    /// [`SpaceUsage::usage`]; without it refused.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`].
    pub fn usage(&self, exact: bool) -> Result<Usage> {
        let usage: Option<&dyn SpaceUsage> = self.capabilities().usage;
        usage.ok_or(Error::Unsupported("account of its space"))?.usage(exact)
    }

    /// [`FrozenViews::frozen`]; without it refused.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`].
    pub fn frozen(&self, source: &Source) -> Result<Arc<dyn View>> {
        let frozen: Option<&dyn FrozenViews> = self.capabilities().frozen;
        frozen.ok_or(Error::Unsupported("frozen views"))?.frozen(source)
    }

    /// [`crate::OperationLog::apply_merge`]; without it the batch is durable with the next
    /// [`View::sync`], and a crash may leave the snapshot of [`MergedFrom::keep`] alone.
    ///
    /// # Errors
    /// As there.
    pub fn apply_merge(
        &self,
        view: &dyn View,
        batch: Batch<'_>,
        merged: &MergedFrom<'_>,
    ) -> Result<Applied> {
        if let Some(log) = self.capabilities().log {
            return log.apply_merge(view, batch, merged);
        }
        refuse_moved_base(self, merged)?;
        if let Some(keep) = merged.keep {
            self.snapshot(merged.dataset, keep)?;
        }
        view.apply(batch).inspect_err(|_| {
            if let Some(keep) = merged.keep {
                let snapshot = Some(keep.to_owned());
                self.discard_snapshot(&Source { dataset: merged.dataset.clone(), snapshot });
            }
        })?;
        if merged.moves_base {
            move_base(self, merged)?;
        }
        Ok(Applied::Waits)
    }

    /// [`crate::OperationLog::settle_merges`]; without it a sync of the view that they went
    /// through.
    ///
    /// # Errors
    /// As there.
    pub fn settle_merges(&self, view: &dyn View) -> Result<()> {
        match self.capabilities().log {
            Some(log) => log.settle_merges(),
            None => view.sync(),
        }
    }

    /// [`crate::OperationLog::set_owner_limit`]; without it a batch and a sync.
    ///
    /// # Errors
    /// As there.
    pub fn set_owner_limit(
        &self,
        name: &DatasetName,
        owner: u64,
        limit: Option<Bytes>,
    ) -> Result<()> {
        if let Some(log) = self.capabilities().log {
            return log.set_owner_limit(name, owner, limit);
        }
        let view = self.open(&Source::live(name.clone()))?;
        view.apply(limit_batch(owner, limit))?;
        view.sync()
    }

    /// [`Holds::hold`]; without it refused.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`].
    pub fn hold(&self, snapshot: &Source, tag: &str) -> Result<()> {
        self.holds()?.hold(snapshot, tag)
    }

    /// [`Holds::release`]; without it refused.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`].
    pub fn release(&self, snapshot: &Source, tag: &str) -> Result<()> {
        self.holds()?.release(snapshot, tag)
    }

    /// [`Lineage::rollback`]; without it refused.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`].
    pub fn rollback(&self, to: &Source, keep: &str) -> Result<()> {
        self.lineage()?.rollback(to, keep)
    }

    /// [`Lineage::promote`]; without it refused.
    ///
    /// # Errors
    /// As there; [`Error::Unsupported`].
    pub fn promote(&self, name: &DatasetName) -> Result<()> {
        self.lineage()?.promote(name)
    }
}
