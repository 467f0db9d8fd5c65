//! One run of a program on a recorded mount, and the file that it is kept in.
//!
//! The same seed makes the same program do the same steps, but not the same trace: see
//! `marram_sim::crash::encode_trace`. So states are named by the trace that they are of, and
//! a trace with a violation is kept.

use crate::pool::{Result, words};
use crate::programs::{Program, Stage, Window, program};
use crate::served::Served;
use marram_sim::crash::{decode_trace, encode_trace};
use marram_sim::device::{CrashState, Event, Trace};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_64;

/// Folders of runs that are kept: those with a violation, and the latest of the others.
const VIOLATIONS: &str = "violations";
const RUNS: &str = "runs";
/// How many of the others are kept.
const RUNS_KEPT_MAX: usize = 100;

/// A run by name: `sqlite-wal:7:90d2f1ab54c3e608`, and a state of it with `@17:subset:5` behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunName {
    /// The program.
    pub(crate) program: String,
    /// What decided its steps.
    pub(crate) seed: u64,
    /// The digest of its trace.
    pub(crate) trace: u64,
}

/// What a program did to the device.
pub(crate) struct Recorded {
    pub(crate) name: RunName,
    pub(crate) program: Box<dyn Program>,
    pub(crate) trace: Trace,
    /// How many steps may be there, for each number of events before a crash.
    windows: Vec<Window>,
}

impl Recorded {
    /// Runs a program on a mount in `folder`, where also lies what it reads.
    pub(crate) fn new(name: &str, seed: u64, folder: &Path) -> Result<Recorded> {
        let program = program(name)?;
        let served = Served::new(seed, folder)?;
        program.perform(&Stage::new(&served, folder, seed))?;
        let trace = served.end()?;
        let digest = xxh3_64(&encode_trace(&trace));
        Ok(Recorded::of(RunName { program: name.to_owned(), seed, trace: digest }, program, trace))
    }

    fn of(name: RunName, program: Box<dyn Program>, trace: Trace) -> Recorded {
        let mut windows = vec![Window::START];
        let mut window = Window::START;
        for event in trace.events() {
            if let Event::Mark(mark) = event {
                window = window.after(*mark);
            }
            windows.push(window);
        }
        Recorded { name, program, trace, windows }
    }

    /// How many steps may be there after a crash.
    pub(crate) fn window(&self, state: CrashState) -> Window {
        self.windows[state.cut]
    }

    /// Keeps it below `folder`, for good if it has a violation, else until enough later ones were
    /// kept.
    pub(crate) fn keep(&self, folder: &Path, has_violation: bool) -> Result<()> {
        let folder = folder.join(if has_violation { VIOLATIONS } else { RUNS });
        std::fs::create_dir_all(&folder).map_err(words)?;
        let file = folder.join(self.name.file());
        std::fs::write(&file, encode_trace(&self.trace))
            .map_err(|error| format!("{}: {error}", file.display()))?;
        if has_violation { Ok(()) } else { forget_oldest(&folder).map_err(words) }
    }

    /// The run that was kept below `folder` under this name.
    pub(crate) fn load(name: &RunName, folder: &Path) -> Result<Recorded> {
        let places = [VIOLATIONS, RUNS].map(|kept| folder.join(kept).join(name.file()));
        let file = places.iter().find(|file| file.exists()).unwrap_or(&places[0]);
        let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let trace =
            decode_trace(&bytes).map_err(|reason| format!("{}: {reason}", file.display()))?;
        Ok(Recorded::of(name.clone(), program(&name.program)?, trace))
    }
}

/// Removes files beyond the latest so many.
fn forget_oldest(folder: &Path) -> std::io::Result<()> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort();
    let excess = files.len().saturating_sub(RUNS_KEPT_MAX);
    files[..excess].iter().try_for_each(|(_, file)| std::fs::remove_file(file))
}

impl RunName {
    fn file(&self) -> String {
        format!("{}.trace", self.to_string().replace(':', "-"))
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{:016x}", self.program, self.seed, self.trace)
    }
}

impl FromStr for RunName {
    type Err = String;

    fn from_str(text: &str) -> Result<RunName> {
        let fields: Vec<&str> = text.split(':').collect();
        let read = match fields[..] {
            [program, seed, trace] => seed
                .parse()
                .ok()
                .zip(u64::from_str_radix(trace, 16).ok())
                .map(|(seed, trace)| RunName { program: program.to_owned(), seed, trace }),
            _ => None,
        };
        read.ok_or_else(|| format!("{text:?} is not a run like sqlite-wal:7:90d2f1ab54c3e608"))
    }
}

#[cfg(test)]
mod tests {
    use super::RunName;

    #[test]
    fn a_run_is_read_from_its_name() {
        let text = "git-fsync:7:00d2f1ab54c3e608";
        assert_eq!(text.parse::<RunName>().expect("a name").to_string(), text);
        for text in ["git-fsync", "git-fsync:7", "git-fsync:x:00", "git-fsync:7:xyz", "a:1:2:3"] {
            text.parse::<RunName>().expect_err(text);
        }
    }
}
