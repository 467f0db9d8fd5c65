//! Time as an argument: the core never asks the machine what time it is.

use crate::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where a file system gets its time from.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The machine's real-time clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp {
                seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanoseconds: since.subsec_nanos(),
            },
            Err(_) => Timestamp::default(),
        }
    }
}

/// A clock that moves one microsecond each time it is read: for tests that replay.
#[derive(Debug, Default)]
pub struct SteppedClock(AtomicU64);

impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        let microseconds = 1_000_000_000_000_000 + self.0.fetch_add(1, Ordering::Relaxed);
        Timestamp {
            seconds: i64::try_from(microseconds / 1_000_000).unwrap_or(i64::MAX),
            nanoseconds: u32::try_from(microseconds % 1_000_000 * 1000).unwrap_or(0),
        }
    }
}
