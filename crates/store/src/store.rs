//! Datasets and snapshots: made, listed, destroyed.

use crate::{DatasetName, Result, Source, View};
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
    /// Nobody has set it.
    Default,
    /// It was set on this dataset.
    Local,
}

/// What a dataset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetKind {
    /// A writable dataset that was created empty.
    Live,
    /// A writable dataset that began as a snapshot.
    Clone,
    /// A kept state.
    Snapshot,
}

/// What is known of a dataset or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetReport {
    /// Its name.
    pub source: Source,
    /// What it is.
    pub kind: DatasetKind,
    /// The snapshot that a clone began as.
    pub origin: Option<Source>,
    /// When it was made: seconds since 1970.
    pub created_seconds: i64,
    /// Bytes that it refers to, shared or not.
    pub referenced_bytes: u64,
    /// Bytes that only it refers to: what destroying it would give back.
    pub unique_bytes: u64,
}

/// What a destruction would take, or took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destruction {
    /// Every dataset and snapshot that goes.
    pub sources: Vec<Source>,
    /// Bytes that come back.
    pub freed_bytes: u64,
}

/// Datasets and snapshots of one store. Every change is durable when it returns.
pub trait Store: Send + Sync {
    /// Opens a dataset or snapshot.
    fn open(&self, source: &Source) -> Result<Arc<dyn View>>;

    /// Lists all datasets and snapshots in order of their names.
    fn list(&self) -> Result<Vec<DatasetReport>>;

    /// Makes an empty dataset.
    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()>;

    /// Keeps the present state of `dataset` as `dataset@snapshot`: all batches applied before the
    /// call are in it. Takes the same time and space however large the dataset is.
    fn snapshot(&self, dataset: &DatasetName, snapshot: &str) -> Result<()>;

    /// Makes a writable dataset that begins as a snapshot.
    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()>;

    /// Destroys a snapshot, or a dataset with all its snapshots; with `dry_run`, only says what
    /// would go. Refused while something that would go is open or has clones that stay.
    fn destroy(&self, source: &Source, dry_run: bool) -> Result<Destruction>;

    /// The properties of a dataset and where each comes from.
    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>>;

    /// Sets a property; `None` goes back to the default.
    fn set_property(&self, name: &DatasetName, property: &str, value: Option<&str>) -> Result<()>;

    /// Returns when everything that was applied before is durable.
    fn sync(&self) -> Result<()>;
}
