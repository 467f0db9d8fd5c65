//! Limits of owners: what users, groups and projects may use of a dataset.
//!
//! A limit is an item of the dataset, so a snapshot keeps it and a rollback takes it back. The item
//! and the entry in the log of operations are one commit: a limit that were durable by the intent
//! log alone would, after a crash, be there without its entry.

use super::operation_log::entry;
use super::running;
use crate::admission::shortage::{Admitted, Need};
use crate::commit::Turn;
use crate::front::{Inner, Pool};
use crate::memtable::dataset::Dataset;
use bytes::Bytes;
use marram_format::operation::{OperationKind, OperationRecord, limit_of, limit_text};
use marram_format::record::{Limit, OwnerId};
use marram_store::{Damage, DatasetName, Error, Key, Result, kind, limit_batch};
use std::sync::Arc;

impl Pool {
    /// See `Store::set_owner_limit`.
    pub(crate) fn enter_limit(
        &self,
        name: &DatasetName,
        owner: u64,
        limit: Option<Bytes>,
    ) -> Result<()> {
        let limit = checked(owner, limit.as_deref())?;
        let dataset = self.inner.running_live(name)?;
        // Room is found before the turn: what has to go for it needs a turn of its own.
        let batch = limit_batch(owner, encode(limit));
        let need = Need::of(&batch);
        let _admitted = self.inner.reserve(&dataset, &batch, need)?.without_turn();
        let turn = self.begin_operation()?;
        self.change_limit(&turn, name, (owner, limit), 0)
    }

    /// Finds room for what an undo puts into a dataset, before it takes its turn: whether it can be
    /// done is judged then.
    pub(crate) fn admit_undo(&self, number: u64) -> Result<Option<Admitted<'_>>> {
        let inner = &self.inner;
        let record = {
            let _no_commit = inner.committing.lock();
            inner.operation(number)?
        };
        let is_limit = |record: &OperationRecord| record.kind == OperationKind::Limit;
        let Some(record) = record.filter(is_limit) else { return Ok(None) };
        let Ok((dataset, before)) = inner.judge_limit(&record) else { return Ok(None) };
        let batch = limit_batch(record.detail, encode(before));
        Ok(Some(inner.reserve(&dataset, &batch, Need::of(&batch))?.without_turn()))
    }

    /// Takes back that a limit was set, for whoever has the turn to commit.
    pub(crate) fn undo_limit(
        &self,
        turn: &Turn<'_>,
        number: u64,
        record: &OperationRecord,
    ) -> Result<()> {
        let (_, before) = self.inner.judge_limit(record)?;
        let name: DatasetName = self.inner.in_sight(record.subject)?.name.parse()?;
        self.change_limit(turn, &name, (record.detail, before), number)
    }

    /// Sets a limit, for whoever has the turn to commit; `undoes` is the entry that it takes back.
    fn change_limit(
        &self,
        turn: &Turn<'_>,
        name: &DatasetName,
        (owner, limit): (u64, Limit),
        undoes: u64,
    ) -> Result<()> {
        let inner = &self.inner;
        let dataset = inner.running_live(name)?;
        let texts = [name.to_string(), inner.limit(&dataset, owner)?, limit_text(limit)];
        let texts = texts.each_ref().map(String::as_str);
        let entry = entry(OperationKind::Limit, dataset.id, &texts);
        let entry = OperationRecord { undoes, detail: owner, ..entry };
        let batch = limit_batch(owner, encode(limit));
        turn.commit_batch(&dataset, batch, None, &mut |commit| {
            commit.enter(self.author.as_ref(), entry.clone()).map(|_| ())
        })
    }
}

impl Inner {
    /// A dataset and the limit that its owner had, if what an operation has set is still so.
    pub(crate) fn judge_limit(&self, record: &OperationRecord) -> Result<(Arc<Dataset>, Limit)> {
        let subject = self.in_sight(record.subject)?;
        let gone = || Error::NoDataset(subject.name.clone());
        let dataset = running(self, subject.id).ok_or_else(gone)?;
        let now = self.limit(&dataset, record.detail)?;
        if now != record.text(2) {
            let reason = format!("the limit in {} is {now} (bytes, inodes) since", subject.name);
            return Err(Error::Invalid(reason));
        }
        let before = limit_of(record.text(1));
        let before = before.ok_or_else(|| Error::Invalid("the limit before is unknown".to_owned()));
        Ok((dataset, before?))
    }

    /// The limit of an owner, as an entry of the log tells it.
    fn limit(&self, dataset: &Dataset, owner: u64) -> Result<String> {
        let Some(item) = dataset.get(&self.media, Key::new(0, kind::LIMIT, owner))? else {
            return Ok(limit_text(Limit::NONE));
        };
        let limit = Limit::decode(&item.value).map_err(|error| {
            let place = format!("owner {owner:#x} of dataset {}", dataset.id);
            Error::Damaged(Damage { what: "a limit", place, reason: error.to_string() })
        })?;
        Ok(limit_text(limit))
    }

    fn running_live(&self, name: &DatasetName) -> Result<Arc<Dataset>> {
        let live = self.find_live(name)?;
        running(self, live.id).ok_or_else(|| Error::NoDataset(live.name.clone()))
    }
}

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
