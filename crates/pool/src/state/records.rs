//! The records of all datasets and snapshots, as the last commit has them, found by id and by
//! name. There may be tens of thousands: nobody copies them all.

use bytes::Bytes;
use marram_format::dataset::{
    DATASET_RECORD_BYTES_MAX, DatasetRecord, DatasetState, OWNER_PROPERTY, ROOT_OBJECT_PROPERTY,
};
use marram_format::operation::{TRASH_PREFIX, trash_entry};
use marram_format::space::ReclaimRecord;
use marram_format::transaction::{TransactionRecord, TransactionState};
use marram_store::{Error, ROOT_OBJECT, Result, is_automatic_name};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The dead lists in reclaim, by number.
pub(crate) type Reclaims = BTreeMap<u64, ReclaimRecord>;

/// The transactions over two pools that are not over, by their first entries in the log.
pub(crate) type Transactions = BTreeMap<u64, TransactionRecord>;

/// The records of a running pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    by_id: BTreeMap<u64, Arc<DatasetRecord>>,
    by_name: HashMap<String, u64>,
    /// What has which one as its parent: the parent's id, its own.
    children: BTreeSet<(u64, u64)>,
    /// Snapshots of each dataset: the dataset's id, the snapshot's.
    snapshots: BTreeSet<(u64, u64)>,
    /// What is kept for an undo: the number of the entry, its own.
    kept: BTreeSet<(u64, u64)>,
    /// Those that are being destroyed; they have no name any more.
    going: BTreeSet<u64>,
    /// The dataset of each dead list.
    lists: HashMap<u64, u64>,
    reclaims: Arc<Reclaims>,
    transactions: Arc<Transactions>,
    /// Those of them that go with the next commit.
    forgotten: BTreeSet<u64>,
}

impl Records {
    pub(crate) fn get(&self, id: u64) -> Option<&Arc<DatasetRecord>> {
        self.by_id.get(&id)
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<DatasetRecord>> {
        self.by_name.get(name).and_then(|id| self.by_id.get(id))
    }

    /// All, those that are being destroyed too.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<DatasetRecord>> {
        self.by_id.values()
    }

    /// All that are not being destroyed.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Arc<DatasetRecord>> {
        self.all().filter(|record| record.state != DatasetState::Destroying)
    }

    /// What goes on from or began as a snapshot, in order of age.
    pub(crate) fn children(&self, id: u64) -> impl Iterator<Item = &Arc<DatasetRecord>> {
        self.of(&self.children, id)
    }

    /// The snapshots of a dataset, in order of age.
    pub(crate) fn snapshots(&self, dataset: u64) -> impl Iterator<Item = &Arc<DatasetRecord>> {
        self.of(&self.snapshots, dataset)
    }

    fn of(
        &self,
        index: &'_ BTreeSet<(u64, u64)>,
        id: u64,
    ) -> impl Iterator<Item = &Arc<DatasetRecord>> {
        index.range((id, 0)..=(id, u64::MAX)).filter_map(|(_, id)| self.by_id.get(id))
    }

    /// Whether there is an automatic snapshot.
    pub(crate) fn has_automatic(&self) -> bool {
        let is_one = |it: &Arc<DatasetRecord>| {
            it.name.split_once('@').is_some_and(|(_, name)| is_automatic_name(name))
        };
        self.known().any(is_one)
    }

    /// Numbers of the entries for which something is kept, ascending.
    pub(crate) fn trash_entries(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.kept.iter().map(|(number, _)| *number).collect();
        numbers.dedup();
        numbers
    }

    /// Some that are being destroyed, at most `limit`.
    pub(crate) fn going(&self, limit: usize) -> Vec<Arc<DatasetRecord>> {
        let going = self.going.iter().filter_map(|id| self.by_id.get(id));
        going.take(limit).cloned().collect()
    }

    /// Whether anything that was destroyed is still to be given back.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.going.is_empty() || !self.reclaims.is_empty()
    }

    /// The record that has a dead list.
    pub(crate) fn with_list(&self, list: u64) -> Option<&Arc<DatasetRecord>> {
        self.lists.get(&list).and_then(|id| self.by_id.get(id))
    }

    /// The dead lists in reclaim.
    pub(crate) fn reclaims(&self) -> &Arc<Reclaims> {
        &self.reclaims
    }

    /// From now on these are in reclaim.
    pub(crate) fn set_reclaims(&mut self, reclaims: Arc<Reclaims>) {
        self.reclaims = reclaims;
    }

    /// The transactions over two pools that are not over.
    pub(crate) fn transactions(&self) -> &Arc<Transactions> {
        &self.transactions
    }

    /// From now on these are not over.
    pub(crate) fn set_transactions(&mut self, transactions: Arc<Transactions>) {
        self.forgotten.retain(|number| transactions.contains_key(number));
        self.transactions = transactions;
    }

    /// The transactions of which the next commit has records.
    pub(crate) fn kept_transactions(&self) -> Arc<Transactions> {
        let mut kept = Arc::clone(&self.transactions);
        if self.has_forgotten() {
            Arc::make_mut(&mut kept).retain(|number, _| !self.forgotten.contains(number));
        }
        kept
    }

    /// The record of a transaction goes with the next commit.
    pub(crate) fn forget_transaction(&mut self, number: u64) {
        self.forgotten.insert(number);
    }

    /// Whether records of transactions go with the next commit.
    pub(crate) fn has_forgotten(&self) -> bool {
        !self.forgotten.is_empty()
    }

    /// Whether an entry of the log is one of a transaction that is prepared.
    pub(crate) fn is_prepared(&self, number: u64) -> bool {
        let before = self.transactions.range(..=number).next_back();
        before.is_some_and(|(first, record)| {
            let entries = record.datasets.len() as u64;
            record.state == TransactionState::Prepared && number - first < entries
        })
    }

    /// Applies what a commit has changed; `None` takes a record away. Names may have changed
    /// places, so all old ones go before any new one comes.
    pub(crate) fn apply(&mut self, changes: BTreeMap<u64, Option<DatasetRecord>>) {
        for id in changes.keys() {
            let Some(old) = self.by_id.remove(id) else { continue };
            if self.by_name.get(&old.name) == Some(id) {
                self.by_name.remove(&old.name);
            }
            self.children.remove(&(parent_of(&old), *id));
            self.snapshots.remove(&(old.parent, *id));
            self.going.remove(id);
            self.lists.remove(&old.dead_list);
            if let Some(number) = trash_entry(&old.name) {
                self.kept.remove(&(number, *id));
            }
        }
        for (id, record) in changes {
            let Some(record) = record else { continue };
            match record.state {
                DatasetState::Destroying => {
                    self.going.insert(id);
                }
                DatasetState::Live | DatasetState::Snapshot => {
                    self.by_name.insert(record.name.clone(), id);
                    self.note_family(&record);
                }
            }
            self.lists.insert(record.dead_list, id);
            self.by_id.insert(id, Arc::new(record));
        }
    }

    fn note_family(&mut self, record: &DatasetRecord) {
        if parent_of(record) != 0 {
            self.children.insert((parent_of(record), record.id));
        }
        if let Some(number) = trash_entry(&record.name) {
            self.kept.insert((number, record.id));
        }
        if record.state == DatasetState::Snapshot {
            self.snapshots.insert((record.parent, record.id));
        }
    }
}

/// The record that this one shares blocks with, and is younger than; 0 if there is none.
pub(crate) fn parent_of(record: &DatasetRecord) -> u64 {
    if record.previous != 0 { record.previous } else { record.origin }
}

/// Whether nobody is to see it: it is kept for an undo, or belongs to a dataset that is.
pub(crate) fn is_hidden(record: &DatasetRecord) -> bool {
    record.name.starts_with(TRASH_PREFIX) || trash_entry(&record.name).is_some()
}

/// The root of a record, encoded.
pub(crate) fn root_of(record: &DatasetRecord) -> Option<Bytes> {
    record.root.as_ref().map(|root| root.encode())
}

/// Refuses a record that does not fit an item.
pub(crate) fn refuse_too_long(record: &DatasetRecord) -> Result<()> {
    if record.encoded_len() <= DATASET_RECORD_BYTES_MAX {
        return Ok(());
    }
    let reason = format!("the properties of {} take too many bytes", record.name);
    Err(Error::Invalid(reason))
}

/// The user whose fork it is; 0 is root.
pub(crate) fn owner(record: &DatasetRecord) -> u32 {
    let own = record.properties.iter().find(|(name, _)| name == OWNER_PROPERTY);
    own.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

pub(crate) fn root_object(record: &DatasetRecord) -> u64 {
    let own = record.properties.iter().find(|(name, _)| name == ROOT_OBJECT_PROPERTY);
    own.and_then(|(_, value)| value.parse().ok()).unwrap_or(ROOT_OBJECT)
}
