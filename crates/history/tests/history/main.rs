//! Diff, merge and rollback of directories, as `docs/decisions` 0017 and 0021 have them, on the
//! store in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod audit;
mod branches;
mod change_set;
mod conflicts;
mod diffs;
mod directories;
mod elsewhere;
mod family;
mod folding;
mod last_names;
mod limits;
mod merges;
mod mixed_choices;
mod permission_matrix;
mod random;
mod random_diffs;
mod random_directories;
mod random_paths;
mod selection;
mod single_paths;
