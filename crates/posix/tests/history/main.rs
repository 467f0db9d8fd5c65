//! Diff and merge, as `docs/decisions/0017-diff-and-merge.md` has them, on the store in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod audit;
mod conflicts;
mod diffs;
mod family;
mod folding;
mod limits;
mod merges;
mod random;
