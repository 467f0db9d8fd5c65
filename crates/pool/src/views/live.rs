//! The view of a dataset that callers get, and the reservation of space for what they change.

use crate::admission::shortage::{Granted, Need, Search, Waiting};
use crate::base::pointers::{decode_pointer, token_of};
use crate::commit::{busy, is_shared, waiting};
use crate::front::Inner;
use crate::memtable::counters::CommittedCounters;
use crate::memtable::dataset::{Attempt, Dataset};
use crate::memtable::foreign_blocks::is_adoption;
use crate::snapshots::Author;
use bytes::Bytes;
use marram_format::node::NODE_BYTES_MAX;
use marram_format::pointer::{Extent, GRAIN_BYTES, Place, Pointer};
use marram_store::{
    Admission, AdmissionControl, Adoption, Batch, Block, BlockPlace, Capabilities, CountedSpace,
    Edit, Error, Halting, Item, Key, Labelled, Part, Placement, Properties, Result, Space,
    Trimming, Unread, View,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes on media that a changed key is taken to need when free space is told: neighbours share
/// leaves.
pub(crate) const KEY_BYTES: u64 = 1024;
/// The most that a changed key needs: its leaf is rewritten, perhaps as two, in two copies.
pub(crate) const KEY_BYTES_MAX: u64 = 2 * (NODE_BYTES_MAX as u64 + 2 * GRAIN_BYTES);
/// The keys of one batch are neighbours of a few others: beside so many leaves of their own, they
/// are taken to need [`NEIGHBOUR_BYTES`] each.
const BATCH_LEAVES: u64 = 6;
/// See [`BATCH_LEAVES`].
const NEIGHBOUR_BYTES: u64 = 16 << 10;

/// Of what is promised so many bytes come with one byte of items that name them: sections of a
/// page, the shortest that programs usually write, with the counts of their owners.
const PROMISED_PER_ITEM_BYTE: u64 = 16;

/// What the log of operations calls the call through which a view is told of another label.
const LABEL_CALL: &str = "FS_IOC_SETFSLABEL";

/// Fewer keys than this do not make a commit worth it.
const WAITING_KEYS_MIN: u64 = 4096;

/// An open dataset or snapshot.
pub(crate) struct DatasetView {
    pool: Arc<Inner>,
    dataset: Arc<Dataset>,
    /// Bytes that are promised to whoever writes through this view.
    promised: AtomicU64,
}

impl DatasetView {
    pub(crate) fn new(pool: Arc<Inner>, dataset: Arc<Dataset>) -> DatasetView {
        dataset.views.fetch_add(1, Ordering::AcqRel);
        DatasetView { pool, dataset, promised: AtomicU64::new(0) }
    }
}

impl DatasetView {
    /// The root of the last commit.
    pub(crate) fn root(&self) -> Option<Bytes> {
        self.dataset.root()
    }

    /// Applies a batch that has been granted space, or else if there is some beside what waits for
    /// a commit; whether it was applied. What of counters must be read from a device is read
    /// without the gate.
    ///
    /// Space beside what waits is found under the gate: whoever has frozen what waits finds
    /// nothing admitted but what is granted, and what has come since.
    fn apply_beside(&self, batch: &mut Batch<'_>, granted: Option<Granted<'_>>) -> Result<bool> {
        let mut committed = CommittedCounters::default();
        loop {
            let unread = {
                let _no_freeze = self.pool.gate.read();
                let unlooked = Waiting::default();
                let admit = || self.pool.admit(&self.dataset, batch, cost(batch), unlooked);
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
                        self.pool.add_dirty(grown);
                        self.pool.batches.fetch_add(1, Ordering::AcqRel);
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
            self.pool.promised_bytes.fetch_sub(before.min(bytes), Ordering::AcqRel);
        }
    }
}

/// The pieces of a block's first copy; none of content that lies beside its item.
fn first_copy(pointer: &Pointer) -> &[Extent] {
    match &pointer.place {
        Place::Stored { copies, .. } => copies.first().map_or(&[], Vec::as_slice),
        Place::Embedded(_) => &[],
    }
}

/// Where a block is that has been written.
pub(crate) fn place_of(block: &Block) -> Option<BlockPlace> {
    let token = match block {
        Block::Stored(token) => token,
        Block::Fresh(fresh) => fresh.stored()?,
    };
    let pointer = decode_pointer(&token.place).ok()?;
    let pieces = first_copy(&pointer);
    let end = |piece: &Extent| (piece.start + u64::from(piece.grains)) * GRAIN_BYTES;
    Some(BlockPlace {
        address: pieces.first().map(|piece| (piece.device, piece.start * GRAIN_BYTES)),
        end_address: pieces.first().filter(|_| pieces.len() == 1).map(end),
        pieces: pieces.len() as u64,
        stored_bytes: pointer.grains() * GRAIN_BYTES,
        may_be_shared: is_shared(&pointer)
            || matches!(block, Block::Fresh(_))
            || Pointer::peek_waiting(&token.place),
    })
}

impl Drop for DatasetView {
    fn drop(&mut self) {
        self.promise(0);
        self.dataset.views.fetch_sub(1, Ordering::AcqRel);
    }
}

impl View for DatasetView {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        self.dataset.get(&self.pool.media, key)
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        self.dataset.scan(&self.pool.media, from, to, visit)
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        self.dataset.last(&self.pool.media, from, to)
    }

    fn apply(&self, batch: Batch<'_>) -> Result<()> {
        if !self.dataset.writable {
            return Err(Error::ReadOnly("a snapshot or a read-only pool".to_owned()));
        }
        self.pool.check_writable()?;
        self.pool.check_quota(&self.dataset, &batch)?;
        let mut batch = batch;
        match self.apply_beside(&mut batch, None)? {
            true => self.pool.announce_shortage(),
            false => {
                let granted = self.pool.reserve(&self.dataset, &batch, Need::of(&batch))?;
                self.apply_beside(&mut batch, Some(granted))?;
            }
        }
        // The batch has been applied: that a commit fails is told by whoever asks for one.
        let _told_by_sync = self.pool.throttle();
        Ok(())
    }

    fn read_block(&self, block: &Block) -> Result<Bytes> {
        self.dataset.read_block(&self.pool.media, block)
    }

    fn read_parts(&self, parts: &[Part<'_>], out: &mut Vec<u8>) -> std::result::Result<(), Unread> {
        self.dataset.read_parts(&self.pool.media, parts, out)
    }

    fn sync(&self) -> Result<()> {
        self.pool.sync()
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
        self.pool.space_of(&self.dataset, self.promised.load(Ordering::Acquire))
    }
}

impl AdmissionControl for DatasetView {
    fn promise(&self, bytes: u64) {
        let before = self.promised.swap(bytes, Ordering::AcqRel);
        // Wraps around where it is less, and so comes to the right sum.
        self.pool.promised_bytes.fetch_add(bytes.wrapping_sub(before), Ordering::AcqRel);
    }

    fn dry_run(&self, batch: Batch<'_>) -> Result<()> {
        let mut batch = batch;
        self.pool.check_writable()?;
        self.pool.check_quota(&self.dataset, &batch)?;
        self.pool.foresee_space(&self.dataset, &mut batch)?;
        self.dataset.foresee(&self.pool.media, &batch.edits)
    }

    fn commit(&self) -> Result<()> {
        self.pool.commit()
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
        self.pool.trim(from, to, min_bytes)
    }
}

impl Labelled for DatasetView {
    fn label(&self) -> String {
        self.pool.label()
    }

    fn set_label(&self, label: &str, user: u32) -> Result<()> {
        let command = LABEL_CALL.to_owned();
        let author = Author { user: Some(user), command };
        self.pool.set_label(label, Some(&Arc::new(author)))
    }
}

impl Halting for DatasetView {
    fn halt(&self) {
        self.pool.halt();
    }
}

impl Inner {
    /// Finds space for a batch that does not fit beside what waits. What earlier batches freed can
    /// be used only after a commit, so one is made before a batch is refused, if it could help;
    /// then what is being destroyed is given back, and what is kept for an undo is let go, one
    /// after the other.
    ///
    /// **What was taken can be committed**: a sync that fails for want of space would break the
    /// promise that the batch was given. So all keys that wait for a commit are counted as if each
    /// rewrote a leaf of its own; only of one batch on its own is more expected, and of a large
    /// merge it is found what its commit would do.
    pub(crate) fn reserve(
        &self,
        dataset: &Dataset,
        batch: &Batch<'_>,
        mut need: Need,
    ) -> Result<Granted<'_>> {
        loop {
            match self.find_space(dataset, batch, &mut need)? {
                Search::Found(granted) => return Ok(granted),
                Search::Unlooked => return Err(busy(dataset)),
                Search::None { is_hopeless } => {
                    if is_hopeless || !self.make_space()? {
                        return Err(Error::NoSpace);
                    }
                }
            }
        }
    }

    /// As [`Inner::reserve`], for a merge.
    pub(crate) fn reserve_merge(
        &self,
        dataset: &Dataset,
        batch: &mut Batch<'_>,
    ) -> Result<Granted<'_>> {
        match self.find_as_ordinary(dataset, batch)? {
            Some(granted) => Ok(granted),
            None => self.reserve(dataset, batch, Need::of_merge(batch)),
        }
    }

    /// Finds space for a merge that only frees as if it did not. It could use a part of what is
    /// kept back, but is reckoned by its keys for that; so where these are very many it is tried
    /// first to do without. `None` if that does not find any, or need not.
    fn find_as_ordinary(
        &self,
        dataset: &Dataset,
        batch: &mut Batch<'_>,
    ) -> Result<Option<Granted<'_>>> {
        if batch.admission != Admission::Freeing
            || self.admit(dataset, batch, cost(batch), Waiting::default()).is_some()
        {
            return Ok(None);
        }
        batch.admission = Admission::Ordinary;
        let mut need = Need::of_merge(batch);
        if need.may_be_foreseen()
            && let Search::Found(granted) = self.find_space(dataset, batch, &mut need)?
        {
            return Ok(Some(granted));
        }
        batch.admission = Admission::Freeing;
        Ok(None)
    }

    /// Whether [`Inner::reserve_merge`] would find space for a batch. Gives nothing back for it,
    /// and takes what it could give back as enough unless it cannot be.
    fn foresee_space(&self, dataset: &Dataset, batch: &mut Batch<'_>) -> Result<()> {
        let mut need = Need::of_merge(batch);
        if self.admit(dataset, batch, need.cost(), Waiting::default()).is_some()
            || self.find_as_ordinary(dataset, batch)?.is_some()
        {
            return Ok(());
        }
        let is_hopeless = match self.find_space(dataset, batch, &mut need)? {
            Search::Found(_) => return Ok(()),
            Search::Unlooked => return Err(busy(dataset)),
            Search::None { is_hopeless } => is_hopeless,
        };
        let records = self.records.read();
        match !is_hopeless && (records.is_leaving() || !records.kept_numbers().is_empty()) {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    /// Asks for a commit in the background when what waits for one may need half of the space that
    /// is left: better than to let a writer wait for it when there is none.
    fn announce_shortage(&self) {
        let dirty_keys = self.dirty_edits.load(Ordering::Acquire);
        let dirty = self.content_bytes_to_write() + dirty_keys * KEY_BYTES_MAX;
        let (free, reserved) = (self.gauge.free_grains(), self.gauge.reserved_grains());
        let left = (free.saturating_sub(reserved) * GRAIN_BYTES).saturating_sub(self.promised(0));
        if dirty_keys >= WAITING_KEYS_MIN && dirty > left / 2 {
            self.announce_work();
        }
    }

    /// How much a batch may need beside a commit that needs and gives back so much, in bytes.
    pub(crate) fn room(&self, dataset: &Dataset, batch: &Batch<'_>, waiting: Waiting) -> u64 {
        let free = self.gauge.free_grains() * GRAIN_BYTES + waiting.freed;
        let reserved = self.gauge.reserved_grains() * GRAIN_BYTES;
        let others = || self.kept_free_for_others(dataset).saturating_sub(waiting.adopted);
        let promised = self.promised(batch.promised_bytes);
        // However much is promised, the first half of what is kept back stays for what was
        // accepted.
        let at_most_the_rest = promised.min(free.saturating_sub(reserved));
        let unpromised = || content_bytes(batch).saturating_sub(batch.promised_bytes);
        let kept_back = match batch.admission {
            Admission::Ordinary if batch.promised_bytes == 0 => {
                others().saturating_add(reserved).saturating_add(promised)
            }
            Admission::Ordinary => {
                let unpromised = unpromised().min(reserved / 2);
                others().saturating_add(reserved / 2 + unpromised + at_most_the_rest)
            }
            Admission::Accepted => others().saturating_add(reserved / 2 + at_most_the_rest),
            Admission::Freeing => reserved / 4,
        };
        free.saturating_sub(kept_back.saturating_add(waiting.needed))
    }

    /// Bytes that are kept back for what is promised, but for so many of it; with the items that
    /// will name it.
    fn promised(&self, but_for: u64) -> u64 {
        let promised = self.promised_bytes.load(Ordering::Acquire).saturating_sub(but_for);
        promised.saturating_add(promised / PROMISED_PER_ITEM_BYTE)
    }

    /// How much space there is for batches that nothing was promised to.
    pub(crate) fn space(&self) -> Space {
        let (free, reserved) = (self.gauge.free_grains(), self.gauge.reserved_grains());
        let total = self.gauge.total_grains();
        let dirty =
            self.content_bytes_to_write() + self.dirty_edits.load(Ordering::Acquire) * KEY_BYTES;
        let taken = dirty.saturating_add(self.promised(0));
        Space {
            total_bytes: (total - reserved) * GRAIN_BYTES,
            free_bytes: (free.saturating_sub(reserved) * GRAIN_BYTES).saturating_sub(taken),
        }
    }
}

/// Bytes of content that a batch brings, counted in grains. A block that several items refer to is
/// written once, and one that was written while somebody looked for space is there.
pub(crate) fn content_bytes(batch: &Batch<'_>) -> u64 {
    let mut seen = HashSet::new();
    let bytes = batch.edits.iter().map(|edit| match edit {
        Edit::Put { item: Item { block: Some(Block::Fresh(fresh)), .. }, .. } => {
            let is_again = Arc::strong_count(fresh) > 1 && !seen.insert(Arc::as_ptr(fresh));
            match is_again || fresh.stored().is_some() {
                true => 0,
                false => (fresh.data().len() as u64).next_multiple_of(GRAIN_BYTES),
            }
        }
        Edit::Patch { data, .. } => data.len() as u64,
        Edit::Put { .. } | Edit::Remove { .. } | Edit::Add { .. } => 0,
    });
    bytes.sum()
}

/// Bytes on media that a batch is taken to need. The number of a block's owners is an item of its
/// own in the pool's tree.
pub(crate) fn cost(batch: &Batch<'_>) -> u64 {
    let counters = batch.edits.iter().filter(|edit| matches!(edit, Edit::Add { .. })).count();
    // Counters lie side by side, in a leaf that nearly every batch changes.
    let keys = (batch.edits.len() - counters) as u64 + u64::from(counters > 0);
    let adopts = |edit: &&Edit<'_>| matches!(edit, Edit::Put { item, .. } if is_adoption(item));
    let keys = keys + batch.edits.iter().filter(adopts).count() as u64;
    let leaves = keys.min(BATCH_LEAVES) * KEY_BYTES_MAX;
    content_bytes(batch) + leaves + keys.saturating_sub(BATCH_LEAVES) * NEIGHBOUR_BYTES
}
