//! The log of operations, and taking operations back.

use crate::control::protocol::{Answer, Author, OperationRow, UndoReport};
use crate::error::{Error, Result};
use crate::{names, places};
use marram_pool::{Operation, Pool, Reversal};
use marram_posix::{MergeOptions, MergeSides, OwnerClass, OwnerId, Posix, Touched};
use marram_store::{DatasetName, Source};
use marram_vfs::Ino;

/// Most conflicts that are named where a merge cannot be taken back.
const CONFLICTS_TOLD_MAX: usize = 10;

/// Who runs this process, and how it was called.
pub(crate) fn own_author() -> Author {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let command = [program].into_iter().chain(words).collect::<Vec<_>>().join(" ");
    Author { user: places::own_uid(), command }
}

/// The same pool for somebody.
pub(crate) fn acting_for(pool: &Pool, author: &Author) -> Pool {
    let Author { user, command } = author.clone();
    pool.acting_for(marram_pool::Author { user: Some(user), command })
}

/// The log, oldest first.
///
/// # Errors
/// A failed read.
pub(crate) fn log(pool: &Pool) -> Result<Answer> {
    Ok(Answer::Operations(pool.operations()?.into_iter().map(row).collect()))
}

fn row(operation: Operation) -> OperationRow {
    let user = operation.user();
    let Operation { number, record, undone_by, obstacle } = operation;
    let some = |value: u64| Some(value).filter(|value| *value != 0);
    let kept = record.kept_until_seconds;
    // What a merge brought in from a snapshot was a directory's way back.
    let name = match record.kind.name() {
        "merge" if record.undoes == 0 && record.text(1).contains('@') => "rollback-directory",
        "create" | "rollback" if record.undoes == 0 && is_receive(&record.command) => "receive",
        name => name,
    };
    let mut names = record.texts;
    if name == "limit" && !names.is_empty() {
        names.insert(1, owner_text(record.detail));
    }
    if let ("rollback-directory", Some(to)) = (name, names.get_mut(1)) {
        *to = called(std::mem::take(to));
    }
    OperationRow {
        number,
        seconds: record.seconds,
        user,
        command: record.command,
        operation: name.to_owned(),
        names,
        undoes: some(record.undoes),
        undone_by,
        kept_until_seconds: Some(kept).filter(|kept| *kept != 0),
        can_undo: obstacle.is_none(),
        obstacle,
    }
}

/// Whose limit it is.
fn owner_text(number: u64) -> String {
    let Some(OwnerId { class, id }) = OwnerId::from_offset(number) else { return String::new() };
    let class = match class {
        OwnerClass::User => "user",
        OwnerClass::Group => "group",
        OwnerClass::Project => "project",
    };
    format!("{class} {id}")
}

/// What users call a state: of one that was kept for a moment, the clone or fork that it is of.
fn called(text: String) -> String {
    match text.parse::<Source>() {
        Ok(state) if state.is_own() && !state.is_fork_base() => state.dataset.to_string(),
        _ => text,
    }
}

/// Whether a command line is that of a receive: the dataset that it makes, or takes on to a later
/// state, is entered as any other that is made or taken to another state.
fn is_receive(command: &str) -> bool {
    let mut words = command.split(' ').skip(1);
    words.find(|word| !word.starts_with('-')) == Some("receive")
}

/// How an operation is taken back.
///
/// # Errors
/// What stands in the way.
pub(crate) fn reversal(pool: &Pool, number: Option<u64>) -> Result<(u64, Reversal)> {
    pool.reversal(number).map_err(|error| refusal(number, &error))
}

/// Has the pool take an operation back.
///
/// # Errors
/// What stands in the way; then nothing has changed.
pub(crate) fn by_records(pool: &Pool, number: u64) -> Result<u64> {
    pool.undo(number).map_err(|error| refusal(Some(number), &error))
}

/// The snapshot that a rollback, or the undo of one, has kept, by its entry.
///
/// # Errors
/// A failed read; there is no such entry.
pub(crate) fn kept_by(pool: &Pool, entry: u64) -> Result<Source> {
    let entries = pool.operations()?;
    let found = entries.iter().find(|known| known.number == entry);
    let found = found.ok_or_else(|| Error::failed("the log has no entry of it"))?;
    Ok(found.record.text(1).parse()?)
}

fn refusal(number: Option<u64>, error: &marram_store::Error) -> Error {
    let which = number.map_or("the last operation".to_owned(), |it| format!("operation {it}"));
    let reason = match error {
        marram_store::Error::Invalid(reason) => reason.clone(),
        other => other.to_string(),
    };
    Error::failed(format!("{which} cannot be taken back: {reason}"))
        .hint("`marram log TARGET` shows which operations can be; `marram undo TARGET NUMBER`")
}

/// Takes a merge back in the file system of its dataset; also tells what has changed there.
///
/// # Errors
/// Files that were changed since the merge, or whatever else refuses it: nothing has changed.
pub(crate) fn by_merge(
    pool: &Pool,
    number: u64,
    files: &Posix,
    (dataset, base, back_to, root): (&DatasetName, &Source, &Source, u64),
) -> Result<Touched> {
    let sides = MergeSides { dataset, base, fork: back_to, root: Ino(root) };
    let report = files.merge(&pool.taking_back(number), sides, &MergeOptions::default())?;
    if report.applied {
        return Ok(report.touched);
    }
    let told = report
        .conflicts
        .iter()
        .take(CONFLICTS_TOLD_MAX)
        .map(|conflict| format!("\n  {}: {}", names::quoted(&conflict.path), conflict.detail));
    let (count, told) = (report.conflicts.len(), told.collect::<String>());
    Err(Error::failed(format!(
        "operation {number} cannot be taken back: {count} conflicts with what was changed since \
         (as \"the fork\" is told what was before it){told}"
    )))
}

/// What an undo has done: the newest entry, if it is that of an undo of `number`.
///
/// # Errors
/// A failed read.
pub(crate) fn report(pool: &Pool, number: u64) -> Result<UndoReport> {
    let entries = pool.operations()?;
    let undone = entries.iter().find(|entry| entry.number == number).cloned();
    let newest = entries.into_iter().rev().find(|entry| entry.record.undoes == number);
    Ok(UndoReport { undone: undone.map(row), entry: newest.map(row) })
}

/// Takes an operation back in a pool that nobody has mounted.
///
/// # Errors
/// What stands in the way; then nothing has changed.
pub(super) fn undo(pool: &Pool, number: Option<u64>) -> Result<Answer> {
    let (number, reversal) = reversal(pool, number)?;
    match reversal {
        Reversal::Merge { dataset, base, back_to, root_object } => {
            let files = super::open_files(pool, &dataset)?;
            by_merge(pool, number, &files, (&dataset, &base, &back_to, root_object))?;
        }
        Reversal::Records { .. } | Reversal::Rollback { .. } => {
            by_records(pool, number)?;
        }
    }
    Ok(Answer::Undone(Box::new(report(pool, number)?)))
}
