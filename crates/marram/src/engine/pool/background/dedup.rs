//! Deduplication of what has just been written, while file systems are in use. It works in
//! [steps](crate::engine::mounts::Step).

use crate::control::protocol::DedupTotals;
use crate::engine::mounts::Mounts;
use crate::engine::pool::dedup;
use crate::engine::posix::posix;
use crate::engine::volume::Volume;
use marram_pool::Pool;
use marram_posix::Deduplicator;
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

/// What deduplication keeps for as long as a pool is mounted.
#[derive(Default)]
pub(in crate::engine::pool) struct Deduplication {
    /// Where content is that was written since the pool was mounted.
    recent: Mutex<Deduplicator>,
}

impl Deduplication {
    /// Looks at what has just been written in datasets that want it. Runs until the daemon ends.
    pub(in crate::engine::pool) fn run(&self, pool: &Pool, mounts: &dyn Mounts) {
        while !mounts.is_shut() && !pool.is_halted() {
            let mut more = false;
            for open in mounts.volumes() {
                more |= self.recent_step(mounts, &open);
            }
            if !more {
                self.fill_hints(mounts);
                std::thread::sleep(REST);
            }
        }
    }

    fn recent_step(&self, mounts: &dyn Mounts, open: &Arc<dyn Volume>) -> bool {
        let Ok(files) = posix(Arc::clone(open)) else { return false };
        if !files.has_recent() {
            return false;
        }
        let Some(_step) = mounts.step_on(open) else { return false };
        self.recent.lock().step(&files, STEP_WINDOWS)
    }

    /// While nothing new waits: a little of what was there before the mount is taken note of, so
    /// that what is written can be shared with it.
    fn fill_hints(&self, mounts: &dyn Mounts) {
        for open in mounts.volumes() {
            if let Ok(files) = posix(Arc::clone(&open))
                && files.wants_sharing()
                && let Some(_step) = mounts.step_on(&open)
            {
                self.recent.lock().fill(&files, FILL_WINDOWS);
            }
        }
    }

    /// What has come of looking at what was written; nothing where no dataset ever wanted it.
    pub(in crate::engine::pool) fn totals(&self) -> Option<DedupTotals> {
        let totals = dedup::totals(self.recent.lock().totals());
        (totals.content_bytes + totals.missed_ranges + totals.hints > 0).then_some(totals)
    }
}
