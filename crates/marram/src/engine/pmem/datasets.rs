//! Datasets and snapshots of a pmem home, and what mounts see of them.

use crate::control::protocol::{Answer, DatasetRow, DestructionReport};
use crate::engine::home::{ControlDirectory, Member};
use crate::engine::mounts::Mounts;
use crate::error::{Error, Result};
use marram_pmem::{DatasetReport, Destroyed, Pmem, Which};
use marram_store::{DatasetName, Source};
use marram_vfs::Ino;
use std::time::Instant;

/// Names that are tried for what a rollback keeps.
const NAMES_MAX: u32 = 1 << 20;

/// A source as the engine names it.
pub(super) fn which(source: &Source) -> Which<'_> {
    Which { dataset: source.dataset.as_str(), snapshot: source.snapshot.as_deref() }
}

/// Why something could not be done with a source.
fn refused(source: &Source, error: marram_vfs::Error) -> Error {
    match error {
        marram_vfs::Error::NotFound => marram_store::Error::NoDataset(source.to_string()).into(),
        marram_vfs::Error::Exists => marram_store::Error::DatasetExists(source.to_string()).into(),
        other => Error::from(other).during(source),
    }
}

/// Does something and tells how long it took, in nanoseconds.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let began = Instant::now();
    let done = work()?;
    Ok((done, u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)))
}

/// All datasets and snapshots.
///
/// # Errors
/// The image is damaged.
pub(super) fn rows(files: &Pmem) -> Result<Vec<DatasetRow>> {
    Ok(files.datasets()?.into_iter().map(row).collect())
}

fn row(report: DatasetReport) -> DatasetRow {
    let kind = match (report.is_snapshot, &report.origin) {
        (true, _) => "snapshot",
        (false, Some(_)) => "clone",
        (false, None) => "dataset",
    };
    DatasetRow {
        name: report.name,
        kind: kind.to_owned(),
        origin: report.origin,
        base: None,
        root: Ino::ROOT.0,
        directory: None,
        holds: Vec::new(),
        internal: false,
        created_seconds: report.created_seconds,
        referenced_bytes: report.referenced_bytes,
        unique_bytes: report.unique_bytes,
    }
}

/// Keeps the present state of a dataset.
///
/// # Errors
/// There is no such dataset, or the name is taken.
pub(super) fn snapshot(
    files: &Pmem,
    (dataset, name): (&str, &str),
    mounts: Option<&dyn Mounts>,
) -> Result<Answer> {
    let made: Source = format!("{dataset}@{name}").parse()?;
    let taken = || files.snapshot(dataset, name).map_err(|error| refused(&made, error));
    let ((), engine_nanoseconds) = timed(taken)?;
    if let Some(mounts) = mounts {
        mounts.members_changed(std::slice::from_ref(&made));
    }
    Ok(Answer::Timed { engine_nanoseconds })
}

/// Makes a dataset that begins as a snapshot.
///
/// # Errors
/// There is no such snapshot, or the name is taken.
pub(super) fn clone(files: &Pmem, origin: &str, name: &str) -> Result<Answer> {
    let (origin, name): (Source, DatasetName) = (origin.parse()?, name.parse()?);
    let made = files.clone_snapshot(which(&origin), name.as_str());
    made.map_err(|error| match error {
        marram_vfs::Error::Exists => refused(&Source::live(name), error),
        other => refused(&origin, other),
    })?;
    Ok(Answer::Done)
}

/// Lets the dataset of a snapshot go on from it, also while programs use it: they see it at once.
///
/// # Errors
/// There is no such snapshot; a mount holds data back.
pub(super) fn roll_back(files: &Pmem, to: &str, mounts: Option<&dyn Mounts>) -> Result<Answer> {
    let to: Source = to.parse()?;
    let live = Source::live(to.dataset.clone());
    let held = mounts.map(|mounts| mounts.hold(&live)).transpose()?;
    if let Some(mounts) = mounts {
        mounts.refuse_held_back(&live)?;
    }
    let (kept, engine_nanoseconds) = timed(|| go_back(files, &to))?;
    let in_use = held.and_then(|held| held.in_use.clone());
    if let Some(mounts) = mounts {
        in_use.iter().for_each(|volume| mounts.all_changed(&live, &**volume));
        mounts.members_changed(std::slice::from_ref(&kept));
    }
    Ok(Answer::RolledBack { kept: kept.to_string(), engine_nanoseconds })
}

/// Rolls back; returns the snapshot that keeps what was.
fn go_back(files: &Pmem, to: &Source) -> Result<Source> {
    let snapshot = to.snapshot.as_deref().ok_or_else(|| {
        Error::usage(format!("{to} names no snapshot")).hint("write DATASET@SNAPSHOT")
    })?;
    for number in 1..NAMES_MAX {
        let keep = format!("before-rollback-{number}");
        match files.roll_back(to.dataset.as_str(), snapshot, &keep) {
            Err(marram_vfs::Error::Exists) => (),
            Err(error) => return Err(refused(to, error)),
            Ok(()) => return Ok(Source { dataset: to.dataset.clone(), snapshot: Some(keep) }),
        }
    }
    Err(Error::failed(format!("{}: too many states before rollbacks are kept", to.dataset))
        .hint("destroy some: `marram list TARGET` shows them"))
}

/// Destroys datasets with their snapshots, and snapshots; none that a mount of its own shows. What
/// is only looked at below `.marram` goes from there first.
///
/// # Errors
/// One is not there, or mounted.
pub(super) fn destroy(
    files: &Pmem,
    named: &[String],
    dry_run: bool,
    mounts: Option<&dyn Mounts>,
) -> Result<DestructionReport> {
    let named: Vec<Source> = named.iter().map(|name| source(name)).collect::<Result<_>>()?;
    let would = files.destroy(&named.iter().map(which).collect::<Vec<_>>(), true);
    let would = would.map_err(|error| not_destroyed(files, &named, error))?;
    if dry_run {
        return Ok(report(would, true));
    }
    let goes: Vec<Source> =
        would.names.iter().map(|name| name.parse()).collect::<marram_store::Result<_>>()?;
    let withheld = match mounts {
        Some(mounts) => {
            mounts.refuse_mounted(&goes)?;
            Some(mounts.withhold(&goes))
        }
        None => None,
    };
    let gone = files.destroy(&named.iter().map(which).collect::<Vec<_>>(), false);
    drop(withheld);
    if let Some(mounts) = mounts {
        mounts.members_changed(&goes);
    }
    Ok(report(gone?, false))
}

fn source(name: &str) -> Result<Source> {
    if name.contains("..") {
        return Err(Error::usage(format!("{name}: a pmem home has no ranges of snapshots yet"))
            .hint("name each snapshot"));
    }
    Ok(name.parse()?)
}

fn not_destroyed(files: &Pmem, named: &[Source], error: marram_vfs::Error) -> Error {
    let known = files.datasets().unwrap_or_default();
    let is_known = |source: &&Source| known.iter().any(|it| it.name == source.to_string());
    match named.iter().find(|source| !is_known(source)) {
        Some(missing) => refused(missing, marram_vfs::Error::NotFound),
        None => Error::from(error),
    }
}

fn report(destroyed: Destroyed, dry_run: bool) -> DestructionReport {
    DestructionReport { sources: destroyed.names, freed_bytes: destroyed.freed_bytes, dry_run }
}

/// The names of the snapshots of a dataset, sorted. It has no forks.
///
/// # Errors
/// The image is damaged.
pub(super) fn names(
    files: &Pmem,
    dataset: &DatasetName,
    directory: ControlDirectory,
) -> marram_vfs::Result<Vec<String>> {
    if directory != ControlDirectory::Snapshots {
        return Ok(Vec::new());
    }
    let mut names = files.snapshot_names(dataset.as_str())?;
    names.sort_unstable();
    Ok(names)
}

/// A snapshot of a dataset by its name.
///
/// # Errors
/// [`marram_vfs::Error::NotFound`].
pub(super) fn find(
    files: &Pmem,
    dataset: &DatasetName,
    directory: ControlDirectory,
    name: &str,
) -> marram_vfs::Result<Member> {
    if directory != ControlDirectory::Snapshots {
        return Err(marram_vfs::Error::NotFound);
    }
    let source = Source { dataset: dataset.clone(), snapshot: Some(name.to_owned()) };
    let number = files.number_of(which(&source))?;
    // Numbers are never used again, so their low half hardly is.
    Ok(Member { source, root: Ino::ROOT, mark: (number & 0xffff_ffff) as u32 })
}
