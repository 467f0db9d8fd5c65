//! The locks that users of this client hold.
//!
//! They are in memory. While others have the store open, a row for each locked object says what
//! each client holds of it; see `state::locking`.

mod ranges;

use crate::format::{LockPlace, LockedRange};
pub(crate) use ranges::{Ranges, conflicts};
use std::collections::{BTreeMap, BTreeSet};

/// Most ranges that the users of a client hold of one object. Each change writes all of them.
pub(crate) const RANGES_MAX: usize = 4096;

/// The locks of a client.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: BTreeMap<LockPlace, Ranges>,
    /// Rows say what is held here: others may read them.
    pub(crate) is_published: bool,
    /// Where the row may say something else than what is held here.
    pub(crate) unsure: BTreeSet<LockPlace>,
}

impl Locks {
    /// What is held at a place.
    pub(crate) fn at(&self, place: LockPlace) -> Ranges {
        self.held.get(&place).cloned().unwrap_or_default()
    }

    /// What is held at a place from now on.
    pub(crate) fn set(&mut self, place: LockPlace, ranges: Ranges) {
        match ranges.is_empty() {
            true => self.held.remove(&place),
            false => self.held.insert(place, ranges),
        };
    }

    /// Where anything is held.
    pub(crate) fn places(&self) -> Vec<LockPlace> {
        self.held.keys().copied().collect()
    }
}

/// What a row says of ranges.
pub(crate) fn in_row(ranges: &Ranges) -> Vec<LockedRange> {
    let range =
        |held: &ranges::Held| LockedRange { first: held.first, last: held.last, mode: held.mode };
    let mut all: Vec<LockedRange> = ranges.iter().map(range).collect();
    all.sort_unstable();
    all.dedup();
    all
}
