//! Ephemeral snapshots: states that are compared, in memory, under names as those of snapshots.
//!
//! Such a state is the root of the last commit, once that has all that was applied. It stays
//! readable as long as the [commit is pinned](crate::state::pinned_commit), so nothing is written
//! for it and a crash leaves nothing of it.
//!
//! **It holds no block.** Its dataset may go on, and the next commit gives back what it no longer
//! uses. So an adoption from it first checks, under the turn to commit, that the dataset is still
//! there: else the commit would adopt blocks that are free.

use crate::base::order::{self, Mutex};
use crate::commit::turn;
use crate::commit::turn::Turn;
use crate::memtable::dataset::Dataset;
use crate::memtable::dataset::Opened;
use crate::snapshots::session::Session;
use crate::state::find::refuse_live;
use crate::state::pinned_commit::PinnedCommit;
use crate::state::records::root_of;
use bytes::Bytes;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_store::{DatasetName, Error, Result, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    if running.has_dirty() {
        turn::commit(inner)?;
    }
    let moment = Arc::new(PinnedCommit::hold(inner));
    let record = moment.records.get(live.id).ok_or_else(gone)?;
    let number = session.ephemeral.number.fetch_add(1, Ordering::Relaxed);
    let name = format!("{purpose}:now-{number}");
    let source = Source { dataset: dataset.clone(), snapshot: Some(name) };
    let record = DatasetRecord {
        name: source.to_string(),
        state: DatasetState::Snapshot,
        parent: live.id,
        ..DatasetRecord::clone(record)
    };
    let open = Opened::new(Arc::clone(&running));
    let record = Arc::new(record);
    let state = EphemeralState { moment, record, dataset: running, _open: open };
    session.ephemeral.states.lock().insert(source.clone(), Arc::new(state));
    Ok(source)
}

/// See [`marram_store::EphemeralSnapshots::discard_ephemeral`].
pub(crate) fn discard(session: &Session, kept: &Source) -> bool {
    let gone = session.ephemeral.states.lock().remove(kept);
    gone.is_some()
}
