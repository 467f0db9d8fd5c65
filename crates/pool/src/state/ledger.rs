//! The books of admission: the space that batches were given, and what the last look found.

use crate::base::order::{self, Mutex};
use std::sync::atomic::AtomicU64;

/// What comes with a commit of all that waits for one, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// What it needs: what brings so many changed `keys` into trees, without their content.
    pub(crate) needed: u64,
    /// See `needed`.
    pub(crate) keys: u64,
    /// What is free after it and was not before.
    pub(crate) freed: u64,
    /// What only snapshots refer to after it.
    pub(crate) left: u64,
    /// Blocks that it adopts: datasets that space is kept free for have them without using it.
    pub(crate) adopted: u64,
}

/// What was found by a look, and when: it is true as long as no batch and no commit has passed, and
/// no fork in memory has begun.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) batches: u64,
    pub(crate) epoch: u64,
    pub(crate) forks: u64,
    /// What changed keys need and give back; `None` if it may be anything.
    pub(crate) found: Option<Waiting>,
}

/// Space that is spoken for beside what is dirty, in bytes.
pub(crate) struct Ledger {
    /// What batches need that have found space and are not among what is dirty yet.
    pub(crate) admitted_bytes: Mutex<u64>,
    /// What the last [look for space](crate::admission) found.
    pub(crate) last_look: Mutex<Option<Look>>,
    /// What is kept free for datasets with a reservation.
    pub(crate) kept_free_bytes: AtomicU64,
    /// What is promised to writers through open views.
    pub(crate) promised_bytes: AtomicU64,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            admitted_bytes: Mutex::new(order::ADMITTED, 0),
            last_look: Mutex::new(order::LAST_LOOK, None),
            kept_free_bytes: AtomicU64::new(0),
            promised_bytes: AtomicU64::new(0),
        }
    }
}
