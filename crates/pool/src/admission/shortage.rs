//! A closer look for space, for a batch that does not seem to fit.
//!
//! What batches free can be used only after a commit, and until then each key that they change is
//! taken to need a leaf of its own. So a batch is not refused while a commit could make room for
//! it. But on a full pool nearly every batch is refused or nearly does not fit, and a commit for
//! each of them would make a full pool a slow one. So it is first looked at what waits
//! (`docs/decisions/0026-space-admission.md`):
//!
//! - What it needs: keys of the same leaf share that. If the batch fits so, no commit is made.
//! - What it gives back: the blocks that items let go of, as a commit will find them, and what is
//!   taken out of nodes. If the batch would not fit even then, it is refused, without a commit.
//!
//! **A batch is counted from the moment that space is found for it** ([`Admitted`]): what several
//! threads find at the same moment is never the same space. A look has the turn to commit until its
//! batch is applied, and commits again as long as anything waits. So batches between a commit and
//! the next look cannot make a full pool refuse to free something.
//!
//! A large merge is looked at too before it is refused: what a commit would do with it is found by
//! doing so without writing (`commit/dry_run.rs`). It is looked at once, and again only if a
//! commit has passed when it is about to be made. A batch that is only applied is not: its commit
//! may take in others with it, and must not fail.
//!
//! **What it needs is never taken to be less, nor what it gives back**; but for what nodes shrink
//! by when they are written anew with other content: that which compresses better by chance, and
//! what was rounded up to grains.

use crate::admission::CommitTurn;
use crate::admission::cost::{KEY_BYTES_MAX, cost, cost_of_forks, forks_of, least_cost};
use crate::admission::{look, room};
use crate::memtable::dataset::Dataset;
use crate::state::State;
use crate::state::ledger::Waiting;
use crate::state::records::is_hidden;
use marram_format::dataset::DatasetState;
use marram_format::pointer::GRAIN_BYTES;
use marram_store::{Admission, Batch, Edit, Error, Result};
use std::cell::Cell;

/// Most commits that are made for one batch: after each of them others may be faster.
const COMMITS_MAX: usize = 16;
/// A merge of fewer edits than these is not large: no dry run is made of it.
const LARGE_EDITS_MIN: usize = 64;

/// Space for a batch, counted until the batch is among what is dirty.
pub(crate) struct Admitted<'p> {
    pool: &'p State,
    bytes: u64,
    /// If it is less than what is reckoned by keys, why it is.
    dry_run: Cell<Option<DryRun>>,
}

/// What a batch is taken to need, in bytes.
pub(crate) struct Need {
    /// Reckoned by its keys; it is never taken to need more.
    cost: u64,
    /// No dry run can find that it needs less.
    least: u64,
    allows_dry_run: bool,
    dry_run: Option<DryRun>,
    /// What was found for other batches of the same commit. No commit that comes before gives it
    /// back.
    beside: u64,
}

/// What a dry run of a batch has found. It is true as long as no commit has passed.
#[derive(Clone, Copy)]
struct DryRun {
    epoch: u64,
    bytes: u64,
}

/// What came of a search for space.
pub(crate) enum Search<'p, T> {
    Found(Granted<'p, T>),
    None {
        /// Nor would there be any if all went that is being destroyed or is kept for an undo.
        is_hopeless: bool,
    },
    /// Batches came to the dataset all the time, so no dry run could be made. That says nothing of
    /// the space: nothing is let go of for it.
    NoDryRun,
}

impl Need {
    /// Of a batch that is only applied.
    pub(crate) fn of(batch: &Batch<'_>) -> Need {
        let cost = cost(batch);
        Need { cost, least: cost, allows_dry_run: false, dry_run: None, beside: 0 }
    }

    /// Of a merge: one commit for it alone, which may fail without harm.
    pub(crate) fn of_merge(batch: &Batch<'_>) -> Need {
        let reckoned = Need::of(batch);
        if !allows_dry_run(batch) {
            return reckoned;
        }
        let least = least_cost(batch).min(reckoned.cost);
        Need { least, allows_dry_run: true, ..reckoned }
    }

    /// The same beside other batches of one commit, for which so many bytes were found.
    pub(crate) fn beside(self, bytes: u64) -> Need {
        Need { beside: bytes, ..self }
    }

    /// Content that other items had already, and that a commit has written meanwhile, is there.
    fn leave_out_written(&mut self, batch: &Batch<'_>) {
        let cost = cost(batch);
        let written = self.cost.saturating_sub(cost);
        self.cost = cost;
        self.least = self.least.saturating_sub(written);
    }

    /// Whether a dry run could find that it needs less.
    pub(crate) fn allows_dry_run(&self) -> bool {
        self.allows_dry_run
    }

    /// As reckoned by its keys.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// What is known of it; nothing as long as a look could find less.
    fn known(&self) -> Option<u64> {
        match self.dry_run {
            Some(dry_run) => Some(dry_run.bytes),
            None => (!self.allows_dry_run).then_some(self.cost),
        }
    }
}

impl Admitted<'_> {
    /// How much was found.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is less than what is reckoned by keys.
    pub(crate) fn is_by_dry_run(&self) -> bool {
        self.dry_run.get().is_some()
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        *self.pool.ledger.admitted_bytes.lock() -= self.bytes;
    }
}

/// Space that was found by a look, and with it the turn to commit: nobody else looks meanwhile.
pub(crate) struct Granted<'p, T> {
    admitted: Admitted<'p>,
    _turn: T,
}

impl<'p, T> Granted<'p, T> {
    /// Lets others look.
    pub(crate) fn without_turn(self) -> Admitted<'p> {
        self.admitted
    }
}

/// Whether a dry run of a batch is worth it. The size of patched items is not known beforehand. A
/// batch that may use a part of the reserve is never taken to need less than its keys say.
fn allows_dry_run(batch: &Batch<'_>) -> bool {
    let patches = |edit: &Edit<'_>| matches!(edit, Edit::Patch { .. });
    batch.edits.len() >= LARGE_EDITS_MIN
        && !batch.edits.iter().any(patches)
        && batch.admission == Admission::Ordinary
        && batch.promised_bytes == 0
}

/// Finds space for a batch that needs so many `bytes` beside what waits for a commit, if there
/// is so much at this moment. Of what waits, what was `looked` at needs what was found, and
/// each other key a leaf of its own.
pub(crate) fn admit<'p>(
    pool: &'p State,
    dataset: &Dataset,
    batch: &Batch<'_>,
    bytes: u64,
    looked: Waiting,
) -> Option<Admitted<'p>> {
    let mut admitted = pool.ledger.admitted_bytes.lock();
    // Before it is asked what is free: a commit that ends gives back first.
    let needed = *admitted + needed_by_dirty(pool, looked);
    if bytes > room::room(pool, dataset, batch, Waiting { needed, ..Waiting::default() }) {
        return None;
    }
    *admitted += bytes;
    Some(Admitted { pool, bytes, dry_run: Cell::new(None) })
}

fn needed_by_dirty(pool: &State, looked: Waiting) -> u64 {
    let keys = pool.dirty.edits().saturating_sub(looked.keys);
    pool.dirty.content_bytes_to_write() + looked.needed + keys * KEY_BYTES_MAX
}

/// Whether there is space for so many more forks in memory beside all that waits: a commit that was
/// promised to what waits must not fail for them.
pub(crate) fn fits_forks(pool: &State, count: usize) -> bool {
    fits_records(pool, count, 0)
}

/// The same for a merge that is to wait, whose batch is admitted.
pub(crate) fn fits_merge(pool: &State) -> bool {
    fits_records(pool, 0, 1)
}

fn fits_records(pool: &State, forks: usize, merges: usize) -> bool {
    let admitted = *pool.ledger.admitted_bytes.lock();
    let needed = admitted + needed_by_dirty(pool, Waiting::default());
    let forks = forks_of(pool.forks.in_memory() + forks, pool.merges.count() + merges);
    needed.saturating_add(cost_of_forks(forks)) <= room::unpromised_bytes(pool)
}

/// Looks for space for a batch that does not seem to fit, and commits if that could make room,
/// again as long as something has come to wait. Waits for the commit that is under way: what
/// that gives back counts too.
pub(crate) fn find_space<'p, T: CommitTurn>(
    pool: &'p State,
    dataset: &Dataset,
    batch: &Batch<'_>,
    need: &mut Need,
    turn: T,
) -> Result<Search<'p, T>> {
    for commits in 0..=COMMITS_MAX {
        need.leave_out_written(batch);
        let admit = |bytes, looked| admit(pool, dataset, batch, bytes, looked);
        if let Some(admitted) = admit(need.cost, Waiting::default()) {
            return Ok(Search::Found(Granted { admitted, _turn: turn }));
        }
        let keys = look::look_at_keys(pool);
        let back = keys.map(|keys| Waiting { needed: need.beside, ..keys });
        let room = back.map_or(u64::MAX, |back| room::room(pool, dataset, batch, back));
        // What needs that much in any case need not be looked at.
        if need.least <= room {
            dry_run_once(pool, dataset, batch, need, &turn)?;
            let looked = keys.map(|keys| Waiting { freed: 0, adopted: 0, ..keys });
            let beside = [Some(Waiting::default()), looked].into_iter().flatten();
            let closer = |bytes| beside.clone().find_map(|looked| admit(bytes, looked));
            if let Some(admitted) = need.known().and_then(closer) {
                admitted.dry_run.set(need.dry_run.filter(|it| it.bytes < need.cost));
                return Ok(Search::Found(Granted { admitted, _turn: turn }));
            }
        }
        if need.known().unwrap_or(need.least) > room
            || commits > 0 && nothing_waits(pool, need.beside)
        {
            let is_hopeless = is_hopeless(pool, dataset, batch, need, back);
            return Ok(Search::None { is_hopeless });
        }
        if commits < COMMITS_MAX {
            turn.commit()?;
        }
    }
    Ok(match need.known() {
        Some(_) => Search::None { is_hopeless: false },
        None => Search::NoDryRun,
    })
}

/// Whether there is no space, also with what comes `back` by a commit.
fn is_hopeless(
    pool: &State,
    dataset: &Dataset,
    batch: &Batch<'_>,
    need: &Need,
    back: Option<Waiting>,
) -> bool {
    let with_all = |back: Waiting| {
        let given_up = bytes_to_give_up(pool).saturating_add(back.left);
        let freed = back.freed.saturating_add(given_up);
        room::room(pool, dataset, batch, Waiting { freed, ..back })
    };
    let bytes = need.known().unwrap_or(need.least);
    back.map(with_all).is_some_and(|room| bytes > room)
}

/// What comes back at most if all goes that is being destroyed, is kept for an undo, or is an
/// automatic snapshot: not what the largest of the other datasets refers to since the last commit.
fn bytes_to_give_up(pool: &State) -> u64 {
    let has_ended = pool.forks.has_ended();
    let records = pool.records.read();
    let has_trash = has_ended || records.is_leaving() || !records.trash_entries().is_empty();
    if !has_trash && !records.has_automatic() {
        return 0;
    }
    let live = records.known().filter(|it| it.state == DatasetState::Live && !is_hidden(it));
    let stays = live.map(|record| record.referenced_grains).max().unwrap_or(0);
    let used = pool.gauge.total_grains().saturating_sub(pool.gauge.free_grains());
    used.saturating_sub(stays) * GRAIN_BYTES
}

/// Makes a dry run of a merge, if there was none yet and nothing waits in its dataset; else a
/// commit must come before. The caller has the turn to commit.
fn dry_run_once(
    pool: &State,
    dataset: &Dataset,
    batch: &Batch<'_>,
    need: &mut Need,
    turn: &impl CommitTurn,
) -> Result<()> {
    if need.allows_dry_run && need.dry_run.is_none() && !dataset.has_dirty() {
        need.dry_run = Some(make_dry_run(pool, dataset, batch, need.cost, turn)?);
    }
    Ok(())
}

fn make_dry_run(
    pool: &State,
    dataset: &Dataset,
    batch: &Batch<'_>,
    cost: u64,
    turn: &impl CommitTurn,
) -> Result<DryRun> {
    let epoch = pool.media.epoch();
    let found = turn.dry_run(dataset, batch)?;
    Ok(DryRun { epoch, bytes: found.map_or(cost, |found| found.min(cost)) })
}

/// Makes another dry run of what was admitted, if a commit has passed since. The caller has the
/// turn to commit; nothing waits in the dataset, or it is all for nothing.
pub(crate) fn repeat_dry_run(
    pool: &State,
    dataset: &Dataset,
    batch: &Batch<'_>,
    admitted: &Admitted<'_>,
    turn: &impl CommitTurn,
) -> Result<()> {
    if let Some(dry_run) = admitted.dry_run.get()
        && dry_run.epoch != pool.media.epoch()
        && !dataset.has_dirty()
    {
        admitted.dry_run.set(Some(make_dry_run(pool, dataset, batch, cost(batch), turn)?));
    }
    Ok(())
}

/// Whether there is still space for what was admitted, when no batch is under way and nothing
/// waits in its dataset: the trees may have grown since. `false` if a commit could make room.
///
/// # Errors
/// [`Error::NoSpace`] if none could; what the commit would find wrong.
pub(crate) fn still_fits(
    pool: &State,
    dataset: &Dataset,
    batch: &Batch<'_>,
    admitted: &Admitted<'_>,
    turn: &impl CommitTurn,
) -> Result<bool> {
    repeat_dry_run(pool, dataset, batch, admitted, turn)?;
    let Some(DryRun { bytes, .. }) = admitted.dry_run.get() else { return Ok(true) };
    // The commit reports what cannot be read.
    let keys = look::add_up_keys(pool).ok().flatten();
    let looked = keys.map(|keys| Waiting { freed: 0, adopted: 0, ..keys }).unwrap_or_default();
    let others = *pool.ledger.admitted_bytes.lock() - admitted.bytes;
    let needed = others + needed_by_dirty(pool, looked);
    if bytes <= room::room(pool, dataset, batch, Waiting { needed, ..Waiting::default() }) {
        return Ok(true);
    }
    let back = keys.map(|keys| Waiting { needed: 0, ..keys });
    let room = back.map_or(u64::MAX, |back| room::room(pool, dataset, batch, back));
    match bytes > room || nothing_is_dirty(pool) {
        true => Err(Error::NoSpace),
        false => Ok(false),
    }
}

/// Whether a commit would have nothing to take in: what was admitted are batches of the caller's
/// own.
fn nothing_waits(pool: &State, own: u64) -> bool {
    *pool.ledger.admitted_bytes.lock() == own && nothing_is_dirty(pool)
}

fn nothing_is_dirty(pool: &State) -> bool {
    pool.dirty.edits() == 0
}

/// A dataset is written to faster than commits settle it.
pub(crate) fn busy(dataset: &Dataset) -> Error {
    let holder = "it is written to all the time; try again".to_owned();
    Error::InUse { name: format!("dataset {}", dataset.id), holder }
}
