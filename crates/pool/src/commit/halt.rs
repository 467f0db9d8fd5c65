//! The stop in full run: the pool behaves from then on as one that has lost its power.

use crate::front::{Inner, Pool};
use marram_store::Result;

/// Why a halted pool takes no changes.
const HALTED: &str = "it was halted on demand, as if the power had been cut";

impl Pool {
    /// Commits what is left, and takes and writes nothing from then on: the device can be given to
    /// somebody else though the pool is still held in memory.
    ///
    /// # Errors
    /// As for [`Pool::commit`].
    pub fn close_for_good(&self) -> Result<()> {
        let closed = self.close();
        self.inner.halt();
        closed
    }

    /// Whether the pool was halted: then nobody expects that what it held in memory is durable.
    pub fn is_halted(&self) -> bool {
        self.inner.health.lock().as_deref() == Some(HALTED)
    }
}

impl Inner {
    /// From now on nothing is taken and nothing is written. What is being written at this moment
    /// is waited for: the power is cut just after it. A pool that takes no changes since an error
    /// keeps that as the reason.
    pub(crate) fn halt(&self) {
        self.health.lock().get_or_insert_with(|| HALTED.to_owned());
        if let Some(log) = self.log.get() {
            log.wait_for_writer();
        }
        drop(self.committing.lock());
    }
}
