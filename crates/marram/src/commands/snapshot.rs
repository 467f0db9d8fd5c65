//! `marram snapshot` and `marram clone`: keep a state, and go on from a kept one.

mod automatic;

use crate::arguments::{CloneArguments, SnapshotArguments};
use crate::commands::answers::{timed, unexpected, write_back};
use crate::control::protocol::{Answer, Operation};
use crate::error::{Error, Result};
use crate::names::shell_word;
use crate::output::Output;
use crate::target::{Target, with_snapshot};
use marram_store::{AUTOMATIC_PREFIX, DatasetName, Source};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Made {
    pool: PathBuf,
    name: String,
    /// All that were taken at the same moment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_nanoseconds: Option<u64>,
}

pub(super) fn run(arguments: &SnapshotArguments, output: &Output) -> Result<()> {
    if arguments.auto || arguments.keep.is_some() {
        return automatic::run(arguments, output);
    }
    let (path, snapshot) = with_snapshot(&arguments.target)?;
    refuse_automatic(&snapshot)?;
    let (target, dataset) = find(arguments, &path)?;
    write_back(&target, &path)?;
    let (names, engine_nanoseconds) = take(&target, &dataset, &snapshot, arguments.recursive)?;
    let (name, pool) = (format!("{dataset}@{snapshot}"), target.pool);
    let engine_nanoseconds = Some(engine_nanoseconds);
    let made = Made { pool, name, names, origin: None, engine_nanoseconds };
    output.print(&made, || created(&made.names));
    Ok(())
}

/// Refuses to give by hand a name that the daemon gives: such snapshots go by themselves.
///
/// # Errors
/// It is such a name.
pub(super) fn refuse_automatic(name: &str) -> Result<()> {
    if !name.starts_with(AUTOMATIC_PREFIX) {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{name}: the daemon gives such names, and its snapshots go by a rule"
    ))
    .hint(format!("take a name that does not begin with {AUTOMATIC_PREFIX}")))
}

fn created(names: &[String]) -> String {
    names.iter().map(|name| format!("created the snapshot {name}\n")).collect()
}

/// The dataset that is meant, of which a snapshot can be taken.
fn find(arguments: &SnapshotArguments, path: &Path) -> Result<(Target, DatasetName)> {
    let target = Target::find(path)?;
    let dataset = target.dataset(arguments.dataset.as_deref())?;
    let shown = target.mounted.as_ref().and_then(|mounted| mounted.snapshot.as_ref());
    if let (Some(shown), None) = (shown, &arguments.dataset) {
        return Err(Error::usage(format!(
            "{} shows the snapshot {dataset}@{shown}, which never changes",
            path.display()
        ))
        .hint(format!("add --dataset {dataset} to keep the dataset as it is now")));
    }
    Ok((target, dataset))
}

/// Takes a snapshot; returns the names of all that were taken and the engine's time.
fn take(
    target: &Target,
    dataset: &DatasetName,
    snapshot: &str,
    recursive: bool,
) -> Result<(Vec<String>, u64)> {
    let (dataset, snapshot) = (dataset.to_string(), snapshot.to_owned());
    if !recursive {
        let name = format!("{dataset}@{snapshot}");
        let took = timed(target, &Operation::Snapshot { dataset, snapshot })?;
        return Ok((vec![name], took));
    }
    match target.perform(&Operation::SnapshotBelow { dataset, snapshot })? {
        Answer::Snapshots { names, engine_nanoseconds } => Ok((names, engine_nanoseconds)),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn run_clone(arguments: &CloneArguments, output: &Output) -> Result<()> {
    let name: DatasetName = arguments.name.parse()?;
    let (path, snapshot) = with_snapshot(&arguments.target)?;
    let target = Target::find(&path)?;
    let dataset = target.dataset(arguments.dataset.as_deref())?;
    let origin = Source { dataset, snapshot: Some(snapshot) }.to_string();
    let operation = Operation::Clone { origin: origin.clone(), name: name.to_string() };
    target.perform(&operation)?;
    let made = Made {
        pool: target.pool.clone(),
        name: name.to_string(),
        names: Vec::new(),
        origin: Some(origin),
        engine_nanoseconds: None,
    };
    output.print(&made, || {
        format!(
            "created the clone {name}\nmount it with: marram mount {} DIRECTORY --dataset {name}\n",
            shell_word(&target.pool)
        )
    });
    Ok(())
}
