//! What users and groups may do to a dataset beside root.

use super::Owner;
use serde::{Deserialize, Serialize};

/// The rights that are handed out of a dataset, after a change of them if one is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GrantOrder {
    /// The dataset.
    pub(crate) dataset: String,
    /// What changes; nothing if it is only asked for.
    pub(crate) change: Option<GrantChange>,
}

/// A change of what one user or group may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GrantChange {
    /// The user or group.
    pub(crate) owner: Owner,
    /// The verbs; `all` is each of them.
    pub(crate) verbs: Vec<String>,
    /// They are taken back.
    pub(crate) take_back: bool,
}

/// What a user or group may do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GrantRow {
    /// The user or group.
    #[serde(flatten)]
    pub(crate) owner: Owner,
    /// Its name, where it has one; the daemon does not look for it.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// The verbs, sorted.
    pub(crate) verbs: Vec<String>,
}
