//! The sign that enough waits for a commit to be worth it.

use crate::base::order::{self, Condvar, Mutex};
use std::time::Duration;

/// Whether a commit is worth it, and how its maker waits for that.
pub(crate) struct Work {
    has_come: Mutex<bool>,
    arrived: Condvar,
}

impl Default for Work {
    fn default() -> Self {
        Work { has_come: Mutex::new(order::WORK, false), arrived: Condvar::new() }
    }
}

impl Work {
    /// A commit is worth it.
    pub(crate) fn announce(&self) {
        *self.has_come.lock() = true;
        self.arrived.notify_all();
    }

    /// Waits for that, at most for `timeout`; returns whether it is so.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut has_come = self.has_come.lock();
        if !*has_come {
            self.arrived.wait_for(&mut has_come, timeout);
        }
        std::mem::take(&mut *has_come)
    }
}
