//! The group commit: what batches changed in memory becomes durable on media, all at one moment.
//!
//! 1. Freeze: no batch is under way, the open layer of every dataset is frozen, batches go on.
//! 2. Count the owners of blocks that are adopted; then write the fresh blocks, and the changed
//!    nodes of each dataset's tree.
//! 3. Administrative work: a snapshot is the root as it is now.
//! 4. Write the changed nodes of the pool's own tree: dataset records, dead lists, bitmaps.
//! 5. Write the tail, then flush: everything that the new superblock leads to is durable.
//! 6. Write one slot of each superblock ring, then flush: the commit has happened.
//! 7. Publish: readers see the new roots, the frozen layers go, freed grains can be used.
//!
//! A crash before 6 is done leads back to the last commit, of which nothing has been overwritten.
//! An error before 6 leaves everything in memory as it was; but if a device failed, the pool
//! takes no more changes, as nobody knows what it has kept.

mod blocks;
mod dry_run;
mod halt;
mod owners;
mod pool_tree;
mod queue;
mod references;
mod trees;
mod trim;

use crate::admission::shortage::Admitted;
use crate::base::order::MutexGuard;
use crate::base::pointers::decode_pointer;
use crate::front::Inner;
use crate::io::CacheKey;
use crate::log::IntentLog;
use crate::memtable::counters::CommittedCounters;
use crate::memtable::dataset::{Attempt, Dataset};
use crate::memtable::dirty::Dirty;
use crate::state::records::Sifting;
use bytes::Bytes;
use marram_format::dataset::DatasetRecord;
use marram_format::group::Group;
use marram_format::superblock::Superblock;
use marram_format::version::feature;
use marram_store::{Batch, Error, FreshBlock, Key, Result, Token};
use owners::Owners;
use queue::WriteQueue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) use dry_run::least_foreseen;
pub(crate) use owners::waiting;
pub(crate) use trees::is_shared;

/// Work that a commit does beside taking in batches.
pub(crate) type Work<'w> = &'w mut dyn FnMut(&mut Commit<'_>) -> Result<()>;

/// Commits that are made so that one dataset has nothing that waits: so many batches may come
/// between.
const SETTLING_COMMITS_MAX: usize = 8;
/// So often it is looked while batches go on what a commit would do, before it is looked while they
/// wait: whoever writes to the dataset all the time makes the one be in vain, but not the other.
const LOOKS_BESIDE_MAX: usize = 2;

/// A commit that finds no space to move pointers of dead lists is tried again with so many times
/// fewer.
const SIFT_FEWER: usize = 16;

/// What a batch needs that is committed alone.
pub(crate) struct Before<'w> {
    /// How many snapshots of the state before `work` takes: each is of a group of its own, the
    /// last ones that were committed.
    pub(crate) snapshots: u64,
    /// The group of the newest snapshot of the dataset.
    pub(crate) previous_group: Group,
    /// The space that was found for the batch.
    pub(crate) admitted: &'w Admitted<'w>,
    /// Refuses the batch. Asked when nothing changes any more until the commit is made.
    pub(crate) check: &'w dyn Fn() -> Result<()>,
    /// Done in the same commit before it takes anything in.
    pub(crate) work: Work<'w>,
}

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
struct Frozen {
    /// Datasets that have layers to be taken in.
    datasets: Vec<Arc<Dataset>>,
    dirty: Dirty,
    /// The freeze's own number.
    number: u64,
    /// Batches that were applied before it.
    batches: u64,
    /// The position in the intent log behind all frames that were made before it.
    log_start: u64,
}

/// The right to commit. While somebody has it no dataset or snapshot comes, goes or is opened; but
/// a commit with nothing beside it lets datasets be opened.
pub(crate) struct Turn<'p> {
    pool: &'p Inner,
    _nobody_opens: Option<MutexGuard<'p, ()>>,
    _one_at_a_time: MutexGuard<'p, ()>,
}

/// A commit that is being made.
pub(crate) struct Commit<'p> {
    pub(crate) pool: &'p Inner,
    pub(crate) group: Group,
    pub(crate) now_seconds: i64,
    pub(crate) next_dataset: u64,
    /// Records that change; `None` where one goes.
    pub(crate) records: BTreeMap<u64, Option<DatasetRecord>>,
    /// Items of the pool's own tree that change, besides records, dead lists and bitmaps.
    pub(crate) items: BTreeMap<Key, Option<Bytes>>,
    pub(crate) publications: Vec<Publication>,
    /// The dead lists that are being sifted.
    pub(crate) sifting: Arc<Sifting>,
    frozen: Frozen,
    /// Pointers that go onto dead lists.
    dead: BTreeMap<u64, Vec<Bytes>>,
    roots: BTreeMap<u64, Option<Bytes>>,
    written: Vec<(Arc<FreshBlock>, Token)>,
    /// Blocks that no root leads to once this commit is published.
    unused: Vec<CacheKey>,
    owners: Owners,
    /// Read-compatible features of the superblock that is being made.
    features: u64,
    /// It has written a block in more pieces than pointers of old could tell.
    has_scattered: bool,
    /// What the pool is called from this commit on.
    pub(crate) label: String,
    queue: WriteQueue<'p>,
}

impl Inner {
    /// Commits everything that was applied before, with nothing beside it. Datasets can be opened
    /// meanwhile.
    pub(crate) fn commit(&self) -> Result<()> {
        self.turn(None)?.commit(None)
    }

    /// Commits everything that was applied before, and does `work` in the same commit.
    pub(crate) fn commit_with(&self, work: Option<Work<'_>>) -> Result<()> {
        self.take_turn()?.commit(work)
    }

    /// Waits for the commit that is under way. What has to be refused is refused now: then
    /// nothing has been written in vain, and nobody opens meanwhile what is about to go.
    pub(crate) fn take_turn(&self) -> Result<Turn<'_>> {
        self.turn(Some(self.administering.lock()))
    }

    /// The turn to commit, and with the lock of who administers more than that.
    pub(crate) fn turn<'p>(&'p self, nobody_opens: Option<MutexGuard<'p, ()>>) -> Result<Turn<'p>> {
        let one_at_a_time = self.committing.lock();
        self.check_writable()?;
        Ok(Turn { pool: self, _nobody_opens: nobody_opens, _one_at_a_time: one_at_a_time })
    }

    /// Step 1. For the one who lets no batch be under way.
    fn freeze(&self) -> Frozen {
        let number = self.freezes.fetch_add(1, Ordering::AcqRel) + 1;
        let mut datasets = self.touched_datasets();
        datasets.retain(|dataset| dataset.freeze(number));
        Frozen {
            datasets,
            dirty: self.all_dirty(),
            number,
            batches: self.batches.load(Ordering::Acquire),
            log_start: self.log.get().map_or(0, IntentLog::next_position),
        }
    }

    fn make(&self, frozen: Frozen, before: Option<Work<'_>>, work: Option<Work<'_>>) -> Result<()> {
        let superblock = self.superblock.lock().clone();
        let mut commit = Commit {
            pool: self,
            group: Group(superblock.group.0 + 1),
            now_seconds: (self.now_seconds)(),
            next_dataset: superblock.next_dataset,
            records: BTreeMap::new(),
            items: BTreeMap::new(),
            publications: Vec::new(),
            sifting: Arc::clone(self.records.read().sifting()),
            frozen,
            dead: BTreeMap::new(),
            roots: BTreeMap::new(),
            written: Vec::new(),
            unused: Vec::new(),
            owners: Owners::default(),
            features: superblock.features_read_compatible | feature::USAGE,
            has_scattered: false,
            label: superblock.label.clone(),
            queue: WriteQueue::new(&self.media),
        };
        if let Some(before) = before {
            before(&mut commit)?;
        }
        commit.adopt_all()?;
        let datasets = commit.frozen.datasets.clone();
        datasets.iter().try_for_each(|dataset| commit.commit_dataset(dataset))?;
        if let Some(work) = work {
            // It may read nodes that were made above, and the cache need not have kept them.
            commit.queue.write_out()?;
            work(&mut commit)?;
        }
        let superblock = commit.write_pool_tree(superblock)?;
        commit.publish(superblock);
        Ok(())
    }

    /// A commit has failed. Running out of space leaves the pool in order; anything else means
    /// that a device or the pool's own structures cannot be trusted any more.
    pub(crate) fn fail(&self, error: &Error) {
        if !matches!(error, Error::NoSpace | Error::NoDataset(_) | Error::DatasetExists(_))
            && !matches!(error, Error::InUse { .. } | Error::Invalid(_))
        {
            self.health.lock().get_or_insert_with(|| error.to_string());
        }
    }
}

impl Turn<'_> {
    /// As [`Inner::commit_with`].
    pub(crate) fn commit(&self, work: Option<Work<'_>>) -> Result<()> {
        self.heal()?;
        let frozen = {
            let _no_batch = self.pool.gate.write();
            self.pool.freeze()
        };
        self.make(frozen, None, work)
    }

    /// The same, for work that takes pointers off dead lists, at most as many as it is told. Those
    /// that are moved need space before any comes back: where there is not enough for so many, it
    /// is tried again with fewer, down to `least`.
    pub(crate) fn commit_sifting(
        &self,
        least: usize,
        work: &mut dyn FnMut(&mut Commit<'_>, usize) -> Result<()>,
    ) -> Result<()> {
        let mut pointers = self.pool.sift_pointers_max;
        loop {
            match self.commit(Some(&mut |commit| work(commit, pointers))) {
                Err(Error::NoSpace) if pointers > least => {
                    pointers = (pointers / SIFT_FEWER).max(least);
                }
                made => return made,
            }
        }
    }

    /// As [`Turn::commit`], while batches wait until all is done: for work after which what a batch
    /// would have changed is not there any more.
    pub(crate) fn commit_alone(&self, work: Work<'_>) -> Result<()> {
        self.heal()?;
        let _no_batch = self.pool.gate.write();
        self.make(self.pool.freeze(), None, Some(work))
    }

    /// Applies a batch to a dataset and does `work`, in one commit with all that was applied
    /// before, while batches wait. Where something is to be done `before`, the commit before this
    /// one has all that was applied to the dataset: one is made if none has. If it fails, the edits
    /// are taken away again: a later commit must not take them in without the work.
    pub(crate) fn commit_batch(
        &self,
        dataset: &Dataset,
        batch: Batch<'_>,
        before: Option<Before<'_>>,
        work: Work<'_>,
    ) -> Result<()> {
        self.heal()?;
        let pool = self.pool;
        let mut commits = 0;
        let _no_batch = loop {
            if let Some(before) = before.as_ref().filter(|_| commits < LOOKS_BESIDE_MAX) {
                pool.foresee_again(dataset, &batch, before.admitted)?;
            }
            let no_batch = pool.gate.write();
            let Some(before) = &before else { break no_batch };
            let obstacle = match before.obstacle(pool, dataset, &batch)? {
                None => break no_batch,
                Some(obstacle) => obstacle,
            };
            drop(no_batch);
            if commits == SETTLING_COMMITS_MAX {
                return Err(obstacle);
            }
            commits += 1;
            self.commit(Some(&mut |_| Ok(())))?;
        };
        // What was there before has layers of its own.
        pool.freeze();
        let mut committed = CommittedCounters::default();
        let mut left = batch.edits;
        let grown = loop {
            match dataset.apply_counted(left, &mut committed)? {
                Attempt::Applied(grown) => break grown,
                Attempt::Unread { edits, key, root } => {
                    left = edits;
                    dataset.read_counter(&pool.media, (key, root), &mut committed)?;
                }
            }
        };
        pool.add_dirty(grown);
        pool.batches.fetch_add(1, Ordering::AcqRel);
        let frozen = pool.freeze();
        let number = frozen.number;
        let made = self.make(frozen, before.map(|before| before.work), Some(work));
        if made.is_err() {
            dataset.withdraw(number);
            pool.subtract_dirty(grown);
        }
        made
    }

    /// What every commit begins with: the state that the pool was opened with is made durable, and
    /// bad copies are made good. **Before the first write**: what that state has freed is free for
    /// this commit, and a power cut may leave what was before it.
    fn heal(&self) -> Result<()> {
        self.pool.settle()?;
        self.pool.media.heal().inspect_err(|error| self.pool.fail(error))
    }

    fn make(&self, frozen: Frozen, before: Option<Work<'_>>, work: Option<Work<'_>>) -> Result<()> {
        let pool = self.pool;
        if frozen.datasets.is_empty() && work.is_none() {
            return Ok(());
        }
        let dirty = frozen.dirty;
        let made = pool.make(frozen, before, work);
        match made {
            Ok(()) => pool.subtract_dirty(dirty),
            Err(ref error) => {
                pool.space.lock().roll_back();
                pool.media.forget_all();
                pool.fail(error);
            }
        }
        made
    }
}

impl Before<'_> {
    /// Why a commit must come before that of the batch, while no batch is under way: what to tell
    /// if there have been enough of them.
    fn obstacle(
        &self,
        pool: &Inner,
        dataset: &Dataset,
        batch: &Batch<'_>,
    ) -> Result<Option<Error>> {
        if !self.is_settled(pool, dataset)? {
            return Ok(Some(busy(dataset)));
        }
        (self.check)()?;
        pool.refuse_unbalanced(dataset, &batch.edits)?;
        let fits = pool.still_fits(dataset, batch, self.admitted)?;
        Ok((!fits).then_some(Error::NoSpace))
    }

    /// Whether the last groups had the dataset as it is, and no snapshot is of one of them.
    fn is_settled(&self, pool: &Inner, dataset: &Dataset) -> Result<bool> {
        let root = dataset.root().as_deref().map(decode_pointer).transpose()?;
        let changed = root.map_or(0, |root| root.birth.0);
        let next = pool.superblock.lock().group.0 + 1;
        let has_groups = self.snapshots == 0
            || next >= changed + self.snapshots && next > self.previous_group.0 + self.snapshots;
        Ok(has_groups && !dataset.has_dirty())
    }
}

/// Whoever writes to a dataset is always faster.
pub(crate) fn busy(dataset: &Dataset) -> Error {
    let holder = "it is written to all the time; try again".to_owned();
    Error::InUse { name: format!("dataset {}", dataset.id), holder }
}

impl Commit<'_> {
    /// The record of a dataset as this commit has it.
    pub(crate) fn record(&self, id: u64) -> Result<DatasetRecord> {
        let known = match self.records.get(&id) {
            Some(changed) => changed.clone(),
            None => self.pool.records.read().get(id).map(|record| DatasetRecord::clone(record)),
        };
        known.ok_or_else(|| Error::NoDataset(format!("number {id}")))
    }

    /// The superblock says from this commit on that the pool has this read-compatible feature.
    pub(crate) fn set_feature(&mut self, feature: u64) {
        self.features |= feature;
    }

    /// A number for a new dataset, snapshot or dead list.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.next_dataset += 1;
        self.next_dataset - 1
    }

    /// What this commit has put onto a dead list so far; it is taken off again.
    pub(crate) fn take_new_dead(&mut self, list: u64) -> Vec<Bytes> {
        self.dead.remove(&list).unwrap_or_default()
    }

    /// Puts a pointer onto a dead list.
    pub(crate) fn add_dead(&mut self, list: u64, pointer: Bytes) {
        self.dead.entry(list).or_default().push(pointer);
    }

    /// Step 7.
    fn publish(self, superblock: Superblock) {
        let pool = self.pool;
        for (block, token) in self.written {
            block.set_stored(token);
        }
        pool.space.lock().finish();
        let changed: Vec<u64> = self.records.keys().copied().collect();
        {
            let mut records = pool.records.write();
            let records = Arc::make_mut(&mut records);
            records.apply(self.records);
            records.set_sifting(self.sifting);
        }
        let mut roots = self.roots;
        for dataset in &self.frozen.datasets {
            dataset.publish(roots.remove(&dataset.id).flatten());
        }
        let mut known = pool.datasets.write();
        for publication in self.publications {
            match publication {
                Publication::Add(dataset) => {
                    if pool.log.get().is_some() && dataset.writable {
                        dataset.begin_logging();
                    }
                    known.insert(dataset.id, dataset);
                }
                Publication::Remove(id) => {
                    known.remove(&id);
                    pool.touched.take(id);
                }
                Publication::Root(id, root) => {
                    if let Some(dataset) = known.get(&id) {
                        dataset.go_on_from(root);
                    }
                }
            }
        }
        drop(known);
        self.unused.into_iter().for_each(|key| pool.media.forget(key));
        pool.note_referenced(&changed);
        pool.media.set_epoch(superblock.group.0);
        *pool.superblock.lock() = superblock;
        if let Some(log) = pool.log.get() {
            log.committed(self.frozen.log_start, self.frozen.batches);
        }
    }
}
