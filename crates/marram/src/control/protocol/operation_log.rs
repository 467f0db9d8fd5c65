//! The log of operations, and what an undo takes back of it.

use crate::names::PathText;
use serde::{Deserialize, Serialize};

/// An entry of the log of operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OperationRow {
    /// Its number.
    pub(crate) number: u64,
    /// When: seconds since 1970.
    pub(crate) seconds: i64,
    /// The user of the command.
    pub(crate) user: Option<u32>,
    /// The command line.
    pub(crate) command: String,
    /// What was done: `create`, `snapshot`, `clone`, `fork`, `rollback`, `merge`, `promote`,
    /// `rollback-directory`,
    /// `hold`, `release`, `set`, `rename`, `destroy` or `restore`.
    pub(crate) operation: String,
    /// What it was done to, and with what: names and values, in an order that the operation has.
    pub(crate) names: Vec<String>,
    /// The directory that was merged into or went back, from the root of its dataset, where it is
    /// now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) directory: Option<PathText>,
    /// The first and the last of the operations that one command did together, in one step, of
    /// which this is one: they are taken back together. None if it is alone.
    pub(crate) together: Option<(u64, u64)>,
    /// The operation that it took back.
    pub(crate) undoes: Option<u64>,
    /// The operation that took it back.
    pub(crate) undone_by: Option<u64>,
    /// Until when what an undo needs is kept: seconds since 1970.
    pub(crate) kept_until_seconds: Option<i64>,
    /// It can be taken back now.
    pub(crate) can_undo: bool,
    /// Why not.
    pub(crate) obstacle: Option<String>,
}

/// What an undo did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UndoReport {
    /// The operations that were taken back: all that were one step with the one that was named.
    pub(crate) undone: Vec<OperationRow>,
    /// The entries of the undo itself; none if nothing was left to take back.
    pub(crate) entries: Vec<OperationRow>,
    /// Those of the step that stay as they are, each with what was in the way.
    pub(crate) left: Vec<OperationRow>,
    /// Operations before and after that the same command line did in steps of their own, and that
    /// were not taken back.
    pub(crate) others: Vec<OperationRow>,
    /// What was changed since and is as before all the same, since that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) overwritten: Vec<String>,
}
