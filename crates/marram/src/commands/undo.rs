//! `marram log` and `marram undo`: what was done to a pool, and taking it back.

use crate::arguments::{LogArguments, UndoArguments};
use crate::commands::answers::{unexpected, write_back};
use crate::control::owner_names;
use crate::control::protocol::OwnerClass;
use crate::control::protocol::{Answer, Operation, OperationRow, UndoReport};
use crate::error::Result;
use crate::output::{Align, Output, Table, instant_text, size_text};
use crate::target::Target;

/// In an entry of the log: as much as there is.
const NO_LIMIT: &str = "none";

pub(super) fn log(arguments: &LogArguments, output: &Output) -> Result<()> {
    let target = Target::find(&arguments.target)?;
    let mut rows = match target.perform(&Operation::Log)? {
        Answer::Operations(rows) => rows,
        other => return Err(unexpected(&other)),
    };
    let skipped = rows.len().saturating_sub(arguments.last.unwrap_or(usize::MAX));
    rows.drain(..skipped);
    output.print(&rows, || table(&target, &rows, arguments, output));
    Ok(())
}

fn table(
    target: &Target,
    rows: &[OperationRow],
    arguments: &LogArguments,
    output: &Output,
) -> String {
    let format = arguments.format;
    let mut table = Table::new(&[
        ("NUMBER", Align::Right),
        ("TIME", Align::Left),
        ("USER", Align::Left),
        ("WHAT", Align::Left),
        ("UNDO", Align::Left),
        ("COMMAND", Align::Left),
    ]);
    for row in rows {
        table.row(vec![
            row.number.to_string(),
            instant_text(row.seconds, format.exact),
            row.user.map_or_else(|| "-".to_owned(), user_text),
            what(target, row),
            undo_text(row, format.exact),
            row.command.clone(),
        ]);
    }
    if format.no_header { table.tab_separated() } else { table.columns(output.colour) }
}

fn user_text(user: u32) -> String {
    owner_names::name_of(OwnerClass::User, user).unwrap_or_else(|| user.to_string())
}

/// An operation in a few words.
fn what(target: &Target, row: &OperationRow) -> String {
    let name = |index: usize| row.names.get(index).map_or("", String::as_str);
    let value = |index: usize| match name(index) {
        "" => "default",
        value => value,
    };
    let (verb, first, second) = (row.operation.as_str(), name(0), name(1));
    let place = match &row.directory {
        Some(directory) => target.place_of(first, &directory.bytes()),
        None => first.to_owned(),
    };
    let what = match verb {
        "clone" | "fork" => format!("{verb} {first} of {second}"),
        "rollback" => format!("rollback to {first}, before it {second}"),
        "rollback-directory" if row.directory.is_none() => {
            format!("rollback of a directory of {first}, which is gone, to {second}")
        }
        "rollback-directory" => format!("rollback of {place} to {second}"),
        "receive" if !second.is_empty() => format!("receive {first}, before it {second}"),
        "merge" => format!("merge {second} into {place}"),
        "promote" => format!("promote {first} before {second}"),
        "hold" | "release" => format!("{verb} {first} ({second})"),
        "set" => format!("set {second} of {first} from {} to {}", value(2), value(3)),
        "rename" => format!("rename {first} to {second}"),
        "label" => format!("label the pool {second:?}, before it {first:?}"),
        "limit" => {
            let (before, after) = (limit_text(name(2)), limit_text(name(3)));
            format!("limit of {second} in {first} from {before} to {after}")
        }
        "grow" => format!("grow the pool from {} to {}", bytes_text(first), bytes_text(second)),
        "abort" => format!("drop a part of {first} that was received"),
        _ => format!("{verb} {first}"),
    };
    let together = row.together.map(|(first, last)| format!("one step: {first}-{last}"));
    let undoes = row.undoes.map(|undoes| format!("undoes {undoes}"));
    let notes: Vec<String> = [together, undoes].into_iter().flatten().collect();
    match notes.is_empty() {
        true => what,
        false => format!("{what} ({})", notes.join(", ")),
    }
}

/// A limit in a few words.
fn limit_text(limit: &str) -> String {
    let (bytes, inodes) = limit.split_once(' ').unwrap_or((limit, NO_LIMIT));
    match (bytes, inodes) {
        (NO_LIMIT, NO_LIMIT) => NO_LIMIT.to_owned(),
        (bytes, NO_LIMIT) => bytes_text(bytes),
        (NO_LIMIT, inodes) => format!("{inodes} inodes"),
        (bytes, inodes) => format!("{} and {inodes} inodes", bytes_text(bytes)),
    }
}

fn bytes_text(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), |bytes| size_text(bytes, false))
}

fn undo_text(row: &OperationRow, exact: bool) -> String {
    match (row.undone_by, row.can_undo, row.kept_until_seconds) {
        (Some(by), ..) => format!("undone by {by}"),
        (None, false, _) => "no".to_owned(),
        (None, true, Some(until)) => format!("until {}", instant_text(until, exact)),
        (None, true, None) => "yes".to_owned(),
    }
}

pub(super) fn undo(arguments: &UndoArguments, output: &Output) -> Result<()> {
    let target = Target::find(&arguments.target)?;
    write_back(&target, &arguments.target)?;
    let report = match target.perform(&Operation::Undo { number: arguments.number })? {
        Answer::Undone(report) => report,
        other => return Err(unexpected(&other)),
    };
    output.print(&report, || text(&target, &report));
    Ok(())
}

fn text(target: &Target, report: &UndoReport) -> String {
    let mut text = String::new();
    let what = |row| what(target, row);
    for row in &report.undone {
        text.push_str(&format!("took back operation {}: {}\n", row.number, what(row)));
    }
    for row in &report.entries {
        text.push_str(&format!("this is operation {}: {}\n", row.number, what(row)));
    }
    if report.entries.is_empty() {
        text.push_str("nothing of it was left to take back\n");
    }
    for row in &report.left {
        let reason = row.obstacle.as_deref().unwrap_or("it is not taken back");
        text.push_str(&format!("left operation {} alone: {reason}\n", row.number));
    }
    for row in report.others.iter().filter(|row| row.can_undo) {
        let number = row.number;
        text.push_str(&format!(
            "the same command did operation {number}, which stays: {}; `marram undo TARGET \
             {number}`\n",
            what(row)
        ));
    }
    text
}
