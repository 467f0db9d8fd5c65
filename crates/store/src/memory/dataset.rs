//! One dataset of a store in memory.

use super::{ITEM_BYTES, RESERVE_BYTES, Shared};
use crate::{
    Admission, Batch, Block, Counter, DatasetKind, Edit, Error, FreshBlock, Item, ItemChange, Key,
    Properties, Result, Token, VALUE_BYTES_MAX,
};
use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Items = BTreeMap<Key, Item>;

/// The items of a dataset; a snapshot holds the same map until one of the two changes.
pub(super) type Contents = Arc<Items>;

/// What a snapshot keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) contents: Contents,
    pub(super) local: Properties,
    pub(super) root_object: u64,
}

/// A dataset or snapshot.
#[derive(Debug)]
pub(super) struct MemoryDataset {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u64,
    contents: RwLock<Contents>,
    local: RwLock<Properties>,
    root_object: u64,
    /// Live (clones too) or snapshot.
    pub(super) kind: DatasetKind,
    /// Bytes that its views have promised.
    pub(super) promised: AtomicU64,
}

/// What makes two references the same block.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Identity {
    Fresh(usize),
    Stored(Bytes),
}

fn identity(block: &Block) -> Identity {
    let stored = |token: &Token| Identity::Stored(token.place.clone());
    match block {
        Block::Fresh(fresh) => match fresh.stored() {
            Some(token) => stored(token),
            None => Identity::Fresh(Arc::as_ptr(fresh) as usize),
        },
        Block::Stored(token) => stored(token),
    }
}

/// Visits the items from `from` on in which two states differ.
pub(super) fn changes(
    before: &Items,
    after: &Items,
    from: Key,
    visit: &mut dyn FnMut(ItemChange) -> bool,
) {
    let keys: BTreeSet<Key> = [before, after]
        .into_iter()
        .flat_map(|items| items.range(from..).map(|(key, _)| *key))
        .collect();
    for key in keys {
        let (before, after) = (before.get(&key), after.get(&key));
        let is_change = !before.zip(after).is_some_and(|(before, after)| is_same(before, after));
        let change = || ItemChange { key, before: before.cloned(), after: after.cloned() };
        if is_change && !visit(change()) {
            return;
        }
    }
}

fn is_same(before: &Item, after: &Item) -> bool {
    let identity_of = |item: &Item| item.block.as_ref().map(identity);
    before.value == after.value && identity_of(before) == identity_of(after)
}

/// Bytes in use by several datasets: each map and each block counted once.
pub(super) fn used_bytes<C: Deref<Target = Contents>>(all: impl Iterator<Item = C>) -> u64 {
    let mut maps = HashSet::new();
    let mut blocks = HashSet::new();
    let mut bytes = 0;
    for contents in all {
        if !maps.insert(Arc::as_ptr(&contents) as usize) {
            continue;
        }
        for item in contents.values() {
            bytes += ITEM_BYTES + item.value.len() as u64;
            if let Some(block) = item.block.as_ref()
                && blocks.insert(identity(block))
            {
                bytes += block.len() as u64;
            }
        }
    }
    bytes
}

/// Fails unless it is a property with a value that it can have.
pub(super) fn check_property(property: &str, value: &str) -> Result<()> {
    let number = value.parse::<u64>().unwrap_or(0);
    let good = number.is_power_of_two() && (4096..=1 << 20).contains(&number);
    match property {
        "recordsize" if good => Ok(()),
        "recordsize" => Err(Error::Invalid(format!(
            "recordsize {value:?}: use a power of two from 4096 to 1048576"
        ))),
        "acl" if matches!(value, "posix" | "nfsv4" | "off") => Ok(()),
        "casefold" if matches!(value, "on" | "off") => Ok(()),
        _ => Err(Error::Invalid(format!("no property named {property:?}"))),
    }
}

impl MemoryDataset {
    pub(super) fn new(
        shared: Arc<Shared>,
        id: u64,
        state: State,
        kind: DatasetKind,
    ) -> MemoryDataset {
        let (contents, local) = (RwLock::new(state.contents), RwLock::new(state.local));
        let (root_object, promised) = (state.root_object, AtomicU64::new(0));
        MemoryDataset { shared, id, contents, local, root_object, kind, promised }
    }

    pub(super) fn contents(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read()
    }

    /// Holds back batches and reads while another state takes the place of this one.
    pub(super) fn lock_contents(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write()
    }

    /// What a snapshot taken now would keep.
    pub(super) fn state(&self) -> State {
        self.state_of(&self.contents())
    }

    /// The same of contents that are locked already.
    pub(super) fn state_of(&self, contents: &Contents) -> State {
        State { contents: Contents::clone(contents), ..self.properties_alone() }
    }

    /// The state without its contents.
    pub(super) fn properties_alone(&self) -> State {
        let (local, root_object) = (self.local_properties(), self.root_object);
        State { local, root_object, ..State::default() }
    }

    fn local_properties(&self) -> Properties {
        self.local.read().clone()
    }

    pub(super) fn set_property(&self, property: &str, value: Option<&str>) {
        let properties = &mut self.local.write().0;
        match value {
            Some(value) => properties.insert(property.to_owned(), value.to_owned()),
            None => properties.remove(property),
        };
    }

    /// Writes the fresh blocks that the seed chooses (0: all).
    pub(super) fn commit_some(&self, seed: u64) {
        let mut contents = self.contents.write();
        if !contents.values().any(|item| matches!(item.block, Some(Block::Fresh(_)))) {
            return;
        }
        let mut state = seed;
        for item in Arc::make_mut(&mut contents).values_mut() {
            let Some(Block::Fresh(fresh)) = &item.block else {
                continue;
            };
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
            let choice = if seed == 0 { 0 } else { (state >> 60) % 4 };
            if choice < 2 {
                let token = self.shared.blocks.write(fresh);
                if choice == 0 {
                    item.block = Some(Block::Stored(token));
                }
            }
        }
    }

    /// Whether it takes batches.
    pub(super) fn is_writable(&self) -> bool {
        self.kind != DatasetKind::Snapshot && !self.shared.halted.load(Ordering::Acquire)
    }

    /// The properties in force.
    pub(super) fn properties(&self) -> Properties {
        let mut properties = self.local_properties();
        properties.0.entry("recordsize".to_owned()).or_insert_with(|| "131072".to_owned());
        properties
    }

    /// See [`crate::View::apply`].
    pub(super) fn apply(&self, batch: Batch<'_>) -> Result<()> {
        if !self.is_writable() {
            return Err(Error::ReadOnly("a snapshot, or a store that was halted".to_owned()));
        }
        self.check_space(&batch, 0)?;
        let mut contents = self.contents.write();
        check_batch(&contents, &batch)?;
        apply_edits(&mut contents, batch.edits);
        Ok(())
    }

    /// Applies a batch to each of several datasets, which are given by ascending numbers: to all,
    /// or to none. Nobody sees one without the others.
    pub(super) fn apply_to_all(all: Vec<(Arc<MemoryDataset>, Batch<'_>)>) -> Result<()> {
        let mut added = 0;
        for (dataset, batch) in &all {
            if !dataset.is_writable() {
                return Err(Error::ReadOnly("a snapshot, or a store that was halted".to_owned()));
            }
            dataset.check_space(batch, added)?;
            added += batch.edits.iter().map(added_bytes).sum::<u64>();
        }
        let (datasets, batches): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let mut locked: Vec<_> = datasets.iter().map(|dataset| dataset.contents.write()).collect();
        for (contents, batch) in locked.iter().zip(&batches) {
            check_batch(contents, batch)?;
        }
        for (contents, batch) in locked.iter_mut().zip(batches) {
            apply_edits(contents, batch.edits);
        }
        Ok(())
    }

    /// See [`crate::AdmissionControl::dry_run`].
    pub(super) fn dry_run(&self, batch: &Batch<'_>) -> Result<()> {
        self.check_space(batch, 0)?;
        check_batch(&self.contents(), batch)
    }

    /// Whether there is space for a batch, and for so many bytes `beside` it.
    fn check_space(&self, batch: &Batch<'_>, beside: u64) -> Result<()> {
        let limit = self.shared.limit_bytes.load(Ordering::Relaxed);
        if limit == super::UNLIMITED_BYTES {
            return Ok(());
        }
        let reserve = match batch.admission {
            Admission::Ordinary if batch.promised_bytes == 0 => 0,
            Admission::Ordinary | Admission::Accepted => RESERVE_BYTES / 2,
            Admission::Freeing => RESERVE_BYTES,
        };
        let promised = match batch.admission {
            Admission::Freeing => 0,
            _ => self.shared.promised_bytes().saturating_sub(batch.promised_bytes),
        };
        let taken = self.shared.used_bytes().saturating_add(promised).saturating_add(beside);
        if taken.saturating_add(batch.edits.iter().map(added_bytes).sum()) > limit + reserve {
            return Err(Error::NoSpace);
        }
        Ok(())
    }
}

/// What an edit adds at most to what is in use.
fn added_bytes(edit: &Edit<'_>) -> u64 {
    match edit {
        Edit::Put { item, .. } => {
            let block = match &item.block {
                Some(Block::Fresh(fresh)) if fresh.stored().is_none() => fresh.data().len(),
                _ => 0,
            };
            (item.value.len() + block) as u64 + ITEM_BYTES
        }
        Edit::Patch { value, data, .. } => (value.len() + data.len()) as u64,
        Edit::Remove { .. } | Edit::Add { .. } => 0,
    }
}

/// Applies what was checked.
fn apply_edits(contents: &mut Contents, edits: Vec<Edit<'_>>) {
    let items = Arc::make_mut(contents);
    for edit in edits {
        apply_edit(items, edit);
    }
}

/// Panics where the caller breaks the contract; fails where a patch meets no fresh block, or a
/// counter its limit.
fn check_batch(items: &Items, batch: &Batch<'_>) -> Result<()> {
    let mut keys = BTreeSet::new();
    for edit in &batch.edits {
        assert!(keys.insert(edit.key()), "the batch has {:?} twice", edit.key());
        match edit {
            Edit::Put { item, .. } => check_item(item),
            Edit::Patch { key, value, at, data } => {
                assert!(value.len() <= VALUE_BYTES_MAX, "a value is at most 4 KiB");
                assert!(at + data.len() <= crate::BLOCK_BYTES_MAX, "the patch fits a block");
                match items.get(key).and_then(|item| item.block.as_ref()) {
                    Some(Block::Fresh(fresh)) if fresh.stored().is_none() => {}
                    _ => return Err(Error::NotFresh),
                }
            }
            Edit::Add { key, by, at_most } => {
                counter_at(items, *key).add(*key, *by, *at_most)?;
            }
            Edit::Remove { .. } => {}
        }
    }
    check_sharing(items, batch, &keys);
    Ok(())
}

fn counter_at(items: &Items, key: Key) -> Counter {
    items.get(&key).map_or_else(Counter::default, |item| {
        Counter::decode(&item.value).expect("what is added to is a counter")
    })
}

fn check_item(item: &Item) {
    assert!(item.value.len() <= VALUE_BYTES_MAX, "a value is at most 4 KiB");
    let len = item.block.as_ref().map_or(1, Block::len);
    assert!((1..=crate::BLOCK_BYTES_MAX).contains(&len), "a block has 1 byte to 1 MiB");
}

/// Panics if a block that one untouched item refers to gets a second reference.
fn check_sharing(items: &Items, batch: &Batch<'_>, touched: &BTreeSet<Key>) {
    let mut added = HashSet::new();
    for edit in &batch.edits {
        let Edit::Put { item: Item { block: Some(block), .. }, .. } = edit else {
            continue;
        };
        if let identity @ Identity::Stored(_) = identity(block) {
            added.insert(identity);
        }
    }
    if added.is_empty() {
        return;
    }
    let mut holders: HashMap<Identity, (usize, usize)> = HashMap::new();
    for (key, item) in items {
        let Some(identity) = item.block.as_ref().map(identity) else {
            continue;
        };
        if added.contains(&identity) {
            let count = holders.entry(identity).or_default();
            count.0 += 1;
            count.1 += usize::from(touched.contains(key));
        }
    }
    for (before, touched) in holders.values() {
        let is_put_anew = *before != 1 || *touched == 1;
        assert!(is_put_anew, "the batch shares a block without putting its item anew");
    }
}

fn apply_edit(items: &mut Items, edit: Edit<'_>) {
    match edit {
        Edit::Put { key, item } => {
            items.insert(key, item);
        }
        Edit::Remove { key } => {
            items.remove(&key);
        }
        Edit::Add { key, by, .. } => {
            let sum = counter_at(items, key).add(key, by, Counter::UNLIMITED);
            match sum.expect("the batch was checked").encode() {
                Some(value) => items.insert(key, Item::plain(value)),
                None => items.remove(&key),
            };
        }
        Edit::Patch { key, value, at, data } => {
            let item = items.get_mut(&key).expect("the batch was checked");
            item.value = value;
            let Some(Block::Fresh(fresh)) = &mut item.block else {
                unreachable!("the batch was checked");
            };
            match Arc::get_mut(fresh) {
                Some(alone) => alone.patch(at, data),
                None => {
                    let mut copy: FreshBlock = fresh.duplicate();
                    copy.patch(at, data);
                    *fresh = Arc::new(copy);
                }
            }
        }
    }
}
