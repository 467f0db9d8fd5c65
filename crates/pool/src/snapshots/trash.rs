//! What is destroyed, but kept for a while so that an undo can bring it back.
//!
//! It is hidden by a name that no user can choose: the number of the entry in the log of operations
//! that did it. Nothing is moved, so its space is in use until it is **let go**. That happens when
//! its time is over, when its entry leaves the log, or when a writer would find the pool full.
//! Letting go is an ordinary destruction in its steps, and the entry says so in the same commit. A
//! crash before it leaves what can be brought back, and one after it what is being destroyed.

use super::automatic;
use super::destroy::{Prepared, prepare};
use super::lineage::handed_over;
use super::list;
use super::merge_bases;
use super::plan::Plan;
use crate::admission::SpaceMaker;
use crate::commit::draft::Commit;
use crate::commit::operation_log;
use crate::commit::operation_log::{entry, is_ephemeral};
use crate::commit::turn;
use crate::commit::turn::Turn;
use crate::memtable::settings::undo_seconds;
use crate::snapshots::destroy;
use crate::snapshots::session::Session;
use crate::state::State;
use crate::state::records::Records;
use crate::state::records::is_hidden;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::operation::{
    OPERATIONS_KEPT_MAX, OperationKind, OperationRecord, TRASH_PREFIX, trash_entry,
};
use marram_store::{Author, DatasetReport, Error, Hidden, Result, Source};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Entries that may come between the look whether the oldest can leave the log and the entry that
/// takes its place.
const LOG_MARGIN: u64 = 64;
/// Entries that lose what is kept for them together: each by itself would be a commit beside that
/// of the operation.
const LET_GO_TOGETHER: u64 = 64;
/// How long to wait with something that has expired and is still open, in seconds.
const BUSY_SECONDS: i64 = 10;

/// The names of what is kept for an entry.
fn names(records: &Records, number: u64) -> Result<Vec<Source>> {
    let kept = records.known().filter(|record| {
        trash_entry(&record.name) == Some(number) || merge_bases::is_kept_for(record, number)
    });
    kept.map(|record| record.name.parse()).collect()
}

/// Makes space of what is destroyed, and of the trash.
pub(crate) struct Reclaim<'p>(pub(crate) &'p State);

impl<'p> SpaceMaker for Reclaim<'p> {
    type Turn = Turn<'p>;

    fn turn(&self) -> Result<Turn<'p>> {
        turn::turn(self.0, None)
    }

    fn make_space(&self) -> Result<bool> {
        make_space(self.0)
    }
}

/// How long what is destroyed is kept: 0 is not at all.
fn seconds_to_keep(pool: &State, sources: &[Source]) -> Result<i64> {
    let mut seconds = i64::MAX;
    for source in sources {
        if is_ephemeral(source) {
            return Ok(0);
        }
        let Ok(record) = pool.find(source) else { return Ok(0) };
        seconds = seconds.min(trash_seconds_of(pool, &record));
    }
    Ok(seconds)
}

/// How long what is destroyed of a dataset is kept.
pub(crate) fn trash_seconds_of(pool: &State, record: &DatasetRecord) -> i64 {
    let records = pool.records.read();
    let dataset = records.get(record.parent).map_or(record, |dataset| &**dataset);
    undo_seconds(&dataset.properties)
}

/// Lets go of what is kept for an entry; false if somebody looks at it.
pub(crate) fn let_go(pool: &State, number: u64) -> Result<bool> {
    if pool.records.read().is_prepared(number) {
        return Ok(false);
    }
    let_go_of(pool, &|records| names(records, number))
}

/// Lets go of what is kept for all entries before one but those of a step, in one commit; of
/// nothing if somebody looks at some of it.
fn let_go_before(pool: &State, end: u64, step: &RangeInclusive<u64>) -> Result<bool> {
    let_go_of(pool, &|records| {
        let numbers = records.trash_entries().into_iter();
        let goes =
            |number: &u64| *number < end && !step.contains(number) && !records.is_prepared(*number);
        let mut all = Vec::new();
        for number in numbers.filter(goes) {
            all.extend(names(records, number)?);
        }
        Ok(all)
    })
}

/// Lets go of a former base that is kept for nothing; false if there is none, or somebody looks
/// at each.
fn let_go_of_forgotten(pool: &State) -> Result<bool> {
    let forgotten: Vec<u64> = {
        // A commit that is under way may leave one.
        let _no_commit = pool.turns.committing.lock();
        let records = pool.records.read();
        let forgotten = records.known().filter(|record| merge_bases::is_forgotten(record));
        forgotten.map(|record| record.id).collect()
    };
    for id in &forgotten {
        let is_it = |record: &&Arc<DatasetRecord>| merge_bases::is_forgotten(record);
        let name = |records: &Records| {
            records.get(*id).filter(is_it).map(|record| record.name.parse()).into_iter().collect()
        };
        if let_go_of(pool, &name)? {
            return Ok(true);
        }
    }
    if !forgotten.is_empty() {
        pool.note_expiry((pool.options.now_seconds)().saturating_add(BUSY_SECONDS));
    }
    Ok(false)
}

fn let_go_of(pool: &State, find: &dyn Fn(&Records) -> Result<Vec<Source>>) -> Result<bool> {
    let turn = turn::take_turn(pool)?;
    let sources = find(&pool.records.read())?;
    if sources.is_empty() {
        return Ok(true);
    }
    let plan = match Plan::new(pool, &sources) {
        Err(Error::InUse { .. }) => return Ok(false),
        planned => planned?,
    };
    if plan.refuse_in_use(pool).is_err() {
        return Ok(false);
    }
    turn.commit_reclaiming(0, &mut |commit, pointers| {
        destroy::destroy_planned(commit, &plan, pointers)
    })?;
    Ok(true)
}

/// Lets go of one whose time is over; returns whether there may be more.
pub(crate) fn let_go_of_expired(pool: &State) -> Result<bool> {
    let now_seconds = (pool.options.now_seconds)();
    if now_seconds < pool.next_expiry_seconds.load(Ordering::Acquire) {
        return Ok(false);
    }
    pool.next_expiry_seconds.store(i64::MAX, Ordering::Release);
    let let_go = let_go_of_first_expired(pool, now_seconds);
    if let_go.is_err() {
        pool.note_expiry(now_seconds.saturating_add(BUSY_SECONDS));
    }
    let_go
}

fn let_go_of_first_expired(pool: &State, now_seconds: i64) -> Result<bool> {
    if let_go_of_forgotten(pool)? {
        pool.note_expiry(now_seconds);
        return Ok(true);
    }
    let numbers = pool.records.read().trash_entries();
    for number in numbers {
        let until = {
            let _no_commit = pool.turns.committing.lock();
            operation_log::operation(pool, number)?.map_or(0, |entry| entry.kept_until_seconds)
        };
        if until > now_seconds {
            pool.note_expiry(until);
        } else if let_go(pool, number)? {
            pool.note_expiry(now_seconds);
            return Ok(true);
        } else {
            pool.note_expiry(now_seconds.saturating_add(BUSY_SECONDS));
        }
    }
    Ok(false)
}

/// Gives back something for a writer that finds no space: a piece of what is being destroyed,
/// or else what has been kept for longest, or the oldest automatic snapshot. False if there is
/// nothing of it.
pub(crate) fn make_space(pool: &State) -> Result<bool> {
    if destroy::drop_ended(pool)? {
        return Ok(true);
    }
    if pool.records.read().is_leaving() {
        destroy::give_back_step(pool)?;
        return Ok(true);
    }
    if let_go_of_forgotten(pool)? {
        return Ok(true);
    }
    let numbers = pool.records.read().trash_entries();
    for number in numbers {
        if let_go(pool, number)? {
            return Ok(true);
        }
    }
    automatic::let_go_of_oldest(pool)
}

/// Lets go of what is kept for the entries that so many new ones may push out of the log.
pub(crate) fn make_room_in_log(pool: &State, entries: u64) -> Result<()> {
    make_room_beside(pool, entries, &(0..=0))
}

/// The same, but for what is kept for the entries of a step: that is about to be taken back,
/// and needs them no more.
pub(crate) fn make_room_beside(
    pool: &State,
    entries: u64,
    step: &RangeInclusive<u64>,
) -> Result<()> {
    let oldest_kept = || {
        let numbers = pool.records.read().trash_entries();
        numbers.into_iter().find(|number| !step.contains(number))
    };
    let Some(mut oldest) = oldest_kept() else { return Ok(()) };
    let next = {
        let _no_commit = pool.turns.committing.lock();
        operation_log::next_operation(pool)?
    };
    let end = (next + entries + LOG_MARGIN + 1).saturating_sub(OPERATIONS_KEPT_MAX);
    if oldest < end {
        // What somebody looks at is met by the steps below.
        let_go_before(pool, end + LET_GO_TOGETHER, step)?;
        match oldest_kept() {
            Some(next) => oldest = next,
            None => return Ok(()),
        }
    }
    while oldest < end {
        if !let_go(pool, oldest)? {
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

/// Hides a dataset or snapshot until it is let go, as an operation of its own.
pub(crate) fn hide(
    commit: &mut Commit<'_>,
    id: u64,
    until_seconds: i64,
    author: &Arc<Author>,
    undoes: u64,
) -> Result<u64> {
    let record = commit.record(id)?;
    let hidden = format!("{TRASH_PREFIX}{}", operation_log::next_entry(commit)?);
    let hidden = match (record.state, record.name.split_once('@')) {
        (DatasetState::Snapshot, Some((dataset, _))) => format!("{dataset}@{hidden}"),
        _ => hidden,
    };
    give_name(commit, id, &hidden.parse()?)?;
    let kept = entry(OperationKind::Destroy, id, &[&record.name]);
    let kept = OperationRecord { undoes, kept_until_seconds: until_seconds, ..kept };
    operation_log::enter(commit, Some(author), kept)
}

/// Gives another name; the snapshots of a dataset go with it, by the names that they have in
/// this commit: it may have given some of them others.
pub(crate) fn give_name(commit: &mut Commit<'_>, id: u64, to: &Source) -> Result<()> {
    let record = commit.record(id)?;
    commit.keep(DatasetRecord { name: to.to_string(), ..record })?;
    if to.snapshot.is_some() {
        return Ok(());
    }
    let of_it: Vec<u64> = commit.pool.records.read().snapshots(id).map(|it| it.id).collect();
    for id in of_it {
        let record = commit.record(id)?;
        let name: Source = handed_over(&record.name, to.dataset.as_str())?.parse()?;
        commit.keep(DatasetRecord { name: name.to_string(), ..record })?;
    }
    Ok(())
}

/// See `Pool::move_to_trash`.
pub(crate) fn move_to_trash(session: &Session, sources: &[Source]) -> Result<Hidden> {
    let inner = &session.state;
    let seconds = seconds_to_keep(inner, sources)?;
    let Some(author) = session.author.as_ref().filter(|_| seconds > 0) else {
        let destruction = destroy::destroy(session, sources, false)?;
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
        ids.iter().try_for_each(|id| hide(commit, *id, until, author, 0).map(|_| ()))
    }))?;
    inner.note_expiry(until);
    Ok(Hidden { destruction, kept_until_seconds: Some(until) })
}

/// See `Pool::list_trash`.
pub(crate) fn list_trash(session: &Session) -> Result<Vec<DatasetReport>> {
    let records = session.state.records.read();
    let kept = records.known().filter(|record| is_hidden(record));
    kept.map(|record| list::report(&records, record)).collect()
}
