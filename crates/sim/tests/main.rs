//! Random histories, crashes and faults against the model, each a slice with a fixed seed.
//! One binary for all of them: linking is what costs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod administrative_commits;
mod branches;
mod brought_back;
mod changes_on_full;
mod crash_explorer;
mod crash_states;
mod dedup;
mod defragmentation;
mod devices;
mod directory_rollbacks;
mod faults;
mod footprints;
mod golden_image;
mod history_costs;
mod homes;
mod hostile_streams;
mod kept_memory;
mod merged_away;
mod moved_bases;
mod moved_data;
mod paths;
mod planted_bugs;
mod pool_against_model;
mod pool_crashes;
mod pool_faults;
mod posix_against_model;
mod quota_merges;
mod read_costs;
mod removal_on_full;
mod replay_crashes;
mod reported_space;
mod root_files;
mod shared_blocks;
mod slow_device;
mod small_pool;
mod soundness;
mod streams;
mod streams_against_model;
mod two_pools;
mod undo_crashes;
mod volatile_forks;
mod wrong_records;
