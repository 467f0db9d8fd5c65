//! Whole-system runs that one seed decides, and the devices they run on.
//!
//! A [history] is a list of operations with remounts, snapshots, clones, forks, rollbacks and diffs
//! in between. It runs on a file system in its [`Home`] and on the model side by side; every result
//! and every inode touched is compared after every step, the whole trees now and then. A history
//! that fails is made small, and its seed replays it.
//!
//! The [crash] explorer records short histories on a device and goes through the images that a
//! power cut could have left of it.
//!
//! Nothing here asks the machine for time or randomness.

mod absent;
mod branching;
mod clock;
mod compare;
pub mod crash;
pub mod device;
mod execute;
pub mod faults;
mod forked;
mod generate;
pub mod history;
mod home;
mod merging;
mod operation;
mod pair;
mod random;
mod run;
pub mod serial;

pub use clock::HistoryClock;
pub use compare::{Agreement, InodeMap, compare_trees};
pub use execute::{Entry, Resolve, Value, execute, read_directory};
pub use generate::Generator;
pub use history::{Report, Theme};
pub use home::{Answer, Clashes, Home, HomeCapabilities, HomeResult, ModelHome, Moment};
pub use operation::{New, Operation, Place, Slot};
pub use pair::{Outcome, Pair};
pub use random::{Random, pattern};
pub use run::{Failure, Kept, MakeHome, Options, run_history};

/// The examples of the rules that users are promised, to be run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/semantics.md")]
struct Semantics;
