//! What a pool does beside its mounts: group commits, freeing what has no name any more, sharing
//! what was written, and bringing fragments together.
//!
//! The engine has no threads of its own for this, so that tests can drive it step by step; these
//! loops are all that drives it here. They end with the daemon.

pub(super) mod commit;
pub(super) mod dedup;
pub(super) mod reclaim;
pub(super) mod rewriting;
