//! `marram rollback`: a dataset goes on from a snapshot of it, also while it is in use.

use crate::arguments::RollbackArguments;
use crate::control::protocol::{Answer, Operation};
use crate::error::{Error, Result};
use crate::output::Output;
use crate::target::{Target, with_snapshot};
use marram_store::Source;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct RolledBack {
    pool: PathBuf,
    to: String,
    /// The snapshot that has the state before.
    kept: Option<String>,
    engine_nanoseconds: u64,
}

pub(super) fn run(arguments: &RollbackArguments, output: &Output) -> Result<()> {
    let (path, snapshot) = with_snapshot(&arguments.target)?;
    let target = Target::find(&path)?;
    if arguments.dataset.is_none() && !target.is_root() {
        return Err(Error::usage(format!("{} is only a part of a dataset", path.display()))
            .hint("name the directory that it is mounted on: all of it goes back"));
    }
    let dataset = target.dataset(arguments.dataset.as_deref())?;
    let to = Source { dataset, snapshot: Some(snapshot) }.to_string();
    super::write_back(&target, &path)?;
    let (kept, engine_nanoseconds) =
        match target.perform(&Operation::Rollback { to: to.clone() })? {
            Answer::RolledBack { kept, engine_nanoseconds } => (kept, engine_nanoseconds),
            other => return Err(super::unexpected(&other)),
        };
    if arguments.discard {
        target.perform(&Operation::Destroy { source: kept.clone(), dry_run: false })?;
    }
    let kept = Some(kept).filter(|_| !arguments.discard);
    let done = RolledBack { pool: target.pool, to, kept, engine_nanoseconds };
    output.print(&done, || {
        let kept = done.kept.as_ref();
        let kept = kept.map_or(String::new(), |kept| format!("the state before is {kept}\n"));
        format!("went back to {}\n{kept}", done.to)
    });
    Ok(())
}
