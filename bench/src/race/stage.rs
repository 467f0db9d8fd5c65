//! Where a workload takes place: a mounted subject, and the clock that runs beside it.

use super::super::interruption;
use super::line::{Ending, Line, Outcome, Unit};
use super::usage::Moment;
use marram_lab::failure::{Context, Result};
use marram_lab::subject::Subject;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Pages, names and inodes of every file system: cold is cold for all.
const DROP_ALL: &str = "3";

/// A subject that work is done on.
pub(super) struct Stage<'run> {
    subject: &'run mut dyn Subject,
    group: &'static str,
    is_quick: bool,
    host: &'run Path,
    outcomes: Vec<(Line, Outcome)>,
}

impl<'run> Stage<'run> {
    /// A stage of `group` with `host`, an empty folder outside of the subject.
    pub(super) fn new(
        subject: &'run mut dyn Subject,
        (group, is_quick): (&'static str, bool),
        host: &'run Path,
    ) -> Self {
        Self { subject, group, is_quick, host, outcomes: Vec::new() }
    }

    /// A path below the root of the mounted file system.
    pub(super) fn place(&self, name: &str) -> PathBuf {
        self.subject.root().join(name)
    }

    /// A new folder on the mounted file system.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.place(name);
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// A folder outside of the subject, gone with the stage.
    pub(super) fn host(&self) -> &Path {
        self.host
    }

    /// Whether this is the short form.
    pub(super) fn is_quick(&self) -> bool {
        self.is_quick
    }

    /// The long or the short form of a number.
    pub(super) fn scaled(&self, long: u64, quick: u64) -> u64 {
        if self.is_quick { quick } else { long }
    }

    /// The device below, if it has one of its own.
    pub(super) fn device(&self) -> Option<PathBuf> {
        self.subject.device().map(Path::to_owned)
    }

    /// Makes everything durable, outside of any line.
    pub(super) fn settle(&self) -> Result<()> {
        self.subject.sync()
    }

    /// Bytes in use on the subject.
    pub(super) fn used_bytes(&self) -> Result<u64> {
        self.subject.used_bytes()
    }

    /// A fresh mount, and nothing in any cache of the machine.
    pub(super) fn chill(&mut self) -> Result<()> {
        self.subject.remount()?;
        std::fs::write("/proc/sys/vm/drop_caches", DROP_ALL).context(|| "cannot drop the caches")
    }

    /// Measures how long `work` takes, with the sync that the line's ending asks for.
    pub(super) fn time(&mut self, line: Line, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.measure(line, work, |wall_seconds, ()| wall_seconds)
    }

    /// Measures work that knows its own number.
    pub(super) fn rate(&mut self, line: Line, work: impl FnOnce() -> Result<f64>) -> Result<()> {
        self.measure(line, work, |_wall_seconds, told| told)
    }

    /// Measures how long `work` takes for each of `count` things, in microseconds.
    pub(super) fn each(
        &mut self,
        (key, title, ending): (&str, String, Ending),
        count: u64,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let line = Line::new(key, title, Unit::MicrosecondsEach, ending);
        self.measure(line, work, |wall_seconds, ()| wall_seconds * 1e6 / count as f64)
    }

    /// Takes a number that is no work, as space used is.
    pub(super) fn note(&mut self, line: Line, value: f64) {
        let outcome = Outcome { value, wall_seconds: 0.0, cost: Default::default() };
        self.keep(line, outcome);
    }

    fn measure<T>(
        &mut self,
        line: Line,
        work: impl FnOnce() -> Result<T>,
        value: impl FnOnce(f64, T) -> f64,
    ) -> Result<()> {
        interruption::check()?;
        let before = Moment::before(self.subject)?;
        let start = Instant::now();
        let told = work().context(|| line.key.clone())?;
        if line.ending == Ending::Syncfs {
            self.subject.sync()?;
        }
        let wall_seconds = start.elapsed().as_secs_f64();
        let cost = before.cost_until_now(self.subject)?;
        self.keep(line, Outcome { value: value(wall_seconds, told), wall_seconds, cost });
        Ok(())
    }

    fn keep(&mut self, mut line: Line, outcome: Outcome) {
        line.key = format!("{}.{}", self.group, line.key);
        println!("  {}: {} {}", line.key, Unit::figure(outcome.value), line.unit.word());
        self.outcomes.push((line, outcome));
    }

    /// All that was measured; each line is printed as it goes.
    pub(super) fn into_outcomes(self) -> Vec<(Line, Outcome)> {
        self.outcomes
    }
}
