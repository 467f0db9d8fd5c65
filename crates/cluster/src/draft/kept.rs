//! Operations entered into the log of operations, and what is kept for an undo of them.
//!
//! What was destroyed stays under a name that hides it: `undo:NUMBER`, with the number of its
//! operation. It is let go when its time is over, or when its operation leaves the log.

use super::{Draft, IsOpen};
use crate::catalogue::Catalogue;
use crate::format::{Record, Role};
use marram_format::group::Group;
use marram_format::operation::{
    NO_USER, OPERATIONS_KEPT_MAX, OperationKind, OperationRecord, TRASH_PREFIX, trash_entry,
};
use marram_store::{Author, Error, Result, Source, undo_seconds};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The property that says how long what is destroyed is kept.
pub(crate) const UNDO: &str = "undo";

/// Whether a snapshot or fork is there for as long as something works with it: no operation of the
/// log makes it or takes it away.
pub(crate) fn is_passing(source: &Source) -> bool {
    source.is_own() && !source.is_fork_base()
}

/// Whether a record is kept for an undo: by its own name, not by that of its dataset.
pub(crate) fn is_hidden(record: &Record) -> bool {
    trash_entry(&record.name).is_some()
}

impl Draft {
    /// What is done from now on is entered for this author; without one it is not entered.
    pub(crate) fn act_for(&mut self, author: Option<&Arc<Author>>) {
        self.author = author.cloned();
    }

    /// What is done from now on takes an operation back; 0 for none.
    pub(crate) fn taking_back(&mut self, number: u64) {
        self.undoes = number;
    }

    /// Nothing of this is let go when operations leave the log.
    pub(crate) fn set_open(&mut self, open: BTreeSet<u64>) {
        self.open = open;
    }

    /// The number of the next operation.
    pub(crate) fn next_operation(&self) -> u64 {
        let last = self.catalogue.operations().last_key_value();
        last.map_or(1, |(number, _)| number + 1)
    }

    /// Enters an operation, if it is done for somebody. Returns its number, or 0.
    pub(crate) fn enter(&mut self, record: OperationRecord) -> Result<u64> {
        let Some(author) = self.author.clone() else { return Ok(0) };
        let number = self.next_operation();
        let record = OperationRecord {
            user: author.user.unwrap_or(NO_USER),
            seconds: self.now,
            group: Group(self.entry),
            undoes: self.undoes,
            command: author.command_of_entry(),
            ..record
        };
        self.set_operation(number, Some(record));
        let old: Vec<u64> = match number.checked_sub(OPERATIONS_KEPT_MAX) {
            Some(oldest) => {
                self.catalogue.operations().range(..=oldest).map(|(old, _)| *old).collect()
            }
            None => Vec::new(),
        };
        for old in old {
            // What somebody looks at, or cannot go, goes with a later operation.
            if matches!(self.let_go(old), Ok(true)) {
                self.set_operation(old, None);
            }
        }
        Ok(number)
    }

    fn set_operation(&mut self, number: u64, operation: Option<OperationRecord>) {
        self.operations.insert(number);
        self.catalogue.set_operation(number, operation);
    }

    /// How long what is destroyed of a dataset or snapshot is kept, in seconds; 0 is not at all.
    pub(crate) fn seconds_kept(&self, number: u64) -> i64 {
        let of = self.catalogue.record(number);
        let of = of.and_then(|record| match record.role {
            Role::Snapshot { of } => self.catalogue.record(of),
            Role::Dataset { .. } => Some(record),
        });
        undo_seconds(of.and_then(|record| record.properties.get(UNDO)).map(String::as_str))
    }

    /// Destroys datasets and snapshots, but keeps them for an undo. Returns what is gone from
    /// sight, and until when it is kept; `None` if it is gone for good.
    pub(crate) fn hide(
        &mut self,
        sources: &[Source],
        is_open: IsOpen<'_>,
    ) -> Result<(Vec<Source>, Option<i64>)> {
        let mut named = Vec::with_capacity(sources.len());
        for source in sources {
            named.push((self.catalogue.find(source)?, source));
        }
        let seconds = |(number, source): &(u64, &Source)| match is_passing(source) {
            true => 0,
            false => self.seconds_kept(*number),
        };
        let seconds = named.iter().map(seconds).min().unwrap_or(0);
        if self.author.is_none() || seconds == 0 {
            return self.destroy(sources, is_open).map(|gone| (gone, None));
        }
        let goes = self.all_that_goes(sources, is_open)?;
        let gone = self.names_of(&goes);
        let until = self.now.saturating_add(seconds);
        for (number, source) in named {
            self.hide_one((number, source), until)?;
        }
        Ok((gone, Some(until)))
    }

    /// Hides one, as an operation of its own.
    pub(super) fn hide_one(&mut self, (number, name): (u64, &Source), until: i64) -> Result<u64> {
        let hidden = format!("{TRASH_PREFIX}{}", self.next_operation());
        self.change(number, |record| record.name = hidden)?;
        let record = OperationRecord::of(OperationKind::Destroy, number, &[&name.to_string()]);
        self.enter(OperationRecord { kept_until_seconds: until, ..record })
    }

    /// Lets go of what is kept for an operation; false, and nothing is changed, if somebody looks
    /// at it.
    pub(crate) fn let_go(&mut self, number: u64) -> Result<bool> {
        let kept = kept_for(&self.catalogue, number);
        if !kept.is_empty() {
            let open = std::mem::take(&mut self.open);
            // The end of what was destroyed before is no operation.
            let author = self.author.take();
            let gone = self.destroy(&kept, &|number| open.contains(&number));
            (self.open, self.author) = (open, author);
            match gone {
                Ok(_) => {}
                Err(Error::InUse { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.forget_kept(number);
        Ok(true)
    }

    /// An operation keeps nothing any more.
    pub(super) fn forget_kept(&mut self, number: u64) {
        let Some(known) = self.catalogue.operations().get(&number) else { return };
        if known.kept_until_seconds == 0 {
            return;
        }
        let mut known = OperationRecord { kept_until_seconds: 0, ..known.clone() };
        if known.kind == OperationKind::Merge {
            (known.before, known.after) = (0, 0);
        }
        self.set_operation(number, Some(known));
    }

    /// Lets go of all whose time is over. One that cannot go is in the way of no other. Returns
    /// the first reason.
    pub(crate) fn let_go_of_expired(&mut self) -> Option<Error> {
        let mut failed = None;
        for number in expired(&self.catalogue, self.now) {
            if let Err(error) = self.let_go(number) {
                failed.get_or_insert(error);
            }
        }
        failed
    }
}

/// What is kept for an operation.
fn kept_for(catalogue: &Catalogue, number: u64) -> Vec<Source> {
    let is_kept = |(source, record): &(Source, &Record)| {
        let former = || source.former_base().map(|(entry, _)| entry);
        trash_entry(&record.name) == Some(number) || former() == Some(number)
    };
    let all = catalogue.records();
    let named = all.filter_map(|(number, record)| Some((catalogue.source(number)?, record)));
    named.filter(is_kept).map(|(source, _)| source).collect()
}

/// The operations that have kept something for longer than they were to.
pub(crate) fn expired(catalogue: &Catalogue, now: i64) -> Vec<u64> {
    let is_over = |(_, record): &(&u64, &OperationRecord)| {
        record.kept_until_seconds != 0 && record.kept_until_seconds <= now
    };
    catalogue.operations().iter().filter(is_over).map(|(number, _)| *number).collect()
}
