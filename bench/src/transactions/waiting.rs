//! How long a plain program waits while a large transaction commits.
//!
//! A program makes one operation after another. One commit holds up one of them at most, beside
//! hundreds that it does not: 99 of 100 would never show that one. So the longest of each commit
//! has a line of its own.

use super::files::{commit, prepared};
use super::row::{Row, Rows};
use super::{Scale, fresh_folder};
use marram_lab::failure::Result;
use marram_lab::seed::Seed;
use marram_lab::subject::{Marram, Subject};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Commits beside which the program works.
const COMMITS: usize = 5;

/// A pause between two operations of the program.
const PAUSE: Duration = Duration::from_micros(200);

/// The case with so many files.
fn case(files: usize) -> String {
    format!("a small file written by others while {files} changed files are committed")
}

/// The line that has a goal.
pub(super) const BESIDE: &str = "marram, beside commits";

/// The longest operation beside each commit, which has the same goal.
pub(super) const LONGEST: &str = "marram, the longest beside each commit";

/// What one operation of the program took, and when it began.
type Operation = (Instant, Duration);

/// Measures it, and the same beside no commit.
pub(super) fn measure(marram: &Marram, scale: &Scale, rows: &mut Rows) -> Result<()> {
    let changed = fresh_folder(marram.root(), "changed")?;
    let beside = fresh_folder(marram.root(), "beside")?;
    let files = scale.large_files;
    let mut seed = Seed::new(3);
    commit(prepared(&changed, files, &mut seed)?)?;
    let has_ended = AtomicBool::new(false);
    let (operations, commits) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&beside, &has_ended));
        let commits = commit_some(&changed, files, &mut seed);
        has_ended.store(true, Ordering::Release);
        let operations = writer.join().expect("no thread panics")?;
        Ok::<_, marram_lab::failure::Failure>((operations, commits?))
    })?;
    let is_beside = |(began, took): &Operation| {
        commits.iter().any(|(from, to)| *began < *to && *began + *took > *from)
    };
    let longest = commits.iter().filter_map(|(from, to)| {
        let beside =
            operations.iter().filter(|(began, took)| *began < *to && *began + *took > *from);
        beside.map(|(_, took)| *took).max()
    });
    rows.add(Row::of(case(files), LONGEST).timed(longest.collect())?);
    let (during, quiet): (Vec<_>, Vec<_>) = operations.into_iter().partition(is_beside);
    let times = |operations: Vec<Operation>| operations.into_iter().map(|(_, took)| took).collect();
    rows.add(Row::of(case(files), BESIDE).timed(times(during))?);
    rows.add(Row::of(case(files), "marram, beside none").timed(times(quiet))?);
    let taken = commits.iter().map(|(from, to)| *to - *from).collect();
    rows.add(Row::of(case(files), "the commits themselves").timed(taken)?);
    Ok(())
}

/// From when to when each commit took.
fn commit_some(folder: &Path, files: usize, seed: &mut Seed) -> Result<Vec<(Instant, Instant)>> {
    let mut commits = Vec::new();
    for _ in 0..COMMITS {
        let tx = prepared(folder, files, seed)?;
        std::thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        commit(tx)?;
        commits.push((began, Instant::now()));
    }
    Ok(commits)
}

fn write_until(folder: &Path, has_ended: &AtomicBool) -> Result<Vec<Operation>> {
    let mut operations = Vec::new();
    while !has_ended.load(Ordering::Acquire) {
        let began = Instant::now();
        std::fs::write(folder.join("note"), b"written beside a commit\n")?;
        operations.push((began, began.elapsed()));
        std::thread::sleep(PAUSE);
    }
    Ok(operations)
}
