//! One state of a dataset, read item by item: a snapshot, or the live state under all locks.
//!
//! It knows nothing of pins, caches and locks: what it reads is what the view holds.

use crate::counters::read_counters;
use crate::directory::entry_key;
use crate::failure::{from_record, from_store};
use crate::inode::read_inode;
use crate::renumbering::Renumbering;
use crate::sections::{Section, section_key};
use bytes::Bytes;
use marram_format::record::{
    Counters, Entry, Inode, InodeKind, NAME_SLOTS, NameRule, XattrRecord, name_offset,
};
use marram_store::{Block, Item, Key, View, kind};
use marram_vfs::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether two records of one number are the same inode: a number can come again after a rollback.
pub fn same_inode(a: &Inode, b: &Inode) -> bool {
    (a.kind, a.generation, a.created) == (b.kind, b.generation, b.created)
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The inode.
    pub ino: u64,
    /// The kind of the inode.
    pub kind: InodeKind,
    /// The name, as it was given.
    pub name: Vec<u8>,
    /// The place of the entry in its directory.
    pub offset: u64,
}

/// See the module.
pub struct State {
    /// Where it is read.
    pub view: Arc<dyn View>,
    /// The directory below which it is shown.
    pub root: u64,
    /// Its counters.
    pub counters: Counters,
    /// By which numbers it is read, if not by its own.
    numbers: Option<Arc<Renumbering>>,
}

/// Reads an entry from its item.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn decode_entry(key: Key, item: &Item) -> Result<Named> {
    let entry = Entry::decode(&item.value).map_err(|error| from_record(key.object, &error))?;
    Ok(Named { ino: entry.ino, kind: entry.kind, name: entry.name.to_vec(), offset: key.offset })
}

/// Reads a section from its item.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn decode_section(key: Key, item: &Item) -> Result<Section> {
    Section::decode(key, item).map_err(|error| from_record(key.object, &error))
}

impl State {
    /// The state that a view holds, of which what is below `root` is shown.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn open(view: Arc<dyn View>, root: u64) -> Result<State> {
        let empty = || Error::InvalidArgument("the dataset holds no file system yet");
        let counters = read_counters(&*view)?.ok_or_else(empty)?;
        Ok(State { view, root, counters, numbers: None })
    }

    /// The same, of which what is below another directory is shown.
    pub fn below(&self, root: u64) -> State {
        State { root, numbers: self.numbers.clone(), view: Arc::clone(&self.view), ..*self }
    }

    /// The same, read by other numbers. The root is among what both datasets had when they parted.
    pub fn renumbered(&self, numbers: Arc<Renumbering>) -> State {
        State { numbers: Some(numbers), view: Arc::clone(&self.view), ..*self }
    }

    /// The number under which an inode of the view is shown.
    pub fn shown(&self, own: u64) -> u64 {
        self.numbers.as_ref().map_or(own, |numbers| numbers.shown(own))
    }

    /// The number in the view of what is shown under a number, if it can have one.
    pub fn own(&self, shown: u64) -> Option<u64> {
        self.numbers.as_ref().map_or(Some(shown), |numbers| numbers.own(shown))
    }

    /// The entry that an item of the view is, by the numbers of this state.
    ///
    /// # Errors
    /// A record that makes no sense.
    pub fn entry_of(&self, key: Key, item: &Item) -> Result<Named> {
        let entry = decode_entry(key, item)?;
        Ok(Named { ino: self.shown(entry.ino), ..entry })
    }

    /// The item of the view under a key by the numbers of this state.
    fn item(&self, key: Key) -> Result<Option<Item>> {
        let Some(object) = self.own(key.object) else { return Ok(None) };
        self.view.get(Key { object, ..key }).map_err(from_store)
    }

    /// Whether many questions at once cost less than one after the other.
    pub fn is_far(&self) -> bool {
        self.view.capabilities().foresight.is_some()
    }

    /// Has items read that are asked for next, by keys in the numbers of this state, where the
    /// store is far away.
    pub fn foresee_items(&self, keys: impl IntoIterator<Item = Key>) {
        if let Some(foresight) = self.view.capabilities().foresight {
            let own = |key: Key| Some(Key { object: self.own(key.object)?, ..key });
            let keys: Vec<Key> = keys.into_iter().filter_map(own).collect();
            foresight.foresee_items(&keys);
        }
    }

    /// Has blocks read whose content is asked for next, where the store is far away. The caller
    /// bounds their sum.
    pub fn foresee_blocks(&self, blocks: &[Block]) {
        if let Some(foresight) = self.view.capabilities().foresight {
            foresight.foresee_blocks(blocks);
        }
    }

    /// The record of an inode, if there is one.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn inode(&self, ino: u64) -> Result<Option<Inode>> {
        let Some(own) = self.own(ino) else { return Ok(None) };
        let inode = read_inode(&*self.view, own)?;
        Ok(match &self.numbers {
            Some(numbers) => inode.map(|inode| numbers.show(own, inode)),
            None => inode,
        })
    }

    /// The record of an inode that has a name.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn named_inode(&self, ino: u64) -> Result<Option<Inode>> {
        Ok(self.inode(ino)?.filter(|inode| inode.links > 0))
    }

    /// When two names are the same.
    pub fn names(&self) -> NameRule {
        self.counters.names
    }

    /// The first slot of a name.
    pub fn base_of(&self, name: &[u8]) -> u64 {
        self.names().entry_offset(self.counters.name_seed, name)
    }

    /// The entry at a place of a directory.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn entry_at(&self, directory: u64, offset: u64) -> Result<Option<Named>> {
        let key = entry_key(directory, offset);
        self.item(key)?.map(|item| self.entry_of(key, &item)).transpose()
    }

    /// The entry of a name, by the rule for names.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn entry(&self, directory: u64, name: &[u8]) -> Result<Option<Named>> {
        let base = self.base_of(name);
        let wanted = self.names().key(name);
        let mut found = None;
        self.visit_entries(directory, base, base + NAME_SLOTS - 1, &mut |entry| {
            if self.names().key(&entry.name) == wanted {
                found = Some(entry);
            }
            found.is_none()
        })?;
        Ok(found)
    }

    /// Visits the entries of a directory from one place to another, until the visitor returns
    /// false.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn visit_entries(
        &self,
        directory: u64,
        first: u64,
        last: u64,
        visit: &mut dyn FnMut(Named) -> bool,
    ) -> Result<()> {
        self.visit(entry_key(directory, first), entry_key(directory, last), &mut |key, item| {
            self.entry_of(key, item).map(&mut *visit)
        })
    }

    /// All entries of a directory.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn entries(&self, directory: u64) -> Result<Vec<Named>> {
        let mut entries = Vec::new();
        self.visit_entries(directory, 0, u64::MAX, &mut |entry| {
            entries.push(entry);
            true
        })?;
        Ok(entries)
    }

    /// Visits items of one inode; their keys are those of the view.
    fn visit(
        &self,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(Key, &Item) -> Result<bool>,
    ) -> Result<()> {
        let Some(object) = self.own(from.object) else { return Ok(()) };
        let (from, to) = (Key { object, ..from }, Key { object, ..to });
        let mut failure = None;
        let mut step = |key: Key, item: &Item| {
            visit(key, item).unwrap_or_else(|error| {
                failure = Some(error);
                false
            })
        };
        self.view.scan(from, to, &mut step).map_err(from_store)?;
        failure.map_or(Ok(()), Err)
    }

    /// The section of a file that begins at a place.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn section_at(&self, ino: u64, at: u64) -> Result<Option<Section>> {
        let key = section_key(ino, at);
        self.item(key)?.map(|item| decode_section(key, &item)).transpose()
    }

    /// All sections of a file that begin before `end`.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn sections(&self, ino: u64, end: u64) -> Result<Vec<Section>> {
        let mut sections = Vec::new();
        let Some(last) = end.checked_sub(1) else {
            return Ok(sections);
        };
        self.visit(section_key(ino, 0), section_key(ino, last), &mut |key, item| {
            sections.push(decode_section(key, item)?);
            Ok(true)
        })?;
        Ok(sections)
    }

    /// All items of an inode but its record and its entries; their keys are those of the view.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn items(&self, ino: u64) -> Result<Vec<(Key, Item)>> {
        let mut items = Vec::new();
        let (from, to) = (Key::new(ino, kind::XATTR, 0), Key::new(ino, u8::MAX, u64::MAX));
        self.visit(from, to, &mut |key, item| {
            items.push((key, item.clone()));
            Ok(true)
        })?;
        Ok(items)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn target(&self, ino: u64) -> Result<Option<Bytes>> {
        Ok(self.item(Key::new(ino, kind::TARGET, 0))?.map(|item| item.value))
    }

    /// The value of an attribute's item.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn xattr_value(&self, ino: u64, item: &Item) -> Result<(Vec<u8>, Vec<u8>)> {
        let record = XattrRecord::decode(&item.value).map_err(|error| from_record(ino, &error))?;
        let value = match &item.block {
            Some(block) => self.read_block(block)?.to_vec(),
            None => record.value.to_vec(),
        };
        Ok((record.name.to_vec(), value))
    }

    /// All extended attributes of an inode, by name.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn xattrs(&self, ino: u64) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut items = Vec::new();
        let (from, to) = (Key::new(ino, kind::XATTR, 0), Key::new(ino, kind::XATTR, u64::MAX));
        self.visit(from, to, &mut |_, item| {
            items.push(item.clone());
            Ok(true)
        })?;
        items.iter().map(|item| self.xattr_value(ino, item)).collect()
    }

    /// Where the item of an attribute is, or could go; and the item if it is there.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn probe_xattr(&self, ino: u64, name: &[u8]) -> Result<(u64, Option<Item>)> {
        let base = name_offset(self.counters.name_seed, name);
        let mut free = base;
        let mut found = None;
        let (from, to) = (base, base + NAME_SLOTS - 1);
        let key = |offset| Key::new(ino, kind::XATTR, offset);
        self.visit(key(from), key(to), &mut |key, item| {
            let record =
                XattrRecord::decode(&item.value).map_err(|error| from_record(ino, &error))?;
            if record.name == name {
                found = Some((key.offset, item.clone()));
            } else if key.offset == free {
                free += 1;
            }
            Ok(found.is_none())
        })?;
        match found {
            Some((offset, item)) => Ok((offset, Some(item))),
            None if free <= to => Ok((free, None)),
            None => Err(Error::NoSpace),
        }
    }

    /// The content of a block.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn read_block(&self, block: &Block) -> Result<Bytes> {
        self.view.read_block(block).map_err(from_store)
    }

    /// Reads a range of a file of which these are the sections; what none covers is zeros.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn read_range(&self, sections: &[Section], from: u64, to: u64) -> Result<Vec<u8>> {
        let index = |at: u64| usize::try_from(at - from).expect("a range to read fits memory");
        let mut bytes = vec![0; index(to)];
        for section in sections.iter().filter(|section| section.at < to && section.end() > from) {
            let part = section.part(from, to);
            if let Some(block) = &part.block {
                let content = self.read_block(block)?;
                let start = part.block_start as usize;
                let len = index(from + part.len);
                let target = &mut bytes[index(part.at)..index(part.end())];
                target.copy_from_slice(&content[start..start + len]);
            }
        }
        Ok(bytes)
    }
}

/// Whether two blocks of snapshots of one store are one block: then they have the same place.
pub fn same_block(a: (&State, &Block), b: (&State, &Block)) -> bool {
    if a.1.same(b.1) {
        return true;
    }
    let place = |(state, block): (&State, &Block)| state.view.place_of(block).address;
    let place_a = place(a);
    place_a.is_some() && a.1.len() == b.1.len() && place_a == place(b)
}
