//! `cargo xtask bench --workloads snapshots`: what a dataset's work costs beside none, a
//! hundred, a thousand and ten thousand snapshots of it, and beside a thousand forks; and what each
//! of those costs.
//!
//! Each snapshot is of another state: a file is written anew before each. Times of the engine are
//! those that the command tells, without the way there and back.

use super::stages::Stages;
use super::{Arguments, GIB, machine, work_folder, write_files};
use crate::failure::{Context, Result, fail};
use crate::process::{run, text};
use crate::subject::{Making, Marram, Subject};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Small things are timed so often, and the median told.
const ROUNDS: usize = 200;
/// Bytes of a small write.
const SMALL_BYTES: usize = 4096;
/// Bytes of a large file.
const LARGE_BYTES: usize = 64 << 20;
/// Files that are there when it begins.
const FILES: u64 = 1000;

/// What the target is for: it may grow with the logarithm of the number of snapshots.
const SYNCED: &str = "4 KiB written and synced";
const COMMIT: &str = "a group commit with one changed file";
const LOOKUP: &str = "first lookup of a name";

/// Builds up the snapshots and the forks, measures at each stage, and destroys all.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let (stages, forks): (&[u64], u64) = match arguments.quick {
        true => (&[0, 100, 1000], 100),
        false => (&[0, 100, 1000, 10_000], 1000),
    };
    let folder =
        tempfile::Builder::new().prefix("snapshots").tempdir_in(work_folder(arguments)?)?;
    let making = Making { preallocate: true, ..Making::sized(2 * GIB) };
    let mut marram = Marram::make(folder.path(), &making)?;
    for number in 0..FILES {
        std::fs::write(marram.root().join(format!("file-{number}")), noise(number, SMALL_BYTES))?;
    }
    let flat = &[SYNCED, COMMIT, LOOKUP];
    let mut told = Stages::new("Work beside many snapshots and forks", "snapshots", flat);
    let mut made = 0;
    for stage in stages.iter().copied() {
        let took = take(&marram, made..stage)?;
        made = stage;
        told.begin_at(stage);
        measure(&marram, &mut told, took)?;
        if made > 0 {
            look_up(&marram, &mut told, "snapshots", &names(made, ROUNDS as u64, automatic))?;
        }
    }
    let took = fork(&marram, forks)?;
    told.begin(format!("{made} snapshots and {forks} forks"));
    measure(&marram, &mut told, took)?;
    look_up(&marram, &mut told, "forks", &names(forks, ROUNDS.min(100) as u64, fork_name))?;
    told.begin("destroyed".to_owned());
    destroy(&marram, &mut told, made, forks)?;
    told.begin("all destroyed".to_owned());
    measure(&marram, &mut told, Vec::new())?;
    marram.unmount()?;
    marram.check()?;
    let header = machine()?;
    let page = told.page(&header);
    println!("\n{page}");
    if arguments.dry {
        return Ok(());
    }
    write_files(&arguments.name_or("snapshots"), &page, &told.json(&header)?, &told.plots())
}

/// The name of the snapshot of that number, as automatic ones are named: an hour after another.
fn automatic(number: u64) -> String {
    let (day, hour) = (number / 24, number % 24);
    let (year, month, day) = (2000 + day / 336, day / 28 % 12 + 1, day % 28 + 1);
    format!("auto-{year}-{month:02}-{day:02}T{hour:02}-00-00Z")
}

fn fork_name(number: u64) -> String {
    format!("fork-{number}")
}

/// So many names, spread evenly over the numbers below a limit.
fn names(below: u64, count: u64, name: fn(u64) -> String) -> Vec<String> {
    let count = count.min(below);
    (0..count).map(|index| name(index * below / count)).collect()
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[4]
    };
    (0..len).map(|_| next()).collect()
}

fn at(marram: &Marram, name: &str) -> String {
    format!("{}@{name}", marram.root().display())
}

/// Runs a command that tells the engine's time; returns both times.
fn timed(marram: &Marram, words: &[&str]) -> Result<(Duration, Duration)> {
    let began = Instant::now();
    let told = text(marram.command(&["--json"]).args(words))?;
    let took = began.elapsed();
    let told: serde_json::Value = serde_json::from_str(&told)?;
    let engine = told["result"]["engine_nanoseconds"].as_u64().unwrap_or(0);
    Ok((took, Duration::from_nanos(engine)))
}

/// Times of commands, and of the engine within them.
type Times = Vec<(Duration, Duration)>;

fn take(marram: &Marram, numbers: std::ops::Range<u64>) -> Result<Times> {
    let mut times = Vec::new();
    for number in numbers {
        let path = marram.root().join(format!("file-{}", number % FILES));
        std::fs::write(&path, noise(number + FILES, SMALL_BYTES)).context(|| path.display())?;
        times.push(timed(marram, &["snapshot", &at(marram, &automatic(number))])?);
    }
    Ok(times)
}

fn fork(marram: &Marram, count: u64) -> Result<Times> {
    let root = marram.root().display().to_string();
    (0..count).map(|number| timed(marram, &["fork", &root, &fork_name(number)])).collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// What work costs now. The last of what was just made are told as what the next would cost.
fn measure(marram: &Marram, told: &mut Stages, took: Times) -> Result<()> {
    let last = &took[took.len().saturating_sub(ROUNDS)..];
    if !last.is_empty() {
        told.tell("made, the engine", median(last.iter().map(|(_, engine)| *engine).collect()));
        told.tell("made, the command", median(last.iter().map(|(command, _)| *command).collect()));
    }
    let root = marram.root();
    let small = File::create(root.join("small"))?;
    small.write_all_at(&noise(1, LARGE_BYTES / 64), 0)?;
    small.sync_all()?;
    let content = noise(2, SMALL_BYTES);
    told.tell(
        SYNCED,
        rounds(|round| {
            small.write_all_at(&content, (round % 256) as u64 * SMALL_BYTES as u64)?;
            Ok(small.sync_data()?)
        })?,
    );
    told.tell(
        COMMIT,
        rounds(|round| {
            small.write_all_at(&content, (round % 256) as u64 * SMALL_BYTES as u64)?;
            commit(marram)
        })?,
    );
    let content = noise(3, LARGE_BYTES);
    let began = Instant::now();
    let mut large = File::create(root.join("large"))?;
    large.write_all(&content)?;
    large.sync_all()?;
    told.tell("64 MiB written and synced", began.elapsed());
    std::fs::remove_file(root.join("large"))?;
    let root = root.display().to_string();
    told.tell("marram list", timed(marram, &["list", "--all", &root])?.0);
    told.tell("marram space", timed(marram, &["space", &root])?.0);
    Ok(())
}

/// Has the pool commit what has changed: the way of a command is in it each time.
fn commit(marram: &Marram) -> Result<()> {
    run(marram.command(&["sync"]).arg(marram.root()).stdout(std::process::Stdio::null()))
}

fn rounds(mut work: impl FnMut(usize) -> Result<()>) -> Result<Duration> {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let began = Instant::now();
        work(round)?;
        times.push(began.elapsed());
    }
    Ok(median(times))
}

/// Each name for the first time, and the whole shelf.
fn look_up(marram: &Marram, told: &mut Stages, shelf: &str, names: &[String]) -> Result<()> {
    let shelf = marram.root().join(".marram").join(shelf);
    let mut times = Vec::new();
    for name in names {
        let began = Instant::now();
        std::fs::symlink_metadata(shelf.join(name)).context(|| name)?;
        times.push(began.elapsed());
    }
    told.tell(LOOKUP, median(times));
    let began = Instant::now();
    let listed = std::fs::read_dir(&shelf)?.count();
    told.tell(&format!("listing of the shelf, {listed} names"), began.elapsed());
    Ok(())
}

/// Some alone, the rest together.
fn destroy(marram: &Marram, told: &mut Stages, snapshots: u64, forks: u64) -> Result<()> {
    let root = marram.root().display().to_string();
    let mut times = Vec::new();
    for number in 0..forks {
        let name = fork_name(number);
        times.push(timed(marram, &["destroy", "fork", "--yes", &root, &name])?.0);
    }
    told.tell("one fork", median(times));
    let mut times = Vec::new();
    for name in names(snapshots, 100, automatic) {
        let words = ["destroy", "snapshot", "--yes", &at(marram, &name)];
        times.push(timed(marram, &words)?.0);
    }
    told.tell("one snapshot", median(times));
    let began = Instant::now();
    timed(marram, &["snapshot", &root, "--keep", "1"])?;
    told.tell("all other snapshots together", began.elapsed());
    let left = text(&mut marram.command(&["list", "-H", &root]))?.lines().count();
    match left {
        2 => Ok(()),
        left => fail(format!("{left} datasets and snapshots are left, and not 2")),
    }
}
