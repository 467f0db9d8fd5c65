//! The turn to commit, and the commit itself, step by step.
//!
//! One commit is made at a time. A turn is waited for, and what has to be refused is refused under
//! it, before anything is written.

use crate::admission::CommitTurn;
use crate::admission::shortage::{self, Admitted, busy};
use crate::base::order::MutexGuard;
use crate::base::pointers::decode_pointer;
use crate::commit::draft::{Commit, Frozen, Work};
use crate::commit::{dry_run, owners, pool_tree, publish, references, trees};
use crate::log::IntentLog;
use crate::memtable::counters::CommittedCounters;
use crate::memtable::dataset::{Attempt, Dataset};
use crate::state::State;
use marram_format::group::Group;
use marram_store::{Batch, Error, Result};
use std::sync::atomic::Ordering;

/// Commits that are made so that one dataset has nothing that waits: so many batches may come
/// between.
const SETTLING_COMMITS_MAX: usize = 8;
/// Dry runs beside batches before one holds them back. A program that writes to the dataset all the
/// time spoils the first kind, never the second.
const LOOKS_BESIDE_MAX: usize = 2;

/// A commit that finds no space to move pointers of dead lists is tried again with so many times
/// fewer.
const RECLAIM_FEWER: usize = 16;

/// What a batch needs that is committed alone.
pub(crate) struct Before<'w> {
    /// How many snapshots of the state before `work` takes: each is of a group of its own, the
    /// last ones that were committed.
    pub(crate) snapshots: u64,
    /// The group of the newest snapshot of the dataset.
    pub(crate) previous_group: Group,
    /// The same of the dataset that was read, if `work` takes a snapshot of what the last commit
    /// has left of that.
    pub(crate) source_group: Option<Group>,
    /// The space that was found for the batch.
    pub(crate) admitted: &'w Admitted<'w>,
    /// Refuses the batch. Asked when nothing changes any more until the commit is made.
    pub(crate) check: &'w dyn Fn() -> Result<()>,
    /// Done in the same commit before it takes anything in.
    pub(crate) work: Work<'w>,
}

/// The right to commit. While somebody has it no dataset or snapshot comes, goes or is opened; but
/// a commit with nothing beside it lets datasets be opened.
pub(crate) struct Turn<'p> {
    pool: &'p State,
    _nobody_opens: Option<MutexGuard<'p, ()>>,
    _one_at_a_time: MutexGuard<'p, ()>,
}

impl CommitTurn for Turn<'_> {
    fn commit(&self) -> Result<()> {
        Turn::commit(self, None)
    }

    fn dry_run(&self, dataset: &Dataset, batch: &Batch<'_>) -> Result<Option<u64>> {
        dry_run::dry_run_commit(self.pool, dataset, batch)
    }
}

impl Turn<'_> {
    /// As [`commit_with`].
    pub(crate) fn commit(&self, work: Option<Work<'_>>) -> Result<()> {
        self.heal()?;
        let frozen = {
            let _no_batch = self.pool.turns.gate.write();
            freeze(self.pool)
        };
        self.make(frozen, None, work)
    }

    /// The same, for work that takes pointers off dead lists, at most as many as it is given.
    /// Pointers that move to another list need space before any comes back. Where there is not
    /// enough for so many, the work is tried again with fewer, down to `least`.
    pub(crate) fn commit_reclaiming(
        &self,
        least: usize,
        work: &mut dyn FnMut(&mut Commit<'_>, usize) -> Result<()>,
    ) -> Result<()> {
        let mut pointers = self.pool.options.reclaim_pointers_max;
        loop {
            match self.commit(Some(&mut |commit| work(commit, pointers))) {
                Err(Error::NoSpace) if pointers > least => {
                    pointers = (pointers / RECLAIM_FEWER).max(least);
                }
                made => return made,
            }
        }
    }

    /// As [`Turn::commit`], while batches wait until all is done: for work after which what a batch
    /// would have changed is not there any more.
    pub(crate) fn commit_alone(&self, work: Work<'_>) -> Result<()> {
        self.heal()?;
        let _no_batch = self.pool.turns.gate.write();
        self.make(freeze(self.pool), None, Some(work))
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
                shortage::repeat_dry_run(pool, dataset, &batch, before.admitted, self)?;
            }
            let no_batch = pool.turns.gate.write();
            let Some(before) = &before else { break no_batch };
            let obstacle = match before.obstacle(self, dataset, &batch)? {
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
        freeze(pool);
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
        pool.dirty.add(grown);
        pool.dirty.batches.fetch_add(1, Ordering::AcqRel);
        let frozen = freeze(pool);
        let number = frozen.number;
        let made = self.make(frozen, before.map(|before| before.work), Some(work));
        if made.is_err() {
            dataset.withdraw(number);
            pool.dirty.subtract(grown);
        }
        made
    }

    /// What every commit begins with: the state that the pool was opened with is made durable, and
    /// bad copies are made good. **Before the first write**: what that state has freed is free for
    /// this commit, and a power cut may leave what was before it.
    fn heal(&self) -> Result<()> {
        settle(self.pool)?;
        self.pool.media.heal().inspect_err(|error| self.pool.fail(error))
    }

    fn make(&self, frozen: Frozen, before: Option<Work<'_>>, work: Option<Work<'_>>) -> Result<()> {
        let pool = self.pool;
        if frozen.datasets.is_empty() && work.is_none() {
            return Ok(());
        }
        let dirty = frozen.dirty;
        let made = make(pool, frozen, before, work);
        match made {
            Ok(()) => pool.dirty.subtract(dirty),
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
    /// Why a commit must come before that of the batch, while no batch is under way; `None` if none
    /// must. The error is what to report after the last of the commits.
    fn obstacle(
        &self,
        turn: &Turn<'_>,
        dataset: &Dataset,
        batch: &Batch<'_>,
    ) -> Result<Option<Error>> {
        let pool = turn.pool;
        if !self.is_settled(pool, dataset)? {
            return Ok(Some(busy(dataset)));
        }
        (self.check)()?;
        references::refuse_unbalanced(pool, dataset, &batch.edits)?;
        let fits = shortage::still_fits(pool, dataset, batch, self.admitted, turn)?;
        Ok((!fits).then_some(Error::NoSpace))
    }

    /// Whether the last groups had the dataset as it is, and no snapshot is of one of them.
    fn is_settled(&self, pool: &State, dataset: &Dataset) -> Result<bool> {
        let root = dataset.root().as_deref().map(decode_pointer).transpose()?;
        let changed = root.map_or(0, |root| root.birth.0);
        let next = pool.superblock.lock().group.0 + 1;
        let has_groups = self.snapshots == 0
            || next >= changed + self.snapshots && next > self.previous_group.0 + self.snapshots;
        let has_source_group = self.source_group.is_none_or(|group| next > group.0 + 1);
        Ok(has_groups && has_source_group && !dataset.has_dirty())
    }
}

/// After a batch: wakes the committer when it is time, and makes writers that are far ahead of it
/// commit themselves.
pub(crate) fn throttle(pool: &State) -> Result<()> {
    let dirty = pool.dirty.waiting_memory_bytes();
    if dirty >= (pool.options.dirty_bytes_max as u64) {
        pool.work.announce();
    }
    if dirty >= 2 * (pool.options.dirty_bytes_max as u64) { commit(pool) } else { Ok(()) }
}

/// Commits everything that was applied before, with nothing beside it. Datasets can be opened
/// meanwhile.
pub(crate) fn commit(pool: &State) -> Result<()> {
    turn(pool, None)?.commit(None)
}

/// Commits everything that was applied before, and does `work` in the same commit.
pub(crate) fn commit_with(pool: &State, work: Option<Work<'_>>) -> Result<()> {
    take_turn(pool)?.commit(work)
}

/// Waits for the commit that is under way. What has to be refused is refused now: then
/// nothing has been written in vain, and nobody opens meanwhile what is about to go.
pub(crate) fn take_turn(pool: &State) -> Result<Turn<'_>> {
    turn(pool, Some(pool.turns.administering.lock()))
}

/// The turn to commit, and with the lock of an operation that does more than that.
pub(crate) fn turn<'p>(
    pool: &'p State,
    nobody_opens: Option<MutexGuard<'p, ()>>,
) -> Result<Turn<'p>> {
    let one_at_a_time = pool.turns.committing.lock();
    pool.check_writable()?;
    Ok(Turn { pool, _nobody_opens: nobody_opens, _one_at_a_time: one_at_a_time })
}

/// Step 1. The caller lets no batch be under way.
fn freeze(pool: &State) -> Frozen {
    let number = pool.dirty.freezes.fetch_add(1, Ordering::AcqRel) + 1;
    let mut datasets = pool.all_dirty_datasets();
    datasets.retain(|dataset| dataset.freeze(number));
    Frozen {
        datasets,
        dirty: pool.dirty.all(),
        number,
        batches: pool.dirty.batches.load(Ordering::Acquire),
        log_start: pool.log.get().map_or(0, IntentLog::next_position),
    }
}

fn make(
    pool: &State,
    frozen: Frozen,
    before: Option<Work<'_>>,
    work: Option<Work<'_>>,
) -> Result<()> {
    let superblock = pool.superblock.lock().clone();
    let mut commit = Commit::new(pool, &superblock, frozen);
    if let Some(before) = before {
        before(&mut commit)?;
    }
    owners::adopt_all(&mut commit)?;
    let datasets = commit.frozen.datasets.clone();
    datasets.iter().try_for_each(|dataset| trees::commit_dataset(&mut commit, dataset))?;
    if let Some(work) = work {
        // It may read nodes that were made above, and the cache need not have kept them.
        commit.queue.write_out()?;
        work(&mut commit)?;
    }
    let superblock = pool_tree::write_pool_tree(&mut commit, superblock)?;
    publish::publish(commit, superblock);
    Ok(())
}

/// What was found when the pool was opened is durable from now on.
pub(crate) fn settle(pool: &State) -> Result<()> {
    pool.media.settle().inspect_err(|error| pool.fail(error))
}
