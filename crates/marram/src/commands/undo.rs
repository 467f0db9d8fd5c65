//! `marram log` and `marram undo`: what was done to a pool, and taking it back.
//!
//! An undo says what it takes back before it does, and asks at a terminal. Without a number it
//! takes no snapshot away.

mod gone;

use crate::arguments::{LogArguments, UndoArguments};
use crate::commands::answers::{unexpected, write_back};
use crate::control::owner_names;
use crate::control::protocol::OwnerClass;
use crate::control::protocol::{Answer, Operation, OperationRow, UndoReport};
use crate::error::{Error, Kind, Result};
use crate::output::{Align, Output, Table, instant_text, say, size_text};
use crate::target::Target;
use rustix::termios::isatty;
use serde::Serialize;
use std::io::BufRead;

/// In an entry of the log: as much as there is.
const NO_LIMIT: &str = "none";

pub(super) fn log(arguments: &LogArguments, output: &Output) -> Result<()> {
    let target = Target::find(&arguments.target)?;
    let mut rows = rows(&target)?;
    let skipped = rows.len().saturating_sub(arguments.last.unwrap_or(usize::MAX));
    rows.drain(..skipped);
    output.print(&rows, || table(&target, &rows, arguments, output));
    Ok(())
}

fn rows(target: &Target) -> Result<Vec<OperationRow>> {
    match target.perform(&Operation::Log)? {
        Answer::Operations(rows) => Ok(rows),
        other => Err(unexpected(&other)),
    }
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
        "transaction" => format!("transaction {second} in {place}"),
        "transaction-prepared" => format!("transaction {second} in {place}, in doubt"),
        "transaction-aborted" => format!("transaction {second}, not committed in {place}"),
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
    let path = &arguments.target;
    let target = Target::find(path).map_err(|refusal| match refusal.kind {
        Kind::NotFound => gone::at(path, refusal),
        _ => refusal,
    })?;
    write_back(&target, path)?;
    let entries = rows(&target)?;
    let chosen = match arguments.number {
        Some(number) => entries.iter().find(|row| row.number == number),
        None => entries.last(),
    };
    let gone = || arguments.number.is_none().then(|| gone::below(&target, path)).flatten();
    if let (Some(row), None) = (chosen, arguments.number) {
        refuse_snapshot(row).map_err(|refusal| with_gone(refusal, gone()))?;
    }
    let number = chosen.map(|row| row.number).or(arguments.number);
    let intended = Intended::of(&entries, number);
    if arguments.dry_run {
        output.print(&intended, || intended.text(&target, "would take back"));
        return Ok(());
    }
    intended.text(&target, "to be taken back:").lines().for_each(say);
    if !arguments.yes && !intended.would_undo.is_empty() && is_at_terminal() {
        gone().iter().for_each(|gone| say(gone));
        ask()?;
    }
    let order = Operation::Undo { number, force: arguments.force };
    let answer = target.perform(&order).map_err(|refusal| match entries.is_empty() {
        true => with_gone(refusal, gone()),
        false => refusal,
    })?;
    let Answer::Undone(report) = answer else { return Err(unexpected(&answer)) };
    output.print(&report, || text(&target, &report));
    gone().iter().for_each(|gone| say(gone));
    Ok(())
}

/// What would be taken back.
#[derive(Serialize)]
struct Intended<'r> {
    would_undo: Vec<&'r OperationRow>,
}

impl<'r> Intended<'r> {
    /// All that is left of the step of an operation.
    fn of(entries: &'r [OperationRow], number: Option<u64>) -> Intended<'r> {
        let chosen = entries.iter().find(|row| Some(row.number) == number);
        let (first, last) =
            chosen.map_or((1, 0), |row| row.together.unwrap_or((row.number, row.number)));
        let of_step = |row: &&OperationRow| (first..=last).contains(&row.number);
        let is_left = |row: &&OperationRow| row.undone_by.is_none();
        Intended { would_undo: entries.iter().filter(of_step).filter(is_left).collect() }
    }

    fn text(&self, target: &Target, verb: &str) -> String {
        let line = |row: &&OperationRow| {
            let user = row.user.map_or_else(|| "nobody".to_owned(), user_text);
            let when = instant_text(row.seconds, false);
            format!("{verb} operation {}, of {user} at {when}: {}\n", row.number, what(target, row))
        };
        self.would_undo.iter().map(line).collect()
    }
}

/// A snapshot goes only by its number: it is what one comes back to.
fn refuse_snapshot(row: &OperationRow) -> Result<()> {
    let name = row.names.first().map_or("", String::as_str);
    let verb = match row.operation.as_str() {
        "snapshot" => "made",
        "restore" if name.contains('@') => "brought back",
        _ => return Ok(()),
    };
    let number = row.number;
    Err(Error::failed(format!(
        "the last operation, {number}, {verb} the snapshot {name}: nothing is taken back"
    ))
    .hint(format!(
        "`marram undo TARGET {number}` takes the snapshot away; `marram log TARGET` lists what \
         else can be taken back"
    )))
}

fn with_gone(refusal: Error, gone: Option<String>) -> Error {
    let Some(gone) = gone else { return refusal };
    let details: Vec<String> =
        refusal.details.iter().cloned().chain(gone.lines().map(str::to_owned)).collect();
    refusal.details(details.into_iter())
}

/// Whether there is somebody to ask.
fn is_at_terminal() -> bool {
    isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stderr())
}

/// Asks whether to go on.
fn ask() -> Result<()> {
    say("go on? [y/N]");
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match read.is_ok() && matches!(line.trim(), "y" | "yes") {
        true => Ok(()),
        false => Err(Error::failed("nothing was taken back")),
    }
}

fn text(target: &Target, report: &UndoReport) -> String {
    let mut text = String::new();
    let what = |row| what(target, row);
    for row in &report.undone {
        let again = row.undoes.map_or("", |_| ", and did again what that had");
        text.push_str(&format!("took back operation {}{again}: {}\n", row.number, what(row)));
    }
    for path in &report.overwritten {
        text.push_str(&format!("changed since, and as before all the same: {path}\n"));
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
