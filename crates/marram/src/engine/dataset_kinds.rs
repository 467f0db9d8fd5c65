//! The kinds of datasets and snapshots, in the words of users.

use marram_store::{DatasetKind, DatasetReport};

/// What users call it.
pub(crate) fn kind_of(report: &DatasetReport) -> &'static str {
    match report.kind {
        _ if report.source.is_in_trash() => "kept",
        _ if report.source.dataset.is_partial() => "partial",
        DatasetKind::Live => "dataset",
        DatasetKind::Clone if report.is_fork => "fork",
        DatasetKind::Clone => "clone",
        DatasetKind::Snapshot => "snapshot",
    }
}
