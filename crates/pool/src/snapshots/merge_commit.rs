//! A merge, with what it needs to be taken back: the batch, the states before and after it and the
//! entry in the log are one commit.
//!
//! The state before is the one that the last commit has left, so its snapshot is one of that
//! commit's group: what the merge itself writes is younger. A second one of the same state, if the
//! merge has one, is of the group before. They are only taken if the dataset was so in these
//! groups, and if no older snapshot is of one of them; else commits are made first.

use super::operation_log::entry;
use crate::admission::quota;
use crate::admission::reservation;
use crate::commit::draft::Commit;
use crate::commit::turn;
use crate::commit::turn::Before;
use crate::memtable::settings::undo_seconds;
use crate::snapshots::begin;
use crate::snapshots::ephemeral;
use crate::snapshots::lineage;
use crate::snapshots::operation_log;
use crate::snapshots::session::Session;
use crate::snapshots::trash;
use crate::snapshots::trash::Reclaim;
use marram_format::dataset::DatasetRecord;
use marram_format::operation::{OperationKind, OperationRecord, TRASH_PREFIX};
use marram_store::{Batch, Error, MergedFrom, Result, Source, View};
use std::cell::Cell;

/// What is kept for an undo of the operation that is entered next.
fn kept_name(commit: &Commit<'_>, live: &DatasetRecord, which: &str) -> Result<Source> {
    format!("{}@{TRASH_PREFIX}{}:{which}", live.name, operation_log::next_entry(commit)?).parse()
}

/// See [`marram_store::OperationLog::apply_merge`].
pub(crate) fn enter_merge(
    session: &Session,
    view: &dyn View,
    batch: Batch<'_>,
    merged: &MergedFrom<'_>,
) -> Result<()> {
    if !view.writable() {
        return Err(Error::ReadOnly("a snapshot or a read-only pool".to_owned()));
    }
    let inner = &session.state;
    let live = inner.find_live(merged.dataset)?;
    let gone = || Error::NoDataset(live.name.clone());
    let dataset = inner.running(live.id).ok_or_else(gone)?;
    quota::check_quota(inner, &dataset, &batch, || turn::commit(inner))?;
    // Nobody else is given that space until the merge is made; it is let go of before the turn.
    let mut batch = batch;
    let admitted =
        reservation::reserve_merge(&Reclaim(inner), inner, &dataset, &mut batch)?.without_turn();
    let turn = begin::begin_operation(session)?;
    let admitted = admitted;
    let live = inner.find_live(merged.dataset)?;
    let keep: Option<Source> =
        merged.keep.map(|keep| format!("{}@{keep}", live.name).parse()).transpose()?;
    keep.iter().try_for_each(|keep| inner.refuse_taken(keep))?;
    let keep_seconds = session.author.as_ref().map_or(0, |_| undo_seconds(&live.properties));
    let snapshots = u64::from(keep.is_some()) + u64::from(keep_seconds > 0);
    let other = inner.find(merged.fork).map_or(0, |fork| fork.id);
    let (before, until) = (Cell::new(0), Cell::new(i64::MAX));
    let keep_before = Before {
        snapshots,
        previous_group: live.previous_group,
        admitted: &admitted,
        check: &|| ephemeral::refuse_overtaken(session, merged.read, &turn),
        work: &mut |commit| {
            if let Some(keep) = &keep {
                let id = lineage::snapshot_before(commit, live.id, keep, snapshots)?;
                let entry = entry(OperationKind::Snapshot, id, &[&keep.to_string()]);
                operation_log::enter(commit, session.author.as_ref(), entry)?;
            }
            if keep_seconds > 0 {
                let name = kept_name(commit, &live, "before")?;
                before.set(lineage::snapshot_before(commit, live.id, &name, 1)?);
            }
            Ok(())
        },
    };
    turn.commit_batch(&dataset, batch, Some(keep_before), &mut |commit| {
        let texts = [merged.dataset.as_str(), &merged.fork.to_string()];
        let mut record = OperationRecord {
            undoes: session.undoes,
            other: if session.undoes == 0 { other } else { 0 },
            detail: merged.root_object,
            ..entry(OperationKind::Merge, live.id, &texts)
        };
        if keep_seconds > 0 {
            let after = kept_name(commit, &live, "after")?;
            record.before = before.get();
            record.after = lineage::snapshot(commit, live.id, &after)?;
            until.set(commit.now_seconds.saturating_add(keep_seconds));
            record.kept_until_seconds = until.get();
        }
        operation_log::enter(commit, session.author.as_ref(), record).map(|_| ())
    })?;
    trash::note_expiry(inner, until.get());
    Ok(())
}
