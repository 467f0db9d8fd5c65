//! The view of a dataset that callers get: it reads the dataset, and admits and applies batches.

use crate::admission::cost::cost;
use crate::admission::shortage::{self, Granted, Need};
use crate::admission::{quota, reservation, room};
use crate::base::pointers::{decode_pointer, token_of, waiting};
use crate::commit::turn::Turn;
use crate::commit::{sync, trim, turn};
use crate::memtable::counters::CommittedCounters;
use crate::memtable::dataset::{Attempt, Opened};
use crate::snapshots::label;
use crate::snapshots::trash::Reclaim;
use crate::state::State;
use crate::state::ledger::Waiting;
use crate::views::place::place_of;
use bytes::Bytes;
use marram_format::pointer::GRAIN_BYTES;
use marram_store::{
    AdmissionControl, Adoption, Author, Batch, Block, BlockPlace, Capabilities, CountedSpace,
    Error, Halting, Item, Key, Labelled, Part, Placement, Properties, Result, Source, Space,
    Trimming, Unread, View,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name in the log of operations of the call by which a view gets another label.
const LABEL_CALL: &str = "FS_IOC_SETFSLABEL";

/// An open dataset or snapshot.
pub(crate) struct DatasetView {
    pool: Arc<State>,
    dataset: Opened,
    /// How often a doubt about the dataset had turned out otherwise when this was opened.
    turns: u64,
    /// Bytes that are promised to writers through this view.
    promised: AtomicU64,
}

impl DatasetView {
    pub(crate) fn new(pool: Arc<State>, dataset: Opened) -> DatasetView {
        let turns = dataset.doubt.turns();
        DatasetView { pool, dataset, turns, promised: AtomicU64::new(0) }
    }

    /// Refuses everything while it is not known which state the dataset has.
    fn refuse_in_doubt(&self) -> Result<()> {
        match self.dataset.doubt.is_there() {
            true => Err(self.pool.in_doubt(self.dataset.id)),
            false if self.dataset.doubt.turns() != self.turns => Err(Error::InDoubt(format!(
                "a transaction over two pools was committed in {} while this mount did not know \
                 of it: unmount it and mount it again",
                self.pool.name_of(self.dataset.id)
            ))),
            false => Ok(()),
        }
    }

    /// Applies a batch that has been granted space, or else if there is some beside what waits for
    /// a commit; whether it was applied. What of counters must be read from a device is read
    /// without the gate.
    ///
    /// Space beside what waits is found under the gate: a freeze of what waits finds nothing
    /// admitted but what is granted, and what has come since.
    fn apply_beside(
        &self,
        batch: &mut Batch<'_>,
        granted: Option<Granted<'_, Turn<'_>>>,
    ) -> Result<bool> {
        let mut committed = CommittedCounters::default();
        loop {
            let unread = {
                let _no_freeze = self.pool.turns.gate.read();
                let nothing = Waiting::default();
                let admit =
                    || shortage::admit(&self.pool, &self.dataset, batch, cost(batch), nothing);
                let _admitted = match &granted {
                    Some(_) => None,
                    None => match admit() {
                        None => return Ok(false),
                        admitted => admitted,
                    },
                };
                let (edits, promised) = (std::mem::take(&mut batch.edits), batch.promised_bytes);
                match self.dataset.apply_counted(edits, &mut committed)? {
                    Attempt::Applied(grown) => {
                        self.pool.dirty.add(grown);
                        self.pool.dirty.batches.fetch_add(1, Ordering::AcqRel);
                        self.use_up(promised);
                        return Ok(true);
                    }
                    Attempt::Unread { edits, key, root } => {
                        batch.edits = edits;
                        (key, root)
                    }
                }
            };
            self.dataset.read_counter(&self.pool.media, unread, &mut committed)?;
        }
    }

    /// What was promised is among what is dirty now.
    fn use_up(&self, bytes: u64) {
        let less = |promised: u64| Some(promised.saturating_sub(bytes));
        if bytes > 0
            && let Ok(before) =
                self.promised.fetch_update(Ordering::AcqRel, Ordering::Acquire, less)
        {
            self.pool.ledger.promised_bytes.fetch_sub(before.min(bytes), Ordering::AcqRel);
        }
    }
}

/// Opens a dataset or snapshot.
pub(crate) fn open(pool: &Arc<State>, source: &Source) -> Result<Arc<dyn View>> {
    Ok(Arc::new(DatasetView::new(Arc::clone(pool), pool.open(source)?)))
}

impl Drop for DatasetView {
    fn drop(&mut self) {
        self.promise(0);
    }
}

impl View for DatasetView {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        self.refuse_in_doubt()?;
        self.dataset.get(&self.pool.media, key)
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        self.refuse_in_doubt()?;
        self.dataset.scan(&self.pool.media, from, to, visit)
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        self.refuse_in_doubt()?;
        self.dataset.last(&self.pool.media, from, to)
    }

    fn apply(&self, batch: Batch<'_>) -> Result<()> {
        if !self.dataset.writable {
            return Err(Error::ReadOnly("a snapshot or a read-only pool".to_owned()));
        }
        self.pool.check_writable()?;
        self.refuse_in_doubt()?;
        quota::check_quota(&self.pool, &self.dataset, &batch, || turn::commit(&self.pool))?;
        let mut batch = batch;
        match self.apply_beside(&mut batch, None)? {
            true => room::announce_shortage(&self.pool),
            false => {
                let granted = reservation::reserve(
                    &Reclaim(&self.pool),
                    &self.pool,
                    &self.dataset,
                    &batch,
                    Need::of(&batch),
                )?;
                self.apply_beside(&mut batch, Some(granted))?;
            }
        }
        // The batch has been applied: a commit that fails says so to its own caller.
        let _reported_by_sync = turn::throttle(&self.pool);
        Ok(())
    }

    fn read_block(&self, block: &Block) -> Result<Bytes> {
        self.refuse_in_doubt()?;
        self.dataset.read_block(&self.pool.media, block)
    }

    fn read_parts(&self, parts: &[Part<'_>], out: &mut Vec<u8>) -> std::result::Result<(), Unread> {
        self.refuse_in_doubt().map_err(|error| Unread { number: 0, error })?;
        self.dataset.read_parts(&self.pool.media, parts, out)
    }

    fn sync(&self) -> Result<()> {
        sync::sync(&self.pool)
    }

    fn writable(&self) -> bool {
        self.dataset.writable && self.pool.check_writable().is_ok()
    }

    fn properties(&self) -> Properties {
        self.dataset.settings().all.clone()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            space: Some(self),
            admission: Some(self),
            placement: Some(self),
            adoption: Some(self),
            trimming: Some(self),
            label: Some(self),
            halting: Some(self),
            ..Capabilities::default()
        }
    }
}

impl CountedSpace for DatasetView {
    fn space(&self) -> Space {
        quota::space_of(&self.pool, &self.dataset, self.promised.load(Ordering::Acquire))
    }
}

impl AdmissionControl for DatasetView {
    fn promise(&self, bytes: u64) {
        let before = self.promised.swap(bytes, Ordering::AcqRel);
        // Wraps around where it is less, and so comes to the right sum.
        self.pool.ledger.promised_bytes.fetch_add(bytes.wrapping_sub(before), Ordering::AcqRel);
    }

    fn dry_run(&self, batch: Batch<'_>) -> Result<()> {
        let mut batch = batch;
        self.pool.check_writable()?;
        self.refuse_in_doubt()?;
        quota::check_quota(&self.pool, &self.dataset, &batch, || turn::commit(&self.pool))?;
        reservation::dry_run_merge(&Reclaim(&self.pool), &self.pool, &self.dataset, &mut batch)?;
        self.dataset.check_limits(&self.pool.media, &batch.edits)
    }

    fn commit(&self) -> Result<()> {
        turn::commit(&self.pool)
    }
}

impl Placement for DatasetView {
    fn read_block_anew(&self, block: &Block) -> Result<Bytes> {
        self.dataset.read_block_anew(&self.pool.media, block)
    }

    fn stored_bytes(&self, block: &Block) -> u64 {
        match block {
            Block::Fresh(fresh) => fresh.data().len() as u64,
            Block::Stored(token) => {
                decode_pointer(&token.place).map_or(0, |pointer| pointer.grains() * GRAIN_BYTES)
            }
        }
    }

    fn place_of(&self, block: &Block) -> BlockPlace {
        place_of(block).unwrap_or_else(|| BlockPlace::in_memory(self.stored_bytes(block)))
    }

    fn is_held_only_by(&self, block: &Block, keys: &[Key]) -> Result<bool> {
        let Block::Stored(token) = block else {
            return Ok(false);
        };
        if keys.iter().any(|key| self.dataset.is_waiting(*key)) {
            return Ok(false);
        }
        let pointer = decode_pointer(&token.place)?;
        self.pool.is_held_only_by(&self.dataset, &pointer, keys.len() as u64)
    }
}

impl Adoption for DatasetView {
    fn adopt(&self, from: &dyn View, block: &Block) -> Result<Block> {
        let token = match block {
            Block::Stored(token) => Some(token),
            Block::Fresh(fresh) => fresh.stored(),
        };
        // What no commit has written is written for each dataset: a block that two of them wait for
        // would be known to one by the pointer that is the other's.
        let Some(token) = token else {
            return Ok(Block::fresh(from.read_block(block)?.to_vec()));
        };
        let pointer = decode_pointer(&token.place)?;
        match pointer.address() {
            None => Ok(Block::Stored(token.clone())),
            Some(_) => Ok(Block::Stored(token_of(&waiting(pointer).encode())?)),
        }
    }
}

impl Trimming for DatasetView {
    fn trim(&self, from: u64, to: u64, min_bytes: u64) -> Result<u64> {
        trim::trim(&self.pool, from, to, min_bytes)
    }
}

impl Labelled for DatasetView {
    fn label(&self) -> String {
        self.pool.label()
    }

    fn set_label(&self, label: &str, user: u32) -> Result<()> {
        let command = LABEL_CALL.to_owned();
        let author = Author { user: Some(user), command };
        label::set_label(&self.pool, label, Some(&Arc::new(author)))
    }
}

impl Halting for DatasetView {
    fn halt(&self) {
        self.pool.halt();
    }
}
