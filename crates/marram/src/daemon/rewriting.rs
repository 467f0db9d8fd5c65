//! Rewriting while file systems are in use: on demand, and in the background. It works in
//! [steps](super::steps).
//!
//! **The background gives way.** A step is begun only when nothing that anybody has changed waits
//! for a commit, and it is followed by a rest several times as long as it took; so readers, who are
//! not seen here, keep most of the device. No pass begins unless something has been committed since
//! the last one.

use super::Daemon;
use crate::control::protocol::{Answer, BackgroundRewriting, DefragmentOrder};
use crate::engine;
use crate::error::Result;
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
    /// Rewrites what is worth it below directories that are in sight, for as long as it
    /// `is_wanted`.
    ///
    /// # Errors
    /// A directory is of nothing that is mounted; a commit failed.
    pub(super) fn defragment(
        &self,
        order: &DefragmentOrder,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Answer> {
        let _held = self.hold_stream()?;
        let (names, places) = self.places_in_sight(&order.places, order.dry_run)?;
        let only_places: Vec<_> = places.iter().map(|(_, place)| place.clone()).collect();
        let mut admit = || self.admit(&places, is_wanted);
        let answer =
            engine::defragment::run(self.pool.pool(), &only_places, order.dry_run, &mut admit);
        let outcome = match &answer {
            Ok(Answer::Defragmented(summary)) => {
                format!("{} bytes rewritten", summary.rewriting.rewritten_bytes)
            }
            Ok(_) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        self.log.write(&format!("defragment {names}: {outcome}"));
        answer
    }

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
