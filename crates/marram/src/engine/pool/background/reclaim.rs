//! Freeing what destroyed datasets and deleted files held.

use crate::engine::mounts::Mounts;
use crate::engine::posix::posix;
use marram_pool::Pool;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many items one step of freeing takes on: a fraction of a second's work.
const RECLAIM_ITEMS: usize = 1000;
/// How long to rest when there is nothing to free.
const RECLAIM_REST: Duration = Duration::from_secs(1);
/// How long to rest at most between two pieces of what destroyed datasets held.
const RECLAIM_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Frees. Runs until the daemon ends or the pool is halted.
pub(in crate::engine::pool) fn run(pool: &Pool, mounts: &dyn Mounts) {
    while !mounts.is_shut() && !pool.is_halted() {
        let mut more = reclaim_destroyed(pool, mounts);
        for open in mounts.volumes() {
            let Some(_step) = mounts.step_on(&open) else { continue };
            let Ok(files) = posix(Arc::clone(&open)) else { continue };
            match files.reclaim_step(RECLAIM_ITEMS) {
                Ok(left) => more |= left,
                Err(error) => mounts.log(&format!("freeing deleted files: {error}")),
            }
        }
        if !more {
            std::thread::sleep(RECLAIM_REST);
        }
    }
}

/// Frees a piece of what destroyed datasets held, and leaves the device to others for as long as
/// that took: at most half of the time goes into it. A write that finds no space does not wait for
/// this, but frees such pieces itself.
fn reclaim_destroyed(pool: &Pool, mounts: &dyn Mounts) -> bool {
    let began = Instant::now();
    let more = pool.reclaim_step().unwrap_or_else(|error| {
        mounts.log(&format!("freeing destroyed datasets: {error}"));
        false
    });
    if more {
        std::thread::sleep(began.elapsed().min(RECLAIM_PAUSE_MAX));
    }
    more
}
