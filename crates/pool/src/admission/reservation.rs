//! Space for a batch that does not fit beside what waits for a commit.

use crate::admission::SpaceMaker;
use crate::admission::cost::cost;
use crate::admission::shortage::{self, Granted, Need, Search, busy};
use crate::memtable::dataset::Dataset;
use crate::state::State;
use crate::state::ledger::Waiting;
use marram_store::{Admission, Batch, Error, Result};

/// Finds space for a batch that does not fit beside what waits. What earlier batches freed can
/// be used only after a commit, so one is made before a batch is refused, if it could help;
/// then what is being destroyed is given back, and what is kept for an undo is let go, one
/// after the other.
///
/// **What was taken can be committed**: a sync that fails for want of space would break the
/// promise that the batch was given. So all keys that wait for a commit are counted as if each
/// rewrote a leaf of its own; only of one batch on its own is more expected, and of a large
/// merge it is found what its commit would do.
pub(crate) fn reserve<'p, M: SpaceMaker>(
    maker: &M,
    pool: &'p State,
    dataset: &Dataset,
    batch: &Batch<'_>,
    mut need: Need,
) -> Result<Granted<'p, M::Turn>> {
    loop {
        match shortage::find_space(pool, dataset, batch, &mut need, maker.turn()?)? {
            Search::Found(granted) => return Ok(granted),
            Search::NoDryRun => return Err(busy(dataset)),
            Search::None { is_hopeless } => {
                if is_hopeless || !maker.make_space()? {
                    return Err(Error::NoSpace);
                }
            }
        }
    }
}

/// As [`reserve`], for a merge beside others of the same commit, for which so many bytes were
/// found.
pub(crate) fn reserve_merge<'p, M: SpaceMaker>(
    maker: &M,
    pool: &'p State,
    dataset: &Dataset,
    batch: &mut Batch<'_>,
    beside: u64,
) -> Result<Granted<'p, M::Turn>> {
    match find_as_ordinary(maker, pool, dataset, batch, beside)? {
        Some(granted) => Ok(granted),
        None => reserve(maker, pool, dataset, batch, Need::of_merge(batch).beside(beside)),
    }
}

/// Finds space for a merge that only frees as if it did not. It could use a part of what is
/// kept back, but is reckoned by its keys for that; so where these are very many it is tried
/// first to do without. `None` if that does not find any, or need not.
fn find_as_ordinary<'p, M: SpaceMaker>(
    maker: &M,
    pool: &'p State,
    dataset: &Dataset,
    batch: &mut Batch<'_>,
    beside: u64,
) -> Result<Option<Granted<'p, M::Turn>>> {
    if batch.admission != Admission::Freeing
        || shortage::admit(pool, dataset, batch, cost(batch), Waiting::default()).is_some()
    {
        return Ok(None);
    }
    batch.admission = Admission::Ordinary;
    let mut need = Need::of_merge(batch).beside(beside);
    if need.allows_dry_run()
        && let Search::Found(granted) =
            shortage::find_space(pool, dataset, batch, &mut need, maker.turn()?)?
    {
        return Ok(Some(granted));
    }
    batch.admission = Admission::Freeing;
    Ok(None)
}

/// Whether [`reserve_merge`] would find space for a batch. Gives nothing back for it,
/// and takes what it could give back as enough unless it cannot be.
pub(crate) fn dry_run_merge<M: SpaceMaker>(
    maker: &M,
    pool: &State,
    dataset: &Dataset,
    batch: &mut Batch<'_>,
) -> Result<()> {
    let mut need = Need::of_merge(batch);
    if shortage::admit(pool, dataset, batch, need.cost(), Waiting::default()).is_some()
        || find_as_ordinary(maker, pool, dataset, batch, 0)?.is_some()
    {
        return Ok(());
    }
    let is_hopeless = match shortage::find_space(pool, dataset, batch, &mut need, maker.turn()?)? {
        Search::Found(_) => return Ok(()),
        Search::NoDryRun => return Err(busy(dataset)),
        Search::None { is_hopeless } => is_hopeless,
    };
    let records = pool.records.read();
    match !is_hopeless && (records.is_leaving() || !records.trash_entries().is_empty()) {
        true => Ok(()),
        false => Err(Error::NoSpace),
    }
}
