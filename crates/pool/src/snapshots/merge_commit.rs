//! A merge, with what it needs to be taken back: the batch, the states before and after it and the
//! entry in the log are one commit.
//!
//! What waits, the states before, and the merge are moments of one commit, each with a group of its
//! own: what the merge itself writes is younger than its snapshots of the state before. The new
//! base of merges between two datasets is the state that the last commit has left of the one that
//! was read, with the group of that commit.

use super::operation_log::entry;
use crate::admission::quota;
use crate::admission::reservation;
use crate::commit::draft::Commit;
use crate::commit::kept_states;
use crate::commit::turn;
use crate::commit::turn::Before;
use crate::memtable::settings::undo_seconds;
use crate::snapshots::begin;
use crate::snapshots::ephemeral;
use crate::snapshots::merge_bases::{self, Moved, Moving};
use crate::snapshots::operation_log;
use crate::snapshots::session::Session;
use crate::snapshots::trash::Reclaim;
use marram_format::dataset::DatasetRecord;
use marram_format::group::Group;
use marram_format::operation::{OperationKind, OperationRecord, TRASH_PREFIX};
use marram_store::{Batch, Error, MergedFrom, Result, Source, View};
use std::cell::Cell;

/// Which text of a merge's entry tells how the base has moved.
pub(crate) const MOVED_TEXT: usize = 2;

/// What is kept for an undo of the operation that is entered next.
fn kept_name(commit: &Commit<'_>, live: &DatasetRecord, which: &str) -> Result<Source> {
    format!("{}@{TRASH_PREFIX}{}:{which}", live.name, operation_log::next_entry(commit)?).parse()
}

/// What the base is moved by, if it is.
fn moving(session: &Session, taker: u64, merged: &MergedFrom<'_>) -> Result<Option<Moving>> {
    if !merged.moves_base {
        return Ok(None);
    }
    let source = session.state.find_live(&merged.read.dataset)?.id;
    let read = match ephemeral::find(session, merged.read) {
        Some(_) => 0,
        None => session.state.find_snapshot(merged.read)?.id,
    };
    Ok(Some(Moving { source, read, taker }))
}

/// The group of the newest snapshot of a dataset.
fn newest_group(session: &Session, dataset: u64) -> Result<Group> {
    let records = session.state.records.read();
    let found = records.get(dataset).map(|record| record.previous_group);
    found.ok_or_else(|| Error::NoDataset(format!("number {dataset}")))
}

/// What a merge keeps of what was before it, in its commit.
struct Kept<'m> {
    live: &'m DatasetRecord,
    /// A snapshot that was asked for.
    named: Option<Source>,
    /// How long the states before and after it are kept for an undo; 0 is not at all.
    seconds: i64,
    /// Whether and from what the base moves.
    moving: Option<Moving>,
    /// What the entry that is taken back tells of the base.
    undone: Option<String>,
    before: Cell<u64>,
    base: Cell<u64>,
    until: Cell<i64>,
}

impl Kept<'_> {
    /// Takes the snapshot of what the last commit has left of what was read.
    fn keep_read(&self, commit: &mut Commit<'_>) -> Result<()> {
        if let Some(moving) = self.moving {
            let name = merge_bases::new_name(commit, moving)?;
            self.base.set(moving.read);
            match moving.read {
                0 => {
                    let base = kept_states::snapshot_before(commit, moving.source, &name, 1)?;
                    self.base.set(base);
                }
                read => merge_bases::rename(commit, read, &name)?,
            }
        }
        Ok(())
    }

    /// Whether a snapshot of what was before the batch is taken.
    fn begins_group(&self) -> bool {
        self.named.is_some() || self.seconds > 0
    }

    /// Takes the snapshots of what was before the batch.
    fn keep_before(&self, session: &Session, commit: &mut Commit<'_>) -> Result<()> {
        if let Some(keep) = &self.named {
            let id = kept_states::snapshot(commit, self.live.id, keep)?;
            commit.begin_group();
            let entry = entry(OperationKind::Snapshot, id, &[&keep.to_string()]);
            operation_log::enter(commit, session.author.as_ref(), entry)?;
        }
        if self.seconds > 0 {
            let name = kept_name(commit, self.live, "before")?;
            self.before.set(kept_states::snapshot(commit, self.live.id, &name)?);
            commit.begin_group();
        }
        Ok(())
    }

    /// Moves the base; returns what the entry tells of that.
    fn move_base(&self, commit: &mut Commit<'_>) -> Result<Option<String>> {
        let number = operation_log::next_entry(commit)?;
        let kept_for = (self.seconds > 0).then_some(number);
        let moved = match (self.moving, &self.undone) {
            (Some(moving), _) => {
                Some(merge_bases::supersede(commit, moving, self.base.get(), kept_for)?)
            }
            (None, Some(undone)) => merge_bases::swap(commit, undone, kept_for)?,
            (None, None) => None,
        };
        Ok(moved.map(Moved::text))
    }

    /// Enters the merge, with the state after it.
    fn enter(
        &self,
        session: &Session,
        commit: &mut Commit<'_>,
        record: OperationRecord,
    ) -> Result<()> {
        let mut record = record;
        record.texts.extend(self.move_base(commit)?);
        if self.seconds > 0 {
            let after = kept_name(commit, self.live, "after")?;
            record.before = self.before.get();
            record.after = kept_states::snapshot(commit, self.live.id, &after)?;
            self.until.set(commit.now_seconds.saturating_add(self.seconds));
            record.kept_until_seconds = self.until.get();
        }
        operation_log::enter(commit, session.author.as_ref(), record).map(|_| ())
    }
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
    // Of a state in memory nothing is to be committed before.
    let left_out = ephemeral::layered(session, merged.read);
    let turn = match left_out {
        Some(_) => begin::begin_beside_forks(session)?,
        None => begin::begin_operation(session)?,
    };
    let admitted = admitted;
    let live = inner.find_live(merged.dataset)?;
    refuse_moved_base(session, live.id, merged)?;
    let kept = kept(session, &live, merged)?;
    let source_group = kept.moving.filter(|moving| moving.read == 0);
    let source_group =
        source_group.map(|moving| newest_group(session, moving.source)).transpose()?;
    let keep_before = Before {
        begins_group: kept.begins_group(),
        source_group,
        left_out,
        admitted: &admitted,
        check: &|| ephemeral::refuse_overtaken(session, merged.read, &turn),
        first: &mut |commit| kept.keep_read(commit),
        then: &mut |commit| kept.keep_before(session, commit),
    };
    let other = inner.find(merged.fork).map_or(0, |fork| fork.id);
    let texts = [merged.dataset.as_str(), &merged.fork.to_string()];
    let record = OperationRecord {
        undoes: session.undoes,
        other: if session.undoes == 0 { other } else { 0 },
        detail: merged.root_object,
        ..entry(OperationKind::Merge, live.id, &texts)
    };
    turn.commit_batch(&dataset, batch, Some(keep_before), &mut |commit| {
        kept.enter(session, commit, record.clone())
    })?;
    inner.note_expiry(kept.until.get());
    Ok(())
}

/// Refuses a merge that was computed on another base than there is. The turn to commit is held, so
/// none moves after it.
fn refuse_moved_base(session: &Session, taker: u64, merged: &MergedFrom<'_>) -> Result<()> {
    let Some(base) = merged.base else { return Ok(()) };
    let source = session.state.find_live(&merged.read.dataset)?.id;
    merge_bases::refuse_moved(&session.state.records.read(), (source, taker), base)
}

/// What a merge into `live` is to keep.
fn kept<'m>(
    session: &Session,
    live: &'m DatasetRecord,
    merged: &MergedFrom<'_>,
) -> Result<Kept<'m>> {
    let named: Option<Source> =
        merged.keep.map(|keep| format!("{}@{keep}", live.name).parse()).transpose()?;
    named.iter().try_for_each(|keep| session.state.refuse_taken(keep))?;
    let undone = operation_log::operation(&session.state, session.undoes)?;
    Ok(Kept {
        live,
        named,
        seconds: session.author.as_ref().map_or(0, |_| undo_seconds(&live.properties)),
        moving: moving(session, live.id, merged)?,
        undone: undone.map(|undone| undone.text(MOVED_TEXT).to_owned()),
        before: Cell::new(0),
        base: Cell::new(0),
        until: Cell::new(i64::MAX),
    })
}
