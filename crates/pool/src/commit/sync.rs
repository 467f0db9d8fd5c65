//! A sync: what was applied before is durable when it returns, by a frame of the intent log or, if
//! that is too much or there is no log, by a commit.

use crate::base::planted::{PlantedBug, is_planted};
use crate::commit::blocks;
use crate::commit::draft::Commit;
use crate::commit::turn;
use crate::log::{Collected, IntentLog};
use crate::space::Purpose;
use crate::state::State;
use marram_format::superblock::Superblock;
use marram_format::version::feature;
use marram_store::{Error, Result};
use std::sync::atomic::Ordering;

/// Returns when everything is durable that was applied before.
///
/// # Errors
/// A device has failed, now or earlier: what was not durable then is never said to be.
pub(crate) fn sync(pool: &State) -> Result<()> {
    if pool.options.read_only {
        return Ok(());
    }
    let synced = match pool.log.get() {
        Some(log) => sync_by(pool, log),
        None => turn::commit(pool),
    };
    let settled = synced.and_then(|()| turn::settle(pool));
    settled.map_err(|error| match (error, pool.health.lock().clone()) {
        (_, Some(reason)) => Error::Io(reason),
        (error, None) => error,
    })
}

fn sync_by(pool: &State, log: &IntentLog) -> Result<()> {
    pool.check_writable()?;
    let wanted = pool.dirty.batches.load(Ordering::Acquire);
    if log.is_durable(wanted) {
        return Ok(());
    }
    let _one_at_a_time = log.write_alone();
    pool.check_writable()?;
    if log.is_durable(wanted) {
        return Ok(());
    }
    let (mut collected, mut counts) = collect(pool, log);
    if matches!(collected, Collected::TooMuch) {
        // Much of it may be in the commit that is under way; the rest may fit a frame.
        drop(pool.turns.committing.lock());
        (collected, counts) = collect(pool, log);
    }
    match collected {
        Collected::Nothing => {}
        Collected::TooMuch => return turn::turn(pool, None)?.commit_durable(),
        Collected::Frame { position, frame, .. } => {
            let written = log.write(&pool.media, position, frame);
            written.inspect_err(|error| pool.fail(error))?;
        }
    }
    log.set_durable(counts.batches);
    pool.merges.note_durable(counts.merges);
    Ok(())
}

/// How many batches and merges there ever were when a frame was made: with it all of them are
/// durable.
struct Counts {
    batches: u64,
    merges: u64,
}

/// Makes a frame of all that has changed, with no batch under way.
fn collect(pool: &State, log: &IntentLog) -> (Collected, Counts) {
    let _no_batch = pool.turns.gate.write();
    let batches = pool.dirty.batches.load(Ordering::Acquire);
    let open_freeze = pool.dirty.freezes.load(Ordering::Acquire) + 1;
    let merges = pool.merges.unlogged();
    let can_have_all = merges.is_empty() || can_have_merges(pool);
    let collected = match can_have_all {
        true => log.collect(&pool.all_dirty_datasets(), &merges, open_freeze),
        false => Collected::TooMuch,
    };
    if matches!(collected, Collected::Frame { is_half_full: true, .. }) {
        pool.work.announce();
    }
    (collected, Counts { batches, merges: pool.merges.added() })
}

/// Whether a frame may have merges: a program that does not know of that must not open the pool
/// then. Nor does a commit that is due for want of moments become cheaper by a frame before it.
fn can_have_merges(pool: &State) -> bool {
    let features = pool.superblock.lock().features_incompatible;
    let is_known = features & feature::LOGGED_MERGES != 0 || is_planted(PlantedBug::MergeInFrame);
    is_known && turn::has_moments_for(pool, pool.merges.durable_together())
}

/// Gives a new pool its log.
pub(crate) fn begin_log(pool: &State) -> Result<()> {
    let superblock = pool.superblock.lock().clone();
    turn::commit_with(
        pool,
        Some(&mut |commit| {
            let log = make_log(commit, &superblock)?;
            commit.pool.log.set(log).map_err(|_| Error::Invalid("the pool has a log".to_owned()))
        }),
    )
}

/// Makes the log of a new pool.
fn make_log(commit: &mut Commit<'_>, superblock: &Superblock) -> Result<IntentLog> {
    let grains = IntentLog::grains_for(commit.pool.gauge.total_grains());
    let copies = [
        blocks::allocate(commit, grains, Purpose::Metadata)?,
        blocks::allocate(commit, grains, Purpose::MetadataCopy)?,
    ];
    IntentLog::make(&commit.pool.media, superblock, grains, copies)
}
