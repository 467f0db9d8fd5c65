//! `marram snapshot` and `marram clone`: keep a state, and go on from a kept one.

use crate::arguments::{CloneArguments, SnapshotArguments};
use crate::control::protocol::Operation;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::target::{Target, with_snapshot};
use marram_store::{DatasetName, Source};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct Made {
    pool: PathBuf,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_nanoseconds: Option<u64>,
}

pub(super) fn run(arguments: &SnapshotArguments, output: &Output) -> Result<()> {
    let (path, snapshot) = with_snapshot(&arguments.target)?;
    let target = Target::find(&path)?;
    let dataset = target.dataset(arguments.dataset.as_deref())?;
    let shown = target.mounted.as_ref().and_then(|mounted| mounted.snapshot.as_ref());
    if let (Some(shown), None) = (shown, &arguments.dataset) {
        return Err(Error::usage(format!(
            "{} shows the snapshot {dataset}@{shown}, which never changes",
            path.display()
        ))
        .hint(format!("add --dataset {dataset} to keep the dataset as it is now")));
    }
    super::write_back(&target, &path)?;
    let operation =
        Operation::Snapshot { dataset: dataset.to_string(), snapshot: snapshot.clone() };
    let engine_nanoseconds = Some(super::timed(&target, &operation)?);
    let name = format!("{dataset}@{snapshot}");
    let made = Made { pool: target.pool, name, origin: None, engine_nanoseconds };
    output.print(&made, || format!("created the snapshot {}\n", made.name));
    Ok(())
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
        origin: Some(origin),
        engine_nanoseconds: None,
    };
    output.print(&made, || {
        format!(
            "created the clone {name}\nmount it with: marram mount {} DIRECTORY --dataset {name}\n",
            target.pool.display()
        )
    });
    Ok(())
}
