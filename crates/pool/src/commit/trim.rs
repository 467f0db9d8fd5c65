//! Telling devices which of their bytes hold nothing any more.
//!
//! Free grains are those that the last commit does not use. They are taken by commits alone, so
//! while somebody has the right to commit, what is free stays free, and can be discarded. That
//! right is given back after each zone, so that commits need not wait for a whole device.

use crate::commit::turn;
use crate::state::State;
use marram_format::pointer::{Extent, GRAIN_BYTES};
use marram_store::{Error, Result};

/// Discards what is free between the bytes `from` and `to` of the device, in runs of at least
/// `min_bytes`; returns how many bytes that was.
pub(crate) fn trim(pool: &State, from: u64, to: u64, min_bytes: u64) -> Result<u64> {
    // What waits for a commit to be freed is free then.
    turn::commit(pool)?;
    let (first, end) = (from.div_ceil(GRAIN_BYTES), to / GRAIN_BYTES);
    let zones = pool.space.lock().zones_between(first, end);
    let mut discarded = 0;
    for zone in zones {
        let _nobody_commits = turn::take_turn(pool)?;
        let runs = pool.space.lock().free_runs(zone, &pool.committed())?;
        for run in runs {
            let start = run.start.max(first);
            let past = (run.start + u64::from(run.grains)).min(end);
            let bytes = past.saturating_sub(start) * GRAIN_BYTES;
            if bytes > 0 && bytes >= min_bytes {
                discard(pool, Extent { start, ..run }, bytes)?;
                discarded += bytes;
            }
        }
    }
    Ok(discarded)
}

fn discard(pool: &State, run: Extent, bytes: u64) -> Result<()> {
    let device = &pool.media.devices()[usize::from(run.device)];
    let discarded = device.discard(run.start * GRAIN_BYTES, bytes);
    discarded.map_err(|error| Error::Io(error.to_string()))
}
