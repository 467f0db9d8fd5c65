//! Datasets and snapshots: made, listed, compared, destroyed.
//!
//! What only some stores can do is a capability ([`StoreCapabilities`]), which the store hands out
//! or does not have. What holds without it is written once, beside it, in the methods of
//! `dyn Store`.

mod absent;
mod capabilities;

pub use absent::limit_batch;
pub use capabilities::{
    Applied, EphemeralSnapshots, ForkBegin, FrozenViews, Holds, Lineage, MergeInto, MergedFrom,
    OperationLog, SeveralDatasets, SpaceUsage, StoreCapabilities, VolatileForks,
};

use crate::{DatasetName, Item, Key, Result, Source, View};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Properties of a dataset in force: name to value, as text. Each store documents its own; all
/// have `recordsize` (largest block that a file is cut into, in bytes: a power of two from 4096 to
/// 1048576).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties(pub BTreeMap<String, String>);

/// Where a property's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertySource {
    /// The store has it for every dataset.
    Default,
    /// The dataset has one of its own.
    Local,
}

/// What a dataset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetKind {
    /// A writable dataset that was created empty.
    Live,
    /// A writable dataset that began as a snapshot.
    Clone,
    /// A state that does not change.
    Snapshot,
}

/// What is known of a dataset or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetReport {
    /// Its name.
    pub source: Source,
    /// Greater than that of all that were made before it.
    pub number: u64,
    /// What it is.
    pub kind: DatasetKind,
    /// The snapshot that a clone or fork began as.
    pub origin: Option<Source>,
    /// The object that is the root of what it shows: 1, but of a fork the directory that was
    /// forked; a fork's snapshots and their clones have it from the fork.
    pub root_object: u64,
    /// It was made by [`Store::fork`], and its origin is the snapshot that was taken for that.
    pub is_fork: bool,
    /// The user whose fork it is, or whose fork it is a snapshot of; 0 is root, and nobody else.
    pub owner: u32,
    /// The tags that keep a snapshot from being destroyed ([`Holds`]), sorted.
    pub holds: Vec<String>,
    /// When it was made: seconds since 1970.
    pub created_seconds: i64,
    /// Bytes that it refers to, shared or not.
    pub referenced_bytes: u64,
}

impl DatasetReport {
    /// The snapshot that a fork began as; none of what is no fork.
    pub fn fork_base(&self) -> Option<&Source> {
        self.origin.as_ref().filter(|_| self.is_fork)
    }
}

/// The root of a dataset that is no fork of a directory.
pub const ROOT_OBJECT: u64 = 1;

/// An item in which two states differ, in its value or its block.
#[derive(Clone, Debug)]
pub struct ItemChange {
    /// The key.
    pub key: Key,
    /// The item in the first state.
    pub before: Option<Item>,
    /// The item in the second state.
    pub after: Option<Item>,
}

/// What a destruction would take, or took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destruction {
    /// Every dataset and snapshot that goes.
    pub sources: Vec<Source>,
    /// Bytes that come back.
    pub freed_bytes: u64,
}

/// Datasets and snapshots of one store: what every store can do. Every change is durable when it
/// returns, and applies wholly or not at all.
pub trait Store: Send + Sync {
    /// Opens a dataset or snapshot.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], or a failed read.
    fn open(&self, source: &Source) -> Result<Arc<dyn View>>;

    /// Lists all datasets and snapshots in order of their names. Reads nothing from a device.
    fn list(&self) -> Result<Vec<DatasetReport>>;

    /// What is known of one dataset or snapshot. Takes the same time however many there are.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`].
    fn report(&self, source: &Source) -> Result<DatasetReport>;

    /// Makes an empty dataset.
    ///
    /// # Errors
    /// [`crate::Error::DatasetExists`]; [`crate::Error::Invalid`] for a property that makes no
    /// sense.
    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()>;

    /// [`Store::snapshot_together`] of one dataset.
    ///
    /// # Errors
    /// As there.
    fn snapshot(&self, dataset: &DatasetName, snapshot: &str) -> Result<()> {
        self.snapshot_together(std::slice::from_ref(dataset), snapshot)
    }

    /// Makes the present state of each dataset the snapshot `dataset@snapshot`, all at one moment:
    /// all or none. All batches that were applied before the call are in it. Takes the same time
    /// and space however large the datasets are.
    ///
    /// # Errors
    /// [`crate::Error::DatasetExists`] if one of them has a snapshot of that name;
    /// [`crate::Error::NoDataset`]; [`crate::Error::Invalid`] for a text that is no name.
    fn snapshot_together(&self, datasets: &[DatasetName], snapshot: &str) -> Result<()>;

    /// Makes a writable dataset that begins as a snapshot.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], [`crate::Error::DatasetExists`].
    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()>;

    /// Makes a fork: a clone of the state that `dataset` has now, with `root_object` as the root of
    /// what it shows. In the same step a snapshot of `dataset` is taken that it begins as, its
    /// **base**, which [`DatasetReport::origin`] of the fork names; its name begins with `fork:`
    /// ([`Source::fork_base`]). Takes the same time and space however large the dataset is. This is
    /// the only way to the name of a transaction's fork ([`DatasetName::of_transaction`]).
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], [`crate::Error::DatasetExists`].
    fn fork(&self, dataset: &DatasetName, name: &DatasetName, root_object: u64) -> Result<()>;

    /// Gives a dataset (its snapshots go with it) or a snapshot (of the same dataset) another
    /// name. Works while it is open.
    ///
    /// # Errors
    /// What [`crate::check_rename`] refuses; [`crate::Error::NoDataset`],
    /// [`crate::Error::DatasetExists`].
    fn rename(&self, from: &Source, to: &Source) -> Result<()>;

    /// Visits, by ascending keys from `from` on, the items in which two snapshots of this store
    /// (ephemeral ones too) differ, until the visitor returns false. Costs what differs, not what
    /// is there. What the store keeps for itself ([`crate::kind::REFERENCES`]) is not shown. An
    /// item whose block was only marked as shared, or adopted by a merge, may be shown with a block
    /// that has the same content.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a live dataset; [`crate::Error::NoDataset`], a failed read.
    fn changes(
        &self,
        before: &Source,
        after: &Source,
        from: Key,
        visit: &mut dyn FnMut(ItemChange) -> bool,
    ) -> Result<()>;

    /// [`Store::destroy_together`] of one dataset or snapshot.
    ///
    /// # Errors
    /// As there.
    fn destroy(&self, source: &Source, dry_run: bool) -> Result<Destruction> {
        self.destroy_together(std::slice::from_ref(source), dry_run)
    }

    /// Destroys snapshots, and datasets with all their snapshots, in one step: all or none; with
    /// `dry_run`, only says what would go. Space that only several of them hold together comes back
    /// too. It may come back later, in steps of the background; a batch that finds no space gets it
    /// at once. With the last fork that began as it goes its base, and with a dataset the bases of
    /// its merges.
    ///
    /// # Errors
    /// [`crate::Error::InUse`] while something that would go is open or held, or while another
    /// dataset or line of snapshots that stays began as it: a rollback to a snapshot, and each
    /// clone, begins such a line. [`crate::Error::NoDataset`]; [`crate::Error::Invalid`] for the
    /// root dataset.
    fn destroy_together(&self, sources: &[Source], dry_run: bool) -> Result<Destruction>;

    /// The properties of a dataset and where each comes from.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`].
    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>>;

    /// Sets a property; `None` goes back to the default.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`]; [`crate::Error::Invalid`] for a property or value that makes no
    /// sense.
    fn set_property(&self, name: &DatasetName, property: &str, value: Option<&str>) -> Result<()>;

    /// Returns when everything that was applied before is durable.
    fn sync(&self) -> Result<()>;

    /// What the store can do beside that; [`StoreCapabilities::default`] where it can do no more.
    /// The answer is the same at every call.
    fn capabilities(&self) -> StoreCapabilities<'_>;
}
