//! A commit that is being made: what it changes, gathered until it is durable.
//!
//! The other files of this folder are its steps, and take it as it is; what snapshots and streams
//! do in a commit goes through the methods here.

use crate::commit::owners::Owners;
use crate::commit::queue::WriteQueue;
use crate::commit::steps::Steps;
use crate::io::CacheKey;
use crate::memtable::dataset::Dataset;
use crate::memtable::dirty::Dirty;
use crate::state::State;
use crate::state::open::dataset_of;
use crate::state::records::{Reclaims, Transactions, refuse_too_long};
use bytes::Bytes;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::group::Group;
use marram_format::superblock::Superblock;
use marram_format::version::feature;
use marram_store::{Error, FreshBlock, Key, Result, Token};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Work that a commit does beside taking in batches.
pub(crate) type Work<'w> = &'w mut dyn FnMut(&mut Commit<'_>) -> Result<()>;

/// A change of what the running pool knows, made when the commit is durable.
pub(crate) enum Publication {
    /// A dataset or snapshot exists.
    Add(Arc<Dataset>),
    /// A dataset or snapshot is gone.
    Remove(u64),
    /// A dataset goes on from another root. Only while no batch is under way.
    Root(u64, Option<Bytes>),
}

/// What the freeze of a commit has found.
pub(super) struct Frozen {
    /// The layers to be taken in.
    pub(super) steps: Steps,
    pub(super) dirty: Dirty,
    /// The freeze's own number.
    pub(super) number: u64,
    /// Batches that were applied before it.
    pub(super) batches: u64,
    /// The position in the intent log behind all frames that were made before it.
    pub(super) log_start: u64,
}

/// A commit that is being made.
pub(crate) struct Commit<'p> {
    pub(crate) pool: &'p State,
    pub(crate) group: Group,
    pub(crate) now_seconds: i64,
    /// Records that change; `None` where one goes.
    pub(crate) records: BTreeMap<u64, Option<DatasetRecord>>,
    /// Items of the pool's own tree that change, besides records, dead lists and bitmaps.
    pub(crate) items: BTreeMap<Key, Option<Bytes>>,
    pub(crate) publications: Vec<Publication>,
    /// The dead lists in reclaim.
    pub(crate) reclaims: Arc<Reclaims>,
    /// The transactions over two pools that are not over.
    pub(crate) transactions: Arc<Transactions>,
    pub(super) frozen: Frozen,
    /// Pointers that go onto dead lists.
    pub(super) dead: BTreeMap<u64, Vec<Bytes>>,
    pub(super) roots: BTreeMap<u64, Option<Bytes>>,
    pub(super) written: Vec<(Arc<FreshBlock>, Token)>,
    /// The same by the address of the block in memory.
    pub(super) tokens: HashMap<usize, Token>,
    /// Blocks that no root leads to once this commit is published.
    pub(super) unused: Vec<CacheKey>,
    pub(super) owners: Owners,
    /// Read-compatible features of the superblock that is being made.
    pub(super) features: u64,
    /// It has written a block in more pieces than pointers of old could name.
    pub(super) has_scattered: bool,
    /// What the pool is called from this commit on.
    pub(crate) label: String,
    pub(super) queue: WriteQueue<'p>,
}

impl<'p> Commit<'p> {
    /// The commit after the one of `superblock`, of what a freeze has found.
    pub(super) fn new(pool: &'p State, superblock: &Superblock, frozen: Frozen) -> Commit<'p> {
        let (reclaims, transactions) = {
            let records = pool.records.read();
            (Arc::clone(records.reclaims()), records.kept_transactions())
        };
        Commit {
            pool,
            group: Group(superblock.group.0 + 1),
            now_seconds: (pool.options.now_seconds)(),
            records: BTreeMap::new(),
            items: BTreeMap::new(),
            publications: Vec::new(),
            reclaims,
            transactions,
            frozen,
            dead: BTreeMap::new(),
            roots: BTreeMap::new(),
            written: Vec::new(),
            tokens: HashMap::new(),
            unused: Vec::new(),
            owners: Owners::default(),
            features: superblock.features_read_compatible | feature::USAGE,
            has_scattered: false,
            label: superblock.label.clone(),
            queue: WriteQueue::new(&pool.media),
        }
    }

    /// The record of a dataset as this commit has it.
    pub(crate) fn record(&self, id: u64) -> Result<DatasetRecord> {
        let known = match self.records.get(&id) {
            Some(changed) => changed.clone(),
            None => self.pool.records.read().get(id).map(|record| DatasetRecord::clone(record)),
        };
        known.ok_or_else(|| Error::NoDataset(format!("number {id}")))
    }

    /// The root of a dataset as this commit has it so far.
    pub(super) fn root_of(&self, dataset: &Dataset) -> Option<Bytes> {
        self.roots.get(&dataset.id).cloned().unwrap_or_else(|| dataset.root())
    }

    /// Where a block is that was written by a commit, or by an earlier step of this one.
    pub(super) fn token_of(&self, block: &Arc<FreshBlock>) -> Option<Token> {
        let earlier = || self.tokens.get(&(Arc::as_ptr(block) as usize)).cloned();
        block.stored().cloned().or_else(earlier)
    }

    /// What comes from here on is of the next group: another moment of the same commit.
    pub(crate) fn begin_group(&mut self) {
        self.group = Group(self.group.0 + 1);
    }

    /// The superblock says from this commit on that the pool has this read-compatible feature.
    pub(crate) fn set_feature(&mut self, feature: u64) {
        self.features |= feature;
    }

    /// A number for a new dataset, snapshot or dead list.
    pub(crate) fn new_id(&self) -> u64 {
        self.pool.new_id()
    }

    /// What this commit has put onto a dead list so far; it is taken off again.
    pub(crate) fn take_new_dead(&mut self, list: u64) -> Vec<Bytes> {
        self.dead.remove(&list).unwrap_or_default()
    }

    /// Puts a pointer onto a dead list.
    pub(crate) fn add_dead(&mut self, list: u64, pointer: Bytes) {
        self.dead.entry(list).or_default().push(pointer);
    }

    pub(crate) fn new_record(&self, name: &str, state: DatasetState) -> DatasetRecord {
        self.record_as((self.new_id(), self.new_id()), name, state)
    }

    /// A new record with a number, and one of its dead list, that it has got.
    pub(crate) fn record_as(
        &self,
        (id, dead_list): (u64, u64),
        name: &str,
        state: DatasetState,
    ) -> DatasetRecord {
        let mut id128 = self.pool.superblock.lock().pool_id;
        for (byte, of_id) in id128.iter_mut().zip(id.to_le_bytes()) {
            *byte ^= of_id;
        }
        DatasetRecord {
            id,
            name: name.to_owned(),
            state,
            parent: 0,
            origin: 0,
            previous: 0,
            next: 0,
            previous_group: Group(0),
            created_group: self.group,
            created_seconds: self.now_seconds,
            id128,
            root: None,
            referenced_grains: 0,
            dead_grains: 0,
            dead_list,
            clones: 0,
            holds: 0,
            properties: Vec::new(),
        }
    }

    /// Keeps a changed record, if it still fits an item.
    pub(crate) fn keep(&mut self, record: DatasetRecord) -> Result<()> {
        refuse_too_long(&record)?;
        self.records.insert(record.id, Some(record));
        Ok(())
    }

    /// Keeps a new record, and lets the running pool know of it.
    pub(crate) fn add(&mut self, record: DatasetRecord) -> Result<()> {
        let dataset =
            dataset_of(&record, false, (&self.pool.dirty_datasets, &self.pool.item_cache))?;
        self.publications.push(Publication::Add(Arc::new(dataset)));
        self.keep(record)
    }
}
