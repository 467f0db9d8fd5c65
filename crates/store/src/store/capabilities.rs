//! What a store can do beside its core, each apart from the others.
//!
//! A capability is handed out whole: a store that has it keeps its contract, and a store that
//! cannot keep it does not hand it out. So no method here has a body of its own.

use crate::{Batch, DatasetName, Error, Result, Source, Undo, Usage, View};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The capabilities of a store; none by default. A store that wraps another may hand on those of
/// the store inside, as long as it changes nothing that they speak of.
#[derive(Clone, Copy, Default)]
pub struct StoreCapabilities<'s> {
    /// A state can be kept for a comparison, without a snapshot on media.
    pub ephemeral: Option<&'s dyn EphemeralSnapshots>,
    /// It is known which datasets and snapshots hold the space.
    pub usage: Option<&'s dyn SpaceUsage>,
    /// What a commit has can be read while later ones are made.
    pub frozen: Option<&'s dyn FrozenViews>,
    /// Merges and limits are entered into a log of operations.
    pub log: Option<&'s dyn OperationLog>,
    /// That log can be read, and what is in it be taken back.
    pub undo: Option<&'s dyn Undo>,
    /// Snapshots can be kept from being destroyed.
    pub holds: Option<&'s dyn Holds>,
    /// Datasets can go on from another snapshot.
    pub lineage: Option<&'s dyn Lineage>,
    /// Forks can begin and end in memory.
    pub volatile: Option<&'s dyn VolatileForks>,
    /// Several datasets can be forked, and merged into, at one moment.
    pub several: Option<&'s dyn SeveralDatasets>,
}

/// Snapshots in memory. Nothing is written for one, so a dataset of which nothing waits for a
/// commit costs nothing to keep; a crash or the end of the store takes it away.
pub trait EphemeralSnapshots {
    /// Keeps the present state of a dataset until [`EphemeralSnapshots::discard_ephemeral`].
    /// Returns its name, which begins with `purpose` and is the store's own; by that name it is
    /// opened, reported and compared as a snapshot is. It is in no list, and its dataset counts as
    /// open.
    ///
    /// # Errors
    /// No such dataset; a failed commit.
    fn ephemeral_snapshot(&self, dataset: &DatasetName, purpose: &str) -> Result<Source>;

    /// Takes an ephemeral snapshot away; false, and nothing is done, if it is none.
    fn discard_ephemeral(&self, snapshot: &Source) -> bool;

    /// Whether an ephemeral snapshot may be the reason why a read of it failed, or
    /// [`OperationLog::apply_merge`] was refused: its dataset has gone on since, or the store had
    /// to use its space. False of any other snapshot.
    fn is_overtaken(&self, snapshot: &Source) -> bool;
}

/// Forks for which nothing is written as long as nothing else is: those of transactions.
///
/// One is a fork as [`crate::Store::fork`] makes it, by the same names, but in no list. Nothing
/// waits for a device when it begins and when it ends, and both take the same time however large
/// the dataset is. What is done in it is durable at no time: a crash takes it away, or leaves a
/// fork of this name, which goes with its space by [`crate::Store::destroy`]. It may grow larger
/// than memory.
pub trait VolatileForks {
    /// Begins a fork of the state that `dataset` has now. Its name is that of a transaction
    /// ([`DatasetName::of_transaction`]), and so may be that of the dataset: then a commit may be
    /// waited for. The dataset counts as open until the end of the fork.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], [`crate::Error::DatasetExists`]; [`crate::Error::Invalid`] for
    /// any other name; [`crate::Error::NoSpace`] if there is none for what may be written of it.
    fn begin_fork(&self, dataset: &DatasetName, name: &DatasetName, root_object: u64)
    -> Result<()>;

    /// Ends a fork: nothing finds it or its base any more, and its space comes back. Needs no space
    /// itself, and works on a store that takes no changes.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`] if there is no such fork that has begun here;
    /// [`crate::Error::InUse`] while it is open.
    fn end_fork(&self, name: &DatasetName) -> Result<()>;

    /// Whether nothing has been changed in a fork since it began.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`] if there is no such fork that has begun here.
    fn is_unchanged(&self, name: &DatasetName) -> Result<bool>;

    /// As [`EphemeralSnapshots::ephemeral_snapshot`], without a commit: what waits is in it. It is
    /// discarded and overtaken as that is, and so is a merge of it refused
    /// ([`OperationLog::apply_merge`]). With such a merge nothing has to be written of the fork
    /// itself. `None` of a fork of which so much waits that it is better committed.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`].
    fn present_state(&self, dataset: &DatasetName, purpose: &str) -> Result<Option<Source>>;
}

/// What a transaction over several datasets needs: what is done to all of them is one moment.
pub trait SeveralDatasets {
    /// Begins a fork of each dataset, as [`VolatileForks::begin_fork`] does: all of them, or none.
    /// No batch is applied between the moments of two of them, so what one has of a batch that was
    /// applied before another batch, the others have too.
    ///
    /// # Errors
    /// As there; [`crate::Error::Invalid`] if a dataset is named twice.
    fn begin_forks(&self, forks: &[ForkBegin<'_>]) -> Result<()>;

    /// Applies the batch of each merge, as [`OperationLog::apply_merge`] does, as one step: all of
    /// them at one moment, or none. So it is after a crash, and it is durable when this returns.
    /// Where there is a log, the entries of all are one step of it: one undo takes all back.
    ///
    /// # Errors
    /// As there; [`crate::Error::Invalid`] if a dataset is named twice, and for a merge that keeps
    /// a snapshot or has a base.
    fn apply_merges(&self, merges: Vec<MergeInto<'_>>) -> Result<()>;
}

/// A fork that is to begin.
#[derive(Clone, Copy, Debug)]
pub struct ForkBegin<'a> {
    /// The dataset that it is a fork of.
    pub dataset: &'a DatasetName,
    /// Its name: that of a transaction ([`DatasetName::of_transaction`]).
    pub name: &'a DatasetName,
    /// The object that is the root of what it shows.
    pub root_object: u64,
}

/// One of several merges.
pub struct MergeInto<'a> {
    /// The view of the dataset that it goes into.
    pub view: &'a dyn View,
    /// What it brings.
    pub batch: Batch<'a>,
    /// Where that comes from.
    pub merged: &'a MergedFrom<'a>,
}

/// Space by holders.
pub trait SpaceUsage {
    /// Which datasets and snapshots hold the space, as the last commit has it. May read as much as
    /// has died. With `exact`, blocks that a merge or reflink has brought from one dataset into
    /// another are counted apart: they come back with their last owner, so they are unique to none.
    /// Without, each is unique to those that have it, and no tree is walked.
    ///
    /// # Errors
    /// A failed read.
    fn usage(&self, exact: bool) -> Result<Usage>;
}

/// States of one commit.
pub trait FrozenViews {
    /// A dataset or snapshot as the last commit has it. It stays so while the dataset goes on, and
    /// knows what each of its blocks is held by ([`crate::Ownership`]), all as of that commit.
    ///
    /// # Errors
    /// No such dataset. The view's own reads fail with [`crate::Error::InUse`] if the store has so
    /// little space that what they would read had to be overwritten.
    fn frozen(&self, source: &Source) -> Result<Arc<dyn View>>;
}

/// A log of what was done to a store, by which it can be undone.
pub trait OperationLog {
    /// Applies the batch of a merge through `view`, that of the dataset, and enters the merge into
    /// the log, in one step that is durable when this returns, or waits
    /// ([`MergedFrom::may_wait`]). So is the snapshot of [`MergedFrom::keep`]: a merge that fails
    /// leaves none.
    ///
    /// One that waits is there for all readers, in one step with its entry: a crash leaves both or
    /// neither. It is durable with the next [`View::sync`] and commit, if not before.
    ///
    /// # Errors
    /// Those of [`View::apply`] and [`crate::Store::snapshot`]; [`crate::Error::InUse`] if the
    /// state that was read is overtaken, or the base of [`MergedFrom::base`] is another by then.
    fn apply_merge(
        &self,
        view: &dyn View,
        batch: Batch<'_>,
        merged: &MergedFrom<'_>,
    ) -> Result<Applied>;

    /// Returns when all merges are durable that waited when it was called. May stay for those that
    /// others are about to apply, so that all share what it costs.
    ///
    /// # Errors
    /// As for [`View::sync`]: what waits is there all the same, for as long as the store goes on.
    fn settle_merges(&self) -> Result<()>;

    /// Sets the item of [`crate::kind::LIMIT`] under an offset, or takes it away: what an owner may
    /// use of a dataset. It is entered into the log in the same step, and durable when this
    /// returns.
    ///
    /// # Errors
    /// No such dataset; otherwise as for [`View::apply`] and [`View::sync`].
    fn set_owner_limit(&self, name: &DatasetName, owner: u64, limit: Option<Bytes>) -> Result<()>;
}

/// Snapshots that are held.
pub trait Holds {
    /// Keeps a snapshot from being destroyed until the tag is released. A tag is 1 to 64 letters,
    /// digits, `-`, `_`, `.` and `:` ([`crate::check_tag`]).
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`]; [`crate::Error::Invalid`] for a live dataset, a text that is no
    /// tag, and a tag that the snapshot has.
    fn hold(&self, snapshot: &Source, tag: &str) -> Result<()>;

    /// Takes a tag of [`Holds::hold`] away.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`]; [`crate::Error::Invalid`] for a tag that the snapshot does not
    /// have.
    fn release(&self, snapshot: &Source, tag: &str) -> Result<()>;
}

/// Lines of snapshots: which goes on from which.
pub trait Lineage {
    /// Lets the dataset of the snapshot `to` go on from that snapshot, and keeps its present state
    /// as a snapshot named `keep`. Takes the same time whatever has changed. Views that are open
    /// on the dataset see the new state at once; batches wait. No other snapshot changes, and `to`
    /// may be any snapshot of the dataset, one that an earlier rollback kept too.
    ///
    /// A base of a merge ([`Source::merge_base`]) that the dataset does not have then is none any
    /// more.
    ///
    /// A batch that was prepared from what was read before the call must not be applied after it:
    /// it would put items and blocks of the other state into this one.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`]; [`crate::Error::Invalid`] for a live dataset;
    /// [`crate::Error::DatasetExists`] if `keep` is taken.
    fn rollback(&self, to: &Source, keep: &str) -> Result<()>;

    /// A clone takes over the snapshot that it began as and those before it, so that the dataset
    /// that had them can be destroyed, which from then on counts as a clone of the last of them.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a dataset that is no clone; [`crate::Error::DatasetExists`] if
    /// the clone has snapshots of the same names.
    fn promote(&self, name: &DatasetName) -> Result<()>;
}

/// How far a merge has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is durable.
    Durable,
    /// It waits for [`OperationLog::settle_merges`] or a sync.
    Waits,
}

/// What the batch of a merge brings into a dataset, for the log of operations.
#[derive(Clone, Copy, Debug)]
pub struct MergedFrom<'a> {
    /// The dataset that it goes into.
    pub dataset: &'a DatasetName,
    /// The fork whose changes they are.
    pub fork: &'a Source,
    /// The state of the fork that was read: a snapshot, perhaps an ephemeral one. Blocks that the
    /// batch adopts are those of this state.
    pub read: &'a Source,
    /// Name of a snapshot that keeps the state before the batch, if one is wanted.
    pub keep: Option<&'a str>,
    /// The object that is the root of what is merged.
    pub root_object: u64,
    /// Of a fork and its parent: the state on which the merge was computed, which must still be the
    /// newest that both have.
    pub base: Option<&'a Source>,
    /// The dataset has all of the state that was read from then on. So that state is kept in the
    /// same step, as the base of the next merge between the two ([`Source::merge_base`]).
    pub moves_base: bool,
    /// The caller makes it durable itself, if that is to be done ([`Applied::Waits`]).
    pub may_wait: bool,
}

impl ForkBegin<'_> {
    /// Refuses what [`SeveralDatasets::begin_forks`] does not begin, whatever there is; for stores.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn check_several(forks: &[ForkBegin<'_>]) -> Result<()> {
        let (mut datasets, mut names) = (BTreeSet::new(), BTreeSet::new());
        for ForkBegin { dataset, name, .. } in forks {
            if name.transaction().is_none() {
                return Err(Error::Invalid(format!("{name} is not to be a fork of {dataset}")));
            }
            if !datasets.insert(*dataset) || !names.insert(*name) {
                return Err(Error::Invalid(format!("{dataset} or {name} is named twice")));
            }
        }
        Ok(())
    }
}

impl MergedFrom<'_> {
    /// Refuses what [`SeveralDatasets::apply_merges`] does not do; for stores.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn refuse_among_several(&self) -> Result<()> {
        match self.keep.is_some() || self.base.is_some() || self.moves_base {
            false => Ok(()),
            true => Err(Error::Invalid(format!(
                "a merge into {} and other datasets keeps no snapshot and moves no base",
                self.dataset
            ))),
        }
    }
}
