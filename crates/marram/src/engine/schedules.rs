//! Which datasets have automatic snapshots, and when their next one is due.

use crate::control::protocol::ScheduleRow;
use crate::retention::scheduled_moment;
use crate::timestamps::now_seconds;
use marram_store::{Scheduled, Source};

/// What users see of the datasets of which snapshots are taken by themselves.
pub(crate) fn rows(scheduled: Vec<Scheduled>) -> Vec<ScheduleRow> {
    let now = now_seconds();
    let row = |of: Scheduled| ScheduleRow {
        dataset: of.dataset.to_string(),
        rule: of.rule.to_string(),
        count: of.automatic.len(),
        newest: of.automatic.first().and_then(|source| source.snapshot.clone()),
        next_seconds: of.rule.next_seconds(newest_moment(&of), now),
    };
    scheduled.into_iter().map(row).collect()
}

/// When a state of a dataset was last kept by itself: the newest automatic snapshot, or what a
/// clone or fork began as.
pub(crate) fn newest_moment(of: &Scheduled) -> Option<i64> {
    of.automatic.first().and_then(moment).or(of.began_seconds)
}

/// When an automatic snapshot was taken.
pub(crate) fn moment(source: &Source) -> Option<i64> {
    source.snapshot.as_deref().and_then(scheduled_moment)
}
