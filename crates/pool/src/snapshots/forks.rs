//! Forks in memory: begun, and ended.
//!
//! Neither waits for a device, nor does it need space: a full pool ends them as an empty one.

use crate::admission::shortage;
use crate::commit::kept_states::properties_of_fork;
use crate::commit::turn;
use crate::memtable::dataset::{Dataset, Opened};
use crate::snapshots::session::Session;
use crate::state::State;
use crate::state::forks::{Fork, Table};
use crate::state::open::dataset_of;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_store::{DatasetName, Error, ForkBegin, Result, Source};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// More are not only in memory at a time: each is a moment of the commit that comes.
const IN_MEMORY_MAX: usize = 32;
/// With so many layers the parent has to be committed soon: each is looked at by every read.
const LAYERS_MANY: usize = 16;
/// So many it does not get.
const LAYERS_MAX: usize = 48;

/// Further commits for which one waits that does not seem to fit.
const COMMITS_MAX: usize = 4;

/// See [`marram_store::SeveralDatasets::begin_forks`], and of one
/// [`marram_store::VolatileForks::begin_fork`]. They belong to the user of the session.
pub(crate) fn begin(session: &Session, forks: &[ForkBegin<'_>]) -> Result<()> {
    let pool = &session.state;
    pool.check_writable()?;
    ForkBegin::check_several(forks)?;
    let _nothing_comes_or_goes = pool.turns.administering.lock();
    forks.iter().try_for_each(|fork| pool.refuse_known(&Source::live(fork.name.clone())))?;
    // What becomes a record for one of them is one for the others.
    forks.iter().try_for_each(|fork| settle_parent(pool, fork.dataset))?;
    let mut parents = Vec::with_capacity(forks.len());
    for ForkBegin { dataset, .. } in forks {
        let record = pool.find_live(dataset)?;
        let parent = pool.running(record.id);
        let parent = parent.ok_or_else(|| Error::NoDataset(dataset.to_string()))?;
        parents.push((record, Opened::new(parent)));
    }
    make_way(pool, &parents)?;
    let owner = session.author.as_ref().and_then(|author| author.user).unwrap_or(0);
    let mut begun = Vec::with_capacity(forks.len());
    for (fork, (record, parent)) in forks.iter().zip(parents) {
        let is_taken = |base: &Source| pool.find(base).is_ok();
        let base = Source::fork_base(fork.dataset, fork.name, &is_taken)?;
        let (live, root) = (Source::live(fork.name.clone()), (fork.root_object, owner));
        let [record, base] = records_of(pool, &record, (&live, &base), root);
        let shared = (&pool.dirty_datasets, &pool.item_cache);
        let dataset = Arc::new(dataset_of(&record, false, shared)?);
        begun.push(Beginning { parent, record, base, dataset });
    }
    put(pool, begun);
    Ok(())
}

/// A fork that is about to begin.
struct Beginning {
    parent: Opened,
    record: DatasetRecord,
    base: DatasetRecord,
    dataset: Arc<Dataset>,
}

/// What a fork begins in, and is a fork in memory itself, becomes a record before: no fork in
/// memory is over another one.
fn settle_parent(pool: &State, dataset: &DatasetName) -> Result<()> {
    let record = pool.find_live(dataset)?;
    pool.forks.base_of(record.id).map_or(Ok(()), |_| turn::settle_forks(pool))
}

/// Refuses forks for whose records there is no space; has layers committed that are too many.
fn make_way(pool: &State, parents: &[(Arc<DatasetRecord>, Opened)]) -> Result<()> {
    let count = parents.len();
    let layers = parents.iter().map(|(_, parent)| parent.frozen_layers()).max().unwrap_or(0);
    let mut fits = shortage::fits_forks(pool, count);
    let are_too_many =
        pool.forks.in_memory() + count > IN_MEMORY_MAX || !turn::has_moments_for(pool, count);
    if layers >= LAYERS_MAX || are_too_many || !fits {
        turn::settle_forks(pool)?;
        turn::commit(pool)?;
        fits = fits || shortage::fits_forks(pool, count);
    } else if layers >= LAYERS_MANY + pool.merges.count() {
        pool.work.announce();
    }
    // Each key that waits is taken for the dearest there is, and more come during a commit.
    for _ in 0..COMMITS_MAX {
        if fits {
            return Ok(());
        }
        turn::commit(pool)?;
        fits = shortage::fits_forks(pool, count);
    }
    match fits {
        true => Ok(()),
        false => Err(Error::NoSpace),
    }
}

/// The records of a fork and of its base, as far as they are known.
fn records_of(
    pool: &State,
    parent: &DatasetRecord,
    (fork, base): (&Source, &Source),
    (root_object, owner): (u64, u32),
) -> [DatasetRecord; 2] {
    let (base_id, base_list) = (pool.new_id(), pool.new_id());
    let now_seconds = (pool.options.now_seconds)();
    let base = DatasetRecord {
        id: base_id,
        name: base.to_string(),
        state: DatasetState::Snapshot,
        parent: parent.id,
        dead_list: base_list,
        created_seconds: now_seconds,
        ..parent.clone()
    };
    let fork = DatasetRecord {
        id: pool.new_id(),
        name: fork.to_string(),
        state: DatasetState::Live,
        parent: 0,
        origin: base_id,
        previous: 0,
        next: 0,
        dead_list: pool.new_id(),
        dead_grains: 0,
        clones: 0,
        holds: 0,
        created_seconds: now_seconds,
        properties: properties_of_fork(&parent.properties, (root_object, owner)),
        ..parent.clone()
    };
    [fork, base]
}

/// From now on the pool has them. A batch is applied before or after that, and so is what a commit
/// publishes. Of several datasets no batch is under way: all forks have the same batches.
fn put(pool: &State, begun: Vec<Beginning>) {
    let turns = &pool.turns;
    let (_no_freeze, _no_batch) = match begun.len() {
        1 => (Some(turns.gate.read()), None),
        _ => (None, Some(turns.gate.write())),
    };
    let mut table = pool.forks.lock();
    for Beginning { parent, record, base, dataset } in begun {
        let freeze = pool.dirty.freezes.load(Ordering::Acquire) + 1;
        let (root, layers) = parent.stand_still(freeze);
        let base_layers = layers.len();
        dataset.publish(root, 0);
        dataset.begin_over(layers, freeze);
        pool.datasets.write().insert(record.id, Arc::clone(&dataset));
        let fork = Fork {
            record: Arc::new(record),
            base: Arc::new(base),
            dataset,
            parent: parent.arc(),
            holds_parent: Some(parent),
            base_layers,
            is_on_media: false,
            is_in_commit: false,
            is_ended: false,
        };
        pool.forks.put(&mut table, fork);
    }
}

/// See [`marram_store::VolatileForks::end_fork`].
pub(crate) fn end(session: &Session, name: &DatasetName) -> Result<()> {
    let pool = &session.state;
    let source = Source::live(name.clone());
    // Nobody opens it meanwhile.
    let _nothing_is_opened = pool.turns.administering.lock();
    let mut table = pool.forks.lock();
    let fork = find(&mut table, &source)?;
    if fork.dataset.is_open() {
        let holder = "it is mounted; unmount it first".to_owned();
        return Err(Error::InUse { name: source.to_string(), holder });
    }
    fork.is_ended = true;
    let (id, parent) = (fork.record.id, fork.parent.id);
    table.let_go_of_fork(id, parent);
    pool.forget_fork(&mut table, id);
    Ok(())
}

/// See [`marram_store::VolatileForks::is_unchanged`].
pub(crate) fn is_unchanged(session: &Session, name: &DatasetName) -> Result<bool> {
    let mut table = session.state.forks.lock();
    let fork = find(&mut table, &Source::live(name.clone()))?;
    if fork.dataset.has_own_dirty(fork.base_layers) {
        return Ok(false);
    }
    if !fork.is_on_media {
        return Ok(true);
    }
    let base = fork.base.id;
    let records = session.state.records.read();
    let root = records.get(base).map(|base| base.root.as_ref());
    Ok(records.get(fork.record.id).map(|fork| fork.root.as_ref()) == root)
}

fn find<'t>(table: &'t mut Table, source: &Source) -> Result<&'t mut Fork> {
    table.named(source).ok_or_else(|| Error::NoDataset(source.to_string()))
}
