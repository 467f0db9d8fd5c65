//! Merges in a commit: the state before one, its batch, the state after it and its entry in the log
//! of operations are moments of one commit, each with a group of its own. So what a merge writes is
//! younger than its snapshot of the state before.
//!
//! Of [those that wait in memory](crate::state::waiting_merges) a commit takes in all, each after
//! what was applied before it.

use crate::commit::draft::Commit;
use crate::commit::kept_states;
use crate::commit::operation_log;
use crate::state::waiting_merges::{MergeEntry, WaitingMerge};
use marram_format::dataset::DatasetRecord;
use marram_format::operation::{OperationRecord, TRASH_PREFIX};
use marram_store::{Author, Result, Source};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What is kept for an undo of the operation of this number.
fn kept_name(number: u64, live: &DatasetRecord, which: &str) -> Result<Source> {
    format!("{}@{TRASH_PREFIX}{number}:{which}", live.name).parse()
}

/// Takes the snapshot of what was before the batch of a merge, for an undo of the entry of this
/// number.
pub(crate) fn keep_before(commit: &mut Commit<'_>, entry: &MergeEntry, number: u64) -> Result<()> {
    if entry.seconds > 0 {
        let name = kept_name(number, &entry.live, "before")?;
        let before = kept_states::snapshot(commit, entry.live.id, &name)?;
        entry.before.store(before, Ordering::Relaxed);
    }
    Ok(())
}

/// Enters a merge as `record` tells it, with the state after it.
pub(crate) fn enter(
    commit: &mut Commit<'_>,
    (entry, mut record): (&MergeEntry, OperationRecord),
    author: Option<&Arc<Author>>,
) -> Result<()> {
    if entry.seconds > 0 {
        let after = kept_name(operation_log::next_entry(commit)?, &entry.live, "after")?;
        record.before = entry.before.load(Ordering::Relaxed);
        record.after = kept_states::snapshot(commit, entry.live.id, &after)?;
        record.kept_until_seconds = commit.now_seconds.saturating_add(entry.seconds);
        entry.until.store(record.kept_until_seconds, Ordering::Relaxed);
    }
    operation_log::enter(commit, author, record).map(|_| ())
}

/// The dataset has taken in all that was there before a merge that waits.
pub(super) fn begin(commit: &mut Commit<'_>, merge: &WaitingMerge) -> Result<()> {
    // Nodes are read again by the steps that follow.
    commit.queue.write_out()?;
    let number = operation_log::next_entry(commit)?;
    keep_before(commit, &merge.entry, number)?;
    // So no other merge has its group: entries of one group are one step of the log.
    commit.begin_group();
    Ok(())
}

/// The dataset has taken in its batch.
pub(super) fn end(commit: &mut Commit<'_>, merge: &WaitingMerge) -> Result<()> {
    commit.queue.write_out()?;
    let entered = (&merge.entry, merge.entry.record.clone());
    enter(commit, entered, merge.author.as_ref())
}
