//! Rewriting in the background, while file systems are in use. It works in
//! [steps](crate::engine::mounts::Step).
//!
//! **The background gives way.** A step is begun only when no change waits for a commit, and it is
//! followed by a rest several times as long as it took; so readers, which are not seen here, keep
//! most of the device. No pass begins unless something has been committed since the last one.

use crate::control::protocol::BackgroundRewriting;
use crate::engine::mounts::Mounts;
use crate::engine::pool::defragment;
use crate::engine::posix::posix;
use crate::engine::volume::Volume;
use marram_pool::Pool;
use marram_posix::{DefragmentTotals, Defragmenter, Posix};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often to look whether the end has come, or whether there is something to do.
const TICK: Duration = Duration::from_millis(500);
/// The rest after a step is so many times as long as the step.
const REST_FACTOR: u32 = 4;
/// And at most this long.
const REST_MAX: Duration = Duration::from_secs(10);

/// What rewriting in the background has done since the pool was mounted.
#[derive(Default)]
pub(in crate::engine::pool) struct Rewriting {
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    passes: u64,
    is_running: bool,
    is_short_of_space: bool,
    totals: DefragmentTotals,
}

impl Rewriting {
    /// Rewrites the fragments of all datasets that are mounted, every `interval_seconds`. Runs
    /// until the daemon ends.
    pub(in crate::engine::pool) fn run(
        &self,
        pool: &Pool,
        interval_seconds: u64,
        mounts: &dyn Mounts,
    ) {
        if interval_seconds == 0 {
            return;
        }
        let interval = Duration::from_secs(interval_seconds);
        let mut group_seen = pool.status().group;
        let mut rested = Instant::now();
        while !is_ending(pool, mounts) {
            std::thread::sleep(TICK);
            let group = pool.status().group;
            if rested.elapsed() < interval || group == group_seen {
                continue;
            }
            self.done.lock().is_running = true;
            // Not kept over a rest: what is open cannot be destroyed.
            let open: Vec<Weak<dyn Volume>> = mounts.volumes().iter().map(Arc::downgrade).collect();
            open.iter().for_each(|volume| self.pass_over(volume, pool, mounts));
            let mut done = self.done.lock();
            (done.is_running, done.passes) = (false, done.passes + 1);
            group_seen = pool.status().group;
            rested = Instant::now();
        }
    }

    fn pass_over(&self, volume: &Weak<dyn Volume>, pool: &Pool, mounts: &dyn Mounts) {
        let mut defragmenter = Defragmenter::new();
        let mut told = DefragmentTotals::default();
        loop {
            if is_ending(pool, mounts) {
                return;
            }
            if pool.status().dirty_bytes > 0 {
                std::thread::sleep(TICK);
                continue;
            }
            let began = Instant::now();
            let Some(stepped) = step(&mut defragmenter, volume, mounts) else { return };
            let totals = defragmenter.totals();
            let mut done = self.done.lock();
            done.totals.add_since(totals, told);
            done.is_short_of_space = defragmenter.is_short_of_space();
            drop(done);
            told = totals;
            match stepped {
                Ok(true) => std::thread::sleep((began.elapsed() * REST_FACTOR).min(REST_MAX)),
                Ok(false) => return,
                // A dataset that cannot be changed has nothing to be rewritten.
                Err(marram_vfs::Error::ReadOnly) => return,
                Err(error) => {
                    mounts.log(&format!("rewriting in the background: {error}"));
                    return;
                }
            }
        }
    }

    /// What has come of it.
    pub(in crate::engine::pool) fn progress(&self, interval_seconds: u64) -> BackgroundRewriting {
        let done = self.done.lock();
        BackgroundRewriting {
            interval_seconds,
            passes: done.passes,
            is_running: done.is_running,
            is_short_of_space: done.is_short_of_space,
            rewriting: defragment::totals(done.totals),
        }
    }
}

fn is_ending(pool: &Pool, mounts: &dyn Mounts) -> bool {
    mounts.is_shut() || pool.is_halted()
}

/// One step; `None` if the volume is not open any more. The volume is let go of after it.
fn step(
    defragmenter: &mut Defragmenter,
    volume: &Weak<dyn Volume>,
    mounts: &dyn Mounts,
) -> Option<marram_vfs::Result<bool>> {
    let open = volume.upgrade()?;
    let _step = mounts.step_on(&open)?;
    let files: Arc<Posix> = posix(Arc::clone(&open)).ok()?;
    Some(defragmenter.step(&files))
}
