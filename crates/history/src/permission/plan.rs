//! A batch of items, read as changes of files: what it does to each inode.

use marram_format::record::{Inode, XattrRecord};
use marram_records::failure::{from_record, from_store};
use marram_records::inode::{decode_inode, read_inode};
use marram_records::state::{Named, decode_entry, same_inode};
use marram_store::{Batch, Edit, Item, View, kind};
use marram_vfs::Result;
use std::collections::BTreeMap;

/// What a batch does to one inode.
#[derive(Default)]
pub(super) struct Change {
    /// The record that it has.
    pub(super) before: Option<Inode>,
    /// The record that it will have.
    pub(super) after: Option<Inode>,
    /// Names that go from the directory.
    pub(super) departures: Vec<Named>,
    /// Names that come into the directory.
    pub(super) arrivals: Vec<Named>,
    /// Extended attributes that get another value, come (true) or go (false).
    pub(super) xattrs: Vec<(Vec<u8>, bool)>,
    /// Its bytes change.
    pub(super) has_new_content: bool,
}

impl Change {
    /// The inode as it comes to be, if it was not there before.
    pub(super) fn made(&self) -> Option<&Inode> {
        let is_same =
            |after: &&Inode| self.before.as_ref().is_some_and(|before| same_inode(before, after));
        self.after.as_ref().filter(|after| !is_same(after))
    }

    /// The inode before and after, if it stays under a name.
    pub(super) fn kept(&self) -> Option<(&Inode, &Inode)> {
        let pair = self.before.as_ref().zip(self.after.as_ref());
        pair.filter(|(before, after)| same_inode(before, after) && after.links > 0)
    }
}

/// What a batch does, by inode.
pub(super) struct Plan(pub(super) BTreeMap<u64, Change>);

impl Plan {
    /// Reads a batch that is to be applied to a view.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub(super) fn read(view: &dyn View, batch: &Batch<'_>) -> Result<Plan> {
        let mut plan = Plan(BTreeMap::new());
        // What belongs to no inode is the dataset's own account of them.
        for edit in batch.edits.iter().filter(|edit| edit.key().object != 0) {
            plan.add(view, edit)?;
        }
        for change in plan.0.values_mut() {
            let size = |inode: &Option<Inode>| {
                inode.as_ref().filter(|it| !is_directory(it)).map(|inode| inode.size)
            };
            change.has_new_content |= size(&change.before) != size(&change.after);
        }
        Ok(plan)
    }

    fn add(&mut self, view: &dyn View, edit: &Edit<'_>) -> Result<()> {
        let key = edit.key();
        let change = match self.0.entry(key.object) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => {
                let before = read_inode(view, key.object)?;
                free.insert(Change { after: before.clone(), before, ..Change::default() })
            }
        };
        let new = match edit {
            Edit::Put { item, .. } => Some(item),
            _ => None,
        };
        match key.kind {
            kind::INODE => {
                change.after = new.map(|item| decode_inode(key.object, item)).transpose()?;
            }
            kind::ENTRY => {
                let old = view.get(key).map_err(from_store)?;
                let named = |item: &Item| decode_entry(key, item);
                let (old, new) =
                    (old.as_ref().map(named).transpose()?, new.map(named).transpose()?);
                if old != new {
                    change.departures.extend(old);
                    change.arrivals.extend(new);
                }
            }
            kind::XATTR => {
                let old = view.get(key).map_err(from_store)?;
                change.xattrs.extend(xattr_changes(key.object, old.as_ref(), new)?);
            }
            _ => change.has_new_content = true,
        }
        Ok(())
    }
}

/// The attributes of which one item tells: another name may come to the place of one.
fn xattr_changes(ino: u64, old: Option<&Item>, new: Option<&Item>) -> Result<Vec<(Vec<u8>, bool)>> {
    let named = |item: &Item| -> Result<(Vec<u8>, Vec<u8>)> {
        let record = XattrRecord::decode(&item.value).map_err(|error| from_record(ino, &error))?;
        Ok((record.name.to_vec(), record.value.to_vec()))
    };
    let has_block = |item: Option<&Item>| item.is_some_and(|item| item.block.is_some());
    let is_short = !has_block(old) && !has_block(new);
    let (old, new) = (old.map(named).transpose()?, new.map(named).transpose()?);
    if is_short && old == new {
        return Ok(Vec::new());
    }
    let mut changes = Vec::new();
    let is_replaced = old.as_ref().map(|(name, _)| name) == new.as_ref().map(|(name, _)| name);
    changes.extend(old.filter(|_| !is_replaced).map(|(name, _)| (name, false)));
    changes.extend(new.map(|(name, _)| (name, true)));
    Ok(changes)
}

pub(super) fn is_directory(inode: &Inode) -> bool {
    inode.kind == marram_format::record::InodeKind::Directory
}
