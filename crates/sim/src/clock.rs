//! Time that stands still while an operation runs, so that two file systems which do the same
//! operation give it the same time, however often each asks.

use marram_vfs::{Clock, Timestamp};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Moments of a step.
const MOMENTS: u64 = 32;

/// A clock that only moves when a history moves it.
#[derive(Debug, Default)]
pub struct HistoryClock {
    moments: AtomicU64,
    /// What its nanoseconds are a multiple of; 0 is 1.
    grain: AtomicU32,
}

impl HistoryClock {
    /// Moves to the time of step `step` of the history.
    pub fn set(&self, step: u64) {
        self.moments.store(step * MOMENTS, Ordering::Relaxed);
    }

    /// Has all moments be ones that a home can keep whose times have this grain, in nanoseconds.
    pub fn set_grain(&self, nanoseconds: u32) {
        self.grain.store(nanoseconds, Ordering::Relaxed);
    }

    /// Moves to the next moment of a step in which several things are done: births distinguish
    /// inodes.
    pub(crate) fn tick(&self) {
        self.moments.fetch_add(1, Ordering::Relaxed);
    }
}

impl Clock for HistoryClock {
    /// Seconds count the steps; the nanoseconds differ from step to step and use all their digits.
    fn now(&self) -> Timestamp {
        let moments = self.moments.load(Ordering::Relaxed);
        let (step, moment) = (moments / MOMENTS, moments % MOMENTS);
        let nanoseconds = ((step * 618_033_989 + moment) % 1_000_000_000) as u32;
        let grain = self.grain.load(Ordering::Relaxed).max(1);
        let nanoseconds = nanoseconds - nanoseconds % grain;
        Timestamp { seconds: 1_700_000_000 + step as i64, nanoseconds }
    }
}
