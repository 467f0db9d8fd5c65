//! The members of a dataset of any store: its snapshots, and the forks that began as it or as one
//! of those.

use super::home::{ControlDirectory, Member};
use crate::control::protocol::{Answer, ForkPlace};
use crate::names;
use marram_records::inode::{attributes, decode_inode, inode_key};
use marram_store::{DatasetName, DatasetReport, Source, Store};
use marram_vfs::{Error, Ino, Kind, Result, Timestamp};
use std::collections::BTreeSet;

/// Forks of forks of forks that a name is followed through.
const FORK_DEPTH_MAX: usize = 1 << 20;

/// The names of all members in a control directory.
///
/// # Errors
/// They cannot be read.
pub(crate) fn names(
    store: &dyn Store,
    dataset: &DatasetName,
    directory: ControlDirectory,
) -> Result<Vec<String>> {
    let reports = reports(store, dataset, directory)?;
    Ok(reports.iter().map(|report| name_of(directory, report).to_owned()).collect())
}

/// The users, other than that of this process, that have forks of a dataset.
///
/// # Errors
/// They cannot be read.
pub(crate) fn users(store: &dyn Store, dataset: &DatasetName) -> Result<BTreeSet<u32>> {
    let forks = forks_of(dataset, store.list().map_err(failure)?);
    let owner = |fork: &DatasetReport| match shelf_of(fork) {
        ControlDirectory::ForksOf(owner) => Some(owner),
        _ => None,
    };
    Ok(forks.iter().filter_map(owner).collect())
}

/// The control directory in which a fork is shown.
fn shelf_of(fork: &DatasetReport) -> ControlDirectory {
    ControlDirectory::of_fork(fork.owner)
}

/// The member of a name.
///
/// # Errors
/// [`Error::NotFound`], or a failed read.
pub(crate) fn find(
    store: &dyn Store,
    dataset: &DatasetName,
    directory: ControlDirectory,
    name: &str,
) -> Result<Member> {
    let report = report_in(store, dataset, directory, name)?;
    if directory != ControlDirectory::Snapshots && shelf_of(&report) != directory {
        return Err(Error::NotFound);
    }
    let (root, mark) = (Ino(report.root_object), mark(&report));
    Ok(Member { source: report.source, root, mark })
}

/// Whether a snapshot has a directory of this number that was made then.
///
/// # Errors
/// [`Error::NotFound`], or a failed read.
pub(crate) fn has_directory(
    store: &dyn Store,
    snapshot: &Source,
    ino: Ino,
    created: Timestamp,
) -> Result<bool> {
    let view = store.open(snapshot).map_err(failure)?;
    let Some(item) = view.get(inode_key(ino.0)).map_err(failure)? else { return Ok(false) };
    let found = attributes(ino.0, &decode_inode(ino.0, &item)?);
    Ok(found.kind == Kind::Directory && found.links > 0 && found.created == created)
}

/// Where the directory is now that a fork began as.
///
/// # Errors
/// It is no fork, or its parent cannot be read.
pub(crate) fn fork_place(store: &dyn Store, fork: &DatasetName) -> crate::error::Result<Answer> {
    let report = store.report(&Source::live(fork.clone()))?;
    let no_fork = || crate::error::Error::usage(format!("{fork} is no fork"));
    let origin = report.origin.filter(Source::is_fork_base).ok_or_else(no_fork)?;
    let parent = Source::live(origin.dataset);
    let root = store.report(&parent)?.root_object;
    let path = marram_history::path_of(store.open(&parent)?, root, report.root_object)?;
    Ok(Answer::ForkPlace(ForkPlace {
        parent: parent.to_string(),
        path: path.as_deref().map(names::text),
        path_bytes: path.as_deref().and_then(names::lost_bytes),
    }))
}

/// Reads the report of that name and those of what it began as, and no other: there may be
/// thousands beside it.
fn report_in(
    store: &dyn Store,
    dataset: &DatasetName,
    directory: ControlDirectory,
    name: &str,
) -> Result<DatasetReport> {
    if directory == ControlDirectory::Snapshots {
        let report = report_of(store, &format!("{dataset}@{name}"))?;
        return Some(report).filter(|report| !report.source.is_own()).ok_or(Error::NotFound);
    }
    let found = report_of(store, name)?;
    let mut at = found.clone();
    for _ in 0..FORK_DEPTH_MAX {
        let Some(origin) = at.origin.as_ref().filter(|_| is_fork(&at)) else { break };
        if origin.dataset == *dataset {
            return Ok(found);
        }
        at = report_of(store, origin.dataset.as_str())?;
    }
    Err(Error::NotFound)
}

fn reports(
    store: &dyn Store,
    dataset: &DatasetName,
    directory: ControlDirectory,
) -> Result<Vec<DatasetReport>> {
    let all = store.list().map_err(failure)?;
    Ok(match directory {
        ControlDirectory::Snapshots => {
            let is_shown = |report: &DatasetReport| {
                let source = &report.source;
                source.dataset == *dataset && source.snapshot.is_some() && !source.is_own()
            };
            all.into_iter().filter(is_shown).collect()
        }
        _ => {
            let forks = forks_of(dataset, all).into_iter();
            forks.filter(|fork| shelf_of(fork) == directory).collect()
        }
    })
}

/// The report of one dataset or snapshot.
fn report_of(store: &dyn Store, name: &str) -> Result<DatasetReport> {
    let source: Source = name.parse().map_err(|_| Error::NotFound)?;
    store.report(&source).map_err(failure)
}

/// The forks of a dataset, and the forks of those.
fn forks_of(dataset: &DatasetName, all: Vec<DatasetReport>) -> Vec<DatasetReport> {
    let mut parents = BTreeSet::from([dataset.clone()]);
    let mut forks: Vec<DatasetReport> = Vec::new();
    let mut rest: Vec<DatasetReport> = all.into_iter().filter(is_fork).collect();
    loop {
        let began = |report: &DatasetReport| {
            report.origin.as_ref().is_some_and(|origin| parents.contains(&origin.dataset))
        };
        let (found, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(began);
        if found.is_empty() {
            break;
        }
        parents = found.iter().map(|report| report.source.dataset.clone()).collect();
        forks.extend(found);
        rest = others;
    }
    forks
}

/// Whether it is a fork, and not a clone of a snapshot that a user made.
fn is_fork(report: &DatasetReport) -> bool {
    report.fork_base().is_some() && !report.source.is_own()
}

/// The name that a member is shown by.
fn name_of(directory: ControlDirectory, report: &DatasetReport) -> &str {
    match directory {
        ControlDirectory::Snapshots => report.source.snapshot.as_deref().unwrap_or_default(),
        _ => report.source.dataset.as_str(),
    }
}

/// A number that another dataset or snapshot, or another of the same name, hardly has.
fn mark(report: &DatasetReport) -> u32 {
    const PRIME: u32 = 0x0100_0193;
    let name = report.source.to_string();
    let bytes = name.bytes().chain(report.created_seconds.to_le_bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME))
}

fn failure(error: marram_store::Error) -> Error {
    match error {
        marram_store::Error::NoDataset(_) => Error::NotFound,
        other => Error::Io(other.to_string()),
    }
}
