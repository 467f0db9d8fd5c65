//! What has changed since the last commit: an ordered map in memory over each tree.
//!
//! A dataset has one open layer, which batches change, and the layers that the running commit has
//! frozen. Newer layers hide older ones, and all of them hide the tree.
//!
//! Beside each layer stands what of it no frame of the intent log has yet.

use crate::memtable::counters::HeldCounters;
use crate::memtable::dirty::Dirty;
use crate::memtable::foreign_blocks::ForeignBlocks;
use crate::memtable::pending_content::{PendingContent, space_of};
use crate::memtable::unlogged::{Extent, Unlogged};
use bytes::Bytes;
use marram_store::{Block, Edit, FreshBlock, Item, Key};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A block that a commit is writing, or that other items have too, is copied to be patched only up
/// to this length, in bytes: the copy is written anew as a whole, to the intent log and by the next
/// commit, and nobody has found space for it.
const COPY_BYTES_MAX: usize = 16 << 10;

/// One key's newest state: an item, or none. A map moves entries to make room for others, and looks
/// at the keys between them: so an entry is short.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Item(Arc<Item>),
    Removed,
}

impl Entry {
    /// The fresh block of the item, if it has one.
    pub(crate) fn fresh(&self) -> Option<&Arc<FreshBlock>> {
        match self {
            Entry::Item(item) => match &item.block {
                Some(Block::Fresh(fresh)) => Some(fresh),
                Some(Block::Stored(_)) | None => None,
            },
            Entry::Removed => None,
        }
    }
}

/// Changes, by key.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    pub(crate) entries: BTreeMap<Key, Entry>,
    /// Bytes of memory for fresh blocks that the batches of this layer have brought.
    pub(crate) fresh_bytes: u64,
    /// Keys that the batches of this layer have changed, each counted once; and once more for each
    /// put of a block that is to be adopted, as its owners are counted in an item of their own.
    pub(crate) edits: u64,
    /// Blocks that are to be adopted.
    pub(crate) foreign_blocks: ForeignBlocks,
    /// Blocks that are to be written.
    pub(crate) unwritten: PendingContent,
}

impl Layer {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What waits in it.
    pub(crate) fn dirty(&self) -> Dirty {
        let (memory_bytes, content_bytes) = (self.fresh_bytes, self.unwritten.bytes());
        Dirty { memory_bytes, content_bytes, edits: self.edits }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Entry> {
        self.entries.get(&key)
    }

    pub(crate) fn range(&self, range: RangeInclusive<Key>) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.range(range)
    }

    /// Sets an entry, over a layer that has the blocks `below` to be written.
    fn put(&mut self, key: Key, entry: Entry, below: Option<&PendingContent>) {
        entry.fresh().into_iter().for_each(|fresh| self.unwritten.add(fresh, below));
        match self.entries.insert(key, entry) {
            None => self.edits += 1,
            Some(old) => old.fresh().into_iter().for_each(|fresh| self.unwritten.remove(fresh)),
        }
    }
}

/// A layer that a commit is taking in, or will take in if it fails this time.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(crate) layer: Arc<Layer>,
    /// Number of the freeze that made it.
    pub(crate) freeze: u64,
    /// What of it is not in the intent log.
    pub(crate) unlogged: Unlogged,
}

/// The layers of a dataset.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub(crate) open: Layer,
    /// What of the open layer is not in the intent log; `None` if the pool has no log.
    pub(crate) unlogged: Option<Unlogged>,
    /// Oldest first.
    pub(crate) frozen: Vec<Frozen>,
    /// Counters that are newer than the open layer has them.
    pub(crate) held: HeldCounters,
}

impl Overlay {
    /// The newest entry of a key in any layer.
    pub(crate) fn get(&self, key: Key) -> Option<&Entry> {
        let frozen = self.frozen.iter().rev();
        self.open.get(key).or_else(|| frozen.into_iter().find_map(|frozen| frozen.layer.get(key)))
    }

    /// The fresh block of the item under `key`, if it has one.
    fn fresh(&self, key: Key) -> Option<&Arc<FreshBlock>> {
        self.get(key)?.fresh()
    }

    /// Sets an entry of the open layer.
    fn put(&mut self, key: Key, entry: Entry) {
        let below = self.frozen.last().map(|frozen| &frozen.layer.unwritten);
        self.open.put(key, entry, below);
    }

    /// Whether all patches of a batch meet fresh blocks, of which none has to be copied that is
    /// long: a replay may do that, as what comes later in the log may take the others away.
    pub(crate) fn can_patch(&self, edits: &[Edit<'_>], is_replay: bool) -> bool {
        edits.iter().all(|edit| match edit {
            Edit::Patch { key, .. } => self.fresh(*key).is_some_and(|fresh| {
                fresh.data().len() <= COPY_BYTES_MAX
                    || self.open.get(*key).is_some()
                        && (is_replay
                            || Arc::strong_count(fresh) == 1
                            || self.open.unwritten.is_of_one_item(fresh))
            }),
            Edit::Put { .. } | Edit::Remove { .. } | Edit::Add { .. } => true,
        })
    }

    /// Applies edits to the open layer. All patches must meet fresh blocks, and counters must
    /// have been settled (see `counters`).
    pub(crate) fn apply(&mut self, edits: Vec<Edit<'_>>) {
        let fresh_bytes = self.open.fresh_bytes;
        for edit in edits {
            let key = edit.key();
            let changed = self.apply_one(edit);
            if let Some(unlogged) = &mut self.unlogged {
                unlogged.note(key, changed);
            }
        }
        if let Some(unlogged) = &mut self.unlogged {
            unlogged.note_bytes(self.open.fresh_bytes - fresh_bytes, self.open.entries.len());
        }
    }

    /// Returns how much of the entry has changed.
    fn apply_one(&mut self, edit: Edit<'_>) -> Extent {
        match edit {
            Edit::Put { key, item } => {
                if let Some(Block::Fresh(fresh)) = &item.block {
                    self.open.fresh_bytes += self.open.unwritten.memory_bytes(fresh) as u64;
                }
                self.open.edits += u64::from(self.open.foreign_blocks.note(&item));
                self.put(key, Entry::Item(Arc::new(item)));
                Extent::Whole
            }
            Edit::Remove { key } => {
                self.put(key, Entry::Removed);
                Extent::Whole
            }
            Edit::Patch { key, value, at, data } => self.patch(key, value, at, data),
            Edit::Add { .. } => unreachable!("additions were settled before"),
        }
    }

    /// Writes into a fresh block: in place if this item alone holds it and no commit has written
    /// or is writing it, else into a copy.
    fn patch(&mut self, key: Key, value: Bytes, at: usize, data: &[u8]) -> Extent {
        self.open.fresh_bytes += data.len() as u64;
        if let Some(Entry::Item(item)) = self.open.entries.get_mut(&key)
            && let Some(item) = Arc::get_mut(item)
            && let Some(Block::Fresh(fresh)) = &mut item.block
            && fresh.stored().is_none()
            && let Some(alone) = Arc::get_mut(fresh)
        {
            let from = at.min(alone.data().len());
            // The first patch takes it out of memory that others may need as before.
            let copied = alone.shared().map_or(0, |shared| shared.bytes.len());
            self.open.fresh_bytes += copied as u64;
            let space_before = space_of(alone);
            alone.patch(at, data);
            self.open.unwritten.patched(space_before, alone);
            item.value = value;
            return Extent::Range { from, to: at + data.len() };
        }
        let mut copy = self.fresh(key).expect("patches were checked").duplicate();
        copy.patch(at, data);
        self.open.fresh_bytes += copy.data().len() as u64;
        let item = Item::with_block(value, Block::Fresh(Arc::new(copy)));
        self.put(key, Entry::Item(Arc::new(item)));
        Extent::Whole
    }

    /// Brings the counters of the open layer up to date.
    pub(crate) fn write_held(&mut self) {
        let edits = self.held.take_edits();
        if !edits.is_empty() {
            self.apply(edits);
        }
    }

    /// Freezes the open layer for a commit.
    pub(crate) fn freeze(&mut self, freeze: u64) {
        self.write_held();
        self.held.clear();
        if !self.open.is_empty() {
            let layer = Arc::new(std::mem::take(&mut self.open));
            let unlogged = self.unlogged.as_mut().map(std::mem::take).unwrap_or_default();
            self.frozen.push(Frozen { layer, freeze, unlogged });
        }
    }

    /// All layers, oldest first.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.frozen.iter().map(|frozen| &*frozen.layer).chain([&self.open])
    }

    /// The entries of all layers in a range, the newest where several have a key, at most `limit`
    /// of each layer; and the key up to which these are all, if a layer may have more.
    pub(crate) fn merged(
        &self,
        range: RangeInclusive<Key>,
        limit: usize,
    ) -> (BTreeMap<Key, Entry>, Option<Key>) {
        let mut merged = BTreeMap::new();
        let mut full_to: Option<Key> = None;
        for layer in self.layers().filter(|layer| !layer.is_empty()) {
            let mut taken = 0;
            for (key, entry) in layer.range(range.clone()).take(limit) {
                merged.insert(*key, entry.clone());
                taken += 1;
                if taken == limit {
                    full_to = Some(full_to.map_or(*key, |end| end.min(*key)));
                }
            }
        }
        (merged, full_to)
    }
}

/// All entries of several layers, oldest first, as one.
pub(crate) fn flatten(layers: &[Arc<Layer>]) -> Vec<(Key, Entry)> {
    if let [only] = layers {
        return only.entries.iter().map(|(key, entry)| (*key, entry.clone())).collect();
    }
    let mut merged = BTreeMap::new();
    for layer in layers {
        merged.extend(layer.entries.iter().map(|(key, entry)| (*key, entry.clone())));
    }
    merged.into_iter().collect()
}
