//! Time that stands still while an operation runs, so that two file systems which do the same
//! operation give it the same time, however often each asks.

use marram_vfs::{Clock, Timestamp};
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that only moves when it is told to.
#[derive(Debug, Default)]
pub struct HistoryClock(AtomicU64);

impl HistoryClock {
    /// Moves to the time of step `step` of the history.
    pub fn set(&self, step: u64) {
        self.0.store(step, Ordering::Relaxed);
    }
}

impl Clock for HistoryClock {
    /// Seconds count the steps; the nanoseconds differ from step to step and use all their digits.
    fn now(&self) -> Timestamp {
        let step = self.0.load(Ordering::Relaxed);
        Timestamp {
            seconds: 1_700_000_000 + step as i64,
            nanoseconds: (step * 618_033_989 % 1_000_000_000) as u32,
        }
    }
}
