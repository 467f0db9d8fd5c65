//! Transactions: what one has read, noted while its programs work.
//!
//! A transaction works in a fork. [`Recording`] stands before the file system of the fork and notes
//! what its kernel asks, in a [`ReadSet`]. When the fork is merged into what it was forked from,
//! the read set says of each change that others have made since whether it matters
//! ([`ReadSet::overlaps`], for [`marram_history::MergeOptions::strict`]). See
//! `docs/transactions.md`, and the decisions 0056 and 0057.

#![deny(clippy::cast_possible_truncation)]

mod read_set;
mod recording;
mod rights;

pub use read_set::{Aspect, ReadSet};
pub use recording::Recording;
