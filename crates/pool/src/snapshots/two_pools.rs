//! Transactions over two pools: prepared in one, decided by the commit of the other.
//!
//! **Prepared is merged, with a way back.** The commit that prepares is that of the merge: what it
//! brings, the states before and after, its entries in the log. Beside them it has a record that
//! says that all of it holds only if the other pool says so. So nothing that can fail is left for
//! later: a decision to commit takes the record away, and any other one lets each dataset go on
//! from its state before, whose snapshot is there. Both are changes of records.
//!
//! The turn to commit is kept from the commit that prepares until the decision. Nobody opens,
//! takes or forks anything meanwhile, and the file systems are held still. If the decision cannot
//! be had, the turn is given back and the datasets are in [doubt](crate::memtable::doubt).
//!
//! **The decision is the merge's commit in the other pool**, which has a record beside it, too: the
//! log of operations forgets, and a pool that stays away for a year must still be answered. A crash
//! before that commit finds no record of a decision, and nothing of the transaction holds anywhere.
//!
//! A pool that decides never waits for one that is prepared. Of two pools the one with the smaller
//! id decides, so turns are waited for in one order.

use crate::base::planted::{PlantedBug, is_planted};
use crate::commit::draft::Commit;
use crate::commit::operation_log;
use crate::commit::turn::Turn;
use crate::snapshots::lineage;
use crate::snapshots::session::Session;
use crate::state::State;
use marram_format::dataset::DatasetState;
use marram_format::operation::{
    ABORTED_TEXT, BY_HAND_TEXT, OPERATION_TEXTS_MAX, OperationKind, OperationRecord, PREPARED_TEXT,
    STATE_TEXT,
};
use marram_format::transaction::{
    TRANSACTION_PATH_BYTES_MAX, TransactionDataset, TransactionRecord, TransactionState,
};
use marram_store::{Author, Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// From this time on what is kept for a merge that was aborted may go.
const LONG_AGO_SECONDS: i64 = 1;
/// Bytes of a command in an entry of which it is known that somebody has decided it by hand.
const BY_HAND_BYTES_MAX: usize = 512;

/// The other pool of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherPool {
    /// Its id.
    pub id: [u8; 16],
    /// Where it is.
    pub path: String,
}

/// What the pool that decides says of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is committed there.
    Committed,
    /// It is not, and never will be.
    Aborted,
    /// That cannot be known now.
    Unknown,
}

/// How a transaction ends that is prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// It is committed.
    pub committed: bool,
    /// Somebody has said so in place of the other pool.
    pub by_hand: bool,
    /// All file systems that have its datasets open are held still, and read everything anew. So
    /// they go on. Without that, they are at their end if it is committed.
    pub views_go_on: bool,
}

/// Has the other pool decide. Called once, when all is prepared; it may take long.
pub type Decide<'d> = Arc<dyn Fn() -> Verdict + Send + Sync + 'd>;

/// A transaction over two pools, as one of them takes part.
#[derive(Clone)]
pub(crate) struct Part {
    id: [u8; 16],
    other: OtherPool,
    /// Of the pool that does not decide: how the decision is had.
    decide: Option<Decide<'static>>,
    has_begun: Arc<AtomicBool>,
}

impl Part {
    pub(crate) fn new(id: [u8; 16], other: OtherPool, decide: Option<Decide<'static>>) -> Part {
        Part { id, other, decide, has_begun: Arc::default() }
    }

    pub(crate) fn is_prepared_here(&self) -> bool {
        self.decide.is_some()
    }

    /// Refuses a second attempt: the first one has been answered by the other pool, or may have.
    /// Refuses one of the id of another one, too: what the other pool says of both would be the
    /// same.
    pub(crate) fn begin(&self, session: &Session) -> Result<()> {
        if session.author.is_none() {
            return Err(Error::Invalid("a transaction over two pools has an author".to_owned()));
        }
        let is_other =
            |record: &TransactionRecord| record.id == self.id && record.other_pool == self.other.id;
        let is_first = !self.has_begun.load(Ordering::SeqCst);
        if is_first && session.state.records.read().transactions().values().any(is_other) {
            return Err(self.is_over("is not over, and another one has its id"));
        }
        match self.decide.is_some() && self.has_begun.load(Ordering::SeqCst) {
            true => Err(self.is_over("was prepared before")),
            false => Ok(()),
        }
    }

    fn is_over(&self, what: &str) -> Error {
        let (id, path) = (hexadecimal(&self.id), &self.other.path);
        Error::InUse { name: format!("transaction {id}"), holder: format!("it {what} ({path})") }
    }

    /// What the commit of the merge has beside it.
    pub(crate) fn enter(
        &self,
        commit: &mut Commit<'_>,
        first: u64,
        datasets: Vec<TransactionDataset>,
    ) {
        let is_too_long = self.other.path.len() > TRANSACTION_PATH_BYTES_MAX;
        let other_path = if is_too_long { String::new() } else { self.other.path.clone() };
        let state = match self.is_prepared_here() {
            true => TransactionState::Prepared,
            false => TransactionState::Decided,
        };
        let (id, other_pool) = (self.id, self.other.id);
        let record = TransactionRecord { state, id, other_pool, other_path, datasets };
        Arc::make_mut(&mut commit.transactions).insert(first, record);
    }
}

/// An entry of a merge that is prepared says so.
pub(crate) fn note_prepared(record: &mut OperationRecord) {
    record.texts.resize(STATE_TEXT, String::new());
    record.texts.push(PREPARED_TEXT.to_owned());
}

/// Whether an entry is that of a merge of which it is not known whether it holds, or that does not.
pub(crate) fn is_without_effect(record: &OperationRecord) -> bool {
    [PREPARED_TEXT, ABORTED_TEXT].contains(&record.text(STATE_TEXT))
}

/// The bug of a decision that does not wait until all is prepared.
pub(crate) fn decide_too_early(part: &Part) {
    if is_planted(PlantedBug::DecisionBeforePrepared)
        && let Some(decide) = &part.decide
    {
        decide();
    }
}

/// Has the other pool decide, and does what it says. The caller holds the turn that has prepared.
///
/// # Errors
/// It is not committed, or that is not known.
pub(crate) fn conclude(session: &Session, turn: &Turn<'_>, number: u64) -> Result<()> {
    let Some((part, decide)) =
        session.part.as_ref().and_then(|it| it.decide.as_ref().map(|d| (it, d)))
    else {
        return Ok(());
    };
    part.has_begun.store(true, Ordering::SeqCst);
    let pool = &*session.state;
    match decide() {
        Verdict::Committed => {
            // It is committed, whatever becomes of this: the record is asked about again.
            if commit_prepared(pool, turn, number, None).is_err() {
                begin_doubt(pool, number);
            }
            Ok(())
        }
        Verdict::Aborted => {
            if let Err(error) = abort_prepared(pool, turn, number, None) {
                begin_doubt(pool, number);
                return Err(error);
            }
            Err(part.is_over("was not committed in the other pool"))
        }
        Verdict::Unknown => {
            begin_doubt(pool, number);
            Err(part.is_over("is prepared, and the other pool has not told its decision"))
        }
    }
}

/// The record of a transaction, by the number of its first entry.
fn record(pool: &State, number: u64) -> Result<TransactionRecord> {
    let found = pool.records.read().kept_transactions().get(&number).cloned();
    found.ok_or_else(|| Error::Invalid(format!("no transaction has the entry {number}")))
}

fn begin_doubt(pool: &State, number: u64) {
    let Ok(record) = record(pool, number) else { return };
    let datasets = record.datasets.iter().filter_map(|part| pool.running(part.dataset));
    datasets.for_each(|dataset| dataset.doubt.begin());
}

/// Somebody has said it, in place of the other pool.
#[derive(Clone, Copy)]
struct ByHand<'a> {
    author: Option<&'a Arc<Author>>,
}

/// Whether an entry is that of what is prepared in a dataset. A record that is damaged, or was made
/// by hand, may lead to any.
fn is_of(entry: &OperationRecord, part: TransactionDataset) -> bool {
    entry.kind == OperationKind::Merge
        && entry.subject == part.dataset
        && entry.before == part.before
        && entry.text(STATE_TEXT) == PREPARED_TEXT
}

/// Refuses to let datasets go on from states that are not those before what is prepared in them:
/// the way back of each is its own last snapshot but one, and its last one is what is prepared.
fn check_way_back(pool: &State, number: u64, known: &TransactionRecord) -> Result<()> {
    let mut datasets = BTreeSet::new();
    for (entry, part) in (number..).zip(&known.datasets) {
        let found = operation_log::operation(pool, entry)?;
        let entry = found.filter(|entry| is_of(entry, *part));
        let records = pool.records.read();
        let live = records.get(part.dataset).filter(|it| it.state == DatasetState::Live);
        let is_snapshot = |id: u64| {
            let found = records.get(id).filter(|it| it.state == DatasetState::Snapshot);
            found.is_some_and(|it| it.parent == part.dataset)
        };
        let is_last = |id: u64| live.is_some_and(|live| live.previous == id);
        let has_way_back = entry.is_some_and(|entry| {
            is_snapshot(part.before) && is_snapshot(entry.after) && is_last(entry.after)
        });
        if !has_way_back || !datasets.insert(part.dataset) {
            return Err(Error::Invalid(format!(
                "the record of transaction {} is damaged: dataset {} cannot go on from \
                 snapshot {}, which is not its state before; nothing was changed; `marram tx \
                 resolve --commit` keeps what is there",
                hexadecimal(&known.id),
                part.dataset,
                part.before
            )));
        }
    }
    Ok(())
}

/// What was prepared holds.
fn commit_prepared(
    pool: &State,
    turn: &Turn<'_>,
    number: u64,
    by: Option<ByHand<'_>>,
) -> Result<()> {
    let known = record(pool, number)?;
    turn.commit(Some(&mut |commit| {
        for (entry, part) in (number..).zip(&known.datasets) {
            change_entry(commit, (entry, *part), &|record| {
                record.texts.truncate(STATE_TEXT);
                while record.texts.last().is_some_and(String::is_empty) {
                    record.texts.pop();
                }
                note_hand(record, by);
            })?;
        }
        end_record(commit, number, by.map(|_| TransactionState::CommittedByHand));
        Ok(())
    }))
}

/// Each dataset goes on from its state before.
fn abort_prepared(
    pool: &State,
    turn: &Turn<'_>,
    number: u64,
    by: Option<ByHand<'_>>,
) -> Result<()> {
    let known = record(pool, number)?;
    check_way_back(pool, number, &known)?;
    turn.settle_forks()?;
    turn.commit_alone(&mut |commit| {
        for (entry, part) in (number..).zip(&known.datasets) {
            lineage::leave_line(commit, part.dataset, part.before)?;
            change_entry(commit, (entry, *part), &|record| {
                record.texts.truncate(STATE_TEXT);
                record.texts.push(ABORTED_TEXT.to_owned());
                record.kept_until_seconds = LONG_AGO_SECONDS;
                record.texts.extend(by.and_then(command_of));
            })?;
        }
        end_record(commit, number, by.map(|_| TransactionState::AbortedByHand));
        Ok(())
    })?;
    pool.note_expiry(LONG_AGO_SECONDS);
    Ok(())
}

fn note_hand(record: &mut OperationRecord, by: Option<ByHand<'_>>) {
    if let Some(by) = by {
        record.texts.resize(STATE_TEXT, String::new());
        record.texts.push(BY_HAND_TEXT.to_owned());
        record.texts.extend(command_of(by));
    }
    assert!(record.texts.len() <= OPERATION_TEXTS_MAX, "an entry has few texts");
}

fn command_of(by: ByHand<'_>) -> Option<String> {
    let mut command = by.author?.command_of_entry();
    while command.len() > BY_HAND_BYTES_MAX {
        command.pop();
    }
    Some(command)
}

fn change_entry(
    commit: &mut Commit<'_>,
    (number, part): (u64, TransactionDataset),
    change: &dyn Fn(&mut OperationRecord),
) -> Result<()> {
    let found = operation_log::changed_entry(commit, number)?;
    if let Some(mut entry) = found.filter(|entry| is_of(entry, part)) {
        change(&mut entry);
        operation_log::put(commit, number, &entry);
    }
    Ok(())
}

/// The record goes, or says from now on what somebody has decided.
fn end_record(commit: &mut Commit<'_>, number: u64, state: Option<TransactionState>) {
    let transactions = Arc::make_mut(&mut commit.transactions);
    match (state, transactions.get_mut(&number)) {
        (Some(state), Some(record)) => record.state = state,
        _ => {
            transactions.remove(&number);
        }
    }
}

/// See [`crate::Pool::conclude_prepared`].
pub(crate) fn conclude_later(session: &Session, number: u64, ending: Ending) -> Result<()> {
    let Ending { committed, by_hand, views_go_on } = ending;
    let pool = &*session.state;
    let turn = crate::commit::turn::take_turn(pool)?;
    if record(pool, number)?.state != TransactionState::Prepared {
        return Err(Error::Invalid("the transaction is not prepared here any more".to_owned()));
    }
    let by = by_hand.then_some(ByHand { author: session.author.as_ref() });
    // The records of what it is about go with the commit.
    let datasets = record(pool, number)?.datasets;
    match committed {
        true => commit_prepared(pool, &turn, number, by)?,
        false => abort_prepared(pool, &turn, number, by)?,
    }
    for part in datasets {
        if let Some(dataset) = pool.running(part.dataset) {
            dataset.doubt.end(committed && !views_go_on);
        }
    }
    Ok(())
}

/// See [`crate::Pool::forget_transaction`].
pub(crate) fn forget(session: &Session, number: u64) -> Result<()> {
    let pool = &*session.state;
    pool.check_writable()?;
    if record(pool, number)?.state == TransactionState::Prepared {
        return Err(Error::Invalid("what is prepared is decided, and not forgotten".to_owned()));
    }
    Arc::make_mut(&mut pool.records.write()).forget_transaction(number);
    Ok(())
}

fn hexadecimal(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Ending, conclude_later, note_prepared};
    use crate::commit::draft::Commit;
    use crate::commit::operation_log::{self, entry};
    use crate::commit::turn::commit_with;
    use crate::{CreateOptions, OpenOptions, Pool};
    use marram_device::{Device, MemoryDevice};
    use marram_format::operation::OperationKind;
    use marram_format::transaction::{TransactionDataset, TransactionRecord, TransactionState};
    use marram_store::{Author, DatasetName, Error, Properties, Store};
    use shuttle::scheduler::RandomScheduler;
    use shuttle::{Config, MaxSteps, Runner};
    use std::sync::Arc;

    const STACK_BYTES: usize = 1 << 20;

    /// A dataset, and the state before what is said to be prepared in it.
    type Crafted = (&'static str, &'static str);

    fn author() -> Author {
        Author { user: Some(1), command: "crafted".to_owned() }
    }

    /// A pool with a snapshot of its root, and of another dataset.
    fn pool_on(device: &Arc<dyn Device>) -> Arc<Pool> {
        let options = CreateOptions {
            label: String::new(),
            properties: Properties::default(),
            pool_id: [1; 16],
            secret: 1,
            now_seconds: 0,
        };
        crate::create(std::slice::from_ref(device), &options).expect("it is made");
        let pool = Pool::open(vec![Arc::clone(device)], OpenOptions::new(|| 0)).expect("it opens");
        let other: DatasetName = "other".parse().expect("a valid name");
        let acting = pool.acting_for(author());
        acting.create(&other, &Default::default()).expect("it is made");
        for dataset in [DatasetName::root(), other] {
            acting.snapshot(&dataset, "kept").expect("it is taken");
        }
        pool
    }

    fn id_of(pool: &Pool, name: &str) -> u64 {
        pool.session.state.find(&name.parse().expect("a name")).expect("it is there").id
    }

    /// A pool that was opened with the record of a prepared transaction, and its number. Entries
    /// agree with it, or there are none of it.
    fn crafted(datasets: &[Crafted], has_entries: bool) -> (Arc<Pool>, u64) {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
        let pool = pool_on(&device);
        let part = |(dataset, before): &Crafted| TransactionDataset {
            dataset: id_of(&pool, dataset),
            before: id_of(&pool, before),
        };
        let datasets: Vec<TransactionDataset> = datasets.iter().map(part).collect();
        let record = TransactionRecord {
            state: TransactionState::Prepared,
            id: [7; 16],
            other_pool: [9; 16],
            other_path: "/other".to_owned(),
            datasets: datasets.clone(),
        };
        let (author, after) = (Arc::new(author()), id_of(&pool, "root@kept"));
        let mut number = 1;
        let enter = &mut |commit: &mut Commit<'_>| {
            number = if has_entries { operation_log::next_entry(commit)? } else { number };
            for part in datasets.iter().filter(|_| has_entries) {
                let mut of = entry(OperationKind::Merge, part.dataset, &["root", "tx:7"]);
                (of.before, of.after) = (part.before, after);
                note_prepared(&mut of);
                operation_log::enter(commit, Some(&author), of)?;
            }
            Arc::make_mut(&mut commit.transactions).insert(number, record.clone());
            Ok(())
        };
        commit_with(&pool.session.state, Some(enter)).expect("it commits");
        drop(pool);
        (Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it opens"), number)
    }

    #[test]
    fn a_way_back_that_is_none_is_refused_and_changes_nothing() {
        // The locks of these tests are those of random schedules, and opening takes a deep stack.
        let mut config = Config::default();
        (config.stack_size, config.max_steps) = (STACK_BYTES, MaxSteps::None);
        Runner::new(RandomScheduler::new_from_seed(1, 1), config).run(refused_ways_back);
    }

    fn refused_ways_back() {
        for (datasets, has_entries) in [
            (&[("root", "other@kept")][..], true),
            (&[("root", "other")], true),
            (&[("other", "other@kept")], true),
            (&[("root@kept", "root@kept")], true),
            (&[("root", "root@kept"), ("root", "root@kept")], true),
            (&[("root", "root@kept")], false),
        ] {
            let (pool, number) = crafted(datasets, has_entries);
            let state = &pool.session.state;
            let live = || state.find(&"root".parse().expect("a name")).expect("it is there");
            let texts = || {
                let all = pool.operations().expect("a log").into_iter();
                all.map(|it| it.record.texts).collect::<Vec<_>>()
            };
            let (group, before, entries) = (pool.status().group, live(), texts());
            let refused = conclude_later(&pool.session, number, Ending::default());
            let told = refused.as_ref().expect_err("refused").to_string();
            assert!(matches!(refused, Err(Error::Invalid(_))), "{told}");
            assert!(told.contains("damaged") && told.contains("--commit"), "{told}");
            assert_eq!(pool.status().group, group, "nothing was committed");
            assert_eq!((before.previous, &before.root), (live().previous, &live().root));
            let ending = Ending { committed: true, ..Ending::default() };
            conclude_later(&pool.session, number, ending).expect("what is there is kept");
            assert!(has_entries || texts() == entries, "entries of others are as they were");
            assert!(pool.two_pool_transactions().is_empty());
            pool.snapshot(&DatasetName::root(), "later").expect("the pool goes on");
        }
    }
}
