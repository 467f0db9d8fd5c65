//! The tests of the pmem home: one binary, a module for each question.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod campaign;
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
mod modes;
mod oracle;
mod reader;
mod ready;
mod rows;
