//! Real programs under every state that a power cut could leave: what `cargo xtask crash
//! --programs` starts.
//!
//! SQLite, git and mail scripts run on a real mount of a pool in memory whose device records
//! ([`served`]); what was acknowledged to them as durable is marked in the trace ([`programs`]).
//! From the trace come the crash states, as for the explorer of crate `sim`; each is verified,
//! opened without a mount, and shown to the program's own check ([`exploration`]).
//!
//! It is an example and not part of the chore's own program. So only a run of it builds the engine,
//! and builds it with bugs that can be planted.

mod exploration;
mod pool;
mod programs;
mod recording;
mod served;
mod tree;

use clap::Parser;
use exploration::{Exploration, Outcome, Violation};
use marram_pool::planted::{PlantedBug, plant_everywhere};
use marram_sim::device::CrashState;
use pool::{Result, words};
use programs::programs;
use recording::{Recorded, RunName};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use tempfile::TempDir;

/// Most states of one run of a program; for more it runs again, with another seed.
const RUN_STATES_MAX: u64 = 2_500;
/// Most violations after which a campaign goes on.
const VIOLATIONS_MAX: usize = 3;
/// Where copies of trees are fast to make, if the machine has it.
const MEMORY_FOLDER: &str = "/dev/shm";
/// What scratch folders begin with; the number of the process follows.
const SCRATCH_PREFIX: &str = "marram-crash-programs-";

/// What is asked for on the command line.
#[derive(Parser)]
struct Request {
    /// How many distinct states.
    #[arg(long, default_value_t = 600)]
    states: u64,
    /// Decides what the programs do, and which states are looked at.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Only this program.
    #[arg(long)]
    workload: Option<String>,
    /// Only this state, of a run that was kept.
    #[arg(long)]
    replay: Option<String>,
    /// Plant a bug in the engine, by the name of its variant.
    #[arg(long)]
    bug: Option<String>,
    /// Leave the offline verifier out: the programs' own checks are the only judges.
    #[arg(long)]
    no_verifier: bool,
    /// Where runs are kept.
    #[arg(long)]
    keep: PathBuf,
}

fn main() -> ExitCode {
    match perform(&Request::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn perform(request: &Request) -> Result<bool> {
    let scratch = scratch_folder()?;
    if let Some(bug) = &request.bug {
        plant_everywhere(Some(planted_bug(bug)?));
    }
    if let Some(id) = &request.replay {
        let told = replay(request, id, scratch.path())?;
        println!("{id}: nothing is wrong\n{told}");
        return Ok(true);
    }
    let start = Instant::now();
    let outcome = campaign(request, scratch.path())?;
    tell("all programs", &outcome, start);
    Ok(outcome.violations.is_empty())
}

/// Runs the programs in turns until there are enough states.
fn campaign(request: &Request, scratch: &Path) -> Result<Outcome> {
    let names: Vec<&str> = match &request.workload {
        Some(name) => vec![name],
        None => programs().iter().map(|program| program.name()).collect(),
    };
    let mut total = Outcome::default();
    for seed in request.seed.. {
        for (turn, name) in names.iter().enumerate() {
            let left = request.states.saturating_sub(total.distinct);
            if left == 0 || total.violations.len() >= VIOLATIONS_MAX {
                return Ok(total);
            }
            let share = left.div_ceil((names.len() - turn) as u64).min(RUN_STATES_MAX);
            let start = Instant::now();
            let recorded = Recorded::new(name, seed, scratch)
                .map_err(|reason| format!("{name} with seed {seed}, before any crash: {reason}"))?;
            let exploration = Exploration::new(&recorded, !request.no_verifier, scratch);
            let outcome = exploration.explore(share, seed, request.threads);
            tell(&recorded.name.to_string(), &outcome, start);
            recorded.keep(&request.keep, !outcome.violations.is_empty())?;
            tell_violations(&outcome.violations, request);
            total.add(outcome);
        }
    }
    Ok(total)
}

fn tell(what: &str, outcome: &Outcome, start: Instant) {
    println!(
        "{what}: {} distinct states of {} compared, {} distinct trees, {} violations, {:.1} s",
        outcome.distinct,
        outcome.compared,
        outcome.trees,
        outcome.violations.len(),
        start.elapsed().as_secs_f64(),
    );
}

fn tell_violations(violations: &[Violation], request: &Request) {
    let mut with = request.bug.as_ref().map(|bug| format!(" --bug {bug}")).unwrap_or_default();
    if request.no_verifier {
        with += " --no-verifier";
    }
    for Violation { id, reason } in violations {
        println!("VIOLATION {id}\n  {reason}");
        println!("  replay: cargo xtask crash --programs{with} --replay '{id}'");
    }
}

/// Looks at one state of a run that was kept.
fn replay(request: &Request, id: &str, scratch: &Path) -> Result<String> {
    let (run, state) = id.split_once('@').ok_or_else(|| {
        format!("{id:?} is not a state like sqlite-wal:7:90d2f1ab54c3e608@17:all")
    })?;
    let state: CrashState = state.parse().map_err(words)?;
    let recorded = Recorded::load(&run.parse::<RunName>()?, &request.keep)?;
    let exploration = Exploration::new(&recorded, !request.no_verifier, scratch);
    exploration.replay(state, &request.keep.join("replayed"))
}

/// A bug by the name of its variant.
fn planted_bug(name: &str) -> Result<PlantedBug> {
    let known = PlantedBug::ALL.into_iter().find(|bug| format!("{bug:?}") == name);
    known.ok_or_else(|| format!("no bug is named {name}: there are {:?}", PlantedBug::ALL))
}

/// A folder for the mount and for copies, in memory where that can be had. Those of processes that
/// were killed are removed.
fn scratch_folder() -> Result<TempDir> {
    let memory = Path::new(MEMORY_FOLDER);
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    for entry in std::fs::read_dir(&place).map_err(words)?.flatten() {
        if entry.file_name().to_str().is_some_and(is_abandoned) {
            served::clear(&entry.path())?;
        }
    }
    let prefix = format!("{SCRATCH_PREFIX}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(place).map_err(words)
}

/// Whether a folder has the name of a scratch folder whose process is gone.
fn is_abandoned(name: &str) -> bool {
    let process = name.strip_prefix(SCRATCH_PREFIX).and_then(|rest| rest.split('-').next());
    process.is_some_and(|process| !Path::new("/proc").join(process).exists())
}

#[cfg(test)]
mod tests {
    use super::{Request, campaign, programs, replay};
    use marram_pool::planted::{PlantedBug, plant_everywhere};
    use std::path::Path;

    fn request(program: &str, states: u64, no_verifier: bool, keep: &Path) -> Request {
        Request {
            states,
            seed: 5,
            threads: 2,
            workload: Some(program.to_owned()),
            replay: None,
            bug: None,
            no_verifier,
            keep: keep.to_owned(),
        }
    }

    /// One test, since what is planted is planted for all threads.
    #[test]
    fn each_program_notices_a_planted_bug_by_itself_and_the_state_replays() {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: needs /dev/fuse");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        for program in programs() {
            let name = program.name();
            let alone = request(name, 5000, true, folder.path());
            plant_everywhere(Some(PlantedBug::RenameBeforeData));
            let caught = campaign(&alone, folder.path()).expect("the program runs");
            let by_itself = |reason: &str| !reason.starts_with("opened");
            let noticed = caught.violations.iter().find(|found| by_itself(&found.reason));
            let violation = noticed.unwrap_or_else(|| panic!("{name} notices nothing: {caught:?}"));
            let again = replay(&alone, &violation.id, folder.path()).expect_err("it replays");
            assert!(by_itself(&again), "{again}");
            plant_everywhere(None);
            let judged = request(name, 30, false, folder.path());
            let well = campaign(&judged, folder.path()).expect("the program runs");
            assert!(well.violations.is_empty(), "{:#?}", well.violations);
            assert!(well.distinct >= 30 && well.trees > 1, "{well:?}");
        }
    }
}
