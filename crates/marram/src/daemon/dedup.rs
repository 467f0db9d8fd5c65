//! Deduplication of what has just been written, while file systems are in use. It works in
//! [steps](super::steps).

use super::Daemon;
use crate::control::protocol::DedupTotals;
use crate::engine;
use marram_posix::{Deduplicator, Posix};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Windows of content that one step looks at: a fraction of a second's work.
const STEP_WINDOWS: usize = 64;
/// Windows of older content that are looked at for each dataset in between rests: 4 MiB/s where
/// `recordsize` is 128 KiB.
const FILL_WINDOWS: usize = 32;
/// How long to rest when nothing new waits.
const REST: Duration = Duration::from_secs(1);

/// What deduplication keeps for as long as the daemon runs.
#[derive(Default)]
pub(super) struct Deduplication {
    /// Where content is that was written since the pool was mounted.
    recent: Mutex<Deduplicator>,
}

impl Daemon {
    /// Looks at what has just been written in datasets that want it. Runs until the daemon ends.
    pub(super) fn deduplicate_recent(&self) {
        while !self.mounts.is_shut() && !self.pool.pool().is_halted() {
            let mut more = false;
            for files in self.mounts.file_systems() {
                more |= self.recent_step(&files);
            }
            if !more {
                self.fill_hints();
                std::thread::sleep(REST);
            }
        }
    }

    fn recent_step(&self, files: &Arc<Posix>) -> bool {
        if !files.has_recent() {
            return false;
        }
        let Some(_step) = self.begin_step(files) else { return false };
        self.dedup.recent.lock().step(files, STEP_WINDOWS)
    }

    /// While nothing new waits: a little of what was there before the mount is taken note of, so
    /// that what is written can be shared with it.
    fn fill_hints(&self) {
        for files in self.mounts.file_systems() {
            if files.wants_sharing()
                && let Some(_step) = self.begin_step(&files)
            {
                self.dedup.recent.lock().fill(&files, FILL_WINDOWS);
            }
        }
    }

    /// What has come of looking at what was written; nothing where no dataset ever wanted it.
    pub(super) fn dedup_totals(&self) -> Option<DedupTotals> {
        let totals = engine::dedup::totals(self.dedup.recent.lock().totals());
        (totals.content_bytes + totals.missed_ranges + totals.hints > 0).then_some(totals)
    }
}
