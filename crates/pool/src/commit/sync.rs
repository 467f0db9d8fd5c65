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
    let (mut collected, mut batches) = collect(pool, log);
    if matches!(collected, Collected::TooMuch) {
        // Much of it may be in the commit that is under way; the rest may fit a frame.
        drop(pool.turns.committing.lock());
        (collected, batches) = collect(pool, log);
    }
    match collected {
        Collected::Nothing => {}
        Collected::TooMuch => return turn::turn(pool, None)?.commit_durable(),
        Collected::Frame { position, frame, .. } => {
            let written = log.write(&pool.media, position, frame);
            written.inspect_err(|error| pool.fail(error))?;
        }
    }
    log.set_durable(batches);
    Ok(())
}

/// Makes a frame of all that has changed, with no batch under way; also returns how many batches
/// there were.
fn collect(pool: &State, log: &IntentLog) -> (Collected, u64) {
    let _no_batch = pool.turns.gate.write();
    let batches = pool.dirty.batches.load(Ordering::Acquire);
    let open_freeze = pool.dirty.freezes.load(Ordering::Acquire) + 1;
    // A frame cannot say that it has a merge.
    let collected = match pool.merges.count() == 0 || is_planted(PlantedBug::MergeInFrame) {
        true => log.collect(&pool.all_dirty_datasets(), open_freeze),
        false => Collected::TooMuch,
    };
    if matches!(collected, Collected::Frame { is_half_full: true, .. }) {
        pool.work.announce();
    }
    (collected, batches)
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
