//! A dataset or snapshot of the smallest store, and its view.

use super::RECORD_BYTES;
use crate::{
    Batch, Block, Capabilities, Counter, Edit, Error, Item, Key, Properties, ROOT_OBJECT, Result,
    View,
};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

type Items = BTreeMap<Key, Item>;

/// A dataset or snapshot.
pub(super) struct Dataset {
    /// Greater than that of all that were made before it.
    pub(super) number: u64,
    pub(super) is_snapshot: bool,
    /// The snapshot that it began as.
    pub(super) origin: Option<u64>,
    pub(super) root_object: u64,
    pub(super) properties: RwLock<Properties>,
    /// Others may have the same map; the first change copies it.
    pub(super) items: RwLock<Arc<Items>>,
}

impl Dataset {
    /// An empty one.
    pub(super) fn new(properties: Properties) -> Dataset {
        Dataset {
            number: 0,
            is_snapshot: false,
            origin: None,
            root_object: ROOT_OBJECT,
            properties: RwLock::new(properties),
            items: RwLock::default(),
        }
    }

    pub(super) fn items(&self) -> Arc<Items> {
        Arc::clone(&self.items.read())
    }

    /// The properties in force.
    pub(super) fn all_properties(&self) -> Properties {
        let mut properties = self.properties.read().clone();
        properties.0.entry("recordsize".to_owned()).or_insert_with(|| RECORD_BYTES.to_owned());
        properties
    }

    /// A snapshot of it with these items.
    pub(super) fn snapshot_of(&self, items: &Arc<Items>) -> Dataset {
        Dataset {
            is_snapshot: true,
            root_object: self.root_object,
            items: RwLock::new(Arc::clone(items)),
            ..Dataset::new(self.properties.read().clone())
        }
    }

    /// A dataset that begins as this snapshot.
    pub(super) fn clone_of(&self) -> Dataset {
        Dataset { is_snapshot: false, origin: Some(self.number), ..self.snapshot_of(&self.items()) }
    }
}

/// Whether two items are the same, block and all.
pub(super) fn same(before: Option<&Item>, after: Option<&Item>) -> bool {
    let identity = |item: &Item| (item.value.clone(), item.block.as_ref().map(address));
    before.map(identity) == after.map(identity)
}

/// Which block of memory it is.
pub(super) fn address(block: &Block) -> usize {
    match block {
        Block::Fresh(fresh) => Arc::as_ptr(fresh) as usize,
        Block::Stored(_) => 0,
    }
}

/// An open dataset or snapshot.
pub(super) struct MinimalView(pub(super) Arc<Dataset>);

impl View for MinimalView {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        Ok(self.0.items.read().get(&key).cloned())
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        if from <= to {
            let items = self.0.items.read();
            // The search ends with the first item at which the visitor stops.
            let _stopped = items.range(from..=to).find(|(key, item)| !visit(**key, item));
        }
        Ok(())
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        if from > to {
            return Ok(None);
        }
        let items = self.0.items.read();
        Ok(items.range(from..=to).next_back().map(|(key, item)| (*key, item.clone())))
    }

    fn apply(&self, batch: Batch<'_>) -> Result<()> {
        if !self.writable() {
            return Err(Error::ReadOnly("it is a snapshot".to_owned()));
        }
        let mut items = self.0.items.write();
        batch.edits.iter().try_for_each(|edit| check(&items, edit))?;
        let items = Arc::make_mut(&mut items);
        batch.edits.into_iter().for_each(|edit| apply(items, edit));
        Ok(())
    }

    fn read_block(&self, block: &Block) -> Result<Bytes> {
        match block {
            Block::Fresh(fresh) => Ok(fresh.bytes()),
            Block::Stored(token) => Err(Error::Io(format!("no block at {:?}", token.place))),
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn writable(&self) -> bool {
        !self.0.is_snapshot
    }

    fn properties(&self) -> Properties {
        self.0.all_properties()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

/// Refuses what [`apply`] cannot do.
fn check(items: &Items, edit: &Edit<'_>) -> Result<()> {
    match edit {
        Edit::Patch { key, .. } => match items.get(key).and_then(|item| item.block.as_ref()) {
            Some(Block::Fresh(_)) => Ok(()),
            _ => Err(Error::NotFresh),
        },
        Edit::Add { key, by, at_most } => {
            counter(items, *key)?.add(*key, *by, *at_most).map(|_| ())
        }
        Edit::Put { .. } | Edit::Remove { .. } => Ok(()),
    }
}

fn counter(items: &Items, key: Key) -> Result<Counter> {
    let Some(item) = items.get(&key) else { return Ok(Counter::default()) };
    let counter = Counter::decode(&item.value);
    counter.ok_or_else(|| Error::Invalid(format!("the item under {key:?} is no counter")))
}

/// Does what was checked.
fn apply(items: &mut Items, edit: Edit<'_>) {
    match edit {
        Edit::Put { key, item } => drop(items.insert(key, item)),
        Edit::Remove { key } => drop(items.remove(&key)),
        Edit::Add { key, by, at_most } => {
            let sum = counter(items, key).and_then(|counter| counter.add(key, by, at_most));
            match sum.expect("it was checked").encode() {
                Some(value) => items.insert(key, Item::plain(value)),
                None => items.remove(&key),
            };
        }
        Edit::Patch { key, value, at, data } => {
            let item = items.get_mut(&key).expect("it was checked");
            item.value = value;
            let Some(Block::Fresh(block)) = &mut item.block else {
                unreachable!("it was checked");
            };
            if Arc::get_mut(block).is_none() {
                *block = Arc::new(block.duplicate());
            }
            Arc::get_mut(block).expect("nothing else has the copy").patch(at, data);
        }
    }
}
