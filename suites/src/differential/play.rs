//! Plays a list of calls on both file systems, and cuts a list that shows a difference down to a
//! short one that shows it too.

use super::call::Step;
use super::compare::{self, Difference};
use super::observe;
use super::rules::{Found, Usage};
use super::side::Side;
use marram_lab::failure::{Context, Result};
use marram_lab::subject::Subject;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many calls are made before their results are compared.
const BATCH: usize = 250;

/// How long cutting down may take.
const SHRINKING: Duration = Duration::from_secs(30);

/// Both file systems.
pub(super) struct Pair {
    /// Marram first, then ext4.
    pub(super) subjects: [Box<dyn Subject>; 2],
    /// How often each rule was needed.
    pub(super) usage: Usage,
    /// Calls that succeeded on both.
    pub(super) succeeded: u64,
    runs: u64,
}

/// A difference that no rule explains.
pub(super) struct Unexplained {
    /// After this many calls.
    pub(super) calls: usize,
    /// What is not the same.
    pub(super) differences: Vec<Difference>,
}

impl Pair {
    /// Both, mounted.
    pub(super) fn new(subjects: [Box<dyn Subject>; 2]) -> Self {
        Self { subjects, usage: Usage::default(), succeeded: 0, runs: 0 }
    }

    /// Plays the steps in fresh folders, compares all that they return and then the trees, and
    /// with `remount` the trees again after a remount.
    pub(super) fn play(&mut self, steps: &[Step], remount: bool) -> Result<Option<Unexplained>> {
        self.runs += 1;
        let folders = self.folders();
        for folder in &folders {
            std::fs::create_dir(folder)?;
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777))?;
        }
        let mut found = self.play_in(&folders, steps)?;
        if remount && found.is_none() {
            for subject in &mut self.subjects {
                subject.remount()?;
            }
            found = trees(&mut start(&folders)?, steps.len())?;
        }
        for folder in &folders {
            remove(folder)?;
        }
        Ok(found)
    }

    fn folders(&self) -> [PathBuf; 2] {
        let folder = format!("run-{}", self.runs);
        [0, 1].map(|side| self.subjects[side].root().join(&folder))
    }

    fn play_in(&mut self, folders: &[PathBuf; 2], steps: &[Step]) -> Result<Option<Unexplained>> {
        let mut sides = start(folders)?;
        for (batch, steps) in steps.chunks(BATCH).enumerate() {
            let steps: Arc<[Step]> = steps.into();
            sides.iter().for_each(|side| side.begin(&steps));
            let [left, right] = &mut sides;
            let (left, right) = (left.reports()?, right.reports()?);
            for (index, step) in steps.iter().enumerate() {
                let (marram, ext4) = (&left[index], &right[index]);
                self.succeeded += u64::from(marram.outcome.is_ok() && ext4.outcome.is_ok());
                let mut differences = compare::differences(step, marram, ext4);
                differences.retain(|difference| {
                    !self.usage.explain(&Found { step, marram, ext4, difference })
                });
                if !differences.is_empty() {
                    let calls = batch * BATCH + index + 1;
                    return Ok(Some(Unexplained { calls, differences }));
                }
            }
        }
        trees(&mut sides, steps.len())
    }

    /// A short list of steps that shows a difference, by leaving out ever smaller parts of it.
    pub(super) fn shrink(&mut self, steps: &[Step]) -> Result<(Vec<Step>, Option<Unexplained>)> {
        let mut kept = steps.to_vec();
        let mut last = None;
        let start = Instant::now();
        let mut part = kept.len() / 2;
        while part > 0 && start.elapsed() < SHRINKING {
            let mut at = 0;
            while at < kept.len() && start.elapsed() < SHRINKING {
                let end = (at + part).min(kept.len());
                let without = [&kept[..at], &kept[end..]].concat();
                match self.play(&without, false)? {
                    Some(found) => {
                        kept = without[..found.calls].to_vec();
                        last = Some(found);
                    }
                    None => at = end,
                }
            }
            part /= 2;
        }
        Ok((kept, last))
    }
}

fn start(folders: &[PathBuf; 2]) -> Result<[Side; 2]> {
    Ok([Side::start(&folders[0])?, Side::start(&folders[1])?])
}

fn trees(sides: &mut [Side; 2], calls: usize) -> Result<Option<Unexplained>> {
    let [left, right] = sides;
    let (marram, ext4) = (left.tree().context(|| "marram")?, right.tree().context(|| "ext4")?);
    let differences = compare::of_trees(&marram, &ext4, observe::now());
    Ok((!differences.is_empty()).then_some(Unexplained { calls, differences }))
}

fn remove(folder: &std::path::Path) -> Result<()> {
    std::fs::remove_dir_all(folder).context(|| format!("cannot remove {}", folder.display()))
}
