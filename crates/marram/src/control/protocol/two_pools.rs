//! Transactions over two pools: how their daemons agree, and how those are reported that are not
//! over.

use super::ConflictRow;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A pool that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolPlace {
    /// Its id, in hexadecimal.
    pub(crate) id: String,
    /// Where it is.
    pub(crate) path: PathBuf,
}

/// What names a transaction over two pools in one of them. Clients choose ids: one of the same id
/// with a third pool is another transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct JointId {
    /// Its id, the same in both.
    pub(crate) id: String,
    /// The id of the other pool: where that pool asks, its own.
    pub(crate) other: String,
}

/// A transaction to commit in two pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JointCommit {
    /// Its id, the same in both.
    pub(crate) id: String,
    /// The other pool.
    pub(crate) other: PoolPlace,
    /// Whose it is, as the pool that prepares has it, for the one that decides. Of no meaning
    /// where a command asks for the commit.
    #[serde(default)]
    pub(crate) user: Option<u32>,
}

impl JointCommit {
    /// What names it in the pool that is asked for the commit.
    pub(crate) fn joint_id(&self) -> JointId {
        JointId { id: self.id.clone(), other: self.other.id.clone() }
    }
}

/// What a commit in two pools has come to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JointOutcome {
    /// It is there in both, and durable.
    Committed,
    /// Nothing of it is there, for these conflicts.
    Refused(Vec<ConflictRow>),
    /// It is prepared in one, and the decision of the other one is not known.
    InDoubt(Error),
}

/// How a transaction stands in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// It may still be committed there.
    pub(crate) is_open: bool,
    /// It is open there, and something was done in it within its idle limit.
    #[serde(default)]
    pub(crate) is_in_use: bool,
    /// It is committed there.
    pub(crate) is_decided: bool,
    /// It is prepared there.
    pub(crate) is_prepared: bool,
    /// What is durable of the pool is not known before it is opened again.
    pub(crate) has_failed: bool,
}

/// What is to be done about a transaction that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resolution {
    /// The other pool has committed it.
    Committed,
    /// The other pool has not committed it, and never will.
    Aborted,
    /// The user says that it is committed.
    CommittedByHand,
    /// The user says that it is not.
    AbortedByHand,
    /// Nobody needs to know of it any more.
    Forgotten,
}

/// A transaction over two pools that is not over, as one of them has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TwoPoolRow {
    /// Its id.
    pub(crate) id: String,
    /// `prepared`, `decided`, `committed-by-hand` or `aborted-by-hand`.
    pub(crate) state: String,
    /// Its datasets can neither be read nor changed until it is decided.
    pub(crate) is_in_doubt: bool,
    /// The datasets that it has changed here.
    pub(crate) datasets: Vec<String>,
    /// The other pool.
    pub(crate) other: PoolPlace,
}

impl TwoPoolRow {
    /// What names it in the pool that has it.
    pub(crate) fn joint_id(&self) -> JointId {
        JointId { id: self.id.clone(), other: self.other.id.clone() }
    }

    /// It is prepared here.
    pub(crate) const PREPARED: &str = "prepared";
    /// It is committed here, and the other pool is to hear of that.
    pub(crate) const DECIDED: &str = "decided";
    /// It is committed because a user has said so.
    pub(crate) const COMMITTED_BY_HAND: &str = "committed-by-hand";
    /// It is not committed because a user has said so.
    pub(crate) const ABORTED_BY_HAND: &str = "aborted-by-hand";
}
