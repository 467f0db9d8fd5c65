//! Deduplication of what is below directories, for the daemon and for a command that has the pool
//! to itself.

use super::pass;
use crate::control::protocol::{
    Answer, DedupSummary, DedupTotals, PassEnd, PassOrder, SharingReport, SharingRow,
};
use crate::error::Result;
use marram_pool::Pool;
use marram_posix::{
    DedupOptions, DedupReport, LiveTotals, PassPlace, content_sharing, deduplicate,
};
use marram_store::{SpaceUsage, Store};

/// Finds and shares equal content in a pool that nobody has mounted.
///
/// # Errors
/// No such dataset or directory; a commit failed.
pub(super) fn alone(pool: &Pool, order: &PassOrder) -> Result<Answer> {
    let places = pass::open_places(pool, order)?;
    run(pool, &places, order.dry_run, &mut || Some(()))
}

/// Finds and shares equal content. `admit` is asked before each step.
///
/// # Errors
/// A commit failed.
pub(super) fn run<T>(
    pool: &Pool,
    places: &[PassPlace],
    dry_run: bool,
    admit: &mut dyn FnMut() -> Option<T>,
) -> Result<Answer> {
    let options = DedupOptions { dry_run, ..DedupOptions::default() };
    let (report, freed_bytes) = pass::measured(pool, dry_run, || {
        let report = deduplicate(places, options, admit);
        if report.shared_bytes > 0 {
            pool.commit()?;
        }
        Ok(report)
    })?;
    Ok(Answer::Deduplicated(Box::new(summary(report, freed_bytes, dry_run))))
}

fn summary(report: DedupReport, freed_bytes: i64, dry_run: bool) -> DedupSummary {
    DedupSummary {
        passes: report.passes,
        files: report.files,
        content_bytes: report.content_bytes,
        short_bytes: report.short_bytes,
        equal_bytes: report.equal_bytes,
        shared_bytes: report.shared_bytes,
        released_bytes: report.released_bytes,
        end: PassEnd {
            freed_bytes,
            skipped: report.skipped,
            told: pass::skipped_rows(&report.listed),
            is_interrupted: report.is_interrupted,
            failure: report.failure.map(|error| error.to_string()),
            dry_run,
        },
    }
}

/// What is saved by sharing, inside each dataset and between them.
///
/// # Errors
/// A failed read; a commit failed.
pub(super) fn sharing(pool: &Pool) -> Result<Answer> {
    if pool.status().dirty_bytes > 0 {
        pool.commit()?;
    }
    let mut datasets = Vec::new();
    for report in pool.list()? {
        let is_live = report.source.snapshot.is_none() && !report.source.is_own();
        if is_live && !report.source.is_in_trash() {
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

/// The report of `dedup=on`.
pub(super) fn totals(totals: LiveTotals) -> DedupTotals {
    DedupTotals {
        content_bytes: totals.content_bytes,
        shared_bytes: totals.shared_bytes,
        missed_ranges: totals.missed_ranges,
        failed_ranges: totals.failed_ranges,
        hints: totals.hints,
    }
}
