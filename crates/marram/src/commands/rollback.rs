//! `marram rollback`: a dataset, or one directory or file of it, goes back to a snapshot, also
//! while it is in use.

use crate::arguments::RollbackArguments;
use crate::commands::answers::{unexpected, write_back};
use crate::control::protocol::{Answer, DirectoryOrder, Operation};
use crate::error::{Error, Result};
use crate::names::{PathText, quoted};
use crate::output::Output;
use crate::target::{Place, Target, with_optional_snapshot, with_snapshot};
use marram_store::{DatasetName, Source};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct RolledBack {
    pool: PathBuf,
    to: String,
    /// The directory or file that went back, if it was not all of the dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
    /// Whether anything differed.
    changed: bool,
    /// The snapshot that has the state before.
    kept: Option<String>,
    engine_nanoseconds: u64,
}

pub(super) fn run(arguments: &RollbackArguments, output: &Output) -> Result<()> {
    if let Some(to) = &arguments.to {
        return to_another(arguments, to, output);
    }
    let (path, snapshot) = with_snapshot(&arguments.target)?;
    let Place { target, path: directory_path, names } = Place::find(&path)?;
    let to =
        Source { dataset: target.dataset(arguments.dataset.as_deref())?, snapshot: Some(snapshot) };
    let directory = match &arguments.dataset {
        None if target.mounted.is_some() => Some(directory_of(&target, &path)?)
            .filter(|_| !names.is_empty() || !target.is_whole_dataset()),
        _ => None,
    };
    write_back(&target, &directory_path)?;
    let done = match directory {
        Some(directory) => {
            let part = Part { path: &path, directory: Some(directory), names: &names };
            of_part(target, (&to, to.dataset.clone()), part, arguments.discard)?
        }
        None => of_dataset(target, &to, arguments.discard)?,
    };
    output.print(&done, || text_of(&done));
    Ok(())
}

/// A dataset or directory becomes what a clone or fork of it is.
fn to_another(arguments: &RollbackArguments, to: &str, output: &Output) -> Result<()> {
    let (path, snapshot) = with_optional_snapshot(&arguments.target)?;
    let to: Source = to.parse()?;
    if let Some(snapshot) = snapshot {
        return Err(
            Error::usage(format!("to @{snapshot}, or to {to}?")).hint("leave one of the two out")
        );
    }
    let target = Target::find(&path)?;
    let dataset = target.dataset(arguments.dataset.as_deref())?;
    let directory = match &arguments.dataset {
        None if target.mounted.is_some() => Some(directory_of(&target, &path)?),
        _ => None,
    };
    write_back(&target, &path)?;
    let part = Part { path: &path, directory, names: &[] };
    let done = of_part(target, (&to, dataset), part, arguments.discard)?;
    output.print(&done, || text_of(&done));
    Ok(())
}

/// The inode of the directory that is meant.
fn directory_of(target: &Target, path: &Path) -> Result<u64> {
    let place = path.display();
    if let Some(source) = target.mounted.as_ref().filter(|source| source.snapshot.is_some()) {
        return Err(Error::usage(format!("{place} is in the snapshot {source}"))
            .hint("name the directory of the dataset that is to go back"));
    }
    target.ino.filter(|ino| *ino != 0).ok_or_else(|| {
        Error::usage(format!("{place} is no directory of a dataset"))
            .hint("a directory goes back with all that is in it: name that one")
    })
}

fn of_dataset(target: Target, to: &Source, discard: bool) -> Result<RolledBack> {
    let operation = Operation::Rollback { to: to.to_string() };
    let (kept, engine_nanoseconds) = match target.perform(&operation)? {
        Answer::RolledBack { kept, engine_nanoseconds } => (kept, engine_nanoseconds),
        other => return Err(unexpected(&other)),
    };
    if discard {
        let discarded = Operation::Destroy { sources: vec![kept.clone()], dry_run: false };
        target.perform(&discarded).map_err(|error| {
            Error::partial(format!("went back to {to}, but {kept} stays: {error}"))
        })?;
    }
    Ok(RolledBack {
        pool: target.pool,
        to: to.to_string(),
        directory: None,
        changed: true,
        kept: Some(kept).filter(|_| !discard),
        engine_nanoseconds,
    })
}

/// A part of a dataset that goes back.
struct Part<'p> {
    /// As the user has named it.
    path: &'p Path,
    /// The inode of a directory.
    directory: Option<u64>,
    /// The path below that.
    names: &'p [Vec<u8>],
}

fn of_part(
    target: Target,
    (to, dataset): (&Source, DatasetName),
    Part { path, directory, names }: Part<'_>,
    discard: bool,
) -> Result<RolledBack> {
    let (dataset, to) = (dataset.to_string(), to.to_string());
    let names = names.iter().map(|name| PathText::of(name)).collect();
    let order = DirectoryOrder { dataset, to: to.clone(), directory, names, discard };
    match target.perform(&Operation::RollbackDirectory(order))? {
        Answer::DirectoryRolledBack { kept, is_changed, engine_nanoseconds } => Ok(RolledBack {
            pool: target.pool,
            to,
            directory: Some(path.display().to_string()),
            changed: is_changed,
            kept,
            engine_nanoseconds,
        }),
        other => Err(unexpected(&other)),
    }
}

fn text_of(done: &RolledBack) -> String {
    let kept = done.kept.as_ref();
    let kept = kept.map_or(String::new(), |kept| format!("the state before is {kept}\n"));
    let directory = done.directory.as_ref().map(|at| quoted(at.as_bytes()));
    match &directory {
        Some(at) if !done.to.contains('@') => {
            format!("{at} is what it is in {}\n{kept}", done.to)
        }
        Some(at) if !done.changed => format!("{at} is as it was in {}\n", done.to),
        Some(at) => format!("{at} went back to what it was in {}\n{kept}", done.to),
        None => format!("went back to {}\n{kept}", done.to),
    }
}
