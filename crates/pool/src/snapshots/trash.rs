//! What is destroyed, but kept for a while so that an undo can bring it back.
//!
//! It is hidden by a name that nobody can choose: the number of the entry in the log of operations
//! that did it. Nothing is moved, so its space is in use until it is **let go**: when its time is
//! over, when its entry leaves the log, or as soon as a writer would be told that the pool is full.
//! Letting go is the destruction that there is anyway, in its steps, with the entry saying so in
//! the same commit: a crash before it leaves what can be brought back, and one after it what is
//! being destroyed.

use super::destroy::{Prepared, prepare};
use super::lineage::handed_over;
use super::list;
use super::operation_log::{Author, entry, is_passing};
use super::plan::Plan;
use crate::commit::Commit;
use crate::front::{Inner, Pool};
use crate::state::records::Records;
use crate::state::settings::undo_seconds;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::operation::{
    KEPT_PREFIX, OPERATIONS_KEPT_MAX, OperationKind, OperationRecord, kept_for,
};
use marram_store::{DatasetReport, Destruction, Error, Result, Source, Store};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Entries that may come between the look whether the oldest can leave the log and the entry that
/// takes its place.
const LOG_MARGIN: u64 = 64;
/// How long to wait with something whose time is over and that somebody still looks at, in
/// seconds.
const BUSY_SECONDS: i64 = 10;

/// What was destroyed, and what became of it.
#[derive(Clone, Debug)]
pub struct Hidden {
    /// What is gone from sight, and what comes back when it is let go.
    pub destruction: Destruction,
    /// Until when an undo can bring it back, in seconds since 1970; `None` if it is gone for good.
    pub kept_until_seconds: Option<i64>,
}

impl Pool {
    /// Destroys as [`Store::destroy_together`], but what goes is kept for an undo as long as the
    /// property `undo` of its dataset says: of several the shortest time holds. If that is off, or
    /// this handle acts for nobody, it goes at once.
    ///
    /// # Errors
    /// As [`Store::destroy_together`].
    pub fn destroy_kept(&self, sources: &[Source]) -> Result<Hidden> {
        let inner = &self.inner;
        let seconds = inner.seconds_to_keep(sources)?;
        let Some(author) = self.author.as_ref().filter(|_| seconds > 0) else {
            let destruction = self.destroy_together(sources, false)?;
            return Ok(Hidden { destruction, kept_until_seconds: None });
        };
        let Prepared { turn, destruction, .. } = prepare(inner, sources)?;
        let mut ids = Vec::new();
        for source in sources {
            ids.push(inner.find(source)?.id);
        }
        let mut until = 0;
        turn.commit(Some(&mut |commit| {
            until = commit.now_seconds.saturating_add(seconds);
            ids.iter().try_for_each(|id| commit.hide(*id, until, author, 0).map(|_| ()))
        }))?;
        inner.note_expiry(until);
        Ok(Hidden { destruction, kept_until_seconds: Some(until) })
    }

    /// What is kept for an undo, under the names that hide it; [`Store::list`] has none of it.
    ///
    /// # Errors
    /// A name in the pool that makes no sense.
    pub fn list_kept(&self) -> Result<Vec<DatasetReport>> {
        let records = self.inner.records.read();
        let kept = records.known().filter(|record| is_hidden(record));
        kept.map(|record| list::report(&records, record)).collect()
    }
}

/// Whether nobody is to see it: it is kept for an undo, or belongs to a dataset that is.
pub(crate) fn is_hidden(record: &DatasetRecord) -> bool {
    record.name.starts_with(KEPT_PREFIX) || kept_for(&record.name).is_some()
}

impl Commit<'_> {
    /// Hides a dataset or snapshot until it is let go, as an operation of its own.
    pub(crate) fn hide(
        &mut self,
        id: u64,
        until_seconds: i64,
        author: &Arc<Author>,
        undoes: u64,
    ) -> Result<u64> {
        let record = self.record(id)?;
        let hidden = format!("{KEPT_PREFIX}{}", self.next_operation()?);
        let hidden = match (record.state, record.name.split_once('@')) {
            (DatasetState::Snapshot, Some((dataset, _))) => format!("{dataset}@{hidden}"),
            _ => hidden,
        };
        self.give_name(id, &hidden.parse()?)?;
        let kept = entry(OperationKind::Destroy, id, &[&record.name]);
        let kept = OperationRecord { undoes, kept_until_seconds: until_seconds, ..kept };
        self.enter(Some(author), kept)
    }

    /// Gives another name; the snapshots of a dataset go with it, by the names that they have in
    /// this commit: it may have given some of them others.
    pub(crate) fn give_name(&mut self, id: u64, to: &Source) -> Result<()> {
        let record = self.record(id)?;
        self.keep(DatasetRecord { name: to.to_string(), ..record })?;
        if to.snapshot.is_some() {
            return Ok(());
        }
        let of_it: Vec<u64> = self.pool.records.read().snapshots(id).map(|it| it.id).collect();
        for id in of_it {
            let record = self.record(id)?;
            let name: Source = handed_over(&record.name, to.dataset.as_str())?.parse()?;
            self.keep(DatasetRecord { name: name.to_string(), ..record })?;
        }
        Ok(())
    }
}

impl Inner {
    /// How long what is destroyed is kept: 0 is not at all.
    fn seconds_to_keep(&self, sources: &[Source]) -> Result<i64> {
        let mut seconds = i64::MAX;
        for source in sources {
            if is_passing(source) {
                return Ok(0);
            }
            let Ok(record) = self.find(source) else { return Ok(0) };
            seconds = seconds.min(self.seconds_kept_of(&record));
        }
        Ok(seconds)
    }

    /// How long what is destroyed of a dataset is kept.
    pub(crate) fn seconds_kept_of(&self, record: &DatasetRecord) -> i64 {
        let records = self.records.read();
        let dataset = records.get(record.parent).map_or(record, |dataset| &**dataset);
        undo_seconds(&dataset.properties)
    }

    /// The time of the one that goes first may have come nearer.
    pub(crate) fn note_expiry(&self, until_seconds: i64) {
        self.next_expiry_seconds.fetch_min(until_seconds, Ordering::AcqRel);
    }

    /// Lets go of what is kept for an entry; false if somebody looks at it.
    fn let_go(&self, number: u64) -> Result<bool> {
        let turn = self.take_turn()?;
        let sources = names(&self.records.read(), number)?;
        if sources.is_empty() {
            return Ok(true);
        }
        let plan = match Plan::new(self, &sources) {
            Err(Error::InUse { .. }) => return Ok(false),
            planned => planned?,
        };
        if plan.refuse_in_use(self).is_err() {
            return Ok(false);
        }
        turn.commit_sifting(0, &mut |commit, pointers| commit.destroy(&plan, pointers))?;
        Ok(true)
    }

    /// Lets go of one whose time is over; tells whether there may be more.
    pub(crate) fn let_go_of_expired(&self) -> Result<bool> {
        let now_seconds = (self.now_seconds)();
        if now_seconds < self.next_expiry_seconds.load(Ordering::Acquire) {
            return Ok(false);
        }
        self.next_expiry_seconds.store(i64::MAX, Ordering::Release);
        let let_go = self.let_go_of_first_expired(now_seconds);
        if let_go.is_err() {
            self.note_expiry(now_seconds.saturating_add(BUSY_SECONDS));
        }
        let_go
    }

    fn let_go_of_first_expired(&self, now_seconds: i64) -> Result<bool> {
        let numbers = self.records.read().kept_numbers();
        for number in numbers {
            let until = {
                let _no_commit = self.committing.lock();
                self.operation(number)?.map_or(0, |entry| entry.kept_until_seconds)
            };
            if until > now_seconds {
                self.note_expiry(until);
            } else if self.let_go(number)? {
                self.note_expiry(now_seconds);
                return Ok(true);
            } else {
                self.note_expiry(now_seconds.saturating_add(BUSY_SECONDS));
            }
        }
        Ok(false)
    }

    /// Gives back something for a writer that finds no space: a piece of what is being destroyed,
    /// or else what has been kept for longest. False if there is nothing of either.
    pub(crate) fn make_space(&self) -> Result<bool> {
        if self.records.read().is_leaving() {
            self.give_back_step()?;
            return Ok(true);
        }
        let numbers = self.records.read().kept_numbers();
        for number in numbers {
            if self.let_go(number)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets go of what is kept for the entries that so many new ones may push out of the log.
    pub(crate) fn make_room_in_log(&self, entries: u64) -> Result<()> {
        self.make_room_beside(entries, &(0..=0))
    }

    /// The same, but for what is kept for the entries of a step: that is about to be taken back,
    /// and needs them no more.
    pub(crate) fn make_room_beside(&self, entries: u64, step: &RangeInclusive<u64>) -> Result<()> {
        let oldest_kept = || {
            let numbers = self.records.read().kept_numbers();
            numbers.into_iter().find(|number| !step.contains(number))
        };
        let Some(mut oldest) = oldest_kept() else { return Ok(()) };
        let next = {
            let _no_commit = self.committing.lock();
            self.next_operation()?
        };
        while oldest + OPERATIONS_KEPT_MAX <= next + entries + LOG_MARGIN {
            if !self.let_go(oldest)? {
                let name = format!("what operation {oldest} has destroyed");
                let holder = "somebody looks at it while its entry is to leave the log".to_owned();
                return Err(Error::InUse { name, holder });
            }
            match oldest_kept() {
                Some(next) => oldest = next,
                None => break,
            }
        }
        Ok(())
    }
}

/// The names of what is kept for an entry.
fn names(records: &Records, number: u64) -> Result<Vec<Source>> {
    let kept = records.known().filter(|record| kept_for(&record.name) == Some(number));
    kept.map(|record| record.name.parse()).collect()
}
