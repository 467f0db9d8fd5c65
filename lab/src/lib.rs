//! What the chores share: other programs that are run and owned, file systems that are made and
//! taken away, inputs that are made once, random numbers that replay.
//!
//! Benchmarks (`bench`), outside suites (`suites`) and `xtask` stand on it. It knows Marram as a
//! user does, by its command, and uses no crate of the product. Whatever it mounts or starts has
//! an owner, and goes with it.

pub mod failure;
pub mod hosts;
pub mod inputs;
pub mod postgres;
pub mod process;
pub mod project;
pub mod seed;
pub mod setup;
pub mod subject;
pub mod svg;
