//! `marram bench`: a short race of a pool against the file system that it would lie on, on the
//! user's own machine and disk.
//!
//! Both take turns in a folder of their own that is made for it and goes again, also when it is
//! interrupted. What it will take of space and time is said before it starts, and each step ends
//! after a few seconds however far it has come, so a slow disk makes it inexact rather than long.

mod folder;
mod steps;

use crate::arguments::BenchArguments;
use crate::error::{Error, Result};
use crate::output::{Align, Output, Table, say, size_text};
use crate::paths::absolute;
use folder::BenchFolder;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use steps::{ALL, STEP_SECONDS_MAX, Step, WRITTEN_BYTES_MAX};

/// Free space that is asked for: what both may hold, and as much again, so that a disk that is
/// nearly full is not filled.
const FREE_BYTES_MIN: u64 = 4 * WRITTEN_BYTES_MAX;

#[derive(Serialize)]
struct Race {
    directory: PathBuf,
    peer: &'static str,
    rounds: usize,
    steps: Vec<StepReport>,
}

#[derive(Serialize)]
struct StepReport {
    step: &'static str,
    unit: &'static str,
    marram: f64,
    peer: f64,
    /// How many times as fast as the peer: above 1 we are ahead.
    times_as_fast: f64,
}

pub(super) fn run(arguments: &BenchArguments, output: &Output) -> Result<()> {
    let directory = absolute(&arguments.directory)?;
    let peer = file_system_of(&directory)?;
    let interrupted = listen()?;
    if !output.json {
        say(&announcement(&directory, peer, arguments.rounds));
    }
    let folder = BenchFolder::make(&directory)?;
    let raced = race(&folder, arguments.rounds, &interrupted);
    folder.remove()?;
    let steps = reports(&raced?);
    let race = Race { directory, peer, rounds: arguments.rounds, steps };
    output.print(&race, || text(&race, output.colour));
    Ok(())
}

/// From now on a signal only asks: what was made must go first, and each step ends
/// within seconds.
fn listen() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|error| Error::failed(format!("cannot listen for signals: {error}")))?;
    }
    Ok(interrupted)
}

fn announcement(directory: &Path, peer: &str, rounds: usize) -> String {
    let space = size_text(2 * WRITTEN_BYTES_MAX, false);
    let seconds = ALL.len() as u64 * 2 * rounds as u64 * STEP_SECONDS_MAX;
    format!(
        "Races a pool in {} against the {peer} that it lies on: at most {space} are written and \
         {seconds} s taken, usually a quarter of that. All of it goes again, also after Ctrl-C.",
        directory.display()
    )
}

/// What the kernel calls the file system of `directory`; refuses where there is too little room.
fn file_system_of(directory: &Path) -> Result<&'static str> {
    let failed = |error: rustix::io::Errno| Error::system("look at", directory, error);
    let space = rustix::fs::statvfs(directory).map_err(failed)?;
    let free_bytes = space.f_bavail * space.f_frsize;
    if free_bytes < FREE_BYTES_MIN {
        let (free, least) = (size_text(free_bytes, false), size_text(FREE_BYTES_MIN, false));
        let place = directory.display();
        return Err(Error::failed(format!("{place} has {free} free, and {least} are wanted"))
            .hint("name a directory on another disk"));
    }
    Ok(match rustix::fs::statfs(directory).map_err(failed)?.f_type {
        0xEF53 => "ext4",
        0x5846_5342 => "XFS",
        0x9123_683E => "Btrfs",
        0x0102_1994 => "tmpfs",
        0x2FC1_2FC1 => "ZFS",
        0x794C_7630 => "overlay",
        0xF2F5_2010 => "F2FS",
        0x6573_5546 => "FUSE file system",
        0x6969 => "NFS",
        _ => "file system",
    })
}

/// The rates of each step: ours and the peer's.
struct Rates {
    step: Step,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

/// Rounds in which both take turns.
fn race(folder: &BenchFolder, rounds: usize, interrupted: &AtomicBool) -> Result<Vec<Rates>> {
    let empty = |step| Rates { step, ours: Vec::new(), theirs: Vec::new() };
    let mut all: Vec<Rates> = ALL.into_iter().map(empty).collect();
    for _round in 0..rounds {
        let theirs = steps::run(&folder.beside(), interrupted)?;
        let ours = steps::run(&folder.mounted(), interrupted)?;
        for (rates, (ours, theirs)) in all.iter_mut().zip(ours.into_iter().zip(theirs)) {
            rates.ours.push(ours);
            rates.theirs.push(theirs);
        }
    }
    Ok(all)
}

fn reports(all: &[Rates]) -> Vec<StepReport> {
    let report = |rates: &Rates| {
        let (marram, peer) = (median(&rates.ours), median(&rates.theirs));
        let (step, unit) = (rates.step.title(), rates.step.unit());
        StepReport { step, unit, marram, peer, times_as_fast: marram / peer }
    };
    all.iter().map(report).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

fn text(race: &Race, colour: bool) -> String {
    let mut table = Table::new(&[
        ("STEP", Align::Left),
        ("MARRAM", Align::Right),
        ("BESIDE", Align::Right),
        ("", Align::Left),
        ("TIMES AS FAST", Align::Right),
    ]);
    for step in &race.steps {
        table.row(vec![
            step.step.to_owned(),
            figure(step.marram),
            figure(step.peer),
            step.unit.to_owned(),
            format!("{:.2}", step.times_as_fast),
        ]);
    }
    format!(
        "{}\nMedians of {} rounds. `BESIDE` is the {} of {}; above 1 the pool is ahead.\n\
         Its file lies on that file system, so it pays for both.\n",
        table.columns(colour),
        race.rounds,
        race.peer,
        race.directory.display()
    )
}

fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_many_in_a_second_is_twice_as_fast() {
        let step = ALL[0];
        let rates =
            Rates { step, ours: vec![10.0, 300.0, 200.0], theirs: vec![100.0, 90.0, 400.0] };
        let reports = reports(&[rates]);
        assert!((reports[0].times_as_fast - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_median_of_two_rounds_lies_between_them() {
        assert!((median(&[4.0, 1.0]) - 2.5).abs() < 1e-9);
    }
}
