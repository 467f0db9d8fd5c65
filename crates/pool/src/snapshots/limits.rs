//! Limits of owners: what users, groups and projects may use of a dataset.
//!
//! A limit is an item of the dataset, so a snapshot keeps it and a rollback takes it back. The item
//! and the entry in the log of operations are one commit: a limit that were durable by the intent
//! log alone would, after a crash, be there without its entry.

use crate::admission::reservation;
use crate::admission::shortage::{Admitted, Need};
use crate::commit::operation_log;
use crate::commit::operation_log::entry;
use crate::commit::turn::Turn;
use crate::memtable::dataset::Dataset;
use crate::snapshots::begin;
use crate::snapshots::session::Session;
use crate::snapshots::trash::Reclaim;
use crate::snapshots::undo;
use crate::state::State;
use bytes::Bytes;
use marram_format::operation::{OperationKind, OperationRecord, limit_of, limit_text};
use marram_format::record::{Limit, OwnerId};
use marram_store::{Damage, DatasetName, Error, Key, Result, kind, limit_batch};
use std::sync::Arc;

/// What somebody wants to be the limit of an owner.
fn checked(owner: u64, limit: Option<&[u8]>) -> Result<Limit> {
    if OwnerId::from_offset(owner).is_none() {
        return Err(Error::Invalid(format!("{owner:#x} is the number of no owner")));
    }
    let decoded = limit.map_or(Ok(Limit::NONE), Limit::decode);
    decoded.map_err(|error| Error::Invalid(error.to_string()))
}

/// The item of a limit; none where there is no limit.
fn encode(limit: Limit) -> Option<Bytes> {
    (limit != Limit::NONE).then(|| Bytes::copy_from_slice(&limit.encode()))
}

/// A dataset and the limit that its owner had, if what an operation has set is still so.
pub(crate) fn judge_limit(pool: &State, record: &OperationRecord) -> Result<(Arc<Dataset>, Limit)> {
    let subject = undo::in_sight(pool, record.subject)?;
    let gone = || Error::NoDataset(subject.name.clone());
    let dataset = pool.running(subject.id).ok_or_else(gone)?;
    let now = limit_now(pool, &dataset, record.detail)?;
    if now != record.text(2) {
        let reason = format!("the limit in {} is {now} (bytes, inodes) since", subject.name);
        return Err(Error::Invalid(reason));
    }
    let before = limit_of(record.text(1));
    let before = before.ok_or_else(|| Error::Invalid("the limit before is unknown".to_owned()));
    Ok((dataset, before?))
}

/// The limit of an owner, as an entry of the log has it.
fn limit_now(pool: &State, dataset: &Dataset, owner: u64) -> Result<String> {
    let Some(item) = dataset.get(&pool.media, Key::new(0, kind::LIMIT, owner))? else {
        return Ok(limit_text(Limit::NONE));
    };
    let limit = Limit::decode(&item.value).map_err(|error| {
        let place = format!("owner {owner:#x} of dataset {}", dataset.id);
        Error::Damaged(Damage { what: "a limit", place, reason: error.to_string() })
    })?;
    Ok(limit_text(limit))
}

fn running_live(pool: &State, name: &DatasetName) -> Result<Arc<Dataset>> {
    let live = pool.find_live(name)?;
    pool.running(live.id).ok_or_else(|| Error::NoDataset(live.name.clone()))
}

/// See [`marram_store::OperationLog::set_owner_limit`].
pub(crate) fn enter_limit(
    session: &Session,
    name: &DatasetName,
    owner: u64,
    limit: Option<Bytes>,
) -> Result<()> {
    let limit = checked(owner, limit.as_deref())?;
    let dataset = running_live(&session.state, name)?;
    // Room is found before the turn: what has to go for it needs a turn of its own.
    let batch = limit_batch(owner, encode(limit));
    let need = Need::of(&batch);
    let _admitted =
        reservation::reserve(&Reclaim(&session.state), &session.state, &dataset, &batch, need)?
            .without_turn();
    let turn = begin::begin_operation(session)?;
    change_limit(session, &turn, name, (owner, limit), 0)
}

/// Finds room for what an undo puts into a dataset, before it takes its turn: whether it can be
/// done is judged then.
pub(crate) fn admit_undo(session: &Session, number: u64) -> Result<Option<Admitted<'_>>> {
    let inner = &session.state;
    let record = {
        let _no_commit = inner.turns.committing.lock();
        operation_log::operation(inner, number)?
    };
    let is_limit = |record: &OperationRecord| record.kind == OperationKind::Limit;
    let Some(record) = record.filter(is_limit) else { return Ok(None) };
    let Ok((dataset, before)) = judge_limit(inner, &record) else { return Ok(None) };
    let batch = limit_batch(record.detail, encode(before));
    Ok(Some(
        reservation::reserve(&Reclaim(inner), inner, &dataset, &batch, Need::of(&batch))?
            .without_turn(),
    ))
}

/// Takes back that a limit was set. The caller has the turn to commit.
pub(crate) fn undo_limit(
    session: &Session,
    turn: &Turn<'_>,
    number: u64,
    record: &OperationRecord,
) -> Result<()> {
    let (_, before) = judge_limit(&session.state, record)?;
    let name: DatasetName = undo::in_sight(&session.state, record.subject)?.name.parse()?;
    change_limit(session, turn, &name, (record.detail, before), number)
}

/// Sets a limit; `undoes` is the entry that it takes back. The caller has the turn to commit.
fn change_limit(
    session: &Session,
    turn: &Turn<'_>,
    name: &DatasetName,
    (owner, limit): (u64, Limit),
    undoes: u64,
) -> Result<()> {
    let inner = &session.state;
    let dataset = running_live(inner, name)?;
    let texts = [name.to_string(), limit_now(inner, &dataset, owner)?, limit_text(limit)];
    let texts = texts.each_ref().map(String::as_str);
    let entry = entry(OperationKind::Limit, dataset.id, &texts);
    let entry = OperationRecord { undoes, detail: owner, ..entry };
    let batch = limit_batch(owner, encode(limit));
    turn.commit_batch(&dataset, batch, &mut |commit| {
        operation_log::enter(commit, session.author.as_ref(), entry.clone()).map(|_| ())
    })
}
