//! The verifier against pools that the engine made, and against pools that were tampered with.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod base;
mod clean;
mod document;
mod engine;
mod fixture;
mod hostile;
mod hostile_pmem;
mod lines;
mod moved_lists;
mod operations;
mod planted_blocks;
mod planted_files;
mod planted_log;
mod planted_pmem;
mod planted_pool;
mod reclaim;
mod tamper;
