//! `marram snapshot --keep`: takes a snapshot named by the time, and thins out those before it.

use super::{created, find, take};
use crate::arguments::SnapshotArguments;
use crate::commands::answers::{unexpected, write_back};
use crate::control::protocol::{Answer, DatasetRow, Operation, ThinReport, ThinRequest};
use crate::error::{Error, Result};
use crate::output::{Output, size_text};
use crate::retention::{Rule, automatic_name};
use crate::target::Target;
use crate::timestamps::now_seconds;
use marram_store::DatasetName;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often one that finds its name taken waits for the next second.
const ATTEMPTS_MAX: u32 = 10;

#[derive(Serialize)]
struct Kept {
    pool: PathBuf,
    /// The snapshots that were taken, or would be.
    names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_nanoseconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinned: Option<ThinReport>,
}

pub(super) fn run(arguments: &SnapshotArguments, output: &Output) -> Result<()> {
    let rule = arguments.keep.as_deref().map(str::parse::<Rule>).transpose()?;
    let path = &arguments.target;
    let (target, dataset) = find(arguments, path).map_err(|error| explain(arguments, error))?;
    let (now, names, engine_nanoseconds) = if arguments.dry_run {
        let now = now_seconds();
        (now, vec![format!("{dataset}@{}", automatic_name(now))], None)
    } else {
        write_back(&target, path)?;
        let (now, names, took) = take_named_by_time(&target, &dataset, arguments.recursive)?;
        (now, names, Some(took))
    };
    let thinned = rule.map(|rule| thin(&target, &dataset, arguments, (&rule, now))).transpose();
    let thinned = thinned.map_err(|error| match arguments.dry_run {
        true => error,
        false => {
            let done = names.join(", ");
            Error::partial(format!("created {done}, but older ones stay: {error}"))
        }
    })?;
    let kept = Kept { pool: target.pool, names, engine_nanoseconds, thinned };
    output.print(&kept, || text(&kept));
    Ok(())
}

/// Takes a snapshot named by the second; one that comes in the same second as another waits for
/// the next, so that names stay what retention knows and sort by time.
fn take_named_by_time(
    target: &Target,
    dataset: &DatasetName,
    recursive: bool,
) -> Result<(i64, Vec<String>, u64)> {
    let mut attempts = 0;
    loop {
        let now = now_seconds();
        let name = automatic_name(now);
        attempts += 1;
        match take(target, dataset, &name, recursive) {
            Ok((names, took)) => return Ok((now, names, took)),
            Err(error) if attempts == ATTEMPTS_MAX || !is_taken(target, &name)? => {
                return Err(error);
            }
            Err(_) => std::thread::sleep(until_next_second()),
        }
    }
}

/// Whether a snapshot of some dataset has the name.
fn is_taken(target: &Target, name: &str) -> Result<bool> {
    let has_name = |row: &DatasetRow| row.name.ends_with(&format!("@{name}"));
    match target.perform(&Operation::List)? {
        Answer::Datasets(rows) => Ok(rows.iter().any(has_name)),
        other => Err(unexpected(&other)),
    }
}

fn until_next_second() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(1).saturating_sub(Duration::from_nanos(now.subsec_nanos().into()))
}

/// A name that was given is part of a path that is not there.
fn explain(arguments: &SnapshotArguments, error: Error) -> Error {
    let path = arguments.target.to_string_lossy();
    match path.rsplit_once('@') {
        Some((target, _)) if !arguments.target.exists() => {
            Error::usage(format!("{path}: an automatic snapshot has the time as its name"))
                .hint(format!("leave the name out: {target}"))
        }
        _ => error,
    }
}

fn thin(
    target: &Target,
    dataset: &DatasetName,
    arguments: &SnapshotArguments,
    (rule, now): (&Rule, i64),
) -> Result<ThinReport> {
    let request = ThinRequest {
        dataset: dataset.to_string(),
        recursive: arguments.recursive,
        keep: rule.to_string(),
        coming_seconds: arguments.dry_run.then_some(now),
        dry_run: arguments.dry_run,
    };
    match target.perform(&Operation::Thin(request))? {
        Answer::Thinned(report) => Ok(report),
        other => Err(unexpected(&other)),
    }
}

fn text(kept: &Kept) -> String {
    let mut text = match kept.engine_nanoseconds {
        Some(_) => created(&kept.names),
        None => kept.names.iter().map(|name| format!("would create {name}\n")).collect(),
    };
    if let Some(report) = &kept.thinned {
        let (verb, coming) = match report.dry_run {
            true => ("would destroy", "would come back"),
            false => ("destroyed", "come back"),
        };
        for name in &report.destroyed {
            text.push_str(&format!("{verb} {name}\n"));
        }
        for row in &report.stayed {
            text.push_str(&format!("{} stays: {}\n", row.name, row.reason));
        }
        if !report.destroyed.is_empty() {
            text.push_str(&format!("{} {coming}\n", size_text(report.freed_bytes, false)));
        }
    }
    text
}
