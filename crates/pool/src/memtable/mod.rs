//! What has changed since the last commit, and what was read lately, in memory.
//!
//! A batch changes only these layers. A commit freezes them, writes them, and takes them off.

pub(crate) mod allowance;
pub(crate) mod counters;
pub(crate) mod dataset;
pub(crate) mod dirty;
pub(crate) mod dirty_datasets;
pub(crate) mod doubt;
pub(crate) mod foreign_blocks;
pub(crate) mod item_cache;
pub(crate) mod overlay;
pub(crate) mod pending_content;
pub(crate) mod settings;
pub(crate) mod unlogged;
