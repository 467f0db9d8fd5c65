//! Rewriting of what is below directories, for the daemon and for a command that has the pool to
//! itself.

use super::dedup::{place_in, row, source_of};
use crate::control::protocol::{Answer, DefragmentOrder, DefragmentSummary, RewritingRow};
use crate::error::Result;
use marram_pool::Pool;
use marram_posix::{
    DedupPlace, DefragmentOptions, DefragmentReport, Posix, PosixOptions, RewritingTotals,
    defragment,
};
use marram_store::{Source, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rewrites what lies in crumbs in a pool that nobody has mounted.
///
/// # Errors
/// No such dataset or directory; a commit failed.
pub(crate) fn alone(pool: &Pool, order: &DefragmentOrder) -> Result<Answer> {
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

/// Rewrites. `admit` is asked before each step.
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
        // What waits for a commit has no place yet.
        pool.commit()?;
    }
    let before = pool.status().allocated_bytes;
    let report = defragment(places, DefragmentOptions { dry_run }, admit);
    let mut extents_after = report.extents;
    if !dry_run && report.totals.rewritten_bytes > 0 {
        pool.commit()?;
        let look = DefragmentOptions { dry_run: true };
        extents_after = defragment(places, look, admit).extents;
    }
    let after = pool.status().allocated_bytes;
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let freed_bytes = if dry_run { 0 } else { signed(before) - signed(after) };
    Ok(Answer::Defragmented(Box::new(summary(report, extents_after, freed_bytes, dry_run))))
}

fn summary(
    report: DefragmentReport,
    extents_after: u64,
    freed_bytes: i64,
    dry_run: bool,
) -> DefragmentSummary {
    DefragmentSummary {
        files: report.files,
        extents_before: report.extents,
        extents_after,
        rewriting: totals(report.totals),
        freed_bytes,
        skipped: report.skipped,
        told: report.told.iter().map(row).collect(),
        is_interrupted: report.is_interrupted,
        is_short_of_space: report.is_short_of_space,
        failure: report.failure.map(|error| error.to_string()),
        dry_run,
    }
}

/// What was done, as it is told.
pub(crate) fn totals(totals: RewritingTotals) -> RewritingRow {
    RewritingRow {
        content_bytes: totals.content_bytes,
        rewritten_bytes: totals.rewritten_bytes,
        joined_sections: totals.joined_sections,
        released_bytes: totals.released_bytes,
        held_bytes: totals.held_bytes,
        overtaken: totals.overtaken,
        unreadable: totals.unreadable,
    }
}
