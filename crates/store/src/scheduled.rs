//! Datasets of which snapshots are taken by themselves.

use crate::{DatasetName, SnapshotRule, Source};

/// A dataset with a rule for automatic snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// The dataset.
    pub dataset: DatasetName,
    /// The rule.
    pub rule: SnapshotRule,
    /// Its automatic snapshots in the order in which they were made, newest first.
    pub automatic: Vec<Source>,
    /// When it began as a state of another dataset, which has that; `None` if it did not.
    pub began_seconds: Option<i64>,
    /// The newest snapshot that users see.
    pub newest: Option<Source>,
    /// Nothing has been written since the snapshot that it goes on from, as far as is known without
    /// a look.
    pub is_kept: bool,
}
