//! `marram list`: datasets and snapshots with what they refer to and what only they hold.

use crate::arguments::ListArguments;
use crate::commands::answers::unexpected;
use crate::control::daemons;
use crate::control::protocol::{Answer, DatasetRow, Operation};
use crate::error::Result;
use crate::output::{Align, Output, Table, instant_text, size_text};
use crate::target::Target;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct PoolList {
    pool: PathBuf,
    datasets: Vec<DatasetRow>,
}

pub(super) fn run(arguments: &ListArguments, output: &Output) -> Result<()> {
    let mut lists = match &arguments.target {
        Some(path) => vec![list(&Target::find(path)?)?],
        None => {
            let listed = |target: &Target| target.among_others(list(target)).transpose();
            mounted_pools().iter().filter_map(listed).collect::<Result<Vec<PoolList>>>()?
        }
    };
    for list in &mut lists {
        list.datasets.retain(|row| arguments.all || !row.internal);
    }
    output.print(&lists, || text(&lists, arguments, output));
    Ok(())
}

/// A target for each pool that has a daemon.
pub(super) fn mounted_pools() -> Vec<Target> {
    let daemons = daemons::all().into_iter();
    daemons.filter(|daemon| !daemon.greeting.shows_streams).map(Target::of_daemon).collect()
}

fn list(target: &Target) -> Result<PoolList> {
    match target.perform(&Operation::List)? {
        Answer::Datasets(datasets) => Ok(PoolList { pool: target.pool.clone(), datasets }),
        other => Err(unexpected(&other)),
    }
}

fn text(lists: &[PoolList], arguments: &ListArguments, output: &Output) -> String {
    let format = arguments.format;
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("KIND", Align::Left),
        ("REFERENCED", Align::Right),
        ("UNIQUE", Align::Right),
        ("CREATED", Align::Left),
        ("ORIGIN", Align::Left),
        ("HELD", Align::Left),
        ("POOL", Align::Left),
    ]);
    for list in lists {
        for row in &list.datasets {
            table.row(vec![
                row.name.clone(),
                row.kind.clone(),
                size_text(row.referenced_bytes, format.exact),
                size_text(row.unique_bytes, format.exact),
                instant_text(row.created_seconds, format.exact),
                row.origin.clone().unwrap_or_else(|| "-".to_owned()),
                if row.holds.is_empty() { "-".to_owned() } else { row.holds.join(",") },
                list.pool.display().to_string(),
            ]);
        }
    }
    if format.no_header { table.tab_separated() } else { table.columns(output.colour) }
}
