//! Taking an operation back: what stands in the way is judged by the records as they are, and what
//! is done is one commit with an entry of its own, so that taking that back does it again.
//!
//! What one command did to many in one commit is taken back together, in one commit: any number of
//! such a step stands for all of it. What is not there any more, or was taken back before, is left
//! out; anything else that is in the way of one is in the way of all.

use super::operation_log::{Author, entry, is_one_step, taken_back_by, undone_by};
use super::plan::Plan;
use super::properties::Change;
use super::trash::is_hidden;
use super::{lineage, list};
use crate::commit::{Commit, Turn};
use crate::front::{Inner, Pool};
use crate::state::records::parent_of;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::operation::{OperationKind, OperationRecord, kept_for};
use marram_store::{DatasetName, Error, Result, Source, check_rename};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Numbers that are tried for the name of the state before a rollback is taken back.
const NAMES_MAX: u32 = 1 << 16;

/// An entry of the log with its number.
type Entry = (u64, OperationRecord);
/// Entries of the log, oldest first.
type Entries = [Entry];
/// The log, and which of its entries others have taken back: each with the one that did.
type Log<'e> = (&'e Entries, &'e BTreeSet<(u64, u64)>);

/// How an operation is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reversal {
    /// [`Pool::undo`] does it.
    Records {
        /// What is destroyed with it, and kept: nobody may have it open.
        goes: Vec<Source>,
        /// What gets another name.
        renamed: Option<Source>,
    },
    /// [`Pool::undo`] does it: a dataset goes back to a snapshot. Whoever has it open lets all
    /// operations wait, as for a rollback.
    Rollback {
        /// The dataset.
        dataset: DatasetName,
        /// The snapshot.
        to: Source,
    },
    /// The changes from one snapshot of a dataset to another are merged into it, through
    /// [`Pool::taking_back`].
    Merge {
        /// The dataset.
        dataset: DatasetName,
        /// The state that the merge left.
        base: Source,
        /// The state that it found.
        back_to: Source,
        /// The object that was the root of what was merged.
        root_object: u64,
    },
}

impl Pool {
    /// How the operation with this number, or the last one, would be taken back.
    ///
    /// # Errors
    /// [`Error::Invalid`] says what is in the way.
    pub fn reversal(&self, number: Option<u64>) -> Result<(u64, Reversal)> {
        let _no_commit = self.inner.committing.lock();
        let entries = self.inner.operations()?;
        let last = entries.last().map(|(number, _)| *number);
        let number = number.or(last).ok_or_else(|| refusal("no operation is in the log"))?;
        Ok((number, self.inner.judge((&entries, &undone_by(&entries)), number)?))
    }

    /// Takes an operation back that is no merge, with all that is one step with it. Returns the
    /// number of the new entry, of several the last.
    ///
    /// # Errors
    /// [`Error::Invalid`] says what is in the way; then nothing has changed.
    pub fn undo(&self, number: u64) -> Result<u64> {
        let inner = &self.inner;
        let step = inner.numbers_of_step(number)?;
        inner.make_room_beside(step.end() - step.start() + 1, &step)?;
        let _admitted = self.admit_undo(number)?;
        let turn = inner.take_turn()?;
        let entries = inner.operations()?;
        let undone = undone_by(&entries);
        let (parts, reversal) = inner.judge_step((&entries, &undone), number)?;
        let (_, record) = parts[0];
        match (record.kind, reversal) {
            (_, Reversal::Merge { .. }) => {
                let reason = "a merge is taken back by merging: see Pool::taking_back".to_owned();
                return Err(Error::Invalid(reason));
            }
            (OperationKind::Set, _) => self.undo_set(&turn, &parts)?,
            (OperationKind::Label, _) => {
                let author = self.author.clone().unwrap_or_default();
                inner.change_label(&turn, record.text(0), Some(&author), number)?;
            }
            (OperationKind::Limit, _) => self.undo_limit(&turn, number, record)?,
            (OperationKind::Hold | OperationKind::Release, _) => {
                self.undo_hold(&turn, number, record)?;
            }
            (_, Reversal::Rollback { to, .. }) => self.undo_rollback(&turn, number, record, &to)?,
            (_, reversal) => self.undo_records(&turn, &parts, &reversal)?,
        }
        // It is done, and must not be told as failed.
        let now = inner.operations().unwrap_or_default();
        let undid = |undoes: u64| parts.iter().any(|(number, _)| *number == undoes);
        let own = now.iter().rev().find(|(_, record)| undid(record.undoes));
        Ok(own.map_or(0, |(number, _)| *number))
    }

    fn undo_records(&self, turn: &Turn<'_>, parts: &[&Entry], reversal: &Reversal) -> Result<()> {
        let author = self.author.clone().unwrap_or_default();
        if let Reversal::Records { goes, .. } = reversal
            && !goes.is_empty()
        {
            let told = |error: Error| refusal(error.to_string());
            Plan::new(&self.inner, goes)?.refuse_in_use(&self.inner).map_err(told)?;
        }
        let mut until = i64::MAX;
        turn.commit(Some(&mut |commit| {
            for part in parts {
                until = until.min(commit.take_back(&author, part)?);
            }
            Ok(())
        }))?;
        self.inner.note_expiry(until);
        Ok(())
    }

    fn undo_rollback(
        &self,
        turn: &Turn<'_>,
        number: u64,
        record: &OperationRecord,
        to: &Source,
    ) -> Result<()> {
        let author = self.author.clone().unwrap_or_default();
        let kept = self.inner.free_name(to, &format!("before-undo-{number}"))?;
        turn.commit_alone(&mut |commit| {
            let before = commit.roll_back(record.subject, record.before, &kept)?;
            let texts = [to.to_string(), kept.to_string()];
            let texts = [texts[0].as_str(), &texts[1]];
            let back = entry(OperationKind::Rollback, record.subject, &texts);
            let (undoes, other) = (number, record.before);
            let back = OperationRecord { undoes, other, before, ..back };
            commit.enter(Some(&author), back).map(|_| ())
        })
    }

    fn undo_set(&self, turn: &Turn<'_>, parts: &[&Entry]) -> Result<()> {
        let name: DatasetName = self.inner.by_id(parts[0].1.subject)?.name.parse()?;
        let change = |(number, record): &&'_ Entry| {
            let value = Some(record.text(2).to_owned()).filter(|value| !value.is_empty());
            Change { property: record.text(1).to_owned(), value, undoes: *number }
        };
        let changes: Vec<Change> = parts.iter().map(change).collect();
        self.change_properties(turn, &name, &changes)
    }

    fn undo_hold(&self, turn: &Turn<'_>, number: u64, record: &OperationRecord) -> Result<()> {
        let snapshot: Source = self.inner.by_id(record.subject)?.name.parse()?;
        let holds = record.kind == OperationKind::Release;
        self.change_holds(turn, &snapshot, record.text(1), (holds, number))
    }
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

impl Commit<'_> {
    /// Takes an entry back by a change of records; returns until when what goes is kept.
    fn take_back(&mut self, author: &Arc<Author>, (number, record): &Entry) -> Result<i64> {
        let id = record.subject;
        let entered = match record.kind {
            OperationKind::Destroy => {
                let hidden = self.record(id)?.name;
                self.forget_kept(id, &hidden)?;
                let name = self.former_name(record)?;
                self.give_name(id, &name)?;
                entry(OperationKind::Restore, id, &[&name.to_string()])
            }
            OperationKind::Rename => {
                let (before, name) = (self.record(id)?.name, self.former_name(record)?);
                self.give_name(id, &name)?;
                entry(OperationKind::Rename, id, &[before.as_str(), &name.to_string()])
            }
            OperationKind::Promote => {
                let before = self.record(id)?.name;
                let detail = self.promote(record.other)?;
                let promoted = self.record(record.other)?.name;
                let texts = [promoted.as_str(), &before];
                let back = entry(OperationKind::Promote, record.other, &texts);
                OperationRecord { other: id, detail, ..back }
            }
            _ => {
                let keep_seconds = self.pool.seconds_kept_of(&self.record(id)?);
                let until = self.now_seconds.saturating_add(keep_seconds);
                self.hide(id, until, author, *number)?;
                return Ok(until);
            }
        };
        self.enter(Some(author), OperationRecord { undoes: *number, ..entered })?;
        Ok(i64::MAX)
    }

    /// As [`Inner::former_name`], as this commit has the dataset: that may come back with it.
    fn former_name(&self, record: &OperationRecord) -> Result<Source> {
        let subject = self.record(record.subject)?;
        let dataset = match subject.state {
            DatasetState::Snapshot => self.record(subject.parent).ok(),
            _ => None,
        };
        match dataset {
            Some(dataset) => lineage::handed_over(record.text(0), &dataset.name)?.parse(),
            None => record.text(0).parse(),
        }
    }
}

impl Inner {
    fn by_id(&self, id: u64) -> Result<Arc<DatasetRecord>> {
        let records = self.records.read();
        let known = records.get(id).filter(|record| record.state != DatasetState::Destroying);
        known.cloned().ok_or_else(|| refusal("what it was done to is gone for good"))
    }

    /// The same, of what nobody has destroyed since.
    pub(crate) fn in_sight(&self, id: u64) -> Result<Arc<DatasetRecord>> {
        let record = self.by_id(id)?;
        if !is_hidden(&record) {
            return Ok(record);
        }
        Err(refusal(match destroyer(&record.name) {
            Some(number) => format!(
                "what it was done to was destroyed by operation {number}: take that back first"
            ),
            None => "what it was done to is kept for another undo".to_owned(),
        }))
    }

    /// The numbers of the entries that are one step with the one of this number.
    fn numbers_of_step(&self, number: u64) -> Result<RangeInclusive<u64>> {
        let _no_commit = self.committing.lock();
        let entries = self.operations()?;
        let step = step_of(&entries, number)?;
        Ok(step[0].0..=step[step.len() - 1].0)
    }

    /// How an operation can be taken back.
    pub(crate) fn judge(&self, log: Log<'_>, number: u64) -> Result<Reversal> {
        self.judge_step(log, number).map(|(_, reversal)| reversal)
    }

    /// What there is to be taken back of an operation's step, and how; the first reason if nothing.
    fn judge_step<'e>(&self, log: Log<'e>, number: u64) -> Result<(Vec<&'e Entry>, Reversal)> {
        let (mut parts, mut reason) = (Vec::new(), None);
        for part in step_of(log.0, number)? {
            let by = log.1.range((part.0, 0)..=(part.0, u64::MAX)).next();
            let undone = by.map_or(Ok(()), |(_, by)| Err(refusal(taken_back_by(*by))));
            match undone.and_then(|()| self.refuse_gone(&part.1)) {
                Ok(()) => parts.push(part),
                Err(left_out) if part.0 == number || reason.is_none() => reason = Some(left_out),
                Err(_) => {}
            }
        }
        match parts.is_empty() {
            false => self.judge_parts(log, &parts).map(|reversal| (parts, reversal)),
            true => Err(reason.unwrap_or_else(|| refusal("nothing of it is left"))),
        }
    }

    /// How entries of one step can be taken back.
    fn judge_parts(&self, log: Log<'_>, parts: &[&Entry]) -> Result<Reversal> {
        let (number, record) = parts[0];
        match record.kind {
            OperationKind::Create
            | OperationKind::Snapshot
            | OperationKind::Clone
            | OperationKind::Fork
            | OperationKind::Restore => return self.judge_destruction(parts),
            OperationKind::Rollback => return self.judge_rollback(log, *number, record),
            OperationKind::Merge => return self.judge_merge(log, *number, record),
            OperationKind::Promote => self.judge_promotion(record)?,
            OperationKind::Hold | OperationKind::Release => self.judge_hold(record)?,
            OperationKind::Set => parts.iter().try_for_each(|(_, set)| self.judge_set(set))?,
            OperationKind::Rename => {
                let renamed = Some(self.judge_rename(record)?);
                return Ok(Reversal::Records { goes: Vec::new(), renamed });
            }
            OperationKind::Destroy => self.judge_restoration(parts)?,
            OperationKind::Label => self.judge_label(record)?,
            OperationKind::Limit => drop(self.judge_limit(record)?),
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
    pub(crate) fn refuse_gone(&self, record: &OperationRecord) -> Result<()> {
        match record.kind {
            OperationKind::Create
            | OperationKind::Snapshot
            | OperationKind::Clone
            | OperationKind::Fork
            | OperationKind::Restore => self.in_sight(record.subject).map(|_| ()),
            OperationKind::Destroy => self.kept_still(record).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn judge_destruction(&self, parts: &[&Entry]) -> Result<Reversal> {
        let mut names = Vec::new();
        for (_, record) in parts {
            let subject = self.in_sight(record.subject)?;
            if self.seconds_kept_of(&subject) == 0 {
                return Err(refusal(format!(
                    "{} could not be brought back, since the property undo is off: destroy it \
                     instead",
                    subject.name
                )));
            }
            names.push(subject.name.parse()?);
        }
        let plan = Plan::new(self, &names).map_err(|error| refusal(error.to_string()))?;
        // Whether it is open is asked when it goes: whoever looks at it may be sent away before.
        if let Some(held) = plan.goes().find(|gone| gone.holds > 0) {
            let tags: Vec<&str> = list::holds(held).collect();
            return Err(refusal(format!("{} is held ({})", held.name, tags.join(", "))));
        }
        let records = self.records.read();
        for (_, record) in parts {
            for snapshot in records.snapshots(record.subject) {
                names.push(snapshot.name.parse()?);
            }
        }
        Ok(Reversal::Records { goes: names, renamed: None })
    }

    fn judge_rollback(
        &self,
        log: Log<'_>,
        number: u64,
        record: &OperationRecord,
    ) -> Result<Reversal> {
        let subject = self.in_sight(record.subject)?;
        refuse_later(log, number, record, true)?;
        let before = self.in_sight(record.before).map_err(|_| {
            refusal(format!("the state before, {}, was destroyed since", record.text(1)))
        })?;
        if before.parent != subject.id {
            let reason = format!("the state before is {} now, of another dataset", before.name);
            return Err(refusal(reason));
        }
        Ok(Reversal::Rollback { dataset: subject.name.parse()?, to: before.name.parse()? })
    }

    fn judge_merge(&self, log: Log<'_>, number: u64, record: &OperationRecord) -> Result<Reversal> {
        let subject = self.in_sight(record.subject)?;
        refuse_later(log, number, record, false)?;
        let state = |id: u64| -> Result<Source> {
            let found = self.by_id(id).ok().filter(|found| found.parent == subject.id);
            let found = found.ok_or_else(|| {
                refusal("the states before and after it are not kept any more (property undo)")
            })?;
            found.name.parse()
        };
        Ok(Reversal::Merge {
            dataset: subject.name.parse()?,
            base: state(record.after)?,
            back_to: state(record.before)?,
            root_object: record.detail,
        })
    }

    fn judge_promotion(&self, record: &OperationRecord) -> Result<()> {
        let (subject, other) = (self.in_sight(record.subject)?, self.in_sight(record.other)?);
        self.refuse_promotion(&other.name.parse()?)?;
        let records = self.records.read();
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

    fn judge_hold(&self, record: &OperationRecord) -> Result<()> {
        let (subject, tag) = (self.in_sight(record.subject)?, record.text(1));
        let held = list::holds(&subject).any(|known| known == tag);
        match (held, record.kind == OperationKind::Hold) {
            (true, true) | (false, false) => Ok(()),
            (true, false) => Err(refusal(format!("{tag} holds {} again", subject.name))),
            (false, true) => Err(refusal(format!("{tag} holds {} no more", subject.name))),
        }
    }

    fn judge_set(&self, record: &OperationRecord) -> Result<()> {
        let (subject, property) = (self.in_sight(record.subject)?, record.text(1));
        let known = subject.properties.iter().find(|(name, _)| name == property);
        let now = known.map_or("", |(_, value)| value.as_str());
        if now == record.text(3) {
            return Ok(());
        }
        let now = if now.is_empty() { "its default" } else { now };
        Err(refusal(format!("{property} of {} was set to {now} since", subject.name)))
    }

    fn judge_label(&self, record: &OperationRecord) -> Result<()> {
        let now = self.label();
        match now == record.text(1) {
            true => Ok(()),
            false => Err(refusal(format!("the pool has the label {now:?} since"))),
        }
    }

    /// Returns the name that it has now.
    fn judge_rename(&self, record: &OperationRecord) -> Result<Source> {
        let subject = self.in_sight(record.subject)?;
        if last_part(&subject.name) != last_part(record.text(1)) {
            return Err(refusal(format!("it has the name {} since", subject.name)));
        }
        let (now, to) = (subject.name.parse()?, self.former_name(record)?);
        check_rename(&now, &to)?;
        self.refuse_name_taken(&to)?;
        Ok(now)
    }

    /// What a destruction has kept, if it does still.
    fn kept_still(&self, record: &OperationRecord) -> Result<Arc<DatasetRecord>> {
        let kept = self.by_id(record.subject).ok().filter(|kept| kept_for(&kept.name).is_some());
        kept.ok_or_else(|| refusal(format!("{} is gone for good", record.text(0))))
    }

    fn judge_restoration(&self, parts: &[&Entry]) -> Result<()> {
        let (mut coming, mut names) = (BTreeSet::new(), BTreeSet::new());
        coming.extend(parts.iter().map(|(_, record)| record.subject));
        for (_, record) in parts {
            self.refuse_without(&*self.kept_still(record)?, &coming)?;
            let name = self.former_name(record)?;
            self.refuse_name_taken(&name)?;
            if !names.insert(name.to_string()) {
                return Err(refusal(format!("two would have the name {name} now")));
            }
        }
        Ok(())
    }

    /// Refuses to bring back what belongs to or began as something destroyed that does not come
    /// back with it.
    fn refuse_without(&self, kept: &DatasetRecord, coming: &BTreeSet<u64>) -> Result<()> {
        let records = self.records.read();
        let stays =
            |record: &&Arc<DatasetRecord>| is_hidden(record) && !coming.contains(&record.id);
        let hidden = |id: u64| records.get(id).filter(stays);
        let Some(needed) = hidden(kept.parent).or_else(|| hidden(kept.origin)) else {
            return Ok(());
        };
        let first = destroyer(&needed.name)
            .map_or_else(String::new, |number| format!(": take operation {number} back first"));
        Err(refusal(format!("what it belongs to or began as is destroyed{first}")))
    }

    /// The name that is given back: a snapshot has it in the dataset that it belongs to now.
    fn former_name(&self, record: &OperationRecord) -> Result<Source> {
        let former = record.text(0);
        let subject = self.by_id(record.subject)?;
        let records = self.records.read();
        match records.get(subject.parent).filter(|_| subject.state == DatasetState::Snapshot) {
            Some(dataset) => lineage::handed_over(former, &dataset.name)?.parse(),
            None => former.parse(),
        }
    }

    fn refuse_name_taken(&self, to: &Source) -> Result<()> {
        match self.find(to) {
            Ok(_) => Err(refusal(format!("there is another {to} now"))),
            Err(_) => Ok(()),
        }
    }

    /// A name of a snapshot beside `of` that no other one has.
    fn free_name(&self, of: &Source, prefix: &str) -> Result<Source> {
        let named = |name: String| Source { dataset: of.dataset.clone(), snapshot: Some(name) };
        let numbered = |number: u32| match number {
            1 => named(prefix.to_owned()),
            _ => named(format!("{prefix}-{number}")),
        };
        let free = (1..NAMES_MAX).map(numbered).find(|name| self.find(name).is_err());
        free.ok_or_else(|| Error::DatasetExists(prefix.to_owned()))
    }
}

/// Refuses to take something back that a later rollback, or with `merges` merge, of the same
/// dataset has gone on from.
fn refuse_later(
    (entries, undone): Log<'_>,
    number: u64,
    record: &OperationRecord,
    merges: bool,
) -> Result<()> {
    let later = entries.iter().find(|(later, other)| {
        let counts =
            other.kind == OperationKind::Rollback || (merges && other.kind == OperationKind::Merge);
        let holds = other.undoes == 0 && !undone.iter().any(|(gone, _)| gone == later);
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
    kept_for(name).or_else(|| kept_for(name.split_once('@').map_or(name, |(dataset, _)| dataset)))
}

fn last_part(name: &str) -> &str {
    name.split_once('@').map_or(name, |(_, snapshot)| snapshot)
}
