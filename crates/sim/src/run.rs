//! Runs histories, and makes those that fail small.
//!
//! Shrinking is delta debugging (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing
//! Input, 2002): leave out halves, quarters and so on for as long as the rest still fails.

use crate::clock::HistoryClock;
use crate::history::{Report, Run, Step, Theme, steps};
use crate::home::{Home, HomeResult};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;

/// Makes an empty home that takes its time from the clock.
pub type MakeHome<'a> = &'a dyn Fn(Arc<HistoryClock>) -> HomeResult<Box<dyn Home>>;

/// Which history to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// How many steps the history has.
    pub steps: usize,
    /// What they are mostly about.
    pub theme: Theme,
    /// Run only these of the steps.
    pub kept: Option<Kept>,
    /// How many runs may be spent on making a failure small; 0 leaves it as it is.
    pub shrink_runs_max: usize,
}

impl Options {
    /// All `steps` steps of `seed`, with a failure made small in at most 500 runs.
    pub fn new(seed: u64, steps: usize) -> Options {
        let theme = Theme::default();
        Options { seed, steps, theme, kept: None, shrink_runs_max: 500 }
    }
}

/// Places of steps in their history, ascending. Written as `1,4,7-9`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept(pub Vec<usize>);

/// A history that failed, as small as it could be made.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the history.
    pub seed: u64,
    /// How many steps the history has in all.
    pub steps: usize,
    /// What they are mostly about.
    pub theme: Theme,
    /// The steps that are enough to make it fail, by their places.
    pub kept: Kept,
    /// Those steps, in words.
    pub trace: Vec<String>,
    /// What went wrong at the last of them.
    pub reason: String,
}

/// Where and how one run went wrong.
struct Fault {
    /// How many of the kept steps had been begun.
    begun: usize,
    reason: String,
}

/// Runs the history that `options` name in a home from `make_home`, and compares everything with
/// the model.
///
/// # Errors
/// The failure, made small; its text says how to run it again.
pub fn run_history(options: &Options, make_home: MakeHome<'_>) -> Result<Report, Box<Failure>> {
    let all = steps(options.theme, options.seed, options.steps);
    let mut kept = match &options.kept {
        Some(Kept(places)) => places.iter().copied().filter(|place| *place < all.len()).collect(),
        None => (0..all.len()).collect::<Vec<usize>>(),
    };
    let fault = match run_steps(&all, &kept, make_home) {
        Ok(report) => return Ok(report),
        Err(fault) => fault,
    };
    kept.truncate(fault.begun);
    let (kept, reason) = shrink(&all, kept, fault.reason, options.shrink_runs_max, make_home);
    let trace = kept.iter().map(|place| format!("{place}: {:?}", all[*place])).collect();
    Err(Box::new(Failure {
        seed: options.seed,
        steps: options.steps,
        theme: options.theme,
        kept: Kept(kept),
        trace,
        reason,
    }))
}

/// Leaves out what can be left out.
fn shrink(
    all: &[Step],
    mut kept: Vec<usize>,
    mut reason: String,
    mut runs_left: usize,
    make_home: MakeHome<'_>,
) -> (Vec<usize>, String) {
    let mut piece = kept.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        let mut smaller = false;
        while at < kept.len() {
            if runs_left == 0 {
                return (kept, reason);
            }
            runs_left -= 1;
            let mut rest = kept.clone();
            rest.drain(at..(at + piece).min(kept.len()));
            match run_steps(all, &rest, make_home) {
                Ok(_) => at += piece,
                Err(fault) => {
                    rest.truncate(fault.begun);
                    kept = rest;
                    reason = fault.reason;
                    smaller = true;
                }
            }
        }
        if piece > 1 || !smaller {
            piece /= 2;
        }
    }
    (kept, reason)
}

fn run_steps(all: &[Step], kept: &[usize], make_home: MakeHome<'_>) -> Result<Report, Fault> {
    let mut begun = 0;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let clock = Arc::new(HistoryClock::default());
        let mut run = Run::new(make_home(Arc::clone(&clock))?, clock);
        for place in kept {
            begun += 1;
            run.step(*place, &all[*place])?;
        }
        run.finish()
    }));
    let result = result.unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic))));
    result.map_err(|reason| Fault { begun, reason })
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "without a message".to_owned())
}

impl fmt::Display for Kept {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.0.chunk_by(|a, b| *b == a + 1) {
            match run {
                [first, .., last] => write!(out, "{separator}{first}-{last}")?,
                [only] => write!(out, "{separator}{only}")?,
                [] => (),
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for Kept {
    type Err = String;

    fn from_str(text: &str) -> Result<Kept, String> {
        let number = |digits: &str| {
            digits.parse::<usize>().map_err(|error| format!("{digits:?} in {text:?}: {error}"))
        };
        let mut places = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            places.extend(number(first)?..=number(last)?);
        }
        Ok(Kept(places))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "a history of {} steps fails:", self.trace.len())?;
        for line in &self.trace {
            writeln!(out, "  {line}")?;
        }
        writeln!(out, "{}", self.reason)?;
        let (seed, steps, kept) = (self.seed, self.steps, &self.kept);
        let theme = if self.theme == Theme::Branches { " --branches" } else { "" };
        write!(out, "replay: cargo xtask sim{theme} --seed {seed} --steps {steps} --keep {kept}")
    }
}

impl std::error::Error for Failure {}
