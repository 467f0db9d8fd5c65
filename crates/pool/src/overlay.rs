//! What has changed since the last commit: an ordered map in memory over each tree.
//!
//! A dataset has one open layer, which batches change, and the layers that the running commit has
//! frozen. Newer layers hide older ones, and all of them hide the tree.

use bytes::Bytes;
use marram_store::{Block, Edit, FreshBlock, Item, Key};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// One key's newest state: an item, or none.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Item(Item),
    Removed,
}

/// Changes, by key.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    pub(crate) entries: BTreeMap<Key, Entry>,
    /// Bytes of fresh blocks that the batches of this layer have brought.
    pub(crate) fresh_bytes: u64,
    /// Edits that the batches of this layer have made.
    pub(crate) edits: u64,
}

impl Layer {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Entry> {
        self.entries.get(&key)
    }

    pub(crate) fn range(&self, range: RangeInclusive<Key>) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.range(range)
    }

    fn put(&mut self, key: Key, entry: Entry) {
        self.edits += 1;
        self.entries.insert(key, entry);
    }
}

/// The layers of a dataset.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub(crate) open: Layer,
    /// Oldest first.
    pub(crate) frozen: Vec<Arc<Layer>>,
}

impl Overlay {
    /// The newest entry of a key in any layer.
    pub(crate) fn get(&self, key: Key) -> Option<&Entry> {
        self.open.get(key).or_else(|| self.frozen.iter().rev().find_map(|layer| layer.get(key)))
    }

    /// The fresh block of the item under `key`, if it has one.
    fn fresh(&self, key: Key) -> Option<&Arc<FreshBlock>> {
        match self.get(key) {
            Some(Entry::Item(Item { block: Some(Block::Fresh(fresh)), .. })) => Some(fresh),
            _ => None,
        }
    }

    /// Whether all patches of a batch meet fresh blocks.
    pub(crate) fn can_patch(&self, edits: &[Edit<'_>]) -> bool {
        edits.iter().all(|edit| match edit {
            Edit::Patch { key, .. } => self.fresh(*key).is_some(),
            Edit::Put { .. } | Edit::Remove { .. } => true,
        })
    }

    /// Applies edits to the open layer. All patches must meet fresh blocks.
    pub(crate) fn apply(&mut self, edits: Vec<Edit<'_>>) {
        for edit in edits {
            match edit {
                Edit::Put { key, item } => {
                    self.open.fresh_bytes += fresh_len(&item);
                    self.open.put(key, Entry::Item(item));
                }
                Edit::Remove { key } => self.open.put(key, Entry::Removed),
                Edit::Patch { key, value, at, data } => self.patch(key, value, at, data),
            }
        }
    }

    /// Writes into a fresh block: in place if this item alone holds it and no commit has written
    /// or is writing it, else into a copy.
    fn patch(&mut self, key: Key, value: Bytes, at: usize, data: &[u8]) {
        self.open.fresh_bytes += data.len() as u64;
        self.open.edits += 1;
        if let Some(Entry::Item(item)) = self.open.entries.get_mut(&key)
            && let Some(Block::Fresh(fresh)) = &mut item.block
            && fresh.stored().is_none()
            && let Some(alone) = Arc::get_mut(fresh)
        {
            alone.patch(at, data);
            item.value = value;
            return;
        }
        let mut copy = self.fresh(key).expect("patches were checked").duplicate();
        copy.patch(at, data);
        self.open.fresh_bytes += copy.data().len() as u64;
        let item = Item::with_block(value, Block::Fresh(Arc::new(copy)));
        self.open.entries.insert(key, Entry::Item(item));
    }

    /// Freezes the open layer for a commit.
    pub(crate) fn freeze(&mut self) {
        if !self.open.is_empty() {
            self.frozen.push(Arc::new(std::mem::take(&mut self.open)));
        }
    }

    /// The entries of all layers in a range, newest first where several have a key.
    pub(crate) fn merged(&self, range: RangeInclusive<Key>, limit: usize) -> BTreeMap<Key, Entry> {
        let mut merged = BTreeMap::new();
        for layer in self.frozen.iter().map(Arc::as_ref).chain([&self.open]) {
            let entries = layer.range(range.clone()).take(limit);
            merged.extend(entries.map(|(key, entry)| (*key, entry.clone())));
        }
        merged
    }
}

fn fresh_len(item: &Item) -> u64 {
    match &item.block {
        Some(Block::Fresh(fresh)) if fresh.stored().is_none() => fresh.data().len() as u64,
        _ => 0,
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
