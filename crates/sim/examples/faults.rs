//! The campaign of faults: what `cargo xtask faults` starts.
//!
//! `faults [--seed S] [--setting NAME] [--every N] [--jobs N] [--replay ID]`

#[path = "../tests/faults/mod.rs"]
mod faults;

use faults::{Outcome, SETTINGS, all, run};
use marram_sim::faults::FaultId;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A run that takes longer is taken to hang.
const RUN_SECONDS_MAX: u64 = 60;
/// Violations of a setting that are printed.
const VIOLATIONS_SHOWN_MAX: usize = 40;

/// What the command line asks for.
struct Request {
    seed: u64,
    setting: Option<String>,
    every: usize,
    jobs: usize,
    replay: Option<FaultId>,
}

fn read_request(mut words: impl Iterator<Item = String>) -> Result<Request, String> {
    let mut request = Request { seed: 1, setting: None, every: 1, jobs: 1, replay: None };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"));
        match word.as_str() {
            "--seed" => request.seed = number()?,
            "--setting" => request.setting = Some(value),
            "--every" => request.every = (number()? as usize).max(1),
            "--jobs" => request.jobs = (number()? as usize).max(1),
            "--replay" => request.replay = Some(value.parse().map_err(|error| format!("{error}"))?),
            _ => return Err(format!("{word} is no option of this command")),
        }
    }
    Ok(request)
}

/// What has been found so far.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<&'static str, usize>,
    violations: usize,
    /// Runs that are under way, by worker.
    running: BTreeMap<usize, (String, Instant)>,
}

fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Correct => "correct",
        Outcome::Healed => "answered by another copy or attempt",
        Outcome::Damaged(_) => "damage reported, all else correct",
        Outcome::BothCopies => "both copies hit by one write, a clear error",
        Outcome::Reported => "error told, promises kept",
    }
}

fn work(worker: usize, ids: &[FaultId], next: &AtomicUsize, tally: &Mutex<Tally>) {
    let lock = || tally.lock().expect("no run panics outside of itself");
    while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
        lock().running.insert(worker, (id.to_string(), Instant::now()));
        let result = run(id);
        let mut tally = lock();
        tally.running.remove(&worker);
        match result {
            Ok(outcome) => *tally.counts.entry(kind(&outcome)).or_default() += 1,
            Err(violation) => {
                tally.violations += 1;
                if tally.violations <= VIOLATIONS_SHOWN_MAX {
                    eprintln!("VIOLATION {id}: {violation}");
                }
            }
        }
    }
}

/// Runs all, and watches that none hangs.
fn campaign(ids: Vec<FaultId>, jobs: usize) -> Result<Tally, String> {
    let (ids, next) = (Arc::new(ids), Arc::new(AtomicUsize::new(0)));
    let tally = Arc::new(Mutex::new(Tally::default()));
    let workers: Vec<_> = (0..jobs)
        .map(|worker| {
            let (ids, next, tally) = (ids.clone(), next.clone(), tally.clone());
            std::thread::spawn(move || work(worker, &ids, &next, &tally))
        })
        .collect();
    while workers.iter().any(|worker| !worker.is_finished()) {
        std::thread::sleep(Duration::from_millis(50));
        let tally = tally.lock().expect("no run panics outside of itself");
        for (id, since) in tally.running.values() {
            if since.elapsed() > Duration::from_secs(RUN_SECONDS_MAX) {
                return Err(format!("{id}: hangs"));
            }
        }
    }
    Ok(std::mem::take(&mut *tally.lock().expect("no run panics outside of itself")))
}

fn perform(request: &Request) -> Result<(), String> {
    if let Some(id) = &request.replay {
        println!("{id}: {:?}", run(id)?);
        return Ok(());
    }
    let mut violations = 0;
    for setting in SETTINGS {
        if request.setting.as_ref().is_some_and(|name| name != setting.name) {
            continue;
        }
        let ids: Vec<FaultId> = all(setting, request.seed)?;
        let positions = ids.len();
        let ids: Vec<FaultId> = ids.into_iter().step_by(request.every).collect();
        let start = Instant::now();
        let tally = campaign(ids, request.jobs)?;
        println!(
            "{}: {} of {positions} runs in {:.0} s: {:?}, {} violations",
            setting.name,
            tally.counts.values().sum::<usize>() + tally.violations,
            start.elapsed().as_secs_f64(),
            tally.counts,
            tally.violations
        );
        violations += tally.violations;
    }
    match violations {
        0 => Ok(()),
        count => {
            Err(format!("{count} violations; replay one with `cargo xtask faults --replay ID`"))
        }
    }
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let request = match read_request(std::env::args().skip(1)) {
        Ok(request) => request,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    match perform(&request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
