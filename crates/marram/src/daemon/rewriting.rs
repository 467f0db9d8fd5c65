//! Rewriting in the background, while file systems are in use. It works in [steps](super::steps).
//!
//! **The background gives way.** A step is begun only when nothing that anybody has changed waits
//! for a commit, and it is followed by a rest several times as long as it took; so readers, who are
//! not seen here, keep most of the device. No pass begins unless something has been committed since
//! the last one.

use super::Daemon;
use crate::control::protocol::BackgroundRewriting;
use crate::engine;
use marram_posix::{Posix, Rewriter, RewritingTotals};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Seconds between two passes, if nobody says.
pub(super) const INTERVAL_SECONDS_DEFAULT: u64 = 3600;
/// How often to look whether the end has come, or whether there is something to do.
const TICK: Duration = Duration::from_millis(500);
/// The rest after a step is so many times as long as the step.
const REST_FACTOR: u32 = 4;
/// And at most this long.
const REST_MAX: Duration = Duration::from_secs(10);

/// What rewriting in the background has done since the pool was mounted.
#[derive(Default)]
pub(super) struct Rewriting {
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    passes: u64,
    is_running: bool,
    is_short_of_space: bool,
    totals: RewritingTotals,
}

impl Daemon {
    /// Rewrites what lies in crumbs in all datasets that are mounted, now and then. Runs until the
    /// daemon ends.
    pub(super) fn rewrite_now_and_then(&self) {
        if self.rewriting_seconds == 0 {
            return;
        }
        let interval = Duration::from_secs(self.rewriting_seconds);
        let mut group_seen = self.pool.pool().status().group;
        let mut rested = Instant::now();
        while !self.is_ending() {
            std::thread::sleep(TICK);
            let group = self.pool.pool().status().group;
            if rested.elapsed() < interval || group == group_seen {
                continue;
            }
            self.rewriting.done.lock().is_running = true;
            // Not kept over a rest: what is open cannot be destroyed.
            let open: Vec<Weak<Posix>> =
                self.mounts.file_systems().iter().map(Arc::downgrade).collect();
            open.iter().for_each(|files| self.pass_over(files));
            let mut done = self.rewriting.done.lock();
            (done.is_running, done.passes) = (false, done.passes + 1);
            group_seen = self.pool.pool().status().group;
            rested = Instant::now();
        }
    }

    fn is_ending(&self) -> bool {
        self.mounts.is_shut() || self.pool.pool().is_halted()
    }

    fn pass_over(&self, files: &Weak<Posix>) {
        let mut rewriter = Rewriter::new();
        let mut told = RewritingTotals::default();
        loop {
            if self.is_ending() {
                return;
            }
            if self.pool.pool().status().dirty_bytes > 0 {
                std::thread::sleep(TICK);
                continue;
            }
            let began = Instant::now();
            let stepped = {
                let Some(files) = files.upgrade() else { return };
                let Some(_step) = self.begin_step(&files) else { return };
                rewriter.step(&files)
            };
            let totals = rewriter.totals();
            let mut done = self.rewriting.done.lock();
            done.totals.add_since(totals, told);
            done.is_short_of_space = rewriter.is_short_of_space();
            drop(done);
            told = totals;
            match stepped {
                Ok(true) => std::thread::sleep((began.elapsed() * REST_FACTOR).min(REST_MAX)),
                Ok(false) => return,
                // A dataset that cannot be changed has nothing to be rewritten.
                Err(marram_vfs::Error::ReadOnly) => return,
                Err(error) => {
                    self.log.write(&format!("rewriting in the background: {error}"));
                    return;
                }
            }
        }
    }

    /// What has come of rewriting in the background; nothing where it is off.
    pub(super) fn rewriting_report(&self) -> Option<BackgroundRewriting> {
        if self.rewriting_seconds == 0 || self.read_only {
            return None;
        }
        let done = self.rewriting.done.lock();
        Some(BackgroundRewriting {
            interval_seconds: self.rewriting_seconds,
            passes: done.passes,
            is_running: done.is_running,
            is_short_of_space: done.is_short_of_space,
            rewriting: engine::defragment::totals(done.totals),
        })
    }
}
