//! Time that stands still while an operation runs, so that two file systems which do the same
//! operation give it the same time, however often each asks.

use marram_vfs::{Clock, Timestamp};
use std::sync::atomic::{AtomicU64, Ordering};

/// Moments of a step.
const MOMENTS: u64 = 32;

/// A clock that only moves when a history moves it.
#[derive(Debug, Default)]
pub struct HistoryClock(AtomicU64);

impl HistoryClock {
    /// Moves to the time of step `step` of the history.
    pub fn set(&self, step: u64) {
        self.0.store(step * MOMENTS, Ordering::Relaxed);
    }

    /// Moves to the next moment of a step in which several things are done: births distinguish
    /// inodes.
    pub(crate) fn tick(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Clock for HistoryClock {
    /// Seconds count the steps; the nanoseconds differ from step to step and use all their digits.
    fn now(&self) -> Timestamp {
        let moments = self.0.load(Ordering::Relaxed);
        let (step, moment) = (moments / MOMENTS, moments % MOMENTS);
        Timestamp {
            seconds: 1_700_000_000 + step as i64,
            nanoseconds: ((step * 618_033_989 + moment) % 1_000_000_000) as u32,
        }
    }
}
