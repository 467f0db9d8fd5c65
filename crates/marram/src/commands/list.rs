//! `marram list`: datasets and snapshots with what they refer to and what only they hold.

use crate::arguments::ListArguments;
use crate::commands::answers::unexpected;
use crate::control::daemons;
use crate::control::protocol::{Answer, DatasetRow, Operation};
use crate::error::{Kind, Result};
use crate::output::{Align, Output, Table, instant_text, size_text};
use crate::target::Target;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct PoolList {
    pool: PathBuf,
    datasets: Vec<DatasetRow>,
}

/// Lists what is asked for. Exits with 3 where one of all homes does not answer.
pub(super) fn run(arguments: &ListArguments, output: &Output) -> Result<u8> {
    let (mut lists, are_all) = match &arguments.target {
        Some(path) => (vec![list(&Target::find(path)?)?], true),
        None => of_all_daemons(),
    };
    for list in &mut lists {
        list.datasets.retain(|row| arguments.all || !row.internal);
    }
    output.print(&lists, || text(&lists, arguments, output));
    Ok(if are_all { 0 } else { Kind::Partial.exit_status() })
}

/// Everything that is mounted, and whether all of it is there: one home that does not answer, as
/// one whose server is gone, is no reason to leave out the others. A daemon that ends meanwhile has
/// nothing mounted.
fn of_all_daemons() -> (Vec<PoolList>, bool) {
    let (targets, mut are_all) = mounted_pools();
    let mut lists = Vec::new();
    for target in targets {
        let listed = target.ask_daemon(&Operation::List);
        let listed = listed.and_then(|answer| answer.map(|answer| of(&target, answer)).transpose());
        match target.among_others(listed) {
            Ok(listed) => lists.extend(listed.flatten()),
            Err(error) => {
                target.say_left_out(&error);
                are_all = false;
            }
        }
    }
    (lists, are_all)
}

/// A target for each pool that has a daemon, and whether all daemons greet; which do not is said.
fn mounted_pools() -> (Vec<Target>, bool) {
    let (daemons, are_all) = daemons::all_to_show();
    let pools = daemons.into_iter().filter(|daemon| !daemon.greeting.shows_streams);
    (pools.map(Target::of_daemon).collect(), are_all)
}

fn list(target: &Target) -> Result<PoolList> {
    of(target, target.perform(&Operation::List)?)
}

fn of(target: &Target, answer: Answer) -> Result<PoolList> {
    match answer {
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
