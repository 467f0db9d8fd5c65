//! Taking an operation back: what stands in the way is judged by the records as they are, and what
//! is done is one commit with an entry of its own, so that taking that back does it again.
//!
//! What one command did to many in one commit is taken back together, in one commit: any number of
//! such a step stands for all of it. What is not there any more, or was taken back before, is left
//! out; anything else that is in the way of one is in the way of all.

use super::merge_commit::{DATASETS_TEXT, MOVED_TEXT};
use super::plan::Plan;
use super::properties::Change;
use super::{lineage, list};
use crate::commit::draft::Commit;
use crate::commit::operation_log::{self, entry};
use crate::commit::turn;
use crate::commit::turn::Turn;
use crate::snapshots::label;
use crate::snapshots::limits;
use crate::snapshots::properties;
use crate::snapshots::session::Session;
use crate::snapshots::trash;
use crate::snapshots::two_pools;
use crate::state::State;
use crate::state::records::is_hidden;
use crate::state::records::parent_of;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::operation::{OperationKind, OperationRecord, trash_entry};
use marram_store::operations::{is_one_step, taken_back_by, undone_by};
use marram_store::{
    Author, DatasetName, Error, MergeBack, Rest, Result, Reversal, Source, check_rename,
};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Numbers that are tried for the name of the state before a rollback is taken back.
const NAMES_MAX: u32 = 1 << 16;

/// An entry of the log with its number.
type Entry = (u64, OperationRecord);
/// Entries of the log, oldest first.
type Entries = [Entry];

/// The log as an undo is judged by it.
#[derive(Clone, Copy)]
pub(crate) struct Log<'e> {
    /// Its entries.
    pub(crate) entries: &'e Entries,
    /// Which of them others have taken back: each with the one that did.
    pub(crate) undone: &'e BTreeSet<(u64, u64)>,
    /// What was changed later is no obstacle.
    pub(crate) goes_past: bool,
}

/// Entries by reference, oldest first.
pub(crate) fn in_order(
    entries: &Entries,
) -> impl DoubleEndedIterator<Item = (u64, &OperationRecord)> {
    entries.iter().map(|(number, record)| (*number, record))
}

fn refusal(reason: impl Into<String>) -> Error {
    Error::Invalid(reason.into())
}

/// The entries that are one step with the one of this number.
fn step_of(entries: &Entries, number: u64) -> Result<&Entries> {
    let place = entries.binary_search_by_key(&number, |(known, _)| *known);
    let place = place.map_err(|_| refusal(format!("no operation {number} is in the log")))?;
    let is_joined = |pair: &&Entries| is_one_step(&pair[0].1, &pair[1].1);
    let before = entries[..=place].windows(2).rev().take_while(is_joined).count();
    let after = entries[place..].windows(2).take_while(is_joined).count();
    Ok(&entries[place - before..=place + after])
}

/// The entry about a dataset in the step of the entry `number`; 0 of 0.
pub(crate) fn entry_of(pool: &State, number: u64, dataset: u64) -> Result<u64> {
    if number == 0 {
        return Ok(0);
    }
    let entries = operation_log::entries(pool)?;
    let found = step_of(&entries, number)?.iter().find(|(_, record)| record.subject == dataset);
    let other = || refusal(format!("operation {number} was not done to this dataset"));
    found.map(|(number, _)| *number).ok_or_else(other)
}

/// Refuses to take something back that a later rollback, or with `merges` merge, of the same
/// dataset has gone on from.
fn refuse_later(log: Log<'_>, number: u64, record: &OperationRecord, merges: bool) -> Result<()> {
    if log.goes_past {
        return Ok(());
    }
    let later = log.entries.iter().find(|(later, other)| {
        let merged = other.kind == OperationKind::Merge && !two_pools::is_without_effect(other);
        let counts = other.kind == OperationKind::Rollback || (merges && merged);
        let holds = other.undoes == 0 && !log.undone.iter().any(|(gone, _)| gone == later);
        *later > number && other.subject == record.subject && counts && holds
    });
    match later {
        None => Ok(()),
        Some((later, other)) => Err(refusal(format!(
            "operation {later}, a {}, came after it: take that back first",
            other.kind.name()
        ))),
    }
}

/// The operation that has destroyed what has this name, or its dataset.
fn destroyer(name: &str) -> Option<u64> {
    trash_entry(name)
        .or_else(|| trash_entry(name.split_once('@').map_or(name, |(dataset, _)| dataset)))
}

fn last_part(name: &str) -> &str {
    name.split_once('@').map_or(name, |(_, snapshot)| snapshot)
}

fn by_id(pool: &State, id: u64) -> Result<Arc<DatasetRecord>> {
    let records = pool.records.read();
    let known = records.get(id).filter(|record| record.state != DatasetState::Destroying);
    known.cloned().ok_or_else(|| refusal("what it was done to is gone for good"))
}

/// The same, of what nobody has destroyed since.
pub(crate) fn in_sight(pool: &State, id: u64) -> Result<Arc<DatasetRecord>> {
    let record = by_id(pool, id)?;
    if !is_hidden(&record) {
        return Ok(record);
    }
    Err(refusal(match destroyer(&record.name) {
        Some(number) => {
            format!("what it was done to was destroyed by operation {number}: take that back first")
        }
        None => "what it was done to is kept for another undo".to_owned(),
    }))
}

/// The numbers of the entries that are one step with the one of this number.
fn numbers_of_step(pool: &State, number: u64) -> Result<RangeInclusive<u64>> {
    turn::enter_waiting(pool)?;
    let _no_commit = pool.turns.committing.lock();
    let entries = operation_log::entries(pool)?;
    let step = step_of(&entries, number)?;
    Ok(step[0].0..=step[step.len() - 1].0)
}

/// How an operation can be taken back.
pub(crate) fn judge(pool: &State, log: Log<'_>, number: u64) -> Result<Reversal> {
    judge_step(pool, log, number).map(|(_, reversal)| reversal)
}

/// What there is to be taken back of an operation's step, and how; the first reason if nothing.
fn judge_step<'e>(pool: &State, log: Log<'e>, number: u64) -> Result<(Vec<&'e Entry>, Reversal)> {
    let (mut parts, mut reason) = (Vec::new(), None);
    for part in step_of(log.entries, number)? {
        let by = log.undone.range((part.0, 0)..=(part.0, u64::MAX)).next();
        let undone = by.map_or(Ok(()), |(_, by)| Err(refusal(taken_back_by(*by))));
        match undone.and_then(|()| refuse_gone(pool, &part.1)) {
            Ok(()) => parts.push(part),
            Err(left_out) if part.0 == number || reason.is_none() => reason = Some(left_out),
            Err(_) => {}
        }
    }
    match parts.is_empty() {
        false => judge_parts(pool, log, &parts).map(|reversal| (parts, reversal)),
        true => Err(reason.unwrap_or_else(|| refusal("nothing of it is left"))),
    }
}

/// How entries of one step can be taken back.
fn judge_parts(pool: &State, log: Log<'_>, parts: &[&Entry]) -> Result<Reversal> {
    let (number, record) = parts[0];
    match record.kind {
        OperationKind::Create
        | OperationKind::Snapshot
        | OperationKind::Clone
        | OperationKind::Fork
        | OperationKind::Restore => return judge_destruction(pool, parts),
        OperationKind::Rollback => return judge_rollback(pool, log, *number, record),
        OperationKind::Merge => return judge_merge(pool, log, parts),
        OperationKind::Promote => judge_promotion(pool, record)?,
        OperationKind::Hold | OperationKind::Release => judge_hold(pool, record)?,
        OperationKind::Set if log.goes_past => {
            parts.iter().try_for_each(|(_, set)| in_sight(pool, set.subject).map(|_| ()))?;
        }
        OperationKind::Set => parts.iter().try_for_each(|(_, set)| judge_set(pool, set))?,
        OperationKind::Rename => {
            let renamed = Some(judge_rename(pool, record)?);
            return Ok(Reversal::Records { goes: Vec::new(), renamed });
        }
        OperationKind::Destroy => judge_restoration(pool, parts)?,
        OperationKind::Label if log.goes_past => {}
        OperationKind::Label => judge_label(pool, record)?,
        OperationKind::Limit => drop(limits::judge_limit(pool, record)?),
        OperationKind::Grow => {
            return Err(refusal(
                "a pool cannot shrink: what it was grown by may be in use, and its zones are \
                 laid out for the new size",
            ));
        }
        OperationKind::Abort => {
            return Err(refusal(format!(
                "what had come of {} is not kept: receive it again from its beginning",
                record.text(0)
            )));
        }
    }
    Ok(Reversal::Records { goes: Vec::new(), renamed: None })
}

/// Refuses to take back what was done to something that is not there any more, so that there is
/// nothing to do about it.
pub(crate) fn refuse_gone(pool: &State, record: &OperationRecord) -> Result<()> {
    match record.kind {
        OperationKind::Create
        | OperationKind::Snapshot
        | OperationKind::Clone
        | OperationKind::Fork
        | OperationKind::Restore => in_sight(pool, record.subject).map(|_| ()),
        OperationKind::Destroy => still_in_trash(pool, record).map(|_| ()),
        OperationKind::Merge if two_pools::is_without_effect(record) => {
            Err(refusal("it is a transaction over two pools that is not committed"))
        }
        _ => Ok(()),
    }
}

fn judge_destruction(pool: &State, parts: &[&Entry]) -> Result<Reversal> {
    let mut names = Vec::new();
    for (_, record) in parts {
        let subject = in_sight(pool, record.subject)?;
        if trash::trash_seconds_of(pool, &subject) == 0 {
            return Err(refusal(format!(
                "{} could not be brought back, since the property undo is off: destroy it \
                 instead",
                subject.name
            )));
        }
        names.push(subject.name.parse()?);
    }
    let plan = Plan::new(pool, &names).map_err(|error| refusal(error.to_string()))?;
    // Whether it is open is checked when it goes: its readers may be sent away before.
    if let Some(held) = plan.goes().find(|gone| gone.holds > 0) {
        let tags: Vec<&str> = list::holds(held).collect();
        return Err(refusal(format!("{} is held ({})", held.name, tags.join(", "))));
    }
    let records = pool.records.read();
    for (_, record) in parts {
        for snapshot in records.snapshots(record.subject) {
            names.push(snapshot.name.parse()?);
        }
    }
    Ok(Reversal::Records { goes: names, renamed: None })
}

fn judge_rollback(
    pool: &State,
    log: Log<'_>,
    number: u64,
    record: &OperationRecord,
) -> Result<Reversal> {
    let subject = in_sight(pool, record.subject)?;
    pool.refuse_in_doubt(subject.id)?;
    refuse_later(log, number, record, true)?;
    let before = in_sight(pool, record.before).map_err(|_| {
        refusal(format!("the state before, {}, was destroyed since", record.text(1)))
    })?;
    if before.parent != subject.id {
        let reason = format!("the state before is {} now, of another dataset", before.name);
        return Err(refusal(reason));
    }
    Ok(Reversal::Rollback { dataset: subject.name.parse()?, to: before.name.parse()? })
}

fn judge_merge(pool: &State, log: Log<'_>, parts: &[&Entry]) -> Result<Reversal> {
    let (number, record) = parts[0];
    let merges = parts.iter().take_while(|(_, part)| part.kind == OperationKind::Merge).count();
    if datasets_of(record) != merges {
        return Err(refusal("the log has not all of its entries any more"));
    }
    if merges > 1 {
        let back = |(number, record): &&Entry| way_back(pool, log, (*number, record));
        return parts[..merges].iter().map(back).collect::<Result<_>>().map(Reversal::Merges);
    }
    let MergeBack { dataset, base, back_to, root_object } = way_back(pool, log, (*number, record))?;
    let rest = match parts.get(1) {
        None => None,
        Some((number, _)) => match judge_parts(pool, log, &parts[1..])? {
            Reversal::Records { goes, .. } => Some(Rest { number: *number, goes }),
            Reversal::Rollback { .. } | Reversal::Merge { .. } | Reversal::Merges(_) => None,
        },
    };
    let moved_base = !record.text(MOVED_TEXT).is_empty();
    Ok(Reversal::Merge { dataset, base, back_to, root_object, moved_base, rest })
}

/// How many datasets a step merged into, by one of its entries.
fn datasets_of(record: &OperationRecord) -> usize {
    record.text(DATASETS_TEXT).parse().unwrap_or(1)
}

/// How what went into one dataset is taken back.
fn way_back(
    pool: &State,
    log: Log<'_>,
    (number, record): (u64, &OperationRecord),
) -> Result<MergeBack> {
    let subject = in_sight(pool, record.subject)?;
    pool.refuse_in_doubt(subject.id)?;
    refuse_later(log, number, record, false)?;
    let state = |id: u64| -> Result<Source> {
        let found = by_id(pool, id).ok().filter(|found| found.parent == subject.id);
        let found = found.ok_or_else(|| {
            refusal("the states before and after it are not kept any more (property undo)")
        })?;
        found.name.parse()
    };
    Ok(MergeBack {
        dataset: subject.name.parse()?,
        base: state(record.after)?,
        back_to: state(record.before)?,
        root_object: record.detail,
    })
}

fn judge_promotion(pool: &State, record: &OperationRecord) -> Result<()> {
    let (subject, other) = (in_sight(pool, record.subject)?, in_sight(pool, record.other)?);
    lineage::refuse_promotion(pool, &other.name.parse()?)?;
    let records = pool.records.read();
    let mut count = 0;
    let mut at = records.get(other.origin);
    while let Some(taken) = at.filter(|taken| taken.parent == subject.id) {
        count += 1;
        at = records.get(parent_of(taken));
    }
    if count == record.detail {
        return Ok(());
    }
    Err(refusal(format!(
        "{} would take {count} snapshots over, and {} were handed over",
        other.name, record.detail
    )))
}

fn judge_hold(pool: &State, record: &OperationRecord) -> Result<()> {
    let (subject, tag) = (in_sight(pool, record.subject)?, record.text(1));
    let held = list::holds(&subject).any(|known| known == tag);
    match (held, record.kind == OperationKind::Hold) {
        (true, true) | (false, false) => Ok(()),
        (true, false) => Err(refusal(format!("{tag} holds {} again", subject.name))),
        (false, true) => Err(refusal(format!("{tag} holds {} no more", subject.name))),
    }
}

fn judge_set(pool: &State, record: &OperationRecord) -> Result<()> {
    let (subject, property) = (in_sight(pool, record.subject)?, record.text(1));
    let known = subject.properties.iter().find(|(name, _)| name == property);
    let now = known.map_or("", |(_, value)| value.as_str());
    if now == record.text(3) {
        return Ok(());
    }
    let now = if now.is_empty() { "its default" } else { now };
    Err(refusal(format!("{property} of {} was set to {now} since", subject.name)))
}

fn judge_label(pool: &State, record: &OperationRecord) -> Result<()> {
    let now = pool.label();
    match now == record.text(1) {
        true => Ok(()),
        false => Err(refusal(format!("the pool has the label {now:?} since"))),
    }
}

/// Returns the name that it has now.
fn judge_rename(pool: &State, record: &OperationRecord) -> Result<Source> {
    let subject = in_sight(pool, record.subject)?;
    if last_part(&subject.name) != last_part(record.text(1)) {
        return Err(refusal(format!("it has the name {} since", subject.name)));
    }
    let (now, to) = (subject.name.parse()?, former_name(pool, record)?);
    check_rename(&now, &to)?;
    refuse_name_taken(pool, &to)?;
    Ok(now)
}

/// What a destruction has kept, if it does still.
fn still_in_trash(pool: &State, record: &OperationRecord) -> Result<Arc<DatasetRecord>> {
    let kept = by_id(pool, record.subject).ok().filter(|kept| trash_entry(&kept.name).is_some());
    kept.ok_or_else(|| refusal(format!("{} is gone for good", record.text(0))))
}

fn judge_restoration(pool: &State, parts: &[&Entry]) -> Result<()> {
    let (mut coming, mut names) = (BTreeSet::new(), BTreeSet::new());
    coming.extend(parts.iter().map(|(_, record)| record.subject));
    for (_, record) in parts {
        refuse_without(pool, &*still_in_trash(pool, record)?, &coming)?;
        let name = former_name(pool, record)?;
        refuse_name_taken(pool, &name)?;
        if !names.insert(name.to_string()) {
            return Err(refusal(format!("two would have the name {name} now")));
        }
    }
    Ok(())
}

/// Refuses to bring back what belongs to or began as something destroyed that does not come
/// back with it.
fn refuse_without(pool: &State, kept: &DatasetRecord, coming: &BTreeSet<u64>) -> Result<()> {
    let records = pool.records.read();
    let stays = |record: &&Arc<DatasetRecord>| is_hidden(record) && !coming.contains(&record.id);
    let hidden = |id: u64| records.get(id).filter(stays);
    let Some(needed) = hidden(kept.parent).or_else(|| hidden(kept.origin)) else {
        return Ok(());
    };
    let first = destroyer(&needed.name)
        .map_or_else(String::new, |number| format!(": take operation {number} back first"));
    Err(refusal(format!("what it belongs to or began as is destroyed{first}")))
}

/// The name that is given back: a snapshot has it in the dataset that it belongs to now.
fn former_name(pool: &State, record: &OperationRecord) -> Result<Source> {
    let former = record.text(0);
    let subject = by_id(pool, record.subject)?;
    let records = pool.records.read();
    match records.get(subject.parent).filter(|_| subject.state == DatasetState::Snapshot) {
        Some(dataset) => lineage::handed_over(former, &dataset.name)?.parse(),
        None => former.parse(),
    }
}

fn refuse_name_taken(pool: &State, to: &Source) -> Result<()> {
    match pool.find(to) {
        Ok(_) => Err(refusal(format!("there is another {to} now"))),
        Err(_) => Ok(()),
    }
}

/// A name of a snapshot beside `of` that no other one has.
fn free_name(pool: &State, of: &Source, prefix: &str) -> Result<Source> {
    let named = |name: String| Source { dataset: of.dataset.clone(), snapshot: Some(name) };
    let numbered = |number: u32| match number {
        1 => named(prefix.to_owned()),
        _ => named(format!("{prefix}-{number}")),
    };
    let free = (1..NAMES_MAX).map(numbered).find(|name| pool.find(name).is_err());
    free.ok_or_else(|| Error::DatasetExists(prefix.to_owned()))
}

/// Takes an entry back by a change of records; returns until when what goes is kept.
fn take_back(
    commit: &mut Commit<'_>,
    author: &Arc<Author>,
    (number, record): &Entry,
) -> Result<i64> {
    let id = record.subject;
    let entered = match record.kind {
        OperationKind::Destroy => {
            let hidden = commit.record(id)?.name;
            operation_log::forget_in_trash(commit, id, &hidden)?;
            let name = former_name_in(commit, record)?;
            trash::give_name(commit, id, &name)?;
            entry(OperationKind::Restore, id, &[&name.to_string()])
        }
        OperationKind::Rename => {
            let (before, name) = (commit.record(id)?.name, former_name_in(commit, record)?);
            trash::give_name(commit, id, &name)?;
            entry(OperationKind::Rename, id, &[before.as_str(), &name.to_string()])
        }
        OperationKind::Promote => {
            let before = commit.record(id)?.name;
            let detail = lineage::promote(commit, record.other)?;
            let promoted = commit.record(record.other)?.name;
            let texts = [promoted.as_str(), &before];
            let back = entry(OperationKind::Promote, record.other, &texts);
            OperationRecord { other: id, detail, ..back }
        }
        _ => {
            let keep_seconds = trash::trash_seconds_of(commit.pool, &commit.record(id)?);
            let until = commit.now_seconds.saturating_add(keep_seconds);
            trash::hide(commit, id, until, author, *number)?;
            return Ok(until);
        }
    };
    operation_log::enter(commit, Some(author), OperationRecord { undoes: *number, ..entered })?;
    Ok(i64::MAX)
}

/// As [`former_name`], as this commit has the dataset: that may come back with it.
fn former_name_in(commit: &Commit<'_>, record: &OperationRecord) -> Result<Source> {
    let subject = commit.record(record.subject)?;
    let dataset = match subject.state {
        DatasetState::Snapshot => commit.record(subject.parent).ok(),
        _ => None,
    };
    match dataset {
        Some(dataset) => lineage::handed_over(record.text(0), &dataset.name)?.parse(),
        None => record.text(0).parse(),
    }
}

/// See `Pool::reversal`.
pub(crate) fn reversal(session: &Session, number: Option<u64>) -> Result<(u64, Reversal)> {
    turn::enter_waiting(&session.state)?;
    let _no_commit = session.state.turns.committing.lock();
    let entries = operation_log::entries(&session.state)?;
    let has_effect = |(_, record): &&Entry| !two_pools::is_without_effect(record);
    let last = entries.iter().rev().find(has_effect).map(|(number, _)| *number);
    let number = number.or(last).ok_or_else(|| refusal("no operation is in the log"))?;
    let undone = undone_by(in_order(&entries));
    let log = Log { entries: &entries, undone: &undone, goes_past: session.goes_past };
    let (parts, reversal) = judge_step(&session.state, log, number)?;
    let number = match reversal {
        Reversal::Merge { .. } | Reversal::Merges(_) => parts[0].0,
        _ => number,
    };
    Ok((number, reversal))
}

/// See `Pool::undo`.
pub(crate) fn undo(session: &Session, number: u64) -> Result<u64> {
    let inner = &session.state;
    let step = numbers_of_step(inner, number)?;
    trash::make_room_beside(inner, step.end() - step.start() + 1, &step)?;
    let _admitted = limits::admit_undo(session, number)?;
    let turn = turn::take_turn(inner)?;
    let entries = operation_log::entries(inner)?;
    let undone = undone_by(in_order(&entries));
    let log = Log { entries: &entries, undone: &undone, goes_past: session.goes_past };
    let (parts, reversal) = beside_merge(inner, log, number)?;
    let (_, record) = parts[0];
    match (record.kind, reversal) {
        (_, Reversal::Merge { .. } | Reversal::Merges(_)) => {
            let reason = "a merge is taken back by merging: see Pool::taking_back".to_owned();
            return Err(Error::Invalid(reason));
        }
        (OperationKind::Set, _) => undo_set(session, &turn, &parts)?,
        (OperationKind::Label, _) => {
            let author = session.author.clone().unwrap_or_default();
            label::change_label(inner, &turn, record.text(0), Some(&author), number)?;
        }
        (OperationKind::Limit, _) => limits::undo_limit(session, &turn, number, record)?,
        (OperationKind::Hold | OperationKind::Release, _) => {
            undo_hold(session, &turn, number, record)?;
        }
        (_, Reversal::Rollback { to, .. }) => undo_rollback(session, &turn, number, record, &to)?,
        (_, reversal) => undo_records(session, &turn, &parts, &reversal)?,
    }
    // It is done, and must not be reported as failed.
    let now = operation_log::entries(inner).unwrap_or_default();
    let undid = |undoes: u64| parts.iter().any(|(number, _)| *number == undoes);
    let own = now.iter().rev().find(|(_, record)| undid(record.undoes));
    Ok(own.map_or(0, |(number, _)| *number))
}

/// What there is to be taken back by a change of records: of a step that begins with a merge the
/// rest, if that is what is asked for.
fn beside_merge<'e>(pool: &State, log: Log<'e>, number: u64) -> Result<(Vec<&'e Entry>, Reversal)> {
    let (parts, reversal) = judge_step(pool, log, number)?;
    match reversal {
        Reversal::Merge { rest: Some(rest), .. } if rest.number == number => {
            let parts = parts[1..].to_vec();
            let reversal = judge_parts(pool, log, &parts)?;
            Ok((parts, reversal))
        }
        reversal => Ok((parts, reversal)),
    }
}

fn undo_records(
    session: &Session,
    turn: &Turn<'_>,
    parts: &[&Entry],
    reversal: &Reversal,
) -> Result<()> {
    let author = session.author.clone().unwrap_or_default();
    if let Reversal::Records { goes, .. } = reversal
        && !goes.is_empty()
    {
        let refused = |error: Error| refusal(error.to_string());
        Plan::new(&session.state, goes)?.refuse_in_use(&session.state).map_err(refused)?;
    }
    let mut until = i64::MAX;
    turn.commit(Some(&mut |commit| {
        for part in parts {
            until = until.min(take_back(commit, &author, part)?);
        }
        Ok(())
    }))?;
    session.state.note_expiry(until);
    Ok(())
}

fn undo_rollback(
    session: &Session,
    turn: &Turn<'_>,
    number: u64,
    record: &OperationRecord,
    to: &Source,
) -> Result<()> {
    let author = session.author.clone().unwrap_or_default();
    let kept = free_name(&session.state, to, &format!("before-undo-{number}"))?;
    turn.commit_alone(&mut |commit| {
        let before = lineage::roll_back(commit, record.subject, record.before, &kept)?;
        let texts = [to.to_string(), kept.to_string()];
        let texts = [texts[0].as_str(), &texts[1]];
        let back = entry(OperationKind::Rollback, record.subject, &texts);
        let (undoes, other) = (number, record.before);
        let back = OperationRecord { undoes, other, before, ..back };
        operation_log::enter(commit, Some(&author), back).map(|_| ())
    })
}

fn undo_set(session: &Session, turn: &Turn<'_>, parts: &[&Entry]) -> Result<()> {
    let name: DatasetName = by_id(&session.state, parts[0].1.subject)?.name.parse()?;
    let change = |(number, record): &&'_ Entry| {
        let value = Some(record.text(2).to_owned()).filter(|value| !value.is_empty());
        Change { property: record.text(1).to_owned(), value, undoes: *number }
    };
    let changes: Vec<Change> = parts.iter().map(change).collect();
    properties::change_properties(session, turn, &name, &changes)
}

fn undo_hold(
    session: &Session,
    turn: &Turn<'_>,
    number: u64,
    record: &OperationRecord,
) -> Result<()> {
    let snapshot: Source = by_id(&session.state, record.subject)?.name.parse()?;
    let holds = record.kind == OperationKind::Release;
    properties::change_holds(session, turn, &snapshot, record.text(1), (holds, number))
}
