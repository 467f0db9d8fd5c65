//! The changes between states of two datasets that parted.
//!
//! Items of one number are compared as ever, unless one of the datasets has made the inode: then
//! all of it is compared with all that its counterpart has. So the cost follows what has changed,
//! and what either has made since they parted.

use super::{Changes, InodeChange, Pair};
use crate::parted::Parted;
use crate::subtree::Subtree;
use marram_format::record::Inode;
use marram_records::failure::from_store;
use marram_records::renumbering::Renumbering;
use marram_records::sections::Section;
use marram_records::state::{Named, State, decode_section, same_block};
use marram_store::{Item, ItemChange, Key, Source, Store, kind};
use marram_vfs::Result;
use std::collections::BTreeMap;

impl Changes {
    /// Gathers what differs between two snapshots of datasets that parted. One of the states is
    /// read by the numbers of the other; `unshown` is that one by its own.
    pub(crate) fn gather_across(
        store: &dyn Store,
        sources: (&Source, &Source),
        (before, after): (&State, &State),
        (parted, unshown): (&Parted, &State),
    ) -> Result<Changes> {
        let (mut changes, mut failure) = (Changes::default(), None);
        let mut visit = |change: ItemChange| {
            if change.key.object != 0 && !parted.is_apart(change.key.object) {
                failure = changes.add_across(&change, (before, after)).err();
            }
            failure.is_none()
        };
        store.changes(sources.0, sources.1, Key::MIN, &mut visit).map_err(from_store)?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        for ino in parted.shown() {
            changes.compare_inode(ino, (before, after))?;
        }
        changes.add_collisions((before, after), (parted, unshown))?;
        changes.read_records((before, after))?;
        Ok(changes)
    }

    /// Gathers what differs between two states of these inodes, each as a whole.
    pub(crate) fn between(
        states: (&State, &State),
        inos: impl IntoIterator<Item = u64>,
    ) -> Result<Changes> {
        let mut changes = Changes::default();
        for ino in inos {
            changes.compare_inode(ino, states)?;
        }
        changes.read_records(states)?;
        Ok(changes)
    }

    fn read_records(&mut self, (before, after): (&State, &State)) -> Result<()> {
        for (ino, change) in &mut self.by_inode {
            change.before = before.inode(*ino)?;
            change.after = after.inode(*ino)?;
        }
        Ok(())
    }

    /// The same changes, of a dataset whose numbers are shown as those of another one.
    pub(crate) fn renumbered(self, numbers: &Renumbering) -> Changes {
        let shown = |(ino, change): (u64, InodeChange)| {
            let inode = |inode: Option<Inode>| inode.map(|inode| numbers.show(ino, inode));
            let named = |entry: Named| Named { ino: numbers.shown(entry.ino), ..entry };
            let entry = |Pair { before, after }| Pair {
                before: Option::map(before, named),
                after: Option::map(after, named),
            };
            let change = InodeChange {
                before: inode(change.before),
                after: inode(change.after),
                entries: change.entries.into_iter().map(entry).collect(),
                ..change
            };
            (numbers.shown(ino), change)
        };
        Changes { by_inode: self.by_inode.into_iter().map(shown).collect() }
    }

    /// A change of an item of an inode that both had when they parted.
    fn add_across(&mut self, change: &ItemChange, states: (&State, &State)) -> Result<()> {
        let ItemChange { key, before, after } = change;
        let inode = self.by_inode.entry(key.object).or_default();
        if key.kind != kind::ENTRY {
            return if key.kind == kind::INODE { Ok(()) } else { inode.add(change) };
        }
        let entry = |state: &State, item: &Option<Item>| {
            item.as_ref().map(|item| state.entry_of(*key, item)).transpose()
        };
        let (before, after) = (entry(states.0, before)?, entry(states.1, after)?);
        if before != after {
            inode.entries.push(Pair { before, after });
        }
        Ok(())
    }

    fn compare_inode(&mut self, ino: u64, (before, after): (&State, &State)) -> Result<()> {
        if before.inode(ino)?.is_none() && after.inode(ino)?.is_none() {
            return Ok(());
        }
        let change = self.by_inode.entry(ino).or_default();
        let place = |entry: Named| (entry.offset, entry);
        let old = before.entries(ino)?.into_iter().map(place).collect();
        let new = after.entries(ino)?.into_iter().map(place).collect();
        let entries = joined(old, new).into_iter().filter(|pair| pair.before != pair.after);
        change.entries.extend(entries);
        let items = |state: &State| -> Result<BTreeMap<(u8, u64), Item>> {
            let items = state.items(ino)?.into_iter();
            Ok(items.map(|(key, item)| ((key.kind, key.offset), item)).collect())
        };
        for ((item_kind, offset), pair) in joined_by_key(items(before)?, items(after)?) {
            match item_kind {
                kind::XATTR if !is_same_value(&pair) => change.xattrs.push(pair),
                kind::SECTION => {
                    let key = Key::new(ino, kind::SECTION, offset);
                    let section = |item: Option<Item>| {
                        item.map(|item| decode_section(key, &item)).transpose()
                    };
                    let pair = Pair { before: section(pair.before)?, after: section(pair.after)? };
                    if !is_same_section((before, after), &pair) {
                        change.sections.push(pair);
                    }
                }
                _ => (),
            }
        }
        Ok(())
    }

    /// Entries that are equal as items, but lead to an inode of the one dataset's own making here
    /// and of the other's there.
    fn add_collisions(
        &mut self,
        (before, after): (&State, &State),
        (parted, unshown): (&Parted, &State),
    ) -> Result<()> {
        let places = Subtree::new(unshown, unshown.root).all_places(parted.collisions())?;
        for place in places.into_values().flatten() {
            let (directory, offset) = (place.directory, place.entry.offset);
            if parted.is_apart(directory) {
                continue;
            }
            let pair = Pair {
                before: before.entry_at(directory, offset)?,
                after: after.entry_at(directory, offset)?,
            };
            let change = self.by_inode.entry(directory).or_default();
            let is_there = |known: &Pair<Named>| {
                let both = [&known.before, &known.after];
                both.into_iter().flatten().any(|entry| entry.offset == offset)
            };
            if pair.before != pair.after && !change.entries.iter().any(is_there) {
                change.entries.push(pair);
            }
        }
        Ok(())
    }
}

fn joined<K: Ord, T>(old: BTreeMap<K, T>, new: BTreeMap<K, T>) -> Vec<Pair<T>> {
    joined_by_key(old, new).into_values().collect()
}

fn joined_by_key<K: Ord, T>(old: BTreeMap<K, T>, new: BTreeMap<K, T>) -> BTreeMap<K, Pair<T>> {
    let pair = |before| Pair { before: Some(before), after: None };
    let mut all: BTreeMap<K, Pair<T>> = old.into_iter().map(|(key, it)| (key, pair(it))).collect();
    for (key, after) in new {
        all.entry(key).or_insert(Pair { before: None, after: None }).after = Some(after);
    }
    all
}

/// Whether an attribute is the same; one that has a block is looked at later.
fn is_same_value(pair: &Pair<Item>) -> bool {
    let (Some(a), Some(b)) = (&pair.before, &pair.after) else { return false };
    a.block.is_none() && b.block.is_none() && a.value == b.value
}

fn is_same_section((before, after): (&State, &State), pair: &Pair<Section>) -> bool {
    let (Some(a), Some(b)) = (&pair.before, &pair.after) else { return false };
    let is_same_block = match (&a.block, &b.block) {
        (Some(a), Some(b)) => same_block((before, a), (after, b)),
        (a, b) => a.is_none() && b.is_none(),
    };
    (a.at, a.len, a.block_start) == (b.at, b.len, b.block_start) && is_same_block
}
