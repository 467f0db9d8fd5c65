//! Goes through the states that a power cut could leave of a pool: what `cargo xtask crash` starts.
//!
//! `crash [--states N] [--seed S] [--threads T] [--interleaved true] [--workload W]
//! [--replay ID] [--bug B]`. With a bug planted in the engine, the explorer has to find violations.

#[path = "../tests/homes/mod.rs"]
mod homes;

use homes::PoolTarget;
use marram_pool::planted::PlantedBug;
use marram_sim::crash::{Bounds, Campaign, Explorer, Outcome, Plan, StateId, Violation, Workload};
use std::process::ExitCode;
use std::time::Instant;

/// What the command line asks for.
struct Request {
    plan: Plan,
    workload: Option<Workload>,
    replay: Option<StateId>,
    bug: Option<PlantedBug>,
}

fn read_request(mut words: impl Iterator<Item = String>) -> Result<Request, String> {
    let plan = Plan { seed: 1, states: 50_000, threads: 2, interleaved: false };
    let mut request = Request { plan, workload: None, replay: None, bug: None };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"));
        match word.as_str() {
            "--states" => request.plan.states = number()?,
            "--seed" => request.plan.seed = number()?,
            "--threads" => request.plan.threads = number()? as usize,
            "--interleaved" => request.plan.interleaved = value == "true",
            "--workload" => request.workload = Some(value.parse()?),
            "--replay" => request.replay = Some(value.parse()?),
            "--bug" => request.bug = Some(bug(&value)?),
            _ => return Err(format!("{word} is no option of this command")),
        }
    }
    Ok(request)
}

/// A bug by the name of its variant.
fn bug(name: &str) -> Result<PlantedBug, String> {
    let known = PlantedBug::ALL.into_iter().find(|bug| format!("{bug:?}") == name);
    known.ok_or_else(|| format!("no bug is named {name}: there are {:?}", PlantedBug::ALL))
}

fn run(request: &Request) -> Result<bool, String> {
    let target = PoolTarget { bug: request.bug };
    let explorer = Explorer::new(&target)?;
    if let Some(id) = &request.replay {
        let story = explorer.replay(id)?;
        println!("{id}: nothing is wrong\n{story}");
        return Ok(true);
    }
    if let Some(workload) = &request.workload {
        let violations = explorer.explore(workload, &Bounds::default(), request.plan.seed);
        println!("{workload}: {} states, {} compared", explorer.distinct(), explorer.compared());
        return Ok(tell_violations(&violations));
    }
    let start = Instant::now();
    let outcome =
        Campaign::new(&explorer, request.plan).run(&|outcome| tell_progress(outcome, start));
    tell_progress(&outcome, start);
    let is_well = tell_violations(&outcome.violations);
    tell_smallest(&explorer, &outcome.violations, request.plan.seed);
    Ok(is_well)
}

/// Makes the workload of the first violation small.
fn tell_smallest(explorer: &Explorer<'_>, violations: &[Violation], seed: u64) {
    let Some(first) = violations.first() else { return };
    let workload = first.id.split('@').next().and_then(|workload| workload.parse().ok());
    if let Some((workload, violation)) =
        workload.and_then(|workload| explorer.minimize(&workload, seed))
    {
        println!("SMALLEST {workload}\n  {}\n  {}", violation.id, violation.reason);
    }
}

fn tell_progress(outcome: &Outcome, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} distinct states of {} compared, {} workloads, {} recoveries crashed in turn, \
         {} commits, frames and administrative operations held, {} violations, {seconds:.1} s, \
         {:.0} states/s",
        outcome.distinct,
        outcome.compared,
        outcome.workloads,
        outcome.continued,
        outcome.held,
        outcome.violations.len(),
        outcome.distinct as f64 / seconds,
    );
}

/// Prints what is wrong; returns whether nothing is.
fn tell_violations(violations: &[Violation]) -> bool {
    for violation in violations {
        println!("VIOLATION {}\n  {}", violation.id, violation.reason);
        println!("  replay: cargo xtask crash --replay '{}'", violation.id);
    }
    violations.is_empty()
}

fn main() -> ExitCode {
    let request = match read_request(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    match run(&request) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
