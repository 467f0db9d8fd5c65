//! The engine through its front: pools made, filled, damaged and opened again.
//! One binary for all of them: linking is what costs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod administration;
mod automatic;
mod conformance;
mod creation;
mod damage;
mod destruction;
mod destruction_on_full;
mod durability;
mod fragmented;
mod full_pool;
mod halt;
mod inconsistent_merges;
mod intent_log;
mod item_cache;
mod large_merges;
mod overtaken_states;
mod promises;
mod quota;
mod refusals;
mod removal_on_full;
mod reported_space;
mod space;
mod support;
mod undo;
mod undo_steps;
mod volatile_forks;
mod waiting_merges;
mod without_log;
mod without_threads;
