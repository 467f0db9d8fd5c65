//! `marram tx`: a command as a transaction, and what is open or being ended.

mod command;
mod joint;
mod lasting;
mod open;
mod report;
mod resolve;
mod view;
mod word;

use self::open::{open, open_or_ending};
use self::report::UNKNOWN;
use self::word::names;
use crate::arguments::{TxKind, TxListArguments, TxNamedArguments};
use crate::commands::answers::unexpected;
use crate::control::protocol::{
    Answer, JointId, Operation, OperationRow, Request, Standing, TransactionRow, TwoPoolRow,
};
use crate::error::{Error, Result};
use crate::names::printable;
use crate::output::{Align, Output, Table, instant_text};
use crate::target::Target;
use serde::Serialize;
use std::path::PathBuf;

pub(super) fn run(kind: &TxKind, output: &Output) -> Result<u8> {
    match kind {
        TxKind::Run(arguments) => Ok(command::run(arguments, output)),
        TxKind::Begin(arguments) => lasting::begin(arguments, output).map(|()| 0),
        TxKind::Commit(arguments) => lasting::commit(arguments, output),
        TxKind::Abort(arguments) => lasting::abort(arguments, output).map(|()| 0),
        TxKind::Diff(arguments) => lasting::diff(arguments, output).map(|()| 0),
        TxKind::List(arguments) => list(arguments, output).map(|()| 0),
        TxKind::Show(arguments) => show(arguments, output),
        TxKind::Resolve(arguments) => resolve::resolve(arguments, output).map(|()| 0),
    }
}

/// The names of the datasets that one works in.
fn datasets_of(row: &TransactionRow) -> Vec<String> {
    row.parts().into_iter().map(|part| part.dataset).collect()
}

/// The same, and the other pool that it works in.
fn told_datasets(row: &TransactionRow) -> String {
    let other = row.other.iter().map(|other| printable(other.path.display().to_string()));
    datasets_of(row).into_iter().chain(other).collect::<Vec<_>>().join(",")
}

fn list(arguments: &TxListArguments, output: &Output) -> Result<()> {
    let rows = open_or_ending(&Target::find_also_inside(&arguments.target)?)?;
    let format = arguments.format;
    output.print(&rows, || {
        let mut table = Table::new(&[
            ("ID", Align::Left),
            ("STATE", Align::Left),
            ("DATASET", Align::Left),
            ("SINCE", Align::Left),
            ("USER", Align::Left),
            ("READ", Align::Right),
            ("COMMAND", Align::Left),
        ]);
        for row in &rows {
            table.row(vec![
                row.id.clone(),
                if row.is_ending { "ending" } else { "open" }.to_owned(),
                told_datasets(row),
                instant_text(row.seconds, format.exact),
                row.author.user.to_string(),
                row.inodes_read.to_string(),
                row.author.command.clone(),
            ]);
        }
        if format.no_header { table.tab_separated() } else { table.columns(output.colour) }
    });
    Ok(())
}

/// What is known of a transaction.
#[derive(Serialize)]
struct Shown {
    id: String,
    /// `open` or `committed`.
    state: &'static str,
    dataset: String,
    /// The others that it works in, or has changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also: Vec<String>,
    /// The other pool that it works in, if it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_pool: Option<PathBuf>,
    seconds: i64,
    command: String,
    /// Its entry in the log of operations, by which it can be taken back.
    operation: Option<u64>,
}

/// One of which it is not known whether it was committed.
#[derive(Serialize)]
struct Unknown {
    id: String,
    state: &'static str,
    reason: String,
}

/// Committed is what the log of operations has an entry of: the commit itself has made it. Exits
/// with [`UNKNOWN`] if there is none yet, and may be one.
fn show(arguments: &TxNamedArguments, output: &Output) -> Result<u8> {
    let target = || Target::find_also_inside(&arguments.target);
    let id = &arguments.id;
    let is_meant = |other: &str| names(id, other);
    let found = open(&target()?)?.into_iter().find(|row| is_meant(&row.id)).map(shown_open);
    // Asked before the log: what ends meanwhile has its entry then.
    let undecided = undecided(&target, &is_meant, id)?;
    let found = match found {
        Some(found) => Some(found),
        None => committed(&target()?, &is_meant)?,
    };
    if let (None, Some(reason)) = (&found, undecided) {
        let unknown = Unknown { id: id.clone(), state: "unknown", reason };
        output.print(&unknown, || format!("{id} unknown: {}\n", unknown.reason));
        return Ok(UNKNOWN);
    }
    let not_found = || {
        Error::not_found(format!("no transaction {id} is open, and none was committed")).hint(
            "it was refused or aborted, or had changed nothing, or is older than the last 1,000 \
             operations",
        )
    };
    let shown = found.ok_or_else(not_found)?;
    output.print(&shown, || {
        let Shown { id, state, dataset, also, other_pool, seconds, command, operation } = &shown;
        let pool = other_pool.iter().map(|it| printable(it.display().to_string()));
        let others: String =
            also.iter().cloned().chain(pool).map(|other| format!(", {other}")).collect();
        let entry = operation.map_or_else(String::new, |it| format!(", operation {it}"));
        let time = instant_text(*seconds, false);
        format!("{id} {state} {time} in {dataset}{others}{entry}: {command}\n")
    });
    Ok(0)
}

/// Why it is not known yet whether a transaction was committed, if that is so.
fn undecided(
    target: &dyn Fn() -> Result<Target>,
    is_meant: &dyn Fn(&str) -> bool,
    id: &str,
) -> Result<Option<String>> {
    let of = JointId { id: id.to_owned(), other: String::new() };
    let standing = target()?.connect()?.map(|client| client.ask(&Request::Standing(of)));
    // A home without such a word has no transaction that ends out of sight.
    if let Some(Ok(Answer::Standing(Standing { is_open: true, .. }))) = standing {
        return Ok(Some("it is being ended at this moment: ask again".to_owned()));
    }
    let report = match target()?.perform(&Operation::Status)? {
        Answer::Status(report) => report,
        other => return Err(unexpected(&other)),
    };
    let waits = |row: &TwoPoolRow| row.state == TwoPoolRow::PREPARED && is_meant(&row.id);
    if let Some(row) = report.two_pools.iter().find(|row| waits(row)) {
        let other = printable(row.other.path.display().to_string());
        return Ok(Some(format!(
            "{other} decides, and has not been heard: mount it, or see `marram tx resolve`"
        )));
    }
    let failed = report.reason.filter(|_| report.health == "read-only");
    Ok(failed.map(|reason| format!("{reason}; unmount and mount it, and ask again")))
}

fn shown_open(row: TransactionRow) -> Shown {
    let also = row.also.into_iter().map(|part| part.dataset).collect();
    Shown {
        id: row.id,
        state: "open",
        dataset: row.dataset,
        also,
        other_pool: row.other.map(|other| other.path),
        seconds: row.seconds,
        command: row.author.command,
        operation: None,
    }
}

fn committed(target: &Target, is_meant: &dyn Fn(&str) -> bool) -> Result<Option<Shown>> {
    let rows = match target.perform(&Operation::Log)? {
        Answer::Operations(rows) => rows,
        other => return Err(unexpected(&other)),
    };
    let is_it = |row: &OperationRow| {
        row.operation == "transaction" && row.names.get(1).is_some_and(|id| is_meant(id))
    };
    // Of several datasets each has an entry of the same step.
    let newest = rows.iter().rev().find(|row| is_it(row)).map(|row| row.names[1].clone());
    let is_newest = |row: &&OperationRow| is_it(row) && newest.as_ref() == row.names.get(1);
    let mut entries = rows.iter().filter(is_newest);
    Ok(entries.next().map(|row| Shown {
        id: row.names[1].clone(),
        state: "committed",
        dataset: row.names[0].clone(),
        also: entries.map(|row| row.names[0].clone()).collect(),
        other_pool: None,
        seconds: row.seconds,
        command: row.command.clone(),
        operation: Some(row.number),
    }))
}
