//! The tests of the pmem home: one binary, a module for each question.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checkpoints;
mod crashes;
mod failures;
mod figure;
mod full;
mod golden;
mod growth;
mod hostile;
mod images;
mod judge;
mod kills;
mod oracle;
mod reader;
mod rows;
