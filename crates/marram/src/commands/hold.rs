//! `marram hold` and `marram release`: a snapshot that must stay.

use crate::arguments::HoldArguments;
use crate::control::protocol::Operation;
use crate::error::Result;
use crate::output::Output;
use crate::target::{Target, with_snapshot};
use marram_store::Source;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct Held {
    pool: PathBuf,
    name: String,
    tag: String,
}

pub(super) fn hold(arguments: &HoldArguments, output: &Output) -> Result<()> {
    run(arguments, output, "holds", |snapshot, tag| Operation::Hold { snapshot, tag })
}

pub(super) fn release(arguments: &HoldArguments, output: &Output) -> Result<()> {
    run(arguments, output, "no longer holds", |snapshot, tag| Operation::Release { snapshot, tag })
}

fn run(
    arguments: &HoldArguments,
    output: &Output,
    verb: &str,
    operation: impl FnOnce(String, String) -> Operation,
) -> Result<()> {
    let (path, snapshot) = with_snapshot(&arguments.target)?;
    let target = Target::find(&path)?;
    let dataset = target.dataset(arguments.dataset.as_deref())?;
    let name = Source { dataset, snapshot: Some(snapshot) }.to_string();
    target.perform(&operation(name.clone(), arguments.tag.clone()))?;
    let held = Held { pool: target.pool, name, tag: arguments.tag.clone() };
    output.print(&held, || format!("{} {verb} {}\n", held.tag, held.name));
    Ok(())
}
