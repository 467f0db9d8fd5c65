//! Automatic snapshots, for as long as mounts show a home.
//!
//! When one is due is asked anew at each tick, from the time of day and the names of those that
//! are there. So a machine that slept, a clock that jumped and a daemon that began anew need no
//! care: what is due by then is taken. All datasets that are due go into one commit.
//!
//! Where several hosts have a home open, [`Scheduling::take`] judges again in the step that takes
//! them, so of several only one does. Their clocks are never quite the same: by one that is a
//! little behind nothing is due, or too old, before it has come to what another one has done.

use crate::engine::mounted::{Shown, thin};
use crate::engine::mounts::Mounts;
use crate::engine::schedules::{moment, newest_moment};
use crate::engine::thinning::Thinning;
use crate::error::Result;
use crate::retention::{scheduled_moment, scheduled_name};
use crate::timestamps::now_seconds;
use marram_store::{DatasetName, Scheduled, Source};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often to look whether one is due.
const TICK: Duration = Duration::from_secs(2);
/// Something that failed, or that nothing has changed in, is looked at again after so many seconds.
const AGAIN_SECONDS: i64 = 60;

/// What automatic snapshots ask of a store.
pub(crate) trait Scheduling {
    /// The datasets with a rule for them.
    ///
    /// # Errors
    /// A failed read.
    fn scheduled(&self) -> Result<Vec<Scheduled>>;

    /// Whether anything that users see has changed since the newest snapshot.
    ///
    /// # Errors
    /// A failed read.
    fn has_changed(&self, of: &Scheduled) -> Result<bool>;

    /// Takes one of each of these datasets, in one step; of none of which others have taken or
    /// destroyed one since. Returns of which.
    ///
    /// # Errors
    /// Whatever refuses it or fails; then there is none.
    fn take(&self, due: &[Scheduled], name: &str) -> Result<Vec<DatasetName>>;

    /// By how many seconds the clocks of those that take them may differ.
    fn skew_seconds(&self) -> i64 {
        0
    }
}

/// What is known of automatic snapshots from one look to the next.
#[derive(Default)]
pub(crate) struct AutomaticSnapshots {
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
/// the daemon ends or the home is halted.
pub(crate) fn run(mounts: &dyn Mounts, is_halted: &dyn Fn() -> bool, step: &dyn Fn(i64)) {
    while !mounts.is_shut() && !is_halted() {
        step(now_seconds());
        std::thread::sleep(TICK);
    }
}

impl AutomaticSnapshots {
    /// Takes what is due at a moment, and destroys what is too many then. The handle that is shown
    /// acts for nobody: no user has asked for them.
    pub(crate) fn step(&self, scheduling: &dyn Scheduling, shown: &Shown<'_>, now: i64) {
        let known = &mut *self.known.lock();
        if known.failed.as_ref().is_some_and(|(_, at)| is_recent(*at, now)) {
            return;
        }
        match known.take_and_thin(scheduling, shown, now) {
            Ok(()) => known.failed = None,
            Err(error) => {
                let said = error.to_string();
                if known.failed.as_ref().is_none_or(|(last, _)| *last != said) {
                    shown.mounts.log(&format!("automatic snapshots: {said}"));
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

/// The moment by which a dataset is judged: that of its newest automatic snapshot, if another clock
/// that is only a little ahead has taken it.
fn judged_at(scheduling: &dyn Scheduling, of: &Scheduled, now: i64) -> i64 {
    let ahead = newest_moment(of)
        .filter(|newest| (now..=now.saturating_add(scheduling.skew_seconds())).contains(newest));
    ahead.unwrap_or(now)
}

impl Known {
    fn take_and_thin(
        &mut self,
        scheduling: &dyn Scheduling,
        shown: &Shown<'_>,
        now: i64,
    ) -> Result<()> {
        let scheduled = scheduling.scheduled()?;
        if scheduled.is_empty() {
            return Ok(());
        }
        let taken = self.take(scheduling, shown, &scheduled, now);
        let is_thinned = self.thinned_seconds.is_some_and(|at| is_recent(at, now));
        if is_thinned && !matches!(taken, Ok(true)) {
            return taken.map(|_| ());
        }
        self.thinned_seconds = Some(now);
        // Also where none could be taken, as in a full pool: what goes makes room.
        let thinned = destroy_too_many(scheduling, shown, now);
        taken.and(thinned)
    }

    /// Takes what is due, all by one commit; whether anything was.
    fn take(
        &mut self,
        scheduling: &dyn Scheduling,
        shown: &Shown<'_>,
        scheduled: &[Scheduled],
        now: i64,
    ) -> Result<bool> {
        let name = scheduled_name(now);
        // Of a clock that is thousands of years off no name leads back to its moment.
        if scheduled_moment(&name).is_none() {
            return Ok(false);
        }
        let mut due = Vec::new();
        for of in scheduled {
            let is_there = of.automatic.iter().any(|it| it.snapshot.as_ref() == Some(&name));
            let at = judged_at(scheduling, of, now);
            let is_due = of.rule.is_due(newest_moment(of), at) && !is_there && !of.is_kept;
            if is_due && self.has_changed(scheduling, of, now)? {
                due.push(of.clone());
            }
        }
        if due.is_empty() {
            return Ok(false);
        }
        let made = scheduling.take(&due, &name)?.into_iter();
        let made: Vec<Source> =
            made.map(|dataset| Source { dataset, snapshot: Some(name.clone()) }).collect();
        shown.mounts.members_changed(&made);
        Ok(!made.is_empty())
    }

    fn has_changed(
        &mut self,
        scheduling: &dyn Scheduling,
        of: &Scheduled,
        now: i64,
    ) -> Result<bool> {
        if self.unchanged.get(&of.dataset).is_some_and(|at| is_recent(*at, now)) {
            return Ok(false);
        }
        let has_changed = scheduling.has_changed(of)?;
        match has_changed {
            true => self.unchanged.remove(&of.dataset),
            false => self.unchanged.insert(of.dataset.clone(), now),
        };
        Ok(has_changed)
    }
}

/// Destroys what the rules do not keep and nothing is in the way of.
fn destroy_too_many(scheduling: &dyn Scheduling, shown: &Shown<'_>, now: i64) -> Result<()> {
    let mut goes = Vec::new();
    for of in scheduling.scheduled()? {
        // A name that is no moment of the calendar is not of the daemon.
        let named = of.automatic.iter().filter_map(|source| Some((source, moment(source)?)));
        let (sources, moments): (Vec<&Source>, Vec<i64>) = named.unzip();
        let kept = of.rule.kept(&moments, judged_at(scheduling, &of, now));
        let too_many = sources.into_iter().zip(kept).filter(|(_, stays)| !stays);
        goes.extend(too_many.map(|(source, _)| source.clone()));
    }
    if goes.is_empty() {
        return Ok(());
    }
    let mounted = shown.mounts.mounted().into_iter().collect();
    thin(shown, Thinning::of(shown.store, &goes, &mounted)?, false).map(|_| ())
}
