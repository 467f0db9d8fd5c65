//! Rewriting of what is below directories, for the daemon and for a command that has the pool to
//! itself.

use super::pass;
use crate::control::protocol::{Answer, DefragmentSummary, PassEnd, PassOrder, RewritingRow};
use crate::error::Result;
use marram_pool::Pool;
use marram_posix::{DefragmentOptions, DefragmentReport, DefragmentTotals, PassPlace, defragment};

/// Rewrites what lies in crumbs in a pool that nobody has mounted.
///
/// # Errors
/// No such dataset or directory; a commit failed.
pub(super) fn alone(pool: &Pool, order: &PassOrder) -> Result<Answer> {
    let places = pass::open_places(pool, order)?;
    run(pool, &places, order.dry_run, &mut || Some(()))
}

/// Rewrites. `admit` is asked before each step.
///
/// # Errors
/// A commit failed.
pub(super) fn run<T>(
    pool: &Pool,
    places: &[PassPlace],
    dry_run: bool,
    admit: &mut dyn FnMut() -> Option<T>,
) -> Result<Answer> {
    let ((report, extents_after), freed_bytes) = pass::measured(pool, dry_run, || {
        let report = defragment(places, DefragmentOptions { dry_run }, admit);
        if dry_run || report.totals.rewritten_bytes == 0 {
            let extents = report.extents;
            return Ok((report, extents));
        }
        pool.commit()?;
        let look = DefragmentOptions { dry_run: true };
        Ok((report, defragment(places, look, admit).extents))
    })?;
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
        is_short_of_space: report.is_short_of_space,
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

/// What was done, as a report has it.
pub(super) fn totals(totals: DefragmentTotals) -> RewritingRow {
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
