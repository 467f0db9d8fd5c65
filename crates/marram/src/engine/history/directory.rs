//! One directory, taken back to what it was in a snapshot.

use super::{free_name, kept_as};
use crate::control::protocol::{Answer, Operation};
use crate::engine::undo;
use crate::error::{Error, Result};
use marram_pool::Pool;
use marram_posix::{DirectoryRollback, Posix, Touched};
use marram_store::{Source, Store};
use marram_vfs::Ino;
use std::time::Instant;

/// Takes a directory back in the file system of the dataset that `to` is a snapshot of; also tells
/// what has changed there.
///
/// # Errors
/// Whatever refuses it or fails: nothing has changed.
pub(crate) fn rollback_directory(
    pool: &Pool,
    to: &Source,
    (directory, discard): (u64, bool),
    files: &Posix,
) -> Result<(Answer, Touched)> {
    pool.report(to)?;
    let keep = free_name(pool, to, "before-rollback-")?;
    let rollback = DirectoryRollback {
        dataset: &to.dataset,
        to,
        directory: Ino(directory),
        keep: (!discard).then_some(keep.as_str()),
    };
    let began = Instant::now();
    let touched = files.roll_back_directory(pool, rollback).map_err(|error| refusal(error, to))?;
    let engine_nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let is_changed = touched.is_some();
    let kept = (is_changed && !discard).then(|| kept_as(to, keep).to_string());
    let answer = Answer::DirectoryRolledBack { kept, is_changed, engine_nanoseconds };
    Ok((answer, touched.unwrap_or_default()))
}

/// Does that in a dataset that nobody has open; any other operation is none.
///
/// # Errors
/// Whatever refuses it or fails: nothing has changed.
pub(crate) fn directory_alone(pool: &Pool, operation: &Operation) -> Result<Answer> {
    let Operation::RollbackDirectory { to, directory, discard } = operation else {
        return Ok(Answer::Done);
    };
    let to: Source = to.parse()?;
    let files = undo::open_files(pool, &to.dataset)?;
    let (answer, _nobody_remembers) =
        rollback_directory(pool, &to, (*directory, *discard), &files)?;
    Ok(answer)
}

fn refusal(error: marram_vfs::Error, to: &Source) -> Error {
    match error {
        marram_vfs::Error::NotFound => Error::not_found(format!(
            "this directory was not there in {to}, nor another one of its path"
        ))
        .hint("name one above it, or remove it: it was made since"),
        other => other.into(),
    }
}
