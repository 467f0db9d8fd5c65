//! What holds the space of a store.

use crate::DatasetReport;

/// A dataset or snapshot, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which.
    pub report: DatasetReport,
    /// Bytes that it refers to and that which it goes on from, or began as, does not: each byte is
    /// counted for the oldest that refers to it.
    pub added_bytes: u64,
    /// Bytes that only it refers to: what destroying it alone would give back; 0 of a snapshot that
    /// others began as.
    pub unique_bytes: u64,
}

/// Where the space of a store has gone. What the holders added, [`Usage::own_bytes`] and
/// [`Usage::leaving_bytes`], less [`Usage::shared_bytes`], is [`Usage::allocated_bytes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All datasets and snapshots in order of their names.
    pub holders: Vec<Holder>,
    /// Bytes that the store has for itself: its records, bitmaps, logs.
    pub own_bytes: u64,
    /// Bytes of what has been destroyed that have still to come back.
    pub leaving_bytes: u64,
    /// Bytes that are counted more than once: blocks that a merge or a reflink has brought from one
    /// dataset into another, or once more into the same, count for each owner.
    pub shared_bytes: u64,
    /// Bytes in use.
    pub allocated_bytes: u64,
}
