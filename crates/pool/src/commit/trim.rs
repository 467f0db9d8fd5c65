//! Telling devices which of their bytes hold nothing any more.
//!
//! Free grains are those that the last commit does not use. They are taken by commits alone, so
//! while somebody has the right to commit, what is free stays free, and can be discarded. That
//! right is given back after each zone, so that commits need not wait for a whole device.

use crate::front::Inner;
use marram_format::pointer::{Extent, GRAIN_BYTES};
use marram_store::{Error, Result};

impl Inner {
    /// Discards what is free between the bytes `from` and `to` of the device, in runs of at least
    /// `min_bytes`; tells how many bytes that was.
    pub(crate) fn trim(&self, from: u64, to: u64, min_bytes: u64) -> Result<u64> {
        // What waits for a commit to be freed is free then.
        self.commit()?;
        let (first, end) = (from.div_ceil(GRAIN_BYTES), to / GRAIN_BYTES);
        let zones = self.space.lock().zones_between(first, end);
        let mut discarded = 0;
        for zone in zones {
            let _nobody_commits = self.take_turn()?;
            let runs = self.space.lock().free_runs(zone, &self.committed())?;
            for run in runs {
                let start = run.start.max(first);
                let past = (run.start + u64::from(run.grains)).min(end);
                let bytes = past.saturating_sub(start) * GRAIN_BYTES;
                if bytes > 0 && bytes >= min_bytes {
                    self.discard(Extent { start, ..run }, bytes)?;
                    discarded += bytes;
                }
            }
        }
        Ok(discarded)
    }

    fn discard(&self, run: Extent, bytes: u64) -> Result<()> {
        let device = &self.media.devices()[usize::from(run.device)];
        let discarded = device.discard(run.start * GRAIN_BYTES, bytes);
        discarded.map_err(|error| Error::Io(error.to_string()))
    }
}
