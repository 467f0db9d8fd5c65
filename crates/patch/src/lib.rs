//! A block cache whose changes reach the medium only after the changes that they depend on.
//!
//! A change to one unit of a medium is a **patch** (Frost, "Improving the Performance and
//! Reliability of Storage Systems", 2010, chapter 2). A patch names the patches that must be
//! durable before it. An operation is a [`Plan`] of such changes; [`Cache::apply`] makes all of
//! them at once. [`Cache::wave`] writes what is ready and flushes, which makes more patches ready.
//! `docs/patch.md` has the rules, and why each is safe.
//!
//! Invariant: after a crash at any moment, what a durable patch depends on is durable too.
//! The crate knows no format, no thread and no clock.

mod cache;
mod graph;
mod plan;
mod study;
mod undo;

pub use cache::{Bracket, Cache, Closed, Counters, Discipline};
pub use graph::{Bug, PatchId};
pub use plan::{After, Content, Owner, Plan};
pub use study::{Merging, Study};
