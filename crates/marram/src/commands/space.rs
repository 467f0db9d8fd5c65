//! `marram space`: what holds the space, and what destroying it would give back.

mod files;

use crate::arguments::SpaceArguments;
use crate::commands::answers::{unexpected, write_back};
use crate::control::protocol::{
    Answer, DestructionReport, Operation, SharingReport, SharingRow, SpaceReport,
};
use crate::error::{Error, Result};
use crate::output::{Align, Output, Table, size_text};
use crate::target::{Target, with_optional_snapshot};
use std::path::Path;

pub(super) fn run(arguments: &SpaceArguments, output: &Output) -> Result<()> {
    if arguments.files {
        return files::run(arguments, output);
    }
    let mut found: Option<Target> = None;
    let mut sources = Vec::new();
    for path in &arguments.targets {
        let (path, snapshot) = with_optional_snapshot(path)?;
        let target = Target::find(&path)?;
        if found.as_ref().is_some_and(|first| first.pool != target.pool) {
            return Err(Error::usage(format!("{} is in another pool", path.display()))
                .hint("ask for one pool at a time"));
        }
        if let Some(snapshot) = snapshot {
            let dataset = target.dataset(arguments.dataset.as_deref())?;
            sources.push(format!("{dataset}@{snapshot}"));
        }
        write_back(&target, Path::new(&path))?;
        found = Some(target);
    }
    sources.extend(arguments.fork.iter().cloned());
    let target =
        found.ok_or_else(|| Error::usage("name a pool, or a path inside a mounted one"))?;
    if arguments.sharing {
        return sharing(&target, sources.is_empty(), arguments, output);
    }
    match target.perform(&Operation::Space { sources })? {
        Answer::Space(report) => output.print(&report, || table(&report, arguments, output)),
        Answer::Destruction(report) => {
            output.print(&report, || together(&report, arguments.format.exact));
        }
        other => return Err(unexpected(&other)),
    }
    Ok(())
}

fn sharing(
    target: &Target,
    is_of_all: bool,
    arguments: &SpaceArguments,
    output: &Output,
) -> Result<()> {
    if !is_of_all {
        return Err(Error::usage("--sharing is about all datasets of a pool: name no snapshot"));
    }
    match target.perform(&Operation::Sharing)? {
        Answer::Sharing(report) => {
            output.print(&report, || sharing_table(&report, arguments, output));
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}

fn sharing_table(report: &SharingReport, arguments: &SpaceArguments, output: &Output) -> String {
    let (exact, is_script) = (arguments.format.exact, arguments.format.no_header);
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("CONTENT", Align::Right),
        ("UNSHARED", Align::Right),
        ("STORED", Align::Right),
        ("RATIO", Align::Right),
    ]);
    for row in &report.datasets {
        table.row(vec![
            row.name.clone(),
            size_text(row.content_bytes, exact),
            size_text(row.unshared_bytes, exact),
            size_text(row.stored_bytes, exact),
            ratio(row.unshared_bytes, row.stored_bytes),
        ]);
    }
    if is_script {
        return table.tab_separated();
    }
    let saved = |row: &SharingRow| row.unshared_bytes.saturating_sub(row.stored_bytes);
    let inside = size_text(report.datasets.iter().map(saved).sum(), exact);
    let between = size_text(report.between_bytes, exact);
    format!(
        "{}\n{inside:>12}  saved by sharing inside datasets\n{between:>12}  saved by sharing \
         between datasets, snapshots and forks aside\n",
        table.columns(output.colour)
    )
}

/// How often the bytes that are stored are used, with two decimals, rounded down.
fn ratio(used: u64, stored: u64) -> String {
    let hundredths = u128::from(used) * 100 / u128::from(stored.max(1));
    match stored {
        0 => "-".to_owned(),
        _ => format!("{}.{:02}", hundredths / 100, hundredths % 100),
    }
}

fn together(report: &DestructionReport, exact: bool) -> String {
    let names = report.sources.join("\n");
    let bytes = size_text(report.freed_bytes, exact);
    format!("{names}\ndestroying all of this together would give back {bytes}\n")
}

fn table(report: &SpaceReport, arguments: &SpaceArguments, output: &Output) -> String {
    let (exact, is_script) = (arguments.format.exact, arguments.format.no_header);
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("KIND", Align::Left),
        ("REFERENCED", Align::Right),
        ("ADDED", Align::Right),
        ("UNIQUE", Align::Right),
        ("SHARED", Align::Right),
    ]);
    for row in &report.holders {
        table.row(vec![
            row.name.clone(),
            row.kind.clone(),
            size_text(row.referenced_bytes, exact),
            size_text(row.added_bytes, exact),
            size_text(row.unique_bytes, exact),
            size_text(row.shared_bytes, exact),
        ]);
    }
    let mut text = if is_script { table.tab_separated() } else { table.columns(output.colour) };
    if !is_script {
        text.push('\n');
        let of_home = match &report.in_database {
            None => vec![(report.own_bytes, "the pool itself: its tree and its log", true)],
            Some(home) => vec![(home.loose_bytes, "of no file: waiting for a sweep", false)],
        };
        let mut lines = vec![(report.added_bytes, "added by all of these", true)];
        lines.extend(of_home);
        lines.push((report.leaving_bytes, "destroyed, and just being given back", false));
        lines.push((report.shared_bytes, "less: told of several, but stored once", false));
        lines.push((report.allocated_bytes, "in use", true));
        if let Some(home) = &report.in_database {
            lines.push((home.live_bytes, "of this seen by datasets and forks", true));
            lines.push((home.snapshot_bytes, "of this seen by snapshots alone", true));
            lines.push((home.undo_bytes, "of this kept for an undo alone", true));
            lines.push((home.database_bytes, "taken by the database, compressed", true));
        }
        for (bytes, what, is_told) in lines {
            if is_told || bytes > 0 {
                text.push_str(&format!("{:>12}  {what}\n", size_text(bytes, exact)));
            }
        }
    }
    text
}
