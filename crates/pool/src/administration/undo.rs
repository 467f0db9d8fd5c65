//! Taking an operation back: what stands in the way is judged by the records as they are, and what
//! is done is one commit with an entry of its own, so that taking that back does it again.

use super::kept::is_hidden;
use super::operations::{entry, undone_by};
use super::plan::Plan;
use super::records::parent_of;
use super::{lines, list};
use crate::commit::Turn;
use crate::pool::{Inner, Pool};
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::operation::{OperationKind, OperationRecord, kept_for};
use marram_store::{DatasetName, Error, Result, Source, check_rename};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Numbers that are tried for the name of the state before a rollback is taken back.
const NAMES_MAX: u32 = 1 << 16;

/// Entries of the log with their numbers, oldest first.
type Entries = [(u64, OperationRecord)];
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

    /// Takes an operation back that is no merge. Returns the number of the new entry.
    ///
    /// # Errors
    /// [`Error::Invalid`] says what is in the way; then nothing has changed.
    pub fn undo(&self, number: u64) -> Result<u64> {
        let inner = &self.inner;
        inner.make_room_in_log(1)?;
        let _admitted = self.admit_undo(number)?;
        let turn = inner.take_turn()?;
        let entries = inner.operations()?;
        let reversal = inner.judge((&entries, &undone_by(&entries)), number)?;
        let (_, record) = find(&entries, number)?;
        match (record.kind, reversal) {
            (_, Reversal::Merge { .. }) => {
                let reason = "a merge is taken back by merging: see Pool::taking_back".to_owned();
                return Err(Error::Invalid(reason));
            }
            (OperationKind::Set, _) => self.undo_set(&turn, number, record)?,
            (OperationKind::Label, _) => {
                let author = self.author.clone().unwrap_or_default();
                inner.change_label(&turn, record.text(0), Some(&author), number)?;
            }
            (OperationKind::Limit, _) => self.undo_limit(&turn, number, record)?,
            (OperationKind::Hold | OperationKind::Release, _) => {
                self.undo_hold(&turn, number, record)?;
            }
            (_, Reversal::Rollback { to, .. }) => self.undo_rollback(&turn, number, record, &to)?,
            (_, reversal) => self.undo_records(&turn, number, record, &reversal)?,
        }
        // It is done, and must not be told as failed.
        let entries = inner.operations().unwrap_or_default();
        let own = entries.iter().rev().find(|(_, record)| record.undoes == number);
        Ok(own.map_or(0, |(number, _)| *number))
    }

    fn undo_records(
        &self,
        turn: &Turn<'_>,
        number: u64,
        record: &OperationRecord,
        reversal: &Reversal,
    ) -> Result<()> {
        let author = self.author.clone().unwrap_or_default();
        let id = record.subject;
        let subject = self.inner.by_id(id)?;
        let name = self.inner.former_name(record)?;
        let keep_seconds = self.inner.seconds_kept_of(&subject);
        if let Reversal::Records { goes, .. } = reversal
            && !goes.is_empty()
        {
            let told = |error: Error| refusal(error.to_string());
            Plan::new(&self.inner, &goes[..1])?.refuse_in_use(&self.inner).map_err(told)?;
        }
        let mut until = i64::MAX;
        turn.commit(Some(&mut |commit| match record.kind {
            OperationKind::Destroy => {
                commit.forget_kept(id, &subject.name)?;
                commit.give_name(id, &name)?;
                let restored = entry(OperationKind::Restore, id, &[&name.to_string()]);
                let restored = OperationRecord { undoes: number, ..restored };
                commit.enter(Some(&author), restored).map(|_| ())
            }
            OperationKind::Rename => {
                commit.give_name(id, &name)?;
                let names = [subject.name.as_str(), &name.to_string()];
                let renamed = entry(OperationKind::Rename, id, &names);
                let renamed = OperationRecord { undoes: number, ..renamed };
                commit.enter(Some(&author), renamed).map(|_| ())
            }
            OperationKind::Promote => {
                let count = commit.promote(record.other)?;
                let promoted = commit.record(record.other)?.name;
                let texts = [promoted.as_str(), &subject.name];
                let promoted = entry(OperationKind::Promote, record.other, &texts);
                let (undoes, other) = (number, id);
                let promoted = OperationRecord { undoes, other, detail: count, ..promoted };
                commit.enter(Some(&author), promoted).map(|_| ())
            }
            _ => {
                until = commit.now_seconds.saturating_add(keep_seconds);
                commit.hide(id, until, &author, number).map(|_| ())
            }
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

    fn undo_set(&self, turn: &Turn<'_>, number: u64, record: &OperationRecord) -> Result<()> {
        let name: DatasetName = self.inner.by_id(record.subject)?.name.parse()?;
        let value = Some(record.text(2)).filter(|value| !value.is_empty());
        self.change_property(turn, &name, (record.text(1), value), number)
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

fn find(entries: &Entries, number: u64) -> Result<&(u64, OperationRecord)> {
    let place = entries.binary_search_by_key(&number, |(known, _)| *known);
    let place = place.map_err(|_| refusal(format!("no operation {number} is in the log")))?;
    Ok(&entries[place])
}

impl Inner {
    fn by_id(&self, id: u64) -> Result<Arc<DatasetRecord>> {
        let records = self.records.read();
        let known = records.get(id).filter(|record| record.state != DatasetState::Destroying);
        known.cloned().ok_or_else(|| refusal("what it was done to is gone for good"))
    }

    /// The same, of what nobody has destroyed since.
    pub(super) fn in_sight(&self, id: u64) -> Result<Arc<DatasetRecord>> {
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

    /// How an operation can be taken back.
    pub(super) fn judge(&self, log: Log<'_>, number: u64) -> Result<Reversal> {
        let (_, record) = find(log.0, number)?;
        if let Some((_, by)) = log.1.iter().find(|(undone, _)| *undone == number) {
            return Err(refusal(format!(
                "it was taken back by operation {by}: take that back to have it again"
            )));
        }
        match record.kind {
            OperationKind::Create
            | OperationKind::Snapshot
            | OperationKind::Clone
            | OperationKind::Fork
            | OperationKind::Restore => return self.judge_destruction(record),
            OperationKind::Rollback => return self.judge_rollback(log, number, record),
            OperationKind::Merge => return self.judge_merge(log, number, record),
            OperationKind::Promote => self.judge_promotion(record)?,
            OperationKind::Hold | OperationKind::Release => self.judge_hold(record)?,
            OperationKind::Set => self.judge_set(record)?,
            OperationKind::Rename => {
                let renamed = Some(self.judge_rename(record)?);
                return Ok(Reversal::Records { goes: Vec::new(), renamed });
            }
            OperationKind::Destroy => self.judge_restoration(record)?,
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

    fn judge_destruction(&self, record: &OperationRecord) -> Result<Reversal> {
        let subject = self.in_sight(record.subject)?;
        if self.seconds_kept_of(&subject) == 0 {
            return Err(refusal(format!(
                "{} could not be brought back, since the property undo is off: destroy it instead",
                subject.name
            )));
        }
        let plan = Plan::new(self, &[subject.name.parse()?]);
        let plan = plan.map_err(|error| refusal(error.to_string()))?;
        // Whether it is open is asked when it goes: whoever looks at it may be sent away before.
        if let Some(held) = plan.goes().find(|gone| gone.holds > 0) {
            let tags: Vec<&str> = list::holds(held).collect();
            return Err(refusal(format!("{} is held ({})", held.name, tags.join(", "))));
        }
        let records = self.records.read();
        let all = [&subject].into_iter().chain(records.snapshots(subject.id));
        let goes: Result<Vec<Source>> = all.map(|record| record.name.parse()).collect();
        Ok(Reversal::Records { goes: goes?, renamed: None })
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

    fn judge_restoration(&self, record: &OperationRecord) -> Result<()> {
        let gone = || refusal(format!("{} is gone for good", record.text(0)));
        let subject = self.by_id(record.subject).map_err(|_| gone())?;
        if kept_for(&subject.name).is_none() {
            return Err(gone());
        }
        let records = self.records.read();
        let hidden = |id: u64| records.get(id).filter(|record| is_hidden(record));
        let needed = hidden(subject.parent).or_else(|| hidden(subject.origin));
        if let Some(needed) = needed {
            let first = destroyer(&needed.name)
                .map_or_else(String::new, |number| format!(": take operation {number} back first"));
            return Err(refusal(format!("what it belongs to or began as is destroyed{first}")));
        }
        drop(records);
        self.refuse_name_taken(&self.former_name(record)?)
    }

    /// The name that is given back: a snapshot has it in the dataset that it belongs to now.
    fn former_name(&self, record: &OperationRecord) -> Result<Source> {
        let former = record.text(0);
        let subject = self.by_id(record.subject)?;
        let records = self.records.read();
        match records.get(subject.parent).filter(|_| subject.state == DatasetState::Snapshot) {
            Some(dataset) => lines::handed_over(former, &dataset.name)?.parse(),
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
