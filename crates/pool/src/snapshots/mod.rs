//! Datasets and snapshots: made, listed, destroyed. Each change is part of one commit.

pub(crate) mod automatic;
pub(crate) mod begin;
pub(crate) mod comparing;
pub(crate) mod datasets;
pub(crate) mod destroy;
pub(crate) mod ephemeral;
pub(crate) mod forks;
pub(crate) mod label;
pub(crate) mod limits;
pub(crate) mod lineage;
pub(crate) mod list;
pub(crate) mod merge_bases;
pub(crate) mod merge_commit;
pub(crate) mod operations;
pub(crate) mod plan;
pub(crate) mod properties;
mod reclaimable;
pub(crate) mod session;
pub(crate) mod trash;
pub(crate) mod two_pools;
pub(crate) mod undo;
pub(crate) mod usage;
