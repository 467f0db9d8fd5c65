//! Forks in memory: begun without a commit, and gone without one.
//!
//! Such a fork is a dataset over the layers of its parent as they were at its beginning, on the
//! root of the same commit. **As long as it is in memory, its root is that of the last commit.**
//! A commit that takes in layers of the parent, or of the fork, makes records of its base and of
//! itself (`commit/forks.rs`); one that was frozen before the fork began takes the fork along.
//! So no reader needs a root that has been replaced, and nothing is held.
//!
//! One that has **ended** is found by no name any more. In memory it is gone at once; its records
//! go with a commit that is made for something else. A crash leaves them, by a name that says so.

use crate::base::order::{self, Mutex, MutexGuard};
use crate::memtable::dataset::{Dataset, Opened};
use crate::state::State;
use bytes::Bytes;
use marram_format::dataset::DatasetRecord;
use marram_store::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// So many layers of its own make a fork slow to read: a commit takes them in.
const OWN_LAYERS_MAX: usize = 12;
/// More bytes than these a fork has not in memory alone after a commit.
const OWN_BYTES_MAX: u64 = 4 << 20;

/// All that there are.
pub(crate) struct Forks {
    table: Mutex<Table>,
    /// How many: where there is none, no lock is taken.
    count: AtomicUsize,
    /// How many have ever begun.
    begun: AtomicU64,
}

/// By their ids: in the order in which they began.
#[derive(Default)]
pub(crate) struct Table(BTreeMap<u64, Fork>);

/// One of them.
pub(crate) struct Fork {
    /// As it is shown, and as its record will be but for what the commit knows.
    pub(crate) record: Arc<DatasetRecord>,
    /// The same of its base, a snapshot of the parent.
    pub(crate) base: Arc<DatasetRecord>,
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) parent: Arc<Dataset>,
    /// The parent counts as open, and is not destroyed.
    pub(crate) holds_parent: Option<Opened>,
    /// How many of the frozen layers are the base's.
    pub(crate) base_layers: usize,
    /// Both have records.
    pub(crate) is_on_media: bool,
    /// A commit is under way that takes it in.
    pub(crate) is_in_commit: bool,
    pub(crate) is_ended: bool,
}

/// What a name leads to.
pub(crate) enum Named {
    /// Something in memory.
    InMemory(Arc<DatasetRecord>),
    /// What has ended.
    Ended,
    /// Nothing of a fork in memory: perhaps a record.
    Other,
}

impl Default for Forks {
    fn default() -> Self {
        let table = Mutex::new(order::FORKS, Table::default());
        Forks { table, count: AtomicUsize::new(0), begun: AtomicU64::new(0) }
    }
}

impl Forks {
    /// Whether there is none at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// How many have ever begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn put(&self, table: &mut Table, fork: Fork) {
        table.0.insert(fork.record.id, fork);
        self.begun.fetch_add(1, Ordering::AcqRel);
        self.count.store(table.0.len(), Ordering::Release);
    }

    pub(crate) fn remove(&self, table: &mut Table, id: u64) -> Option<Fork> {
        let fork = table.0.remove(&id);
        self.count.store(table.0.len(), Ordering::Release);
        fork
    }

    /// What a name leads to: one that has not ended, if there is one.
    pub(crate) fn named(&self, name: &str) -> Named {
        if self.is_empty() {
            return Named::Other;
        }
        let table = self.lock();
        let known = table.all().filter_map(|fork| {
            let record = [&fork.record, &fork.base].into_iter().find(|it| it.name == name)?;
            Some((fork, record))
        });
        match known.min_by_key(|(fork, _)| fork.is_ended) {
            Some((fork, _)) if fork.is_ended => Named::Ended,
            Some((fork, record)) if !fork.is_on_media => Named::InMemory(Arc::clone(record)),
            _ => Named::Other,
        }
    }

    /// The base of what is only in memory.
    pub(crate) fn base_of(&self, fork: u64) -> Option<Arc<DatasetRecord>> {
        if self.is_empty() {
            return None;
        }
        let table = self.lock();
        table.0.get(&fork).filter(|fork| !fork.is_on_media).map(|fork| Arc::clone(&fork.base))
    }

    /// Whether blocks that a dataset lets go of may be those of a base that has no record yet.
    pub(crate) fn may_hold_blocks_of(&self, dataset: u64) -> bool {
        !self.is_empty()
            && self.lock().all().any(|fork| {
                !fork.is_on_media && (fork.parent.id == dataset || fork.record.id == dataset)
            })
    }

    /// The ids of forks and bases that have records, which no list shows.
    pub(crate) fn unlisted(&self) -> BTreeSet<u64> {
        if self.is_empty() {
            return BTreeSet::new();
        }
        self.lock().all().flat_map(|fork| [fork.record.id, fork.base.id]).collect()
    }

    /// Those whose own changes may stay in memory for longer, as they are few, and nothing has
    /// begun in them.
    pub(crate) fn of_little(&self) -> Vec<u64> {
        if self.is_empty() {
            return Vec::new();
        }
        let table = self.lock();
        let is_little = |fork: &&Fork| {
            let layers = fork.dataset.frozen_layers().saturating_sub(fork.base_layers);
            let bytes = fork.dataset.frozen_dirty(fork.base_layers).memory_bytes;
            let has_forks = table.all().any(|other| other.parent.id == fork.record.id);
            !has_forks && layers < OWN_LAYERS_MAX && bytes <= OWN_BYTES_MAX
        };
        table.all().filter(is_little).map(|fork| fork.record.id).collect()
    }

    /// How many are only in memory.
    pub(crate) fn in_memory(&self) -> usize {
        if self.is_empty() { 0 } else { self.lock().all().filter(|it| !it.is_on_media).count() }
    }

    /// Whether any that has ended still has records.
    pub(crate) fn has_ended(&self) -> bool {
        !self.is_empty() && self.lock().all().any(|fork| fork.is_ended)
    }
}

impl Table {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Fork> {
        self.0.values()
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Fork> {
        self.0.values_mut()
    }

    /// The one of this name that has not ended.
    pub(crate) fn named(&mut self, source: &Source) -> Option<&mut Fork> {
        let name = source.to_string();
        self.0.values_mut().find(|fork| !fork.is_ended && fork.record.name == name)
    }

    /// What has ended holds no fork: that may end too, and its records go together with these.
    pub(crate) fn let_go_of_fork(&mut self, ended: u64, parent: u64) {
        if self.0.contains_key(&parent)
            && let Some(fork) = self.0.get_mut(&ended)
        {
            fork.holds_parent = None;
        }
    }

    /// A commit that was frozen before they began has taken in so many layers of their parent,
    /// which has this root now.
    pub(crate) fn follow(&mut self, parent: u64, root: Option<&Bytes>, taken: usize) {
        let follows =
            |fork: &&mut Fork| fork.parent.id == parent && !fork.is_on_media && !fork.is_in_commit;
        for fork in self.0.values_mut().filter(follows) {
            fork.dataset.publish(root.cloned(), taken);
            fork.base_layers = fork.base_layers.saturating_sub(taken);
        }
    }
}

impl State {
    /// A commit has ended: those that it has taken in have records if it `succeeded`.
    pub(crate) fn end_of_commit(&self, table: &mut Table, succeeded: bool) {
        let mut ended = Vec::new();
        for fork in table.all_mut().filter(|fork| fork.is_in_commit) {
            fork.is_in_commit = false;
            if succeeded {
                fork.is_on_media = true;
                fork.base_layers = 0;
            }
            ended.extend(fork.is_ended.then_some(fork.record.id));
        }
        ended.into_iter().for_each(|id| self.forget_fork(table, id));
    }

    /// What an ended fork has in memory goes, and all of it that has no record.
    pub(crate) fn forget_fork(&self, table: &mut Table, id: u64) {
        let Some(fork) = table.0.get(&id).filter(|fork| !fork.is_in_commit) else { return };
        self.dirty.subtract(fork.dataset.discard(fork.base_layers));
        if !fork.is_on_media {
            self.datasets.write().remove(&id);
            self.forks.remove(table, id);
        }
    }
}
