//! Batches that wait for their publication.

use marram_store::{Block, Counter, Edit, Error, Item, Key, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an item takes in memory beside its value and block, in bytes.
const ITEM_BYTES: usize = 128;

/// The items of a dataset that have changed; none where one was removed.
pub(crate) type Items = BTreeMap<Key, Option<Item>>;

/// What has changed since a publication, by the number of the dataset.
#[derive(Clone, Default)]
pub(crate) struct Pending {
    datasets: BTreeMap<u64, Items>,
    bytes: usize,
}

impl Pending {
    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.datasets.is_empty()
    }

    pub(crate) fn datasets(&self) -> impl Iterator<Item = (u64, &Items)> {
        self.datasets.iter().map(|(number, items)| (*number, items))
    }

    /// The item under a key, if it has changed.
    pub(crate) fn get(&self, dataset: u64, key: Key) -> Option<&Option<Item>> {
        self.datasets.get(&dataset)?.get(&key)
    }

    /// The first, or last, changed items between two keys, at most so many.
    pub(crate) fn slice(
        &self,
        dataset: u64,
        keys: (Key, Key),
        (limit, descending): (usize, bool),
    ) -> Items {
        let Some(items) = self.datasets.get(&dataset) else { return Items::new() };
        let range = items.range(keys.0..=keys.1);
        let pair = |(key, item): (&Key, &Option<Item>)| (*key, item.clone());
        match descending {
            true => range.rev().take(limit).map(pair).collect(),
            false => range.take(limit).map(pair).collect(),
        }
    }

    pub(crate) fn set(&mut self, dataset: u64, key: Key, item: Option<Item>) {
        self.bytes += weight(item.as_ref());
        let before = self.datasets.entry(dataset).or_default().insert(key, item);
        if let Some(before) = before {
            self.bytes -= weight(before.as_ref());
        }
    }

    /// Forgets that an item has changed.
    pub(crate) fn unset(&mut self, dataset: u64, key: Key) {
        if let Some(items) = self.datasets.get_mut(&dataset)
            && let Some(item) = items.remove(&key)
        {
            self.bytes -= weight(item.as_ref());
        }
    }

    /// Takes up what changed before, where nothing has changed since.
    pub(crate) fn take_up(&mut self, before: &Pending) {
        for (dataset, items) in before.datasets() {
            for (key, item) in items {
                if self.get(dataset, *key).is_none() {
                    self.set(dataset, *key, item.clone());
                }
            }
        }
    }

    /// Forgets what has changed in a dataset.
    pub(crate) fn forget(&mut self, dataset: u64) {
        let items = self.datasets.remove(&dataset).unwrap_or_default();
        self.bytes -= items.values().map(|item| weight(item.as_ref())).sum::<usize>();
    }

    /// Writes into the fresh block under a key.
    ///
    /// # Errors
    /// [`Error::NotFresh`] if there is none.
    fn patch(&mut self, dataset: u64, edit: Edit<'_>) -> Result<()> {
        let Edit::Patch { key, value, at, data } = edit else { return Err(Error::NotFresh) };
        let items = self.datasets.get_mut(&dataset).ok_or(Error::NotFresh)?;
        let Some(Some(item)) = items.get_mut(&key) else { return Err(Error::NotFresh) };
        let before = weight(Some(item));
        let Some(Block::Fresh(block)) = &mut item.block else { return Err(Error::NotFresh) };
        if Arc::get_mut(block).is_none() {
            *block = Arc::new(block.duplicate());
        }
        Arc::get_mut(block).ok_or(Error::NotFresh)?.patch(at, data);
        item.value = value;
        self.bytes = self.bytes + weight(Some(item)) - before;
        Ok(())
    }

    /// Whether an edit that patches can be made.
    pub(crate) fn is_patchable(&self, dataset: u64, key: Key) -> bool {
        let item = self.get(dataset, key).and_then(Option::as_ref);
        match item.and_then(|item| item.block.as_ref()) {
            Some(Block::Fresh(block)) => block.stored().is_none(),
            _ => false,
        }
    }

    /// Makes an edit that was checked; `counter` is what a counter is before it.
    pub(crate) fn make(
        &mut self,
        dataset: u64,
        edit: Edit<'_>,
        counter: Option<Counter>,
    ) -> Result<()> {
        match edit {
            Edit::Put { key, item } => self.set(dataset, key, Some(item)),
            Edit::Remove { key } => self.set(dataset, key, None),
            Edit::Add { key, by, at_most } => {
                let sum = counter.unwrap_or_default().add(key, by, at_most)?;
                self.set(dataset, key, sum.encode().map(Item::plain));
            }
            patch @ Edit::Patch { .. } => self.patch(dataset, patch)?,
        }
        Ok(())
    }
}

fn weight(item: Option<&Item>) -> usize {
    let of_block = |block: &Block| match block {
        Block::Fresh(block) => block.held_bytes(),
        Block::Stored(_) => 0,
    };
    ITEM_BYTES + item.map_or(0, |it| it.value.len() + it.block.as_ref().map_or(0, of_block))
}
