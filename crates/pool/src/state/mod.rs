//! The open pool as plain parts: what is known beside the trees, and the locks of it.
//!
//! A part has methods of its own where it has an invariant. The verbs stand in the folders above.

pub(crate) mod bitmaps;
pub(crate) mod find;
pub(crate) mod forks;
pub(crate) mod health;
pub(crate) mod holders;
pub(crate) mod ledger;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod pinned_commit;
pub(crate) mod records;
pub(crate) mod reservations;
pub(crate) mod superblocks;
pub(crate) mod waiting_merges;
pub(crate) mod work;

use crate::base::order::{self, Mutex, RwLock};
use crate::io::Media;
use crate::log::IntentLog;
use crate::memtable::dataset::Dataset;
use crate::memtable::dirty::DirtyCounters;
use crate::memtable::dirty_datasets::DirtyDatasets;
use crate::memtable::item_cache::ItemCache;
use crate::space::{Gauge, SpaceMap};
use crate::state::bitmaps::Committed;
use crate::state::forks::Forks;
use crate::state::ledger::Ledger;
use crate::state::options::OpenOptions;
use crate::state::records::Records;
use crate::state::waiting_merges::WaitingMerges;
use crate::state::work::Work;
use marram_format::pointer::Pointer;
use marram_format::superblock::Superblock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The open pool.
///
/// Locks are taken in the order that stands in `base/order.rs`. None but the log's writer and
/// `committing` is held while a device works, except `space` while a bitmap is read, which only a
/// commit does.
pub(crate) struct State {
    pub(crate) media: Media,
    pub(crate) options: OpenOptions,
    pub(crate) turns: Turns,
    pub(crate) datasets: RwLock<BTreeMap<u64, Arc<Dataset>>>,
    pub(crate) dirty_datasets: Arc<DirtyDatasets>,
    /// Forks in memory.
    pub(crate) forks: Forks,
    pub(crate) merges: WaitingMerges,
    pub(crate) item_cache: Arc<ItemCache>,
    /// Shared with the readers of a [pinned commit](pinned_commit).
    pub(crate) records: RwLock<Arc<Records>>,
    pub(crate) space: Mutex<SpaceMap>,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) superblock: Mutex<Superblock>,
    /// The number that the next dataset, snapshot or dead list gets.
    pub(crate) next_dataset: AtomicU64,
    pub(crate) size_bytes: Mutex<u64>,
    /// Why the pool takes no more changes, if so.
    pub(crate) health: Mutex<Option<String>>,
    pub(crate) dirty: DirtyCounters,
    pub(crate) ledger: Ledger,
    /// When to look next for something in the trash that has expired.
    pub(crate) next_expiry_seconds: AtomicI64,
    /// The intent log; a pool of format 1.0 has none.
    pub(crate) log: OnceLock<IntentLog>,
    pub(crate) replayed_frames: u64,
    pub(crate) work: Work,
}

/// The locks that order batches, commits and administration.
pub(crate) struct Turns {
    /// Held while datasets come or go: nothing is opened meanwhile.
    pub(crate) administering: Mutex<()>,
    /// Held while a commit is made.
    pub(crate) committing: Mutex<()>,
    /// Held for reading while a batch applies; for writing while a commit freezes, and while one
    /// that takes a dataset back is made.
    pub(crate) gate: RwLock<()>,
}

impl Default for Turns {
    fn default() -> Self {
        Turns {
            administering: Mutex::new(order::ADMINISTERING, ()),
            committing: Mutex::new(order::COMMITTING, ()),
            gate: RwLock::new(order::GATE, ()),
        }
    }
}

impl State {
    /// The time at which something that is kept for an undo goes may have come nearer.
    pub(crate) fn note_expiry(&self, until_seconds: i64) {
        self.next_expiry_seconds.fetch_min(until_seconds, Ordering::AcqRel);
    }

    /// Datasets that may have something that waits for a commit, in order of their ids.
    pub(crate) fn all_dirty_datasets(&self) -> Vec<Arc<Dataset>> {
        let datasets = self.datasets.read();
        let dirty_datasets = self.dirty_datasets.ids().into_iter();
        let known = dirty_datasets.filter_map(|id| datasets.get(&id).cloned());
        known.filter(|dataset| dataset.writable).collect()
    }

    /// Bitmaps as the last commit has them.
    pub(crate) fn committed(&self) -> Committed<'_> {
        let root = self.superblock.lock().pool_tree.as_ref().map(Pointer::encode);
        Committed { media: &self.media, root }
    }

    /// A number for a new dataset, snapshot or dead list. One that no commit has used by the end of
    /// this run is given again in the next.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_dataset.fetch_add(1, Ordering::AcqRel)
    }

    /// What the pool is called.
    pub(crate) fn label(&self) -> String {
        self.superblock.lock().label.clone()
    }
}
