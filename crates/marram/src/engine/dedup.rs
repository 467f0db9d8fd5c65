//! Deduplication of what is below directories, for the daemon and for a command that has the pool
//! to itself.

use crate::control::protocol::{
    Answer, DedupDirectory, DedupOrder, DedupSummary, DedupTotals, SharingReport, SharingRow,
    SkippedRow,
};
use crate::error::{Error, Result};
use marram_pool::Pool;
use marram_posix::{
    DedupOptions, DedupPlace, DedupReport, LiveTotals, Posix, PosixOptions, Skipped,
    content_sharing, deduplicate,
};
use marram_store::{Source, Store};
use marram_vfs::Ino;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Finds and shares equal content in a pool that nobody has mounted.
///
/// # Errors
/// No such dataset or directory; a commit failed.
pub(crate) fn alone(pool: &Pool, order: &DedupOrder) -> Result<Answer> {
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
    run(pool, &places, order.dry_run, &mut || Some(()))
}

/// What a directory is in; a snapshot can only be looked at.
///
/// # Errors
/// It is no name, or is to be changed and cannot be.
pub(crate) fn source_of(place: &DedupDirectory, dry_run: bool) -> Result<Source> {
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
pub(crate) fn place_in(
    pool: &Pool,
    place: &DedupDirectory,
    source: &Source,
    files: Arc<Posix>,
) -> Result<DedupPlace> {
    let directory = match place.directory {
        Some(directory) => Ino(directory),
        None => Ino(pool.report(source)?.root_object),
    };
    Ok(DedupPlace { files, directory })
}

/// Finds and shares equal content. `admit` is asked before each step.
///
/// # Errors
/// A commit failed.
pub(crate) fn run<T>(
    pool: &Pool,
    places: &[DedupPlace],
    dry_run: bool,
    admit: &mut dyn FnMut() -> Option<T>,
) -> Result<Answer> {
    if pool.status().dirty_bytes > 0 {
        // What is just being written can be shared between datasets once it is stored.
        pool.commit()?;
    }
    let before = pool.status().allocated_bytes;
    let options = DedupOptions { dry_run, ..DedupOptions::default() };
    let report = deduplicate(places, options, admit);
    if report.shared_bytes > 0 {
        pool.commit()?;
    }
    let after = pool.status().allocated_bytes;
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let freed_bytes = if dry_run { 0 } else { signed(before) - signed(after) };
    Ok(Answer::Deduplicated(Box::new(summary(report, freed_bytes, dry_run))))
}

fn summary(report: DedupReport, freed_bytes: i64, dry_run: bool) -> DedupSummary {
    DedupSummary {
        passes: report.passes,
        files: report.files,
        content_bytes: report.content_bytes,
        equal_bytes: report.equal_bytes,
        shared_bytes: report.shared_bytes,
        released_bytes: report.released_bytes,
        freed_bytes,
        skipped: report.skipped,
        told: report.told.iter().map(row).collect(),
        is_interrupted: report.is_interrupted,
        failure: report.failure.map(|error| error.to_string()),
        dry_run,
    }
}

pub(super) fn row(skipped: &Skipped) -> SkippedRow {
    let path = String::from_utf8_lossy(&skipped.path).into_owned();
    SkippedRow { place: skipped.place, path, reason: skipped.reason.to_string() }
}

/// What is saved by sharing, inside each dataset and between them.
///
/// # Errors
/// A failed read; a commit failed.
pub(crate) fn sharing(pool: &Pool) -> Result<Answer> {
    if pool.status().dirty_bytes > 0 {
        pool.commit()?;
    }
    let mut datasets = Vec::new();
    for report in pool.list()? {
        let is_live = report.source.snapshot.is_none() && !report.source.is_own();
        if is_live && !report.source.is_kept() {
            let sums = content_sharing(&*pool.open(&report.source)?)?;
            datasets.push(SharingRow {
                name: report.source.to_string(),
                content_bytes: sums.content_bytes,
                unshared_bytes: sums.unshared_bytes,
                stored_bytes: sums.stored_bytes,
            });
        }
    }
    let between_bytes = pool.usage(true)?.shared_bytes;
    Ok(Answer::Sharing(SharingReport { datasets, between_bytes }))
}

/// What is told of `dedup=on`.
pub(crate) fn totals(totals: LiveTotals) -> DedupTotals {
    DedupTotals {
        content_bytes: totals.content_bytes,
        shared_bytes: totals.shared_bytes,
        missed_ranges: totals.missed_ranges,
        failed_ranges: totals.failed_ranges,
        hints: totals.hints,
    }
}
