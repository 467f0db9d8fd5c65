//! What every pass over the files below some directories begins and ends with, for the daemon and
//! for a command that has the pool to itself.

use crate::control::protocol::{PassDirectory, PassOrder, SkippedRow};
use crate::error::{Error, Result};
use crate::names;
use marram_pool::Pool;
use marram_posix::{PassPlace, Posix, PosixOptions, Skipped};
use marram_store::{Source, Store};
use marram_vfs::Ino;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The directories of an order, in a pool that nobody has mounted.
///
/// # Errors
/// No such dataset or directory.
pub(super) fn open_places(pool: &Pool, order: &PassOrder) -> Result<Vec<PassPlace>> {
    let mut open: BTreeMap<Source, Arc<Posix>> = BTreeMap::new();
    let mut places = Vec::new();
    for place in &order.places {
        let source = source_of(place, order.dry_run)?;
        let files = match open.get(&source) {
            Some(files) => Arc::clone(files),
            None => Arc::new(Posix::new(pool.open(&source)?, PosixOptions::default())?),
        };
        places.push(place_in(pool, place, &source, Arc::clone(&files))?);
        open.insert(source, files);
    }
    Ok(places)
}

/// What a directory is in; a snapshot can only be looked at.
///
/// # Errors
/// It is no name, or is to be changed and cannot be.
pub(super) fn source_of(place: &PassDirectory, dry_run: bool) -> Result<Source> {
    let source: Source = place.source.parse()?;
    match source.snapshot.is_some() && !dry_run {
        true => Err(Error::usage(format!("{source} is a snapshot, which never changes"))
            .hint("name a directory of a dataset or fork")),
        false => Ok(source),
    }
}

/// A directory, of a file system that is open.
///
/// # Errors
/// No such dataset.
pub(super) fn place_in(
    pool: &Pool,
    place: &PassDirectory,
    source: &Source,
    files: Arc<Posix>,
) -> Result<PassPlace> {
    let directory = match place.directory {
        Some(directory) => Ino(directory),
        None => Ino(pool.report(source)?.root_object),
    };
    Ok(PassPlace { files, directory })
}

/// Makes a pass over what is stored, and tells by how many bytes the free space has grown, unless
/// the pass only looks. What still waits for a commit has no place yet: it can neither be moved nor
/// be shared between datasets.
///
/// # Errors
/// That of the pass; a commit failed.
pub(super) fn measured<R>(
    pool: &Pool,
    dry_run: bool,
    pass: impl FnOnce() -> Result<R>,
) -> Result<(R, i64)> {
    if pool.status().dirty_bytes > 0 {
        pool.commit()?;
    }
    let before = pool.status().allocated_bytes;
    let report = pass()?;
    let after = pool.status().allocated_bytes;
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    Ok((report, if dry_run { 0 } else { signed(before) - signed(after) }))
}

/// What was left alone, as a report has it.
pub(super) fn skipped_rows(told: &[Skipped]) -> Vec<SkippedRow> {
    let row = |skipped: &Skipped| SkippedRow {
        place: skipped.place,
        path: names::text(&skipped.path),
        path_bytes: names::lost_bytes(&skipped.path),
        reason: skipped.reason.to_string(),
    };
    told.iter().map(row).collect()
}
