//! Merges that wait in memory: their batches are applied, and in no commit yet.
//!
//! The batch of such a merge is a frozen layer of its own. **Each commit takes in all that wait**:
//! of each the state before it, the state after it, and its entry in the log of operations, as
//! moments of that commit (`commit/merges.rs`). A commit that fails leaves them as they are: others
//! may have built on them, and what is built on is not taken away.
//!
//! **A frame of the intent log that has the batch has the entry, too.** So a sync makes one
//! durable, and a replay makes it wait again. A crash leaves none that nobody can find.
//!
//! One is added under the turn to commit, so none comes while a commit is made.

use crate::base::order::{self, Condvar, Mutex};
use crate::log::LoggedMerge;
use crate::memtable::dataset::Dataset;
use crate::state::State;
use marram_format::dataset::DatasetRecord;
use marram_format::operation::{NO_USER, OperationRecord};
use marram_store::Author;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How long a merge that waits stays for another one to come. Most are judged in a fraction of
/// that; one that takes longer gets a commit of its own.
const ARRIVAL: Duration = Duration::from_millis(20);

/// All that wait, and how many more are expected.
pub(crate) struct WaitingMerges {
    table: Mutex<Table>,
    /// Something in the table has changed.
    changed: Condvar,
    /// How many wait: where there is none, no lock is taken.
    count: AtomicUsize,
}

#[derive(Default)]
struct Table {
    waiting: Vec<Arc<WaitingMerge>>,
    expected: usize,
    /// How many have ever been added, and how many of these are in a commit, or in a frame.
    added: u64,
    settled: u64,
    durable: u64,
    /// How many became durable together, the last time that any did.
    last: u64,
}

/// One of them.
pub(crate) struct WaitingMerge {
    /// What it was applied to.
    pub(crate) dataset: Arc<Dataset>,
    /// Which of the frozen layers of that is its batch, and the number of its freeze.
    pub(crate) layer: usize,
    pub(crate) freeze: u64,
    /// The fork that it was computed from: nothing is to be written of what that has in memory.
    pub(crate) fork: u64,
    pub(crate) entry: MergeEntry,
    /// The user and command of its entry.
    pub(crate) author: Option<Arc<Author>>,
}

/// What a merge has in the log of operations, and keeps for its undo.
pub(crate) struct MergeEntry {
    /// The dataset that it goes into.
    pub(crate) live: Arc<DatasetRecord>,
    /// As far as it is known before the commit.
    pub(crate) record: OperationRecord,
    /// How long the states before and after it are kept for an undo; 0 is not at all.
    pub(crate) seconds: i64,
    /// The state before it, once a commit has kept that.
    pub(crate) before: AtomicU64,
    /// Until when both are kept, once a commit has said so.
    pub(crate) until: AtomicI64,
}

/// Somebody judges a merge, and will add it or not. Those that wait stay for it a while.
pub(crate) struct Expected {
    state: Arc<State>,
    has_arrived: AtomicBool,
}

impl Default for WaitingMerges {
    fn default() -> Self {
        let table = Mutex::new(order::MERGES, Table::default());
        WaitingMerges { table, changed: Condvar::new(), count: AtomicUsize::new(0) }
    }
}

impl WaitingMerges {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// All, in the order in which they were applied.
    pub(crate) fn all(&self) -> Vec<Arc<WaitingMerge>> {
        if self.count() == 0 { Vec::new() } else { self.table.lock().waiting.clone() }
    }

    /// Whether any was applied to this dataset.
    pub(crate) fn has_any_in(&self, dataset: u64) -> bool {
        self.count() > 0 && self.table.lock().waiting.iter().any(|it| it.dataset.id == dataset)
    }

    /// Adds one. The caller has the turn to commit, and lets no batch be under way.
    pub(crate) fn add(&self, merge: WaitingMerge) {
        let mut table = self.table.lock();
        table.waiting.push(Arc::new(merge));
        table.added += 1;
        self.count.store(table.waiting.len(), Ordering::Release);
    }

    /// So many of all that were ever added are durable, by a frame or a commit.
    pub(crate) fn note_durable(&self, added: u64) {
        let mut table = self.table.lock();
        table.note_durable(added);
        self.changed.notify_all();
    }

    /// How many became durable together, the last time that any did: as many may come again.
    pub(crate) fn durable_together(&self) -> usize {
        usize::try_from(self.table.lock().last).unwrap_or(usize::MAX)
    }

    /// The entries of those that wait, and are durable.
    pub(crate) fn durable_entries(&self) -> Vec<OperationRecord> {
        let table = self.table.lock();
        let merges = table.waiting[..table.durable_waiting()].iter();
        merges.map(|merge| merge.logged().entry).collect()
    }

    /// Those that no frame has, as one is to have them.
    pub(crate) fn unlogged(&self) -> Vec<LoggedMerge> {
        let table = self.table.lock();
        table.waiting[table.durable_waiting()..].iter().map(|merge| merge.logged()).collect()
    }

    /// A commit that has taken in the first of them is durable. Returns these.
    pub(crate) fn settle(&self, taken: usize) -> Vec<Arc<WaitingMerge>> {
        if taken == 0 {
            return Vec::new();
        }
        let mut table = self.table.lock();
        table.settled += taken as u64;
        let in_commits = table.settled;
        table.note_durable(in_commits);
        let settled = table.waiting.drain(..taken).collect();
        self.count.store(table.waiting.len(), Ordering::Release);
        self.changed.notify_all();
        settled
    }

    /// How many have ever been added.
    pub(crate) fn added(&self) -> u64 {
        self.table.lock().added
    }

    /// Whether the first so many of all that were ever added are durable.
    pub(crate) fn are_durable(&self, added: u64) -> bool {
        self.table.lock().durable >= added
    }

    /// Returns when these are, or no other one is likely to come soon: none is expected, and no
    /// more became durable the last time. Where there were more, and none comes, the next one does
    /// not stay.
    pub(crate) fn await_others(&self, added: u64) {
        let mut table = self.table.lock();
        while table.durable < added {
            let is_alone = table.expected == 0 && table.added - table.durable >= table.last;
            if is_alone || !self.changed.wait_for(&mut table, ARRIVAL) {
                return;
            }
        }
    }
}

impl Table {
    /// How many of those that wait are durable: the first.
    fn durable_waiting(&self) -> usize {
        let durable = usize::try_from(self.durable - self.settled).unwrap_or(usize::MAX);
        durable.min(self.waiting.len())
    }

    fn note_durable(&mut self, added: u64) {
        if added > self.durable {
            self.last = added - self.durable;
            self.durable = added;
        }
    }
}

impl WaitingMerge {
    /// What a replay has found waits again.
    pub(crate) fn of_logged(
        logged: LoggedMerge,
        dataset: Arc<Dataset>,
        live: Arc<DatasetRecord>,
    ) -> WaitingMerge {
        let LoggedMerge { layer, freeze, entry: record, .. } = logged;
        let user = Some(record.user).filter(|user| *user != NO_USER);
        let author = Some(Arc::new(Author { user, command: record.command.clone() }));
        let seconds = record.kept_until_seconds.saturating_sub(record.seconds);
        let entry = MergeEntry::new(live, record, seconds);
        // The fork was in memory, and went with it.
        WaitingMerge { dataset, layer, freeze, fork: 0, entry, author }
    }

    /// As a frame of the intent log has it.
    fn logged(&self) -> LoggedMerge {
        let MergeEntry { record, seconds, .. } = &self.entry;
        let author = self.author.as_deref();
        let entry = OperationRecord {
            user: author.and_then(|author| author.user).unwrap_or(NO_USER),
            command: author.map(Author::command_of_entry).unwrap_or_default(),
            kept_until_seconds: record.seconds.saturating_add(*seconds),
            ..record.clone()
        };
        LoggedMerge { dataset: self.dataset.id, layer: self.layer, freeze: self.freeze, entry }
    }
}

impl Expected {
    /// From now on one is expected.
    pub(crate) fn of(state: &Arc<State>) -> Expected {
        state.merges.table.lock().expected += 1;
        state.merges.changed.notify_all();
        Expected { state: Arc::clone(state), has_arrived: AtomicBool::new(false) }
    }

    /// It is not expected any more: it was added, or it goes another way.
    pub(crate) fn arrive(&self) {
        if !self.has_arrived.swap(true, Ordering::AcqRel) {
            self.state.merges.table.lock().expected -= 1;
            self.state.merges.changed.notify_all();
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.arrive();
    }
}

impl MergeEntry {
    pub(crate) fn new(live: Arc<DatasetRecord>, record: OperationRecord, seconds: i64) -> Self {
        let (before, until) = (AtomicU64::new(0), AtomicI64::new(i64::MAX));
        MergeEntry { live, record, seconds, before, until }
    }
}
