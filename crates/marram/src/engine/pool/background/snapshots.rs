//! Automatic snapshots, for as long as mounts show a pool.
//!
//! When one is due is asked anew at each tick, from the time of day and the names of those that
//! are there. So a machine that slept, a clock that jumped and a daemon that began anew need no
//! care: what is due by then is taken. All datasets that are due go into one commit.

use crate::engine::mounts::Mounts;
use crate::engine::pool::keeping::Thinning;
use crate::engine::pool::mounted::{Shown, thin};
use crate::engine::pool::open::OpenPool;
use crate::engine::pool::schedules::{moment, newest_moment};
use crate::error::Result;
use crate::retention::{scheduled_moment, scheduled_name};
use crate::timestamps::now_seconds;
use marram_pool::{Pool, Scheduled};
use marram_store::{DatasetName, Source, Store};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often to look whether one is due.
const TICK: Duration = Duration::from_secs(2);
/// Something that failed, or that nothing has changed in, is looked at again after so many seconds.
const AGAIN_SECONDS: i64 = 60;

/// What is known of automatic snapshots from one look to the next.
#[derive(Default)]
pub(in crate::engine::pool) struct AutomaticSnapshots {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Datasets in which nothing had changed, and when that was.
    unchanged: BTreeMap<DatasetName, i64>,
    /// When those that are too many were last looked for.
    thinned_seconds: Option<i64>,
    /// What failed last, and when: it is said once.
    failed: Option<(String, i64)>,
}

/// Has `step` take and thin them, which is given the time of day in seconds since 1970. Runs until
/// the daemon ends or the pool is halted.
pub(in crate::engine::pool) fn run(pool: &Pool, mounts: &dyn Mounts, step: &dyn Fn(i64)) {
    while !mounts.is_shut() && !pool.is_halted() {
        step(now_seconds());
        std::thread::sleep(TICK);
    }
}

impl AutomaticSnapshots {
    /// Takes what is due at a moment, and destroys what is too many then.
    pub(in crate::engine::pool) fn step(&self, open: &OpenPool, mounts: &dyn Mounts, now: i64) {
        let known = &mut *self.known.lock();
        if known.failed.as_ref().is_some_and(|(_, at)| is_recent(*at, now)) {
            return;
        }
        // No user has asked for them: the log of operations has none of it.
        let pool = &open.pool().without_author();
        match known.take_and_thin(&Shown::new(open, pool, mounts, None), now) {
            Ok(()) => known.failed = None,
            Err(error) => {
                let said = error.to_string();
                if known.failed.as_ref().is_none_or(|(last, _)| *last != said) {
                    mounts.log(&format!("automatic snapshots: {said}"));
                }
                known.failed = Some((said, now));
            }
        }
    }
}

/// Whether a look was so short a time ago that it need not be repeated; of a moment to come, from
/// before a jump of the clock, not.
fn is_recent(at: i64, now: i64) -> bool {
    (at..at.saturating_add(AGAIN_SECONDS)).contains(&now)
}

impl Known {
    fn take_and_thin(&mut self, shown: &Shown<'_>, now: i64) -> Result<()> {
        let scheduled = shown.pool.scheduled()?;
        if scheduled.is_empty() {
            return Ok(());
        }
        let taken = self.take(shown, &scheduled, now);
        let is_thinned = self.thinned_seconds.is_some_and(|at| is_recent(at, now));
        if is_thinned && !matches!(taken, Ok(true)) {
            return taken.map(|_| ());
        }
        self.thinned_seconds = Some(now);
        // Also where none could be taken, as in a full pool: what goes makes room.
        let thinned = destroy_too_many(shown, now);
        taken.and(thinned)
    }

    /// Takes what is due, all by one commit; whether anything was.
    fn take(&mut self, shown: &Shown<'_>, scheduled: &[Scheduled], now: i64) -> Result<bool> {
        let name = scheduled_name(now);
        // Of a clock that is thousands of years off no name leads back to its moment.
        if scheduled_moment(&name).is_none() {
            return Ok(false);
        }
        let mut due = Vec::new();
        for of in scheduled {
            let is_there = of.automatic.iter().any(|it| it.snapshot.as_ref() == Some(&name));
            let is_due = of.rule.is_due(newest_moment(of), now) && !is_there && !of.is_kept;
            if is_due && self.has_changed(shown.pool, of, now)? {
                due.push(of.dataset.clone());
            }
        }
        if due.is_empty() {
            return Ok(false);
        }
        shown.pool.snapshot_together(&due, &name)?;
        let made = due.into_iter();
        let made = made.map(|dataset| Source { dataset, snapshot: Some(name.clone()) });
        shown.mounts.members_changed(&made.collect::<Vec<_>>());
        Ok(true)
    }

    fn has_changed(&mut self, pool: &Pool, of: &Scheduled, now: i64) -> Result<bool> {
        if self.unchanged.get(&of.dataset).is_some_and(|at| is_recent(*at, now)) {
            return Ok(false);
        }
        let has_changed = marram_history::has_changed(pool, &of.dataset, of.newest.as_ref())?;
        match has_changed {
            true => self.unchanged.remove(&of.dataset),
            false => self.unchanged.insert(of.dataset.clone(), now),
        };
        Ok(has_changed)
    }
}

/// Destroys what the rules do not keep and nothing is in the way of.
fn destroy_too_many(shown: &Shown<'_>, now: i64) -> Result<()> {
    let mut goes = Vec::new();
    for of in shown.pool.scheduled()? {
        // A name that is no moment of the calendar is not of the daemon.
        let named = of.automatic.iter().filter_map(|source| Some((source, moment(source)?)));
        let (sources, moments): (Vec<&Source>, Vec<i64>) = named.unzip();
        let kept = of.rule.kept(&moments, now);
        let too_many = sources.into_iter().zip(kept).filter(|(_, stays)| !stays);
        goes.extend(too_many.map(|(source, _)| source.clone()));
    }
    if goes.is_empty() {
        return Ok(());
    }
    let mounted = shown.mounts.mounted().into_iter().collect();
    thin(shown, Thinning::of(shown.pool, &goes, &mounted)?, false).map(|_| ())
}
