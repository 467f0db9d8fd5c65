//! The turn to commit, and the commit itself, step by step.
//!
//! One commit is made at a time. A turn is waited for, and what has to be refused is refused under
//! it, before anything is written.

use crate::admission::CommitTurn;
use crate::admission::shortage::{self, Admitted, busy};
use crate::base::order::MutexGuard;
use crate::base::planted::{PlantedBug, is_planted};
use crate::commit::draft::{Commit, Frozen, Work};
use crate::commit::steps::{Step, Steps, Then, Which};
use crate::commit::{dry_run, forks, merges, owners, pool_tree, publish, references, steps, trees};
use crate::log::IntentLog;
use crate::memtable::counters::CommittedCounters;
use crate::memtable::dataset::{Attempt, Dataset};
use crate::memtable::dirty::Dirty;
use crate::state::State;
use crate::state::waiting_merges::WaitingMerge;
use marram_format::group::Group;
use marram_store::{Batch, Edit, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Commits that are made so that one dataset has nothing that waits: so many batches may come
/// between.
const SETTLING_COMMITS_MAX: usize = 8;
/// Dry runs beside batches before one holds them back. A program that writes to the dataset all the
/// time spoils the first kind, never the second.
const LOOKS_BESIDE_MAX: usize = 2;

/// Groups that one commit takes at most: the format document says so of all commits.
const MOMENTS_MAX: usize = 40;
/// Those beside the moments of forks and merges that wait: its own, what comes behind these, and
/// what a commit does beside them.
const OTHER_MOMENTS: usize = 6;

/// A commit that finds no space to move pointers of dead lists is tried again with so many times
/// fewer.
const RECLAIM_FEWER: usize = 16;

/// The batch of a merge, and the dataset that it goes into.
pub(crate) struct Going<'w> {
    pub(crate) dataset: &'w Dataset,
    pub(crate) batch: Batch<'w>,
    /// The space that was found for it.
    pub(crate) admitted: &'w Admitted<'w>,
}

/// What the batches of merges need, which are a moment of their own.
pub(crate) struct Before<'w> {
    /// The group of the newest snapshot of the dataset that was read, if `first` takes a snapshot
    /// of what the last commit has left of that: one of the group of that commit.
    pub(crate) source_group: Option<Group>,
    /// Forks in memory of which nothing is to be written: what the batches bring is all that is
    /// wanted of them.
    pub(crate) left_out: &'w [u64],
    /// Refuses the batches. Asked when nothing changes any more until the commit is made.
    pub(crate) check: &'w dyn Fn() -> Result<()>,
    /// Done in the same commit before it takes anything in.
    pub(crate) first: Work<'w>,
    /// Done when it has taken in all but the batches.
    pub(crate) then: Work<'w>,
    /// Whether what comes after that is of another group. Else nothing may wait in the datasets:
    /// births could not tell it from what the batches bring.
    pub(crate) begins_group: bool,
}

/// What the batches of a commit need beside it, and the batches.
struct Apart<'w> {
    first: Work<'w>,
    then: Work<'w>,
    batches: Vec<Step>,
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
    /// As [`commit_with`]. With work, what forks of transactions have changed stays in memory, as
    /// far as it is little.
    pub(crate) fn commit(&self, work: Option<Work<'_>>) -> Result<()> {
        self.heal()?;
        match work {
            Some(_) => self.make(self.freeze(Which::Durable), None, work),
            None => self.commit_batches(Which::Touched, false),
        }
    }

    /// The same without work, so that what waits is durable.
    pub(crate) fn commit_durable(&self) -> Result<()> {
        self.heal()?;
        self.commit_batches(Which::Durable, false)
    }

    fn freeze(&self, which: Which) -> Frozen {
        let _no_batch = self.pool.turns.gate.write();
        freeze(self.pool, which)
    }

    /// A commit without work; ended forks go along if there is space for that, and are enough to
    /// make one `for_ended` alone; and so are records of transactions that nobody needs.
    fn commit_batches(&self, which: Which, for_ended: bool) -> Result<()> {
        let has_forgotten = for_ended && self.pool.records.read().has_forgotten();
        let mut nothing = |_: &mut Commit<'_>| Ok(());
        let work: Option<Work<'_>> = if has_forgotten { Some(&mut nothing) } else { None };
        let mut frozen = self.freeze(which);
        if for_ended || !frozen.steps.is_empty() {
            frozen.steps.take_ended(self.pool);
        }
        let takes_ended = !frozen.steps.ended.is_empty();
        match self.make(frozen, None, work) {
            Err(Error::NoSpace) if takes_ended || has_forgotten => {
                self.make(self.freeze(which), None, None)
            }
            made => made,
        }
    }

    /// Makes records of all forks in memory, takes away those of what has ended, and enters the
    /// merges that wait: for an operation that reckons by records.
    pub(crate) fn settle_forks(&self) -> Result<()> {
        let forks = &self.pool.forks;
        match forks.in_memory() == 0 && !forks.has_ended() && self.pool.merges.count() == 0 {
            true => Ok(()),
            false => {
                self.heal()?;
                self.commit_batches(Which::All, true)
            }
        }
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
        self.make(freeze(self.pool, Which::Touched), None, Some(work))
    }

    /// Applies a batch to a dataset and does `work`, in one commit with all that was applied
    /// before, while batches wait. If it fails, the edits are taken away again: a later commit must
    /// not take them in without the work.
    pub(crate) fn commit_batch(
        &self,
        dataset: &Dataset,
        batch: Batch<'_>,
        work: Work<'_>,
    ) -> Result<()> {
        self.heal()?;
        let _no_batch = self.pool.turns.gate.write();
        self.apply_and_make(vec![(dataset, batch.edits)], None, work)
    }

    /// The same for the batches of merges, which are a moment of their own: all of them, or none. A
    /// commit is made before this one if only that can tell whether they can be.
    pub(crate) fn commit_merges(
        &self,
        merges: Vec<Going<'_>>,
        before: Before<'_>,
        work: Work<'_>,
    ) -> Result<()> {
        self.heal()?;
        let pool = self.pool;
        let mut commits = 0;
        let _no_batch = loop {
            for Going { dataset, batch, admitted } in &merges {
                if commits < LOOKS_BESIDE_MAX {
                    shortage::repeat_dry_run(pool, dataset, batch, admitted, self)?;
                }
            }
            let no_batch = pool.turns.gate.write();
            let obstacle = match before.obstacle(self, &merges)? {
                None => break no_batch,
                Some(obstacle) => obstacle,
            };
            drop(no_batch);
            if commits == SETTLING_COMMITS_MAX {
                return Err(obstacle);
            }
            commits += 1;
            self.make(self.freeze(Which::Touched), None, Some(&mut |_| Ok(())))?;
        };
        let mut all: Vec<_> =
            merges.into_iter().map(|going| (going.dataset, going.batch.edits)).collect();
        if is_planted(PlantedBug::TransactionInTwo) {
            self.commit_a_part(&mut all)?;
        }
        self.apply_and_make(all, Some(before), work)
    }

    /// Applies the batch of a merge that waits from then on for a commit, as a layer of its own.
    /// Returns it if it cannot wait: only a commit before it can tell whether it can be made, or
    /// the next one would have too many moments.
    pub(crate) fn apply_to_wait<'b>(
        &self,
        (dataset, admitted): (&Dataset, &Admitted<'_>),
        batch: Batch<'b>,
        check: &dyn Fn() -> Result<()>,
        waiting: impl FnOnce(usize, u64) -> WaitingMerge,
    ) -> Result<Option<Batch<'b>>> {
        self.heal()?;
        let pool = self.pool;
        let _no_batch = pool.turns.gate.write();
        if admitted.is_by_dry_run()
            || references::refers_back(&batch.edits)?
            || !has_moments_for(pool, 2)
        {
            return Ok(Some(batch));
        }
        check()?;
        references::refuse_unbalanced(pool, dataset, &batch.edits)?;
        // What was there before, and what comes, has layers of its own.
        freeze_layers(pool);
        self.apply_counted(dataset, batch.edits)?;
        let (number, _) = freeze_layers(pool);
        pool.merges.add(waiting(dataset.frozen_layers() - 1, number));
        Ok(None)
    }

    /// The planted bug of a transaction of which a part is in a commit before that of the rest: of
    /// several datasets all of the first, else a half.
    fn commit_a_part(&self, all: &mut [(&Dataset, Vec<Edit<'_>>)]) -> Result<()> {
        let is_one = all.len() == 1;
        let Some((dataset, edits)) = all.first_mut() else { return Ok(()) };
        let rest = edits.split_off(if is_one { edits.len() / 2 } else { edits.len() });
        self.apply_counted(dataset, std::mem::replace(edits, rest))?;
        self.make(freeze(self.pool, Which::Touched), None, Some(&mut |_| Ok(())))
    }

    /// Applies edits, and makes the commit of them. The caller lets no batch be under way.
    fn apply_and_make(
        &self,
        all: Vec<(&Dataset, Vec<Edit<'_>>)>,
        before: Option<Before<'_>>,
        work: Work<'_>,
    ) -> Result<()> {
        let pool = self.pool;
        // What was there before has layers of its own.
        freeze_layers(pool);
        let mut applied: Vec<(&Dataset, Dirty)> = Vec::with_capacity(all.len());
        for (dataset, edits) in all {
            match self.apply_counted(dataset, edits) {
                Ok(grown) => applied.push((dataset, grown)),
                Err(error) => {
                    let (number, _) = freeze_layers(pool);
                    take_away(pool, &applied, number);
                    return Err(error);
                }
            }
        }
        let left_out = before.as_ref().map_or(&[][..], |before| before.left_out);
        let which = if left_out.is_empty() { Which::Touched } else { Which::Durable };
        let mut frozen = freeze_but(pool, which, left_out);
        let number = frozen.number;
        let apart = before.map(|Before { first, then, .. }| {
            let split = |(dataset, _): &(&Dataset, Dirty)| frozen.steps.split(dataset, number);
            Apart { first, then, batches: applied.iter().filter_map(split).collect() }
        });
        let made = self.make(frozen, apart, Some(work));
        if made.is_err() {
            take_away(pool, &applied, number);
        }
        made
    }

    /// Applies edits to what is open of a dataset; by how much that has grown.
    fn apply_counted(&self, dataset: &Dataset, edits: Vec<Edit<'_>>) -> Result<Dirty> {
        let pool = self.pool;
        let mut committed = CommittedCounters::default();
        let mut left = edits;
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
        Ok(grown)
    }

    /// What every commit begins with: the state that the pool was opened with is made durable, and
    /// bad copies are made good. **Before the first write**: what that state has freed is free for
    /// this commit, and a power cut may leave what was before it.
    fn heal(&self) -> Result<()> {
        settle(self.pool)?;
        self.pool.media.heal().inspect_err(|error| self.pool.fail(error))
    }

    fn make(&self, frozen: Frozen, apart: Option<Apart<'_>>, work: Option<Work<'_>>) -> Result<()> {
        let pool = self.pool;
        if frozen.steps.is_empty() && frozen.steps.ended.is_empty() && work.is_none() {
            return Ok(());
        }
        let dirty = frozen.dirty;
        let made = make(pool, frozen, apart, work);
        match made {
            Ok(()) => pool.dirty.subtract(dirty),
            Err(ref error) => {
                pool.space.lock().roll_back();
                pool.media.forget_all();
                pool.end_of_commit(&mut pool.forks.lock(), false);
                pool.fail(error);
            }
        }
        made
    }
}

impl Before<'_> {
    /// Why a commit must come before that of the batches, while no batch is under way; `None` if
    /// none must. The error is what to report after the last of the commits.
    fn obstacle(&self, turn: &Turn<'_>, merges: &[Going<'_>]) -> Result<Option<Error>> {
        let pool = turn.pool;
        for Going { dataset, batch, admitted } in merges {
            let can_wait = self.begins_group
                && !admitted.is_by_dry_run()
                && !references::refers_back(&batch.edits)?;
            if !self.has_source_group(pool) || dataset.has_dirty() && !can_wait {
                return Ok(Some(busy(dataset)));
            }
        }
        (self.check)()?;
        for Going { dataset, batch, .. } in merges {
            references::refuse_unbalanced(pool, dataset, &batch.edits)?;
        }
        for Going { dataset, batch, admitted } in merges {
            if !shortage::still_fits(pool, dataset, batch, admitted, turn)? {
                return Ok(Some(Error::NoSpace));
            }
        }
        Ok(None)
    }

    /// Whether no snapshot of the dataset that was read is of the group of the last commit.
    fn has_source_group(&self, pool: &State) -> bool {
        let next = pool.superblock.lock().group.0 + 1;
        self.source_group.is_none_or(|group| next > group.0 + 1)
    }
}

/// Takes away what was applied and then frozen under this number.
fn take_away(pool: &State, applied: &[(&Dataset, Dirty)], number: u64) {
    for (dataset, grown) in applied {
        dataset.withdraw(number);
        pool.dirty.subtract(*grown);
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

/// The same; what has ended goes too, if nothing else waits.
pub(crate) fn commit_and_clear(pool: &State) -> Result<()> {
    let turn = turn(pool, None)?;
    turn.heal()?;
    turn.commit_batches(Which::Touched, true)
}

/// Commits everything that was applied before, and does `work` in the same commit.
pub(crate) fn commit_with(pool: &State, work: Option<Work<'_>>) -> Result<()> {
    take_turn(pool)?.commit(work)
}

/// Waits for the commit that is under way. What has to be refused is refused now: then
/// nothing has been written in vain, and nobody opens meanwhile what is about to go.
pub(crate) fn take_turn(pool: &State) -> Result<Turn<'_>> {
    let turn = turn(pool, Some(pool.turns.administering.lock()))?;
    turn.settle_forks()?;
    Ok(turn)
}

/// Makes records of all forks in memory. The caller has the turn to administer, so none begins
/// meanwhile.
pub(crate) fn settle_forks(pool: &State) -> Result<()> {
    turn(pool, None)?.settle_forks()
}

/// Whether the next commit has room for so many moments more, beside merges that wait.
pub(crate) fn has_moments_for(pool: &State, count: usize) -> bool {
    pool.merges.count() == 0
        || steps::moments(pool).saturating_add(count) <= MOMENTS_MAX - OTHER_MOMENTS
}

/// Commits the merges that wait, for readers of the log of operations. A pool that takes no changes
/// any more has the log of its last commit.
pub(crate) fn enter_waiting(pool: &State) -> Result<()> {
    match pool.merges.count() == 0 || pool.check_writable().is_err() {
        true => Ok(()),
        false => commit(pool),
    }
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

/// Freezes the open layers; returns the number of the freeze, and what has any to be taken in.
fn freeze_layers(pool: &State) -> (u64, Vec<Arc<Dataset>>) {
    let number = pool.dirty.freezes.fetch_add(1, Ordering::AcqRel) + 1;
    let mut datasets = pool.all_dirty_datasets();
    datasets.retain(|dataset| dataset.freeze(number));
    (number, datasets)
}

/// Step 1. The caller lets no batch be under way.
fn freeze(pool: &State, which: Which) -> Frozen {
    freeze_but(pool, which, &[])
}

/// The same, but for what forks in memory have changed.
fn freeze_but(pool: &State, which: Which, left_out: &[u64]) -> Frozen {
    let (number, datasets) = freeze_layers(pool);
    let (steps, left) = Steps::of(pool, datasets, (which, left_out));
    Frozen {
        steps,
        dirty: pool.dirty.all().without(left),
        number,
        batches: pool.dirty.batches.load(Ordering::Acquire),
        log_start: pool.log.get().map_or(0, IntentLog::next_position),
    }
}

fn make(
    pool: &State,
    frozen: Frozen,
    apart: Option<Apart<'_>>,
    work: Option<Work<'_>>,
) -> Result<()> {
    let superblock = pool.superblock.lock().clone();
    let mut commit = Commit::new(pool, &superblock, frozen);
    let steps = std::mem::take(&mut commit.frozen.steps.steps);
    match apart {
        None => {
            owners::adopt_all(&mut commit, steps.iter())?;
            take_steps(&mut commit, &steps)?;
        }
        Some(Apart { first, then, batches }) => {
            first(&mut commit)?;
            owners::adopt_all(&mut commit, steps.iter().chain(&batches))?;
            take_steps(&mut commit, &steps)?;
            commit.queue.write_out()?;
            then(&mut commit)?;
            batches.iter().try_for_each(|step| take_step(&mut commit, step))?;
        }
    }
    let ended = commit.frozen.steps.ended.clone();
    forks::drop_ended(&mut commit, &ended)?;
    if let Some(work) = work {
        // It may read nodes that were made above, and the cache need not have kept them.
        commit.queue.write_out()?;
        work(&mut commit)?;
    }
    let superblock = pool_tree::write_pool_tree(&mut commit, superblock)?;
    publish::publish(commit, superblock);
    Ok(())
}

fn take_steps(commit: &mut Commit<'_>, steps: &[Step]) -> Result<()> {
    steps.iter().try_for_each(|step| take_step(commit, step))?;
    if commit.frozen.steps.merges > 0 {
        // What is entered beside merges is no part of the last of them.
        commit.begin_group();
    }
    Ok(())
}

fn take_step(commit: &mut Commit<'_>, step: &Step) -> Result<()> {
    if !step.layers.is_empty() {
        // What is born here is younger than the newest snapshot. Snapshots of one state may share
        // a group: those of a merge that ends and the next one, and of forks that begin together.
        if commit.record(step.dataset.id)?.previous_group == commit.group {
            commit.begin_group();
        }
        trees::take_in(commit, &step.dataset, &step.layers)?;
    }
    match &step.then {
        Then::Nothing => Ok(()),
        Then::ForkBegins(begins) => forks::begin(commit, step.dataset.id, begins),
        Then::MergeBegins(merge) => merges::begin(commit, merge),
        Then::MergeEnds(merge) => merges::end(commit, merge),
    }
}

/// What was found when the pool was opened is durable from now on.
pub(crate) fn settle(pool: &State) -> Result<()> {
    pool.media.settle().inspect_err(|error| pool.fail(error))
}
