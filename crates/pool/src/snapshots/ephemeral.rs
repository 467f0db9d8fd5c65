//! Ephemeral snapshots: states that are compared, in memory, under names as those of snapshots.
//!
//! Such a state is the root of the last commit, once that has all that was applied. It stays
//! readable as long as the [commit is pinned](crate::state::pinned_commit), so nothing is written
//! for it and a crash leaves nothing of it.
//!
//! One may also have layers over that root, of a dataset of which something waits: then no commit
//! is needed for it. So has the base of a [fork in memory](crate::state::forks).
//!
//! **It holds no block.** Its dataset may go on, and the next commit gives back what it no longer
//! uses. So an adoption from it first checks, under the turn to commit, that the dataset is still
//! there: else the commit would adopt blocks that are free.

use crate::base::order::{self, Mutex};
use crate::base::pointers::decode_pointer;
use crate::commit::turn;
use crate::commit::turn::Turn;
use crate::memtable::dataset::Dataset;
use crate::memtable::dataset::Opened;
use crate::memtable::overlay::Layer;
use crate::snapshots::session::Session;
use crate::state::find::refuse_live;
use crate::state::forks::{Fork, Named};
use crate::state::pinned_commit::PinnedCommit;
use crate::state::records::root_of;
use bytes::Bytes;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_store::{DatasetName, Error, Result, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// More content in memory is not copied from a fork: it is committed, and then shared.
const PRESENT_BYTES_MAX: u64 = 16 << 20;

/// All that there are.
pub(crate) struct EphemeralStates {
    states: Mutex<BTreeMap<Source, Arc<EphemeralState>>>,
    number: AtomicU64,
}

/// One of them.
pub(crate) struct EphemeralState {
    pub(crate) moment: Arc<PinnedCommit>,
    /// As that of a snapshot.
    pub(crate) record: Arc<DatasetRecord>,
    /// What it has in memory only, oldest first; `None` if it may have nothing.
    pub(crate) layers: Option<Vec<Arc<Layer>>>,
    dataset: Arc<Dataset>,
    /// The dataset counts as open, and cannot be destroyed.
    _open: Opened,
}

impl Default for EphemeralStates {
    fn default() -> Self {
        EphemeralStates {
            states: Mutex::new(order::EPHEMERAL, BTreeMap::new()),
            number: AtomicU64::new(0),
        }
    }
}

impl EphemeralState {
    pub(crate) fn root(&self) -> Option<Bytes> {
        root_of(&self.record)
    }

    /// Whether the last commit has another state of the dataset, or some of this one was
    /// overwritten.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.dataset.root() != self.root() || self.moment.is_broken()
    }
}

pub(crate) fn find(session: &Session, source: &Source) -> Option<Arc<EphemeralState>> {
    session.ephemeral.states.lock().get(source).cloned()
}

/// The dataset of an ephemeral snapshot that may be in memory only.
pub(crate) fn layered(session: &Session, source: &Source) -> Option<u64> {
    let found = find(session, source)?;
    found.layers.as_ref().map(|_| found.dataset.id)
}

/// The same, and the base of a fork in memory.
pub(crate) fn find_or_base(
    session: &Session,
    source: &Source,
) -> Result<Option<Arc<EphemeralState>>> {
    let found = find(session, source);
    let pool = &session.state;
    if found.is_some() || pool.forks.is_empty() {
        return Ok(found);
    }
    let name = source.to_string();
    // What is none has not to wait for a commit.
    match pool.forks.named(&name) {
        Named::InMemory(record) if record.state == DatasetState::Snapshot => {}
        _ => return Ok(None),
    }
    let _no_commit = pool.turns.committing.lock();
    let table = pool.forks.lock();
    let is_it = |fork: &&Fork| !fork.is_ended && !fork.is_on_media && fork.base.name == name;
    let Some(fork) = table.all().find(is_it) else { return Ok(None) };
    let (root, mut layers) = fork.dataset.frozen();
    layers.truncate(fork.base_layers);
    let root = root.as_deref().map(decode_pointer).transpose()?;
    Ok(Some(Arc::new(EphemeralState {
        moment: Arc::new(PinnedCommit::hold_still(pool)),
        record: Arc::new(DatasetRecord { root, ..DatasetRecord::clone(&fork.base) }),
        layers: Some(layers),
        dataset: Arc::clone(&fork.dataset),
        _open: Opened::new(Arc::clone(&fork.dataset)),
    })))
}

/// See [`marram_store::VolatileForks::present_state`].
pub(crate) fn present(
    session: &Session,
    dataset: &DatasetName,
    purpose: &str,
) -> Result<Option<Source>> {
    let pool = &session.state;
    let _no_destruction = pool.turns.administering.lock();
    let record = pool.find_live(dataset)?;
    let gone = || Error::NoDataset(dataset.to_string());
    let running = pool.running(record.id).ok_or_else(gone)?;
    let _no_commit = pool.turns.committing.lock();
    let (root, layers) = {
        let _no_freeze = pool.turns.gate.read();
        running.stand_still(pool.dirty.freezes.load(Ordering::Acquire) + 1)
    };
    let is_fork = dataset.transaction().is_some();
    if is_fork && running.frozen_dirty(0).memory_bytes > PRESENT_BYTES_MAX {
        return Ok(None);
    }
    let source = name_of(session, dataset, purpose);
    let root = root.as_deref().map(decode_pointer).transpose()?;
    let record = DatasetRecord {
        name: source.to_string(),
        state: DatasetState::Snapshot,
        parent: record.id,
        root,
        ..DatasetRecord::clone(&record)
    };
    let state = EphemeralState {
        moment: Arc::new(PinnedCommit::hold_still(pool)),
        record: Arc::new(record),
        layers: Some(layers),
        _open: Opened::new(Arc::clone(&running)),
        dataset: running,
    };
    session.ephemeral.states.lock().insert(source.clone(), Arc::new(state));
    Ok(Some(source))
}

fn name_of(session: &Session, dataset: &DatasetName, purpose: &str) -> Source {
    let number = session.ephemeral.number.fetch_add(1, Ordering::Relaxed);
    Source { dataset: dataset.clone(), snapshot: Some(format!("{purpose}:now-{number}")) }
}

/// See [`marram_store::EphemeralSnapshots::is_overtaken`].
pub(crate) fn is_overtaken(session: &Session, source: &Source) -> bool {
    find(session, source).is_some_and(|state| state.is_overtaken())
}

/// Refuses to adopt blocks that may be free. The turn proves that none goes meanwhile.
pub(crate) fn refuse_overtaken(session: &Session, read: &Source, _turn: &Turn<'_>) -> Result<()> {
    match find(session, read) {
        Some(state) if state.is_overtaken() => Err(Error::InUse {
            name: read.dataset.to_string(),
            holder: "it was written to while it was merged; try again".to_owned(),
        }),
        Some(_) => Ok(()),
        None => session.state.find(read).and_then(|_| refuse_live(read)),
    }
}

/// See [`marram_store::EphemeralSnapshots::ephemeral_snapshot`].
pub(crate) fn take(session: &Session, dataset: &DatasetName, purpose: &str) -> Result<Source> {
    let inner = &session.state;
    let _no_destruction = inner.turns.administering.lock();
    let live = inner.find_live(dataset)?;
    let gone = || Error::NoDataset(dataset.to_string());
    let running = inner.running(live.id).ok_or_else(gone)?;
    if inner.forks.base_of(live.id).is_some() {
        turn::settle_forks(inner)?;
    }
    if running.has_dirty() {
        turn::commit(inner)?;
    }
    let moment = Arc::new(PinnedCommit::hold(inner));
    let record = moment.records.get(live.id).ok_or_else(gone)?;
    let source = name_of(session, dataset, purpose);
    let record = DatasetRecord {
        name: source.to_string(),
        state: DatasetState::Snapshot,
        parent: live.id,
        ..DatasetRecord::clone(record)
    };
    let open = Opened::new(Arc::clone(&running));
    let record = Arc::new(record);
    let layers = None;
    let state = EphemeralState { moment, record, layers, dataset: running, _open: open };
    session.ephemeral.states.lock().insert(source.clone(), Arc::new(state));
    Ok(source)
}

/// See [`marram_store::EphemeralSnapshots::discard_ephemeral`].
pub(crate) fn discard(session: &Session, kept: &Source) -> bool {
    let gone = session.ephemeral.states.lock().remove(kept);
    gone.is_some()
}
