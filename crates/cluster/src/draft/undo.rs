//! Operations taken back: what stands in the way is judged by the records as they are, and what is
//! done is one entry of the log with an operation of its own, so that taking that back does it
//! again.
//!
//! What one command did to many is taken back together. What is not there any more, or was taken
//! back before, is left out; anything else that is in the way of one is in the way of all.

use super::{Draft, IsOpen, is_hidden};
use crate::catalogue::Catalogue;
use crate::format::{Record, Role};
use marram_format::operation::{OperationKind, OperationRecord, limit_of, trash_entry};
use marram_store::operations::{is_one_step, taken_back_by, undone_by};
use marram_store::{Error, Operation, Rest, Result, Reversal, Source, check_rename};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Numbers that are tried for the name of the state before a rollback is taken back.
const NAMES_MAX: u32 = 1 << 16;
/// Which text of a merge tells how the base has moved.
const MOVED_TEXT: usize = 2;

/// An operation with its number.
type Entry<'e> = (u64, &'e OperationRecord);

/// Tells what the limit of an owner in a dataset is, as an operation has it.
pub(crate) type LimitNow<'l> = &'l dyn Fn(u64, u64) -> Result<String>;

fn refusal(reason: impl Into<String>) -> Error {
    Error::Invalid(reason.into())
}

/// What undoes are judged by.
pub(crate) struct Judge<'j> {
    draft: &'j Draft,
    undone: BTreeSet<(u64, u64)>,
    /// What was changed later is no obstacle.
    past: bool,
    limit_now: LimitNow<'j>,
}

impl<'j> Judge<'j> {
    pub(crate) fn new(draft: &'j Draft, past: bool, limit_now: LimitNow<'j>) -> Judge<'j> {
        let entries = draft.catalogue.operations().iter();
        let undone = undone_by(entries.map(|(number, record)| (*number, record)));
        Judge { draft, undone, past, limit_now }
    }

    fn catalogue(&self) -> &'j Catalogue {
        &self.draft.catalogue
    }

    fn entries(&self) -> &'j BTreeMap<u64, OperationRecord> {
        self.draft.catalogue.operations()
    }

    /// The whole log, each entry with what is in the way of its undo.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        let entries: Vec<Entry<'_>> = self.entries().iter().map(|(it, of)| (*it, of)).collect();
        let mut operations = Vec::with_capacity(entries.len());
        for step in entries.chunk_by(|(_, one), (_, next)| is_one_step(one, next)) {
            let numbers = step[0].0..=step[step.len() - 1].0;
            // What is left of a step is judged once: there may be as many as the log has entries.
            let mut of_rest: Option<Option<String>> = None;
            for (number, record) in step {
                let undone_by = self.undone_by(*number);
                let judge = || self.step(*number).err().map(reason);
                let obstacle = match (undone_by, self.refuse_gone(record)) {
                    (Some(by), _) => Some(taken_back_by(by)),
                    (None, Err(error)) => Some(reason(error)),
                    (None, Ok(())) => of_rest.get_or_insert_with(judge).clone(),
                };
                operations.push(Operation {
                    number: *number,
                    record: (*record).clone(),
                    step: numbers.clone(),
                    undone_by,
                    obstacle,
                });
            }
        }
        operations
    }

    /// How the operation with a number, or the last one, is taken back.
    pub(crate) fn reversal(&self, number: Option<u64>) -> Result<(u64, Reversal)> {
        let last = self.entries().last_key_value().map(|(number, _)| *number);
        let number = number.or(last).ok_or_else(|| refusal("no operation is in the log"))?;
        let (parts, reversal) = self.step(number)?;
        match reversal {
            Reversal::Merge { .. } => Ok((parts[0].0, reversal)),
            reversal => Ok((number, reversal)),
        }
    }

    fn undone_by(&self, number: u64) -> Option<u64> {
        self.undone.range((number, 0)..=(number, u64::MAX)).next().map(|(_, by)| *by)
    }

    /// The numbers of the entries that are one step with the one of this number.
    fn numbers_of_step(&self, number: u64) -> Result<RangeInclusive<u64>> {
        let entries = self.entries();
        let own = entries.get(&number);
        let own = own.ok_or_else(|| refusal(format!("no operation {number} is in the log")))?;
        let (mut first, mut last) = ((number, own), (number, own));
        for (before, record) in entries.range(..number).rev() {
            if !is_one_step(record, first.1) {
                break;
            }
            first = (*before, record);
        }
        for (after, record) in entries.range(number + 1..) {
            if !is_one_step(last.1, record) {
                break;
            }
            last = (*after, record);
        }
        Ok(first.0..=last.0)
    }

    /// What there is to be taken back of an operation's step, and how; the first reason if nothing.
    fn step(&self, number: u64) -> Result<(Vec<Entry<'j>>, Reversal)> {
        let (mut parts, mut left_out) = (Vec::new(), None);
        for (part, record) in self.entries().range(self.numbers_of_step(number)?) {
            let undone = self.undone_by(*part);
            let undone = undone.map_or(Ok(()), |by| Err(refusal(taken_back_by(by))));
            match undone.and_then(|()| self.refuse_gone(record)) {
                Ok(()) => parts.push((*part, record)),
                Err(reason) if *part == number || left_out.is_none() => left_out = Some(reason),
                Err(_) => {}
            }
        }
        match parts.is_empty() {
            false => self.parts(&parts).map(|reversal| (parts, reversal)),
            true => Err(left_out.unwrap_or_else(|| refusal("nothing of it is left"))),
        }
    }

    /// How entries of one step can be taken back.
    fn parts(&self, parts: &[Entry<'_>]) -> Result<Reversal> {
        let (number, record) = parts[0];
        match record.kind {
            OperationKind::Create
            | OperationKind::Snapshot
            | OperationKind::Clone
            | OperationKind::Fork
            | OperationKind::Restore => return self.destruction(parts),
            OperationKind::Rollback => return self.rollback(number, record),
            OperationKind::Merge => return self.merge(parts),
            OperationKind::Rename => {
                let renamed = Some(self.rename(record)?);
                return Ok(Reversal::Records { goes: Vec::new(), renamed });
            }
            OperationKind::Promote => self.promotion(record)?,
            OperationKind::Hold | OperationKind::Release => self.hold(record)?,
            OperationKind::Set => parts.iter().try_for_each(|(_, set)| self.set(set))?,
            OperationKind::Destroy => self.restoration(parts)?,
            OperationKind::Limit => drop(self.limit(record)?),
            OperationKind::Label | OperationKind::Grow | OperationKind::Abort => {
                return Err(refusal("a cluster home has no such operation"));
            }
        }
        Ok(Reversal::Records { goes: Vec::new(), renamed: None })
    }

    fn by_number(&self, number: u64) -> Result<&'j Record> {
        let record = self.catalogue().record(number);
        record.ok_or_else(|| refusal("what it was done to is gone for good"))
    }

    fn name(&self, number: u64) -> Result<Source> {
        let source = self.catalogue().source(number);
        source.ok_or_else(|| refusal("what it was done to is gone for good"))
    }

    /// What nobody has destroyed since.
    fn in_sight(&self, number: u64) -> Result<&'j Record> {
        let record = self.by_number(number)?;
        if !self.name(number)?.is_in_trash() {
            return Ok(record);
        }
        Err(refusal(match self.destroyer(number) {
            Some(by) => {
                format!("what it was done to was destroyed by operation {by}: take that back first")
            }
            None => "what it was done to is kept for another undo".to_owned(),
        }))
    }

    /// The operation that has destroyed something, or its dataset.
    fn destroyer(&self, number: u64) -> Option<u64> {
        let record = self.catalogue().record(number)?;
        let of_dataset = || match record.role {
            Role::Snapshot { of } => trash_entry(&self.catalogue().record(of)?.name),
            Role::Dataset { .. } => None,
        };
        trash_entry(&record.name).or_else(of_dataset)
    }

    /// Refuses to take back what was done to something that is not there any more, so that there
    /// is nothing to do about it.
    fn refuse_gone(&self, record: &OperationRecord) -> Result<()> {
        match record.kind {
            OperationKind::Create
            | OperationKind::Snapshot
            | OperationKind::Clone
            | OperationKind::Fork
            | OperationKind::Restore => self.in_sight(record.subject).map(|_| ()),
            OperationKind::Destroy => self.still_kept(record).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn refuse_later(&self, number: u64, record: &OperationRecord, merges: bool) -> Result<()> {
        if self.past {
            return Ok(());
        }
        let later = self.entries().range(number + 1..).find(|(later, other)| {
            let is_rollback = other.kind == OperationKind::Rollback;
            let counts = is_rollback || (merges && other.kind == OperationKind::Merge);
            let holds = other.undoes == 0 && self.undone_by(**later).is_none();
            other.subject == record.subject && counts && holds
        });
        match later {
            None => Ok(()),
            Some((later, other)) => Err(refusal(format!(
                "operation {later}, a {}, came after it: take that back first",
                other.kind.name()
            ))),
        }
    }

    fn destruction(&self, parts: &[Entry<'_>]) -> Result<Reversal> {
        let mut names = Vec::new();
        for (_, record) in parts {
            self.in_sight(record.subject)?;
            let name = self.name(record.subject)?;
            if self.draft.seconds_kept(record.subject) == 0 {
                return Err(refusal(format!(
                    "{name} could not be brought back, since the property undo is off: destroy it \
                     instead"
                )));
            }
            names.push(name);
        }
        // Whether it is open is looked at when it goes: its readers may be sent away before.
        let goes = self.draft.all_that_goes(&names, &|_| false);
        goes.map_err(|error| refusal(error.to_string()))?;
        for (_, record) in parts {
            let snapshots = self.catalogue().snapshots_of(record.subject);
            names.extend(snapshots.filter_map(|number| self.catalogue().source(number)));
        }
        Ok(Reversal::Records { goes: names, renamed: None })
    }

    fn rollback(&self, number: u64, record: &OperationRecord) -> Result<Reversal> {
        self.in_sight(record.subject)?;
        self.refuse_later(number, record, true)?;
        let gone = || refusal(format!("the state before, {}, was destroyed since", record.text(1)));
        let before = self.in_sight(record.before).map_err(|_| gone())?;
        let to = self.name(record.before)?;
        if before.role != (Role::Snapshot { of: record.subject }) {
            return Err(refusal(format!("the state before is {to} now, of another dataset")));
        }
        Ok(Reversal::Rollback { dataset: self.name(record.subject)?.dataset, to })
    }

    fn merge(&self, parts: &[Entry<'_>]) -> Result<Reversal> {
        let (number, record) = parts[0];
        self.in_sight(record.subject)?;
        self.refuse_later(number, record, false)?;
        let rest = match parts.get(1) {
            None => None,
            Some((number, _)) => match self.parts(&parts[1..])? {
                Reversal::Records { goes, .. } => Some(Rest { number: *number, goes }),
                Reversal::Rollback { .. } | Reversal::Merge { .. } | Reversal::Merges(_) => None,
            },
        };
        let state = |number: u64| -> Result<Source> {
            let found = self.catalogue().record(number);
            let is_it = found.is_some_and(|it| it.role == Role::Snapshot { of: record.subject });
            let found = self.catalogue().source(number).filter(|_| is_it);
            found.ok_or_else(|| {
                refusal("the states before and after it are not kept any more (property undo)")
            })
        };
        Ok(Reversal::Merge {
            dataset: self.name(record.subject)?.dataset,
            base: state(record.after)?,
            back_to: state(record.before)?,
            root_object: record.detail,
            moved_base: !record.text(MOVED_TEXT).is_empty(),
            rest,
        })
    }

    fn promotion(&self, record: &OperationRecord) -> Result<()> {
        self.in_sight(record.subject)?;
        self.in_sight(record.other)?;
        let mut trial = self.draft.trial();
        let name = self.name(record.other)?.dataset;
        let moved = trial.promote(&name).map_err(|error| refusal(error.to_string()))?;
        if moved == record.detail {
            return Ok(());
        }
        Err(refusal(format!(
            "{name} would take {moved} snapshots over, and {} were handed over",
            record.detail
        )))
    }

    fn hold(&self, record: &OperationRecord) -> Result<()> {
        let (subject, tag) = (self.in_sight(record.subject)?, record.text(1));
        let name = self.name(record.subject)?;
        let held = subject.holds.iter().any(|known| known == tag);
        match (held, record.kind == OperationKind::Hold) {
            (true, true) | (false, false) => Ok(()),
            (true, false) => Err(refusal(format!("{tag} holds {name} again"))),
            (false, true) => Err(refusal(format!("{tag} holds {name} no more"))),
        }
    }

    fn set(&self, record: &OperationRecord) -> Result<()> {
        let (subject, property) = (self.in_sight(record.subject)?, record.text(1));
        let now = subject.properties.get(property).map_or("", String::as_str);
        if self.past || now == record.text(3) {
            return Ok(());
        }
        let now = if now.is_empty() { "its default" } else { now };
        let name = self.name(record.subject)?;
        Err(refusal(format!("{property} of {name} was set to {now} since")))
    }

    /// Returns the dataset's number and the limit that its owner had.
    fn limit(&self, record: &OperationRecord) -> Result<marram_format::record::Limit> {
        self.in_sight(record.subject)?;
        let now = (self.limit_now)(record.subject, record.detail)?;
        if now != record.text(2) {
            let name = self.name(record.subject)?;
            return Err(refusal(format!("the limit in {name} is {now} (bytes, inodes) since")));
        }
        limit_of(record.text(1)).ok_or_else(|| refusal("the limit before is unknown"))
    }

    /// Returns the name that it has now.
    fn rename(&self, record: &OperationRecord) -> Result<Source> {
        self.in_sight(record.subject)?;
        let (now, given) = (self.name(record.subject)?, record.text(1));
        let last =
            |name: &str| name.split_once('@').map_or(name.to_owned(), |(_, it)| it.to_owned());
        if last(&now.to_string()) != last(given) {
            return Err(refusal(format!("it has the name {now} since")));
        }
        let to = self.former_name(record)?;
        check_rename(&now, &to)?;
        self.refuse_name_taken(&to)?;
        Ok(now)
    }

    /// What a destruction has kept, if it does still.
    fn still_kept(&self, record: &OperationRecord) -> Result<&'j Record> {
        let kept = self.catalogue().record(record.subject).filter(|kept| is_hidden(kept));
        kept.ok_or_else(|| refusal(format!("{} is gone for good", record.text(0))))
    }

    fn restoration(&self, parts: &[Entry<'_>]) -> Result<()> {
        let coming: BTreeSet<u64> = parts.iter().map(|(_, record)| record.subject).collect();
        let mut names = BTreeSet::new();
        for (_, record) in parts {
            self.refuse_without(self.still_kept(record)?, &coming)?;
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
    fn refuse_without(&self, kept: &Record, coming: &BTreeSet<u64>) -> Result<()> {
        let needed = match kept.role {
            Role::Snapshot { of } => of,
            Role::Dataset { origin, .. } => origin,
        };
        let is_gone = self.catalogue().source(needed).is_some_and(|it| it.is_in_trash());
        if !is_gone || coming.contains(&needed) {
            return Ok(());
        }
        let first = self.destroyer(needed).filter(|by| {
            let destroyed = self.entries().get(by).map(|record| record.subject);
            destroyed.is_none_or(|destroyed| !coming.contains(&destroyed))
        });
        let Some(first) = first else { return Ok(()) };
        Err(refusal(format!(
            "what it belongs to or began as is destroyed: take operation {first} back first"
        )))
    }

    /// The name that is given back: a snapshot has it in the dataset that it belongs to now.
    fn former_name(&self, record: &OperationRecord) -> Result<Source> {
        let former: Source = record.text(0).parse()?;
        let Role::Snapshot { of } = self.by_number(record.subject)?.role else {
            return Ok(former);
        };
        // Its dataset may come back with it.
        let now = self.name(of)?;
        let dataset = if now.is_in_trash() { former.dataset } else { now.dataset };
        Ok(Source { dataset, snapshot: former.snapshot })
    }

    fn refuse_name_taken(&self, to: &Source) -> Result<()> {
        match self.catalogue().find(to) {
            Ok(_) => Err(refusal(format!("there is another {to} now"))),
            Err(_) => Ok(()),
        }
    }
}

fn reason(error: Error) -> String {
    match error {
        Error::Invalid(reason) => reason,
        other => other.to_string(),
    }
}

impl Draft {
    /// The same, to try something that is not done; nothing is entered.
    fn trial(&self) -> Draft {
        Draft::new(self.catalogue.clone(), 0, self.now)
    }

    /// The limit that an owner had before an operation, with the dataset; none if the operation
    /// has set none.
    pub(crate) fn limit_before(
        &self,
        number: u64,
        (past, limit_now): (bool, LimitNow<'_>),
    ) -> Result<Option<(u64, u64, marram_format::record::Limit)>> {
        let known = self.catalogue.operations().get(&number);
        let Some(known) = known.filter(|it| it.kind == OperationKind::Limit) else {
            return Ok(None);
        };
        let judge = Judge::new(self, past, limit_now);
        judge.reversal(Some(number))?;
        Ok(Some((known.subject, known.detail, judge.limit(known)?)))
    }

    /// Takes back an operation that is no merge and no limit, with all that is one step with it
    /// but a merge. Returns the number of the new operation, of several the last, and what is gone
    /// for good.
    pub(crate) fn take_back(
        &mut self,
        (number, past): (u64, bool),
        is_open: IsOpen<'_>,
    ) -> Result<(u64, Vec<u64>)> {
        let (parts, reversal) = self.beside_merge(number, past)?;
        if let Reversal::Merge { .. } = reversal {
            return Err(refusal("a merge is taken back by merging"));
        }
        if let Reversal::Records { goes, .. } = &reversal
            && !goes.is_empty()
        {
            let refused = |error: Error| refusal(error.to_string());
            self.all_that_goes(goes, is_open).map_err(refused)?;
        }
        let mut gone = Vec::new();
        for (number, record) in &parts {
            self.undoes = *number;
            self.take_back_one(record, is_open, &mut gone)?;
        }
        self.undoes = 0;
        Ok((self.next_operation() - 1, gone))
    }

    /// What there is to be taken back by a change of records: of a step that begins with a merge
    /// the rest, if that is what is asked for.
    fn beside_merge(
        &self,
        number: u64,
        past: bool,
    ) -> Result<(Vec<(u64, OperationRecord)>, Reversal)> {
        let no_limit = |_, _| Err(refusal("a limit is taken back by itself"));
        let judge = Judge::new(self, past, &no_limit);
        let (mut parts, mut reversal) = judge.step(number)?;
        if let Reversal::Merge { rest: Some(rest), .. } = &reversal
            && rest.number == number
        {
            parts.remove(0);
            reversal = judge.parts(&parts)?;
        }
        let parts = parts.into_iter().map(|(number, record)| (number, record.clone()));
        Ok((parts.collect(), reversal))
    }

    fn take_back_one(
        &mut self,
        record: &OperationRecord,
        is_open: IsOpen<'_>,
        gone: &mut Vec<u64>,
    ) -> Result<()> {
        let subject = record.subject;
        let source = self.source(subject)?;
        match record.kind {
            OperationKind::Rollback => {
                let to = self.source(record.before)?;
                let keep = self.free_name(&source, &format!("before-undo-{}", self.undoes))?;
                gone.extend(self.roll_back(&to, &keep, is_open)?);
            }
            OperationKind::Promote => {
                let other = self.source(record.other)?;
                self.promote(&other.dataset)?;
            }
            OperationKind::Hold => self.release(&source, record.text(1))?,
            OperationKind::Release => self.hold(&source, record.text(1))?,
            OperationKind::Set => {
                let value = Some(record.text(2)).filter(|value| !value.is_empty());
                self.set_property(&source.dataset, record.text(1), value)?;
            }
            OperationKind::Rename => {
                let to = self.former_name(record)?;
                self.rename(&source, &to)?;
            }
            OperationKind::Destroy => {
                let name = self.former_name(record)?;
                self.forget_kept(self.undoes);
                let last = name.snapshot.clone().unwrap_or_else(|| name.dataset.to_string());
                self.change(subject, |record| record.name = last)?;
                let text = name.to_string();
                self.enter(OperationRecord::of(OperationKind::Restore, subject, &[&text]))?;
            }
            _ => {
                let until = self.now.saturating_add(self.seconds_kept(subject));
                self.hide_one((subject, &source), until)?;
            }
        }
        Ok(())
    }

    fn source(&self, number: u64) -> Result<Source> {
        let source = self.catalogue.source(number);
        source.ok_or_else(|| refusal("what it was done to is gone for good"))
    }

    fn former_name(&self, record: &OperationRecord) -> Result<Source> {
        let no_limit = |_, _| Err(refusal("it is no limit"));
        Judge::new(self, false, &no_limit).former_name(record)
    }

    /// A name of a snapshot of a dataset that no other one has.
    fn free_name(&self, of: &Source, prefix: &str) -> Result<String> {
        let numbered = |number: u32| match number {
            1 => prefix.to_owned(),
            _ => format!("{prefix}-{number}"),
        };
        let is_free = |name: &String| {
            let named = Source { dataset: of.dataset.clone(), snapshot: Some(name.clone()) };
            self.catalogue.find(&named).is_err()
        };
        let free = (1..NAMES_MAX).map(numbered).find(is_free);
        free.ok_or_else(|| Error::DatasetExists(prefix.to_owned()))
    }
}
