//! Group commits, for as long as mounts show a pool.

use crate::engine::mounts::Mounts;
use marram_pool::Pool;
use std::time::Duration;

/// Commits when there is work, and at least every `interval`. Runs until the daemon ends or the
/// pool is halted.
pub(in crate::engine::pool) fn run(pool: &Pool, interval: Duration, mounts: &dyn Mounts) {
    let mut failed = false;
    loop {
        pool.wait_for_work(interval);
        let outcome = pool.commit();
        if mounts.is_shut() {
            return;
        }
        if pool.is_halted() {
            mounts.log("shut down as by a power cut: nothing more is written");
            return;
        }
        if let (Err(error), false) = (&outcome, failed) {
            mounts.log(&format!("group commit: {error}"));
        }
        failed = outcome.is_err();
        if failed {
            // The pool has said what is wrong and takes no more changes; do not spin on that.
            std::thread::sleep(interval);
        }
    }
}
