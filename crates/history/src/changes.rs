//! The items in which two states differ, gathered by inode.
//!
//! What is gathered is as large as the change. Bytes are not compared here: a file that was
//! written over with what it held has changed sections.

mod across;

use marram_format::record::Inode;
use marram_records::failure::from_store;
use marram_records::inode::decode_inode;
use marram_records::sections::Section;
use marram_records::state::{Named, State, decode_entry, decode_section, same_inode};
use marram_store::{Item, ItemChange, Key, Source, Store, kind};
use marram_vfs::Result;
use std::collections::BTreeMap;

/// One item in two states.
#[derive(Clone, Debug)]
pub(crate) struct Pair<T> {
    pub(crate) before: Option<T>,
    pub(crate) after: Option<T>,
}

/// What has changed of one inode.
#[derive(Debug, Default)]
pub(crate) struct InodeChange {
    /// Its record in the first state, whether or not that has changed.
    pub(crate) before: Option<Inode>,
    /// Its record in the second state.
    pub(crate) after: Option<Inode>,
    /// Entries of a directory.
    pub(crate) entries: Vec<Pair<Named>>,
    /// Items of extended attributes.
    pub(crate) xattrs: Vec<Pair<Item>>,
    /// Sections, by the place where they begin.
    pub(crate) sections: Vec<Pair<Section>>,
    /// Of a directory: only its entries are meant, and none of its attributes.
    pub(crate) is_on_the_way: bool,
    /// The item of its record is among the changes.
    has_record: bool,
}

/// Where a name was or is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) directory: u64,
    pub(crate) entry: Named,
}

/// Changes of names, by the inode that they lead to.
#[derive(Debug, Default)]
pub(crate) struct NameChanges {
    pub(crate) gone: Vec<Place>,
    pub(crate) came: Vec<Place>,
}

/// The changes from one state to another.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) by_inode: BTreeMap<u64, InodeChange>,
}

impl InodeChange {
    /// Its records, if it is there with a name in both states and is the same.
    pub(crate) fn stayed(&self) -> Option<(&Inode, &Inode)> {
        let (before, after) = (self.before.as_ref()?, self.after.as_ref()?);
        let stayed = before.links > 0 && after.links > 0 && same_inode(before, after);
        stayed.then_some((before, after))
    }

    /// Whether both states have an inode of this number, and not the same: what went its own way
    /// from one state gives out the same numbers.
    pub(crate) fn is_other(&self) -> bool {
        let both = (&self.before, &self.after);
        matches!(both, (Some(a), Some(b)) if a.links > 0 && b.links > 0 && !same_inode(a, b))
    }

    fn add(&mut self, change: &ItemChange) -> Result<()> {
        let ItemChange { key, before, after } = change;
        match key.kind {
            kind::INODE => {
                let Pair { before, after } =
                    pair(*key, before, after, &|key, item| decode_inode(key.object, item))?;
                (self.before, self.after, self.has_record) = (before, after, true);
            }
            kind::ENTRY => self.entries.push(pair(*key, before, after, &decode_entry)?),
            kind::SECTION => self.sections.push(pair(*key, before, after, &decode_section)?),
            kind::XATTR => {
                self.xattrs.push(Pair { before: before.clone(), after: after.clone() });
            }
            _ => (),
        }
        Ok(())
    }
}

fn pair<T>(
    key: Key,
    before: &Option<Item>,
    after: &Option<Item>,
    decode: &dyn Fn(Key, &Item) -> Result<T>,
) -> Result<Pair<T>> {
    let decode = |item: &Option<Item>| item.as_ref().map(|item| decode(key, item)).transpose();
    Ok(Pair { before: decode(before)?, after: decode(after)? })
}

impl Changes {
    /// Gathers what differs between two snapshots, whose states are `before` and `after`.
    pub(crate) fn gather(
        store: &dyn Store,
        sources: (&Source, &Source),
        before: &State,
        after: &State,
    ) -> Result<Changes> {
        let mut changes = Changes::default();
        let mut failure = None;
        let mut visit = |change: ItemChange| {
            if change.key.object != 0 {
                let inode = changes.by_inode.entry(change.key.object).or_default();
                failure = inode.add(&change).err();
            }
            failure.is_none()
        };
        store.changes(sources.0, sources.1, Key::MIN, &mut visit).map_err(from_store)?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        for (ino, change) in &mut changes.by_inode {
            if !change.has_record {
                change.before = before.inode(*ino)?;
                change.after = after.inode(*ino)?;
            }
        }
        Ok(changes)
    }

    /// The names that went and came, by inode. A name that only leads to the same inode in another
    /// spelling went and came.
    pub(crate) fn names(&self) -> BTreeMap<u64, NameChanges> {
        let mut names: BTreeMap<u64, NameChanges> = BTreeMap::new();
        for (directory, change) in &self.by_inode {
            let place = |entry: &Named| Place { directory: *directory, entry: entry.clone() };
            for Pair { before, after } in &change.entries {
                if let Some(entry) = before {
                    names.entry(entry.ino).or_default().gone.push(place(entry));
                }
                if let Some(entry) = after {
                    names.entry(entry.ino).or_default().came.push(place(entry));
                }
            }
        }
        names
    }
}
