//! A state of which a part is in memory only: layers over the root of a pinned commit, read-only.

use crate::memtable::dataset::predecessor;
use crate::memtable::overlay::{Entry, Layer};
use crate::views::frozen::FrozenView;
use bytes::Bytes;
use marram_store::{Batch, Block, Capabilities, Item, Key, Properties, Result, View};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
pub(super) struct LayeredView {
    pub(super) under: FrozenView,
    /// Oldest first.
    pub(super) layers: Vec<Arc<Layer>>,
}

impl LayeredView {
    fn newest(&self, key: Key) -> Option<&Entry> {
        self.layers.iter().rev().find_map(|layer| layer.get(key))
    }

    /// The entries in a range, the newest of each key.
    fn entries(&self, from: Key, to: Key) -> BTreeMap<Key, &Entry> {
        self.layers.iter().flat_map(|layer| layer.range(from..=to)).map(|(k, e)| (*k, e)).collect()
    }
}

impl View for LayeredView {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        match self.newest(key) {
            Some(Entry::Item(item)) => Ok(Some(Item::clone(item))),
            Some(Entry::Removed) => Ok(None),
            None => self.under.get(key),
        }
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        let mut entries = self.entries(from, to).into_iter().peekable();
        let mut goes_on = true;
        self.under.scan(from, to, &mut |key, item| {
            while goes_on && let Some((at, entry)) = entries.next_if(|(at, _)| *at < key) {
                goes_on = show(entry, at, visit);
            }
            if goes_on {
                goes_on = match entries.next_if(|(at, _)| *at == key) {
                    Some((_, entry)) => show(entry, key, visit),
                    None => visit(key, item),
                };
            }
            goes_on
        })?;
        let _stopped = goes_on && entries.all(|(at, entry)| show(entry, at, visit));
        Ok(())
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        let entries = self.entries(from, to);
        let newest = entries.iter().rev().find_map(|(key, entry)| match entry {
            Entry::Item(item) => Some((*key, Item::clone(item))),
            Entry::Removed => None,
        });
        let mut end = to;
        loop {
            let found = self.under.last(from, end)?;
            let Some((key, item)) = found else { return Ok(newest) };
            if newest.as_ref().is_some_and(|(at, _)| *at >= key) {
                return Ok(newest);
            }
            if !entries.contains_key(&key) {
                return Ok(Some((key, item)));
            }
            match predecessor(key).filter(|before| *before >= from) {
                Some(before) => end = before,
                None => return Ok(newest),
            }
        }
    }

    fn apply(&self, batch: Batch<'_>) -> Result<()> {
        self.under.apply(batch)
    }

    fn read_block(&self, block: &Block) -> Result<Bytes> {
        self.under.read_block(block)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn writable(&self) -> bool {
        false
    }

    fn properties(&self) -> Properties {
        self.under.properties()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { ownership: None, ..self.under.capabilities() }
    }
}

fn show(entry: &Entry, key: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> bool {
    match entry {
        Entry::Item(item) => visit(key, item),
        Entry::Removed => true,
    }
}
