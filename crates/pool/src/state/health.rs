//! Whether the pool takes changes, and the stop in full run: a halted pool behaves as one that has
//! lost its power.

use crate::state::State;
use marram_store::{Error, Result};

/// Why a halted pool takes no changes.
const HALTED: &str = "it was halted on demand, as if the power had been cut";

impl State {
    /// Whether the pool takes changes at all.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly("the pool is open read-only".to_owned()));
        }
        match &*self.health.lock() {
            None => Ok(()),
            Some(reason) => Err(Error::ReadOnly(format!(
                "the pool takes no more changes since an error: {reason}"
            ))),
        }
    }

    /// A commit has failed. Running out of space leaves the pool in order; anything else means
    /// that a device or the pool's own structures cannot be trusted any more.
    pub(crate) fn fail(&self, error: &Error) {
        if !matches!(error, Error::NoSpace | Error::NoDataset(_) | Error::DatasetExists(_))
            && !matches!(error, Error::InUse { .. } | Error::Invalid(_) | Error::InDoubt(_))
        {
            self.health.lock().get_or_insert_with(|| error.to_string());
        }
    }

    /// From now on nothing is taken and nothing is written. What is being written at this moment
    /// is waited for: the power is cut just after it. A pool that takes no changes since an error
    /// keeps that as the reason.
    pub(crate) fn halt(&self) {
        self.health.lock().get_or_insert_with(|| HALTED.to_owned());
        if let Some(log) = self.log.get() {
            log.wait_for_writer();
        }
        drop(self.turns.committing.lock());
    }

    /// Whether the pool was halted: then nobody expects that what it held in memory is durable.
    pub(crate) fn is_halted(&self) -> bool {
        self.health.lock().as_deref() == Some(HALTED)
    }
}
