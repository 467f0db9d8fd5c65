//! An open dataset of a store in memory. What it has promised goes with it.

use super::dataset::MemoryDataset;
use crate::{
    AdmissionControl, Adoption, Batch, Block, Capabilities, CountedSpace, Error, Halting, Item,
    Key, Properties, Result, Space, View,
};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A view of a dataset or snapshot.
pub(super) struct MemoryView {
    dataset: Arc<MemoryDataset>,
    /// Bytes that are promised to writers through this view.
    promised: AtomicU64,
}

impl MemoryView {
    pub(super) fn new(dataset: Arc<MemoryDataset>) -> MemoryView {
        MemoryView { dataset, promised: AtomicU64::new(0) }
    }
}

impl Drop for MemoryView {
    fn drop(&mut self) {
        self.promise(0);
    }
}

impl View for MemoryView {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        Ok(self.dataset.contents().get(&key).cloned())
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        if from > to {
            return Ok(());
        }
        for (key, item) in self.dataset.contents().range(from..=to) {
            if !visit(*key, item) {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        if from > to {
            return Ok(None);
        }
        let contents = self.dataset.contents();
        let last = contents.range(from..=to).next_back();
        Ok(last.map(|(key, item)| (*key, item.clone())))
    }

    fn apply(&self, batch: Batch<'_>) -> Result<()> {
        self.dataset.apply(batch)
    }

    fn read_block(&self, block: &Block) -> Result<Bytes> {
        self.dataset.shared.blocks.read(block)
    }

    fn sync(&self) -> Result<()> {
        if self.dataset.shared.halted.load(Ordering::Acquire) {
            return Err(Error::Io("the store was halted".to_owned()));
        }
        if self.writable() {
            self.dataset.commit_some(0);
        }
        Ok(())
    }

    fn writable(&self) -> bool {
        self.dataset.is_writable()
    }

    fn properties(&self) -> Properties {
        self.dataset.properties()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            space: Some(self),
            admission: Some(self),
            adoption: Some(self),
            halting: Some(self),
            ..Capabilities::default()
        }
    }
}

impl CountedSpace for MemoryView {
    fn space(&self) -> Space {
        let total_bytes = self.dataset.shared.limit_bytes.load(Ordering::Relaxed);
        let taken =
            self.dataset.shared.used_bytes().saturating_add(self.dataset.shared.promised_bytes());
        let free_bytes = total_bytes.saturating_sub(taken);
        Space { total_bytes, free_bytes }
    }
}

impl AdmissionControl for MemoryView {
    fn promise(&self, bytes: u64) {
        let before = self.promised.swap(bytes, Ordering::Relaxed);
        // Wraps around where it is less, and so comes to the right sum.
        self.dataset.promised.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    fn dry_run(&self, batch: Batch<'_>) -> Result<()> {
        self.dataset.dry_run(&batch)
    }

    fn commit(&self) -> Result<()> {
        self.sync()
    }
}

impl Adoption for MemoryView {
    fn adopt(&self, _from: &dyn View, block: &Block) -> Result<Block> {
        self.dataset.shared.blocks.adopt(block)
    }
}

impl Halting for MemoryView {
    fn halt(&self) {
        self.dataset.shared.halted.store(true, Ordering::Release);
    }
}
