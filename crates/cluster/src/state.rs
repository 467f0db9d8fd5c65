//! An open store: what its views and operations share.

mod company;
mod join;
mod locking;
mod merging;
mod open;
mod operations;
mod prune;
mod publish;
mod reading;
mod rescue;
mod rest;
mod scheduled;
mod sharing;
mod store;
mod sweep;
mod taking;
mod transactions;
mod transfers;
mod usage;

pub use company::Clocks;
pub use join::{Heard, Judge, Lost};
pub use open::{Client, Glance, NewStore, OpenOptions, glance, locked_ranges, make};
pub use prune::Swept;
pub use usage::SpaceHeld;

use crate::blocks::{Blocks, Upload};
use crate::catalogue::{Catalogue, Link};
use crate::delta::Replaced;
use crate::format::{BlocksPlace, Reference, Role, StoredItem};
use crate::item_cache::ItemCache;
use crate::known::Known;
use crate::locks::Locks;
use crate::pending::Pending;
use crate::rows::Rows;
use company::Company;
use marram_store::{Author, Block, Error, Item, Key, Result, Space};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, Weak};

/// Gives the seconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Tells how much space there is.
pub type SpaceProbe = Arc<dyn Fn() -> Space + Send + Sync>;

/// A store in a database, which this client has open: a handle that acts for an author, or for
/// nobody.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
    /// The author that it acts for: without one nothing is in the log of operations.
    pub(crate) author: Option<Arc<Author>>,
    /// The operation that a merge through this handle takes back, or 0.
    pub(crate) undoes: u64,
    /// A merge was made through this handle.
    pub(crate) has_merged: Arc<AtomicBool>,
}

/// What is known of an open store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Entries of the log up to now.
    pub entries: u64,
    /// Bytes of memory that wait for their publication.
    pub waiting_bytes: u64,
    /// Bytes that the database takes.
    pub stored_bytes: u64,
    /// Calls of this client that have gone to a server.
    pub round_trips: u64,
    /// Why the store takes no more changes, if it does not.
    pub stopped: Option<String>,
    /// Other clients that have it open.
    pub others: usize,
}

pub(crate) struct Shared {
    pub(crate) rows: Rows,
    pub(crate) blocks: Blocks,
    /// Items that were read or published.
    pub(crate) items: ItemCache,
    pub(crate) id: [u8; 16],
    /// Another one once this client has come back after it was taken for lost.
    pub(crate) session: Mutex<[u8; 16]>,
    /// What this client says of itself.
    pub(crate) name: String,
    pub(crate) read_only: bool,
    /// Which of the others are lost, where one of them is awaited.
    pub(crate) judge: Judge,
    /// Held while this client goes to rest, or wakes. Taken before the publisher.
    pub(crate) waking: Mutex<()>,
    /// Since when it has the store open: seconds since 1970.
    pub(crate) since: AtomicI64,
    /// What users have asked of this client so far.
    pub(crate) uses: AtomicU64,
    pub(crate) clock: Clock,
    pub(crate) space: Option<SpaceProbe>,
    /// Taken before the publisher.
    pub(crate) locks: Mutex<Locks>,
    /// Taken before the state.
    pub(crate) publisher: Mutex<Publisher>,
    /// The number of the last entry that was taken in, with its rows.
    pub(crate) end: AtomicU64,
    /// Held while several pages are read: files are cut anew before that, or behind.
    pub(crate) pages: RwLock<()>,
    pub(crate) state: RwLock<State>,
}

/// The end of the log.
pub(crate) struct Publisher {
    /// The number of the last entry.
    pub(crate) number: u64,
    /// The hash of it.
    pub(crate) hash: [u8; 32],
    /// What was asked about the keys of the next one.
    pub(crate) known: Known,
    /// Slices that files have lost of late.
    pub(crate) replaced: Replaced,
}

/// What changes while the store is open.
pub(crate) struct State {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) pending: Pending,
    /// What is being published.
    pub(crate) frozen: Option<Arc<Pending>>,
    /// Views that are open, by the number of their dataset or snapshot.
    pub(crate) open: BTreeMap<u64, Weak<()>>,
    /// What is being destroyed.
    pub(crate) going: BTreeSet<u64>,
    /// Batches that were applied, and those of them that are published.
    pub(crate) applied: u64,
    pub(crate) published: u64,
    pub(crate) stopped: Option<String>,
    /// No other client reads: publications may wait.
    pub(crate) is_alone: bool,
    /// It is about to answer that it is not alone any more.
    pub(crate) is_answering: bool,
    /// Nothing is answered or published for users before this client has woken.
    pub(crate) rests: bool,
    /// Another client has taken this one for lost.
    pub(crate) is_expelled: bool,
    /// It says that it goes: that its row is missing then has no meaning.
    pub(crate) is_leaving: bool,
    pub(crate) company: Company,
    /// How often it has come back after that.
    pub(crate) lives: u64,
    /// How often files of a dataset were cut anew while their content waited.
    pub(crate) recuts: BTreeMap<u64, u64>,
}

impl State {
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.open.get(&number).is_some_and(|open| open.strong_count() > 0)
    }

    /// All datasets and snapshots that are open.
    pub(crate) fn all_open(&self) -> BTreeSet<u64> {
        self.open.keys().copied().filter(|number| self.is_open(*number)).collect()
    }

    /// The item under a key that waits for its publication, or was removed.
    pub(crate) fn waiting(&self, dataset: u64, key: Key) -> Option<&Option<Item>> {
        let frozen = || self.frozen.as_ref().and_then(|frozen| frozen.get(dataset, key));
        self.pending.get(dataset, key).or_else(frozen)
    }

    /// All that has been applied and not published.
    pub(crate) fn unpublished(&self) -> Pending {
        let mut all = self.pending.clone();
        self.frozen.iter().for_each(|frozen| all.take_up(frozen));
        all
    }

    /// The lines of a dataset as it is now.
    pub(crate) fn links(&self, dataset: u64) -> Result<Vec<Link>> {
        let record = self.catalogue.record(dataset);
        let record = record.ok_or_else(|| Error::NoDataset(format!("number {dataset}")))?;
        let period = matches!(record.role, Role::Snapshot { .. }).then_some(record.period);
        self.catalogue.links(record.line, period)
    }

    /// Refuses changes when an earlier one has failed half-way.
    pub(crate) fn refuse_stopped(&self) -> Result<()> {
        match &self.stopped {
            None => Ok(()),
            Some(reason) => Err(Error::ReadOnly(reason.clone())),
        }
    }
}

impl Shared {
    /// The number of this client.
    pub(crate) fn session(&self) -> [u8; 16] {
        *self.session.lock()
    }

    /// The item under a key of a dataset as it is now.
    pub(crate) fn get(&self, dataset: u64, key: Key) -> Result<Option<Item>> {
        let links = {
            let state = self.state.read();
            if let Some(item) = state.waiting(dataset, key) {
                return Ok(item.clone());
            }
            state.links(dataset)?
        };
        Ok(self.item(&links, key)?.map(|item| item.item()))
    }

    /// What an item refers to; a block that is not stored yet joins `uploads`.
    pub(crate) fn stored(&self, item: &Item, uploads: &mut Vec<Upload>) -> Result<StoredItem> {
        let block = match &item.block {
            None => None,
            Some(Block::Stored(token)) => Some(Reference::of_token(token)?),
            Some(Block::Fresh(block)) => {
                let reference = match block.stored() {
                    Some(token) => Reference::of_token(token)?,
                    None => self.blocks.reference(block.data()),
                };
                uploads.push(Upload { reference, block: Arc::clone(block) });
                Some(reference)
            }
        };
        Ok(StoredItem { value: item.value.clone(), block })
    }

    /// Takes no more changes: what is in the database is not known, or is another's.
    pub(crate) fn stop(&self, reason: &str) -> Error {
        let mut state = self.state.write();
        // From now on the rows change without this client.
        self.items.clear(true);
        let reason = state.stopped.get_or_insert_with(|| reason.to_owned()).clone();
        Error::ReadOnly(reason)
    }

    pub(crate) fn now(&self) -> i64 {
        (self.clock)()
    }
}

impl Cluster {
    /// The number of the store among all stores.
    pub fn id(&self) -> [u8; 16] {
        self.shared.id
    }

    /// The number of this client.
    pub fn session(&self) -> [u8; 16] {
        self.shared.session()
    }

    /// What is known of it.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn status(&self) -> Result<Status> {
        let stored_bytes = self.shared.rows.database().bytes()?;
        let entries = self.shared.publisher.lock().number;
        let state = self.shared.state.read();
        let frozen = state.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
        Ok(Status {
            entries,
            waiting_bytes: (state.pending.bytes() + frozen) as u64,
            stored_bytes,
            round_trips: self.shared.rows.database().round_trips(),
            stopped: state.stopped.clone(),
            others: state.company.others(self.shared.session()).count(),
        })
    }

    /// Where its blocks lie outside of the database, and how much space there is; none if they lie
    /// in it.
    pub fn blocks_outside(&self) -> Option<(BlocksPlace, Option<Space>)> {
        let objects = self.shared.blocks.objects()?;
        Some((objects.place(), objects.space()))
    }

    /// What kind of database it is in, for people.
    pub fn engine(&self) -> &'static str {
        self.shared.rows.database().engine()
    }
}
