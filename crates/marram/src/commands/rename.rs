//! `marram rename` and `marram promote`: other names, and which dataset has the snapshots that a
//! clone began as.

use crate::arguments::{PromoteArguments, RenameArguments};
use crate::commands::answers::timed;
use crate::commands::snapshot::refuse_automatic;
use crate::control::protocol::Operation;
use crate::error::{Error, Result};
use crate::options::snapshot_name;
use crate::output::Output;
use crate::target::{Target, with_optional_snapshot};
use marram_store::{DatasetName, Source};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct Renamed {
    pool: PathBuf,
    from: String,
    to: String,
}

pub(super) fn rename(arguments: &RenameArguments, output: &Output) -> Result<()> {
    let (path, snapshot) = with_optional_snapshot(&arguments.target)?;
    let target = Target::find(&path)?;
    let dataset = target.dataset(arguments.dataset.as_deref())?;
    let (from, to) = match snapshot {
        Some(snapshot) => {
            refuse_automatic(&arguments.name)?;
            let to = Some(snapshot_name(&arguments.name)?);
            let from = Source { dataset: dataset.clone(), snapshot: Some(snapshot) };
            (from, Source { dataset, snapshot: to })
        }
        None if arguments.dataset.is_none() => {
            return Err(Error::usage("what is to have another name?").hint(
                "write TARGET@NAME for a snapshot, or add --dataset NAME for a dataset or fork",
            ));
        }
        None => (Source::live(dataset), Source::live(arguments.name.parse()?)),
    };
    let (from, to) = (from.to_string(), to.to_string());
    target.perform(&Operation::Rename { from: from.clone(), to: to.clone() })?;
    let renamed = Renamed { pool: target.pool, from, to };
    output.print(&renamed, || format!("{} is now {}\n", renamed.from, renamed.to));
    Ok(())
}

#[derive(Serialize)]
struct Promoted {
    pool: PathBuf,
    name: String,
    engine_nanoseconds: u64,
}

pub(super) fn promote(arguments: &PromoteArguments, output: &Output) -> Result<()> {
    let target = Target::find(&arguments.target)?;
    let name: DatasetName = target.dataset(arguments.name.as_deref())?;
    let engine_nanoseconds = timed(&target, &Operation::Promote { name: name.to_string() })?;
    let promoted = Promoted { pool: target.pool, name: name.to_string(), engine_nanoseconds };
    output.print(&promoted, || {
        format!("{name} has the snapshots now that it began as, and those before\n")
    });
    Ok(())
}
