//! A merge, with what it needs to be taken back: the batch, the states before and after it and the
//! entry in the log are one commit.
//!
//! What waits, the states before, and the merge are moments of one commit, each with a group of its
//! own: what the merge itself writes is younger than its snapshots of the state before. Merges into
//! several datasets have these moments together, and their entries are one step of the log. The new
//! base of merges between two datasets is the state that the last commit has left of the one that
//! was read, with the group of that commit.
//!
//! A small one of a transaction may [wait in memory](crate::state::waiting_merges) instead, so that
//! those that come at the same time share a commit.

use crate::admission::quota;
use crate::admission::reservation;
use crate::admission::shortage::{self, Admitted};
use crate::base::planted::{PlantedBug, is_planted};
use crate::commit::draft::Commit;
use crate::commit::kept_states;
use crate::commit::merges;
use crate::commit::operation_log::{self, entry};
use crate::commit::sync;
use crate::commit::turn;
use crate::commit::turn::{Before, Going};
use crate::memtable::dataset::Dataset;
use crate::memtable::settings::undo_seconds;
use crate::snapshots::begin;
use crate::snapshots::ephemeral;
use crate::snapshots::merge_bases::{self, Moved, Moving};
use crate::snapshots::session::Session;
use crate::snapshots::trash::Reclaim;
use crate::snapshots::two_pools::{self, Part};
use crate::snapshots::undo;
use crate::state::waiting_merges::{MergeEntry, WaitingMerge};
use marram_format::group::Group;
use marram_format::operation::{OperationKind, OperationRecord};
use marram_format::transaction::TransactionDataset;
use marram_store::{
    Applied, Batch, Block, Edit, Error, MergeInto, MergedFrom, Result, Source, View,
};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Edits of a merge that waits in memory at most. What is larger is better committed for itself.
const WAITING_EDITS_MAX: usize = 4096;

/// Which text of a merge's entry tells how the base has moved.
pub(crate) const MOVED_TEXT: usize = 2;
/// Which text tells how many datasets were merged into, if it is more than one.
pub(crate) const DATASETS_TEXT: usize = 3;

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
struct Kept {
    entry: MergeEntry,
    /// A snapshot that was asked for.
    named: Option<Source>,
    /// Whether and from what the base moves.
    moving: Option<Moving>,
    /// What the entry that is taken back tells of the base.
    undone: Option<String>,
    base: Cell<u64>,
}

impl Kept {
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
        self.named.is_some() || self.entry.seconds > 0
    }

    /// Takes the snapshot that was asked for.
    fn keep_named(&self, session: &Session, commit: &mut Commit<'_>) -> Result<()> {
        if let Some(keep) = &self.named {
            let id = kept_states::snapshot(commit, self.entry.live.id, keep)?;
            commit.begin_group();
            let entry = entry(OperationKind::Snapshot, id, &[&keep.to_string()]);
            operation_log::enter(commit, session.author.as_ref(), entry)?;
        }
        Ok(())
    }

    /// Moves the base; returns what the entry tells of that.
    fn move_base(&self, commit: &mut Commit<'_>) -> Result<Option<String>> {
        let number = operation_log::next_entry(commit)?;
        let kept_for = (self.entry.seconds > 0).then_some(number);
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
    fn enter(&self, session: &Session, commit: &mut Commit<'_>, datasets: usize) -> Result<()> {
        let mut record = self.entry.record.clone();
        let moved = self.move_base(commit)?;
        record.texts.extend(match datasets {
            1 => moved.into_iter().collect(),
            several => vec![moved.unwrap_or_default(), several.to_string()],
        });
        if session.part.as_ref().is_some_and(Part::is_prepared_here) {
            two_pools::note_prepared(&mut record);
        }
        merges::enter(commit, (&self.entry, record), session.author.as_ref())
    }
}

/// What merges keep of what was before their batches.
struct KeptOfAll(Vec<Kept>);

impl KeptOfAll {
    fn begins_group(&self) -> bool {
        self.0.iter().any(Kept::begins_group)
    }

    fn keep_read(&self, commit: &mut Commit<'_>) -> Result<()> {
        self.0.iter().try_for_each(|kept| kept.keep_read(commit))
    }

    fn keep_before(&self, session: &Session, commit: &mut Commit<'_>) -> Result<()> {
        self.0.iter().try_for_each(|kept| kept.keep_named(session, commit))?;
        let first = operation_log::next_entry(commit)?;
        for (kept, number) in self.0.iter().zip(first..) {
            merges::keep_before(commit, &kept.entry, number)?;
        }
        if self.0.iter().any(|kept| kept.entry.seconds > 0) {
            commit.begin_group();
        }
        Ok(())
    }

    /// Returns the number of the first entry.
    fn enter(&self, session: &Session, commit: &mut Commit<'_>) -> Result<u64> {
        let first = operation_log::next_entry(commit)?;
        self.0.iter().try_for_each(|kept| kept.enter(session, commit, self.0.len()))?;
        if let Some(part) = &session.part {
            let of = |kept: &Kept| TransactionDataset {
                dataset: kept.entry.live.id,
                before: match part.is_prepared_here() {
                    true => kept.entry.before.load(Ordering::Relaxed),
                    false => 0,
                },
            };
            part.enter(commit, first, self.0.iter().map(of).collect());
        }
        Ok(first)
    }
}

/// A merge for which space was found. Nobody else is given that until the merge is made.
struct Admission<'m, 'p> {
    dataset: Arc<Dataset>,
    merged: &'m MergedFrom<'m>,
    admitted: Admitted<'p>,
}

/// Finds space for the batch of a merge, beside what was found for others of the same commit.
fn admit<'m, 'p>(
    session: &'p Session,
    (view, merged): (&dyn View, &'m MergedFrom<'m>),
    batch: &mut Batch<'_>,
    beside: u64,
) -> Result<Admission<'m, 'p>> {
    if !view.writable() {
        return Err(Error::ReadOnly("a snapshot or a read-only pool".to_owned()));
    }
    let inner = &*session.state;
    let live = inner.find_live(merged.dataset)?;
    let gone = || Error::NoDataset(live.name.clone());
    let dataset = inner.running(live.id).ok_or_else(gone)?;
    quota::check_quota(inner, &dataset, batch, || turn::commit(inner))?;
    let granted = reservation::reserve_merge(&Reclaim(inner), inner, &dataset, batch, beside)?;
    Ok(Admission { dataset, merged, admitted: granted.without_turn() })
}

/// See [`marram_store::SeveralDatasets::apply_merges`], and of one merge
/// [`marram_store::OperationLog::apply_merge`].
pub(crate) fn enter_merges(session: &Session, merges: Vec<MergeInto<'_>>) -> Result<()> {
    refuse_among_several(&merges)?;
    if let Some(part) = &session.part {
        part.begin(session)?;
        two_pools::decide_too_early(part);
    }
    let (mut admissions, mut batches) = (Vec::new(), Vec::new());
    for MergeInto { view, mut batch, merged } in merges {
        let beside = admissions.iter().map(|it: &Admission<'_, '_>| it.admitted.bytes()).sum();
        admissions.push(admit(session, (view, merged), &mut batch, beside)?);
        batches.push(batch);
    }
    let reads = admissions.iter().map(|admission| admission.merged.read);
    let left_out: Vec<u64> = reads.filter_map(|read| ephemeral::layered(session, read)).collect();
    // Of a state in memory nothing is to be committed before.
    let turn = match left_out.is_empty() {
        false => begin::begin_beside_forks(session, batches.len())?,
        true => begin::begin_operations(session, batches.len())?,
    };
    // It is let go of before the turn.
    let admissions = admissions;
    let kept = admissions.iter().map(|it| kept(session, it.merged, batches.len()));
    let kept = KeptOfAll(kept.collect::<Result<_>>()?);
    let read_now = kept.0.iter().find_map(|kept| kept.moving.filter(|it| it.read == 0));
    let source_group = read_now.map(|moving| newest_group(session, moving.source)).transpose()?;
    let before = Before {
        begins_group: kept.begins_group(),
        source_group,
        left_out: &left_out,
        check: &|| {
            let mut reads = admissions.iter().map(|admission| admission.merged.read);
            reads.try_for_each(|read| ephemeral::refuse_overtaken(session, read, &turn))
        },
        first: &mut |commit| kept.keep_read(commit),
        then: &mut |commit| kept.keep_before(session, commit),
    };
    let going = admissions.iter().zip(batches).map(|(admission, batch)| Going {
        dataset: &admission.dataset,
        batch,
        admitted: &admission.admitted,
    });
    let mut first = 0;
    turn.commit_merges(going.collect(), before, &mut |commit| {
        first = kept.enter(session, commit)?;
        Ok(())
    })?;
    let untils = kept.0.iter().map(|kept| kept.entry.until.load(Ordering::Relaxed));
    untils.for_each(|until| session.state.note_expiry(until));
    drop(admissions);
    two_pools::conclude(session, &turn, first)
}

/// Of several merges none keeps a snapshot or has a base, and all are into other datasets.
fn refuse_among_several(merges: &[MergeInto<'_>]) -> Result<()> {
    if merges.len() == 1 {
        return Ok(());
    }
    let mut datasets = BTreeSet::new();
    for MergeInto { merged, .. } in merges {
        merged.refuse_among_several()?;
        if !datasets.insert(merged.dataset) {
            return Err(Error::Invalid(format!("{} is named twice", merged.dataset)));
        }
    }
    Ok(())
}

/// See [`marram_store::OperationLog::apply_merge`]: it waits in memory where it may and can.
pub(crate) fn enter_merge(session: &Session, merge: MergeInto<'_>) -> Result<Applied> {
    let applied = match can_wait(session, &merge) {
        true => wait(session, merge),
        false => enter_now(session, merge),
    };
    // Those that wait do not stay for it any more.
    session.expected.iter().for_each(|expected| expected.arrive());
    applied
}

fn enter_now(session: &Session, merge: MergeInto<'_>) -> Result<Applied> {
    session.expected.iter().for_each(|expected| expected.arrive());
    enter_merges(session, vec![merge]).map(|()| Applied::Durable)
}

/// Whether a merge may wait in memory: nothing could take it away again there. So it must need
/// nothing that only a commit can find out, and adopt nothing, since its fork may be gone by then.
fn can_wait(session: &Session, MergeInto { batch, merged, .. }: &MergeInto<'_>) -> bool {
    let is_plain = |edit: &Edit<'_>| match edit {
        Edit::Put { item, .. } => !matches!(item.block, Some(Block::Stored(_))),
        Edit::Patch { .. } | Edit::Remove { .. } | Edit::Add { .. } => true,
    };
    merged.may_wait
        && session.author.is_some()
        && (session.undoes, session.part.is_some()) == (0, false)
        && (merged.keep, merged.moves_base) == (None, false)
        && ephemeral::layered(session, merged.read).is_some()
        && (1..=WAITING_EDITS_MAX).contains(&batch.edits.len())
        && batch.edits.iter().all(is_plain)
        && !is_planted(PlantedBug::TransactionInTwo)
}

/// Applies a merge that waits in memory from then on; enters it at once where it turns out that it
/// cannot wait.
fn wait(
    session: &Session,
    MergeInto { view, mut batch, merged }: MergeInto<'_>,
) -> Result<Applied> {
    let pool = &*session.state;
    let admission = admit(session, (view, merged), &mut batch, 0)?;
    let turn = begin::begin_beside_forks(session, 1 + pool.merges.count())?;
    let Kept { mut entry, .. } = kept(session, merged, 1)?;
    entry.record.seconds = (pool.options.now_seconds)();
    let fork = ephemeral::layered(session, merged.read);
    let is_fork_in_memory = pool.forks.base_of(entry.live.id).is_some();
    let (true, Some(fork), false) =
        (entry.seconds > 0 && shortage::fits_merge(pool), fork, is_fork_in_memory)
    else {
        drop(turn);
        drop(admission);
        return enter_now(session, MergeInto { view, batch, merged });
    };
    let check = || ephemeral::refuse_overtaken(session, merged.read, &turn);
    let into = (&*admission.dataset, &admission.admitted);
    let author = session.author.clone();
    let waiting = |layer, freeze| WaitingMerge {
        dataset: Arc::clone(&admission.dataset),
        layer,
        freeze,
        fork,
        entry,
        author,
    };
    match turn.apply_to_wait(into, batch, &check, waiting)? {
        None => Ok(Applied::Waits),
        Some(batch) => {
            drop(turn);
            drop(admission);
            enter_now(session, MergeInto { view, batch, merged })
        }
    }
}

/// See [`marram_store::OperationLog::settle_merges`].
pub(crate) fn settle(session: &Session) -> Result<()> {
    let merges = &session.state.merges;
    let added = merges.added();
    merges.await_others(added);
    match merges.are_durable(added) {
        true => Ok(()),
        false => sync::sync(&session.state),
    }
}

/// Refuses a merge that was computed on another base than there is. The turn to commit is held, so
/// none moves after it.
fn refuse_moved_base(session: &Session, taker: u64, merged: &MergedFrom<'_>) -> Result<()> {
    let Some(base) = merged.base else { return Ok(()) };
    let source = session.state.find_live(&merged.read.dataset)?.id;
    merge_bases::refuse_moved(&session.state.records.read(), (source, taker), base)
}

/// What a merge, one of so many, is to keep.
fn kept(session: &Session, merged: &MergedFrom<'_>, merges: usize) -> Result<Kept> {
    let state = &session.state;
    let live = state.find_live(merged.dataset)?;
    refuse_moved_base(session, live.id, merged)?;
    let named: Option<Source> =
        merged.keep.map(|keep| format!("{}@{keep}", live.name).parse()).transpose()?;
    named.iter().try_for_each(|keep| state.refuse_taken(keep))?;
    let undoes = match merges {
        1 => session.undoes,
        _ => undo::entry_of(state, session.undoes, live.id)?,
    };
    let undone = operation_log::operation(state, undoes)?;
    let other = state.find(merged.fork).map_or(0, |fork| fork.id);
    let texts = [merged.dataset.as_str(), &merged.fork.to_string()];
    let record = OperationRecord {
        undoes,
        other: if undoes == 0 { other } else { 0 },
        detail: merged.root_object,
        ..entry(OperationKind::Merge, live.id, &texts)
    };
    let seconds = session.author.as_ref().map_or(0, |_| undo_seconds(&live.properties));
    // What is prepared has a way back, for as long as it is not decided at the least.
    let least_seconds = i64::from(session.part.as_ref().is_some_and(Part::is_prepared_here));
    Ok(Kept {
        named,
        moving: moving(session, live.id, merged)?,
        undone: undone.map(|undone| undone.text(MOVED_TEXT).to_owned()),
        base: Cell::new(0),
        entry: MergeEntry::new(live, record, seconds.max(least_seconds)),
    })
}
