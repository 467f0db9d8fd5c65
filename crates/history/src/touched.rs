//! What a side of a merge has changed of what was there, as far as programs can see it.
//!
//! A merge judges whether two sides go together. A transaction asks for more: that nothing it has
//! seen or changed is other than it was. So a change is described here by what a program sees of
//! an inode, and not by what could be put together. Access times are nothing that is seen.
//!
//! The invariant: what is not touched is for every program as it was in the base.

use crate::changes::{Changes, InodeChange, Pair};
use crate::conflict::{Conflict, ConflictKind};
use crate::three_way::ThreeWay;
use marram_format::record::{Inode, InodeKind, Time, XattrRecord};
use marram_records::failure::from_record;
use marram_records::state::same_inode;
use marram_vfs::{Ino, Result};
use std::collections::{BTreeMap, BTreeSet};

/// With this the name begins of each attribute that is an access control list.
const LISTS_PREFIX: &[u8] = b"system.";

/// What has changed of one inode of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Its number in the base.
    pub ino: Ino,
    /// It is a directory.
    pub is_directory: bool,
    /// Mode, owner, flags, or an access control list.
    pub rights: bool,
    /// Any attribute that `stat` shows of it, but the access time.
    pub attributes: bool,
    /// The bytes of a file, or how many they are.
    pub content: bool,
    /// Names in it, by the key that all spellings of one have.
    pub names: BTreeSet<Vec<u8>>,
    /// Extended attributes.
    pub xattrs: BTreeSet<Vec<u8>>,
}

/// Something that both sides are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    /// The name in the directory, if it is about a name.
    pub name: Option<Vec<u8>>,
    /// What it is, for people.
    pub what: &'static str,
}

/// Says what of a change matters: asked once for each inode of the base that the parent has
/// touched, while the parent is held still.
pub type Overlaps<'a> = &'a dyn Fn(&Touched) -> Vec<Overlap>;

impl Touched {
    /// What has changed of the inode `ino`; none of one that the base does not have.
    fn of(ino: u64, change: &InodeChange, key: &dyn Fn(&[u8]) -> Vec<u8>) -> Result<Option<Self>> {
        let Some(before) = change.before.as_ref().filter(|inode| inode.links > 0) else {
            return Ok(None);
        };
        let is_there = |after: &&Inode| after.links > 0 && same_inode(before, after);
        let after = change.after.as_ref().filter(is_there);
        let entries = change.entries.iter().filter(|pair| pair.before != pair.after);
        let entries = entries.flat_map(|Pair { before, after }| [before, after]);
        let names = entries.flatten().map(|entry| key(&entry.name)).collect();
        let xattrs = xattrs(ino, change)?;
        let has_list = xattrs.iter().any(|name| name.starts_with(LISTS_PREFIX));
        let is_file = before.kind == InodeKind::Regular;
        Ok(Some(Touched {
            ino: Ino(ino),
            is_directory: before.kind == InodeKind::Directory,
            rights: has_list || after.is_none_or(|after| rights(before) != rights(after)),
            attributes: after.is_none_or(|after| seen(before) != seen(after)),
            content: after.is_none_or(|after| {
                is_file && (!change.sections.is_empty() || before.size != after.size)
            }),
            names,
            xattrs,
        }))
    }

    /// What both have changed. The times, size and links of a directory follow from its names.
    fn overlaps(&self, other: &Touched) -> Vec<Overlap> {
        let both = [
            (self.content && other.content, "content changed"),
            (self.rights && other.rights, "rights changed"),
            (self.attributes && other.attributes && !self.is_directory, "attributes changed"),
            (!self.xattrs.is_disjoint(&other.xattrs), "extended attribute changed"),
        ];
        let whole = both.iter().filter(|(is_so, _)| *is_so);
        let whole = whole.map(|(_, what)| Overlap { name: None, what });
        let names = self.names.intersection(&other.names);
        let names = names.map(|name| Overlap { name: Some(name.clone()), what: "name changed" });
        whole.chain(names).collect()
    }
}

/// What decides about permissions.
fn rights(inode: &Inode) -> (u16, u32, u32, u32, u32) {
    (inode.permissions, inode.uid, inode.gid, inode.flags, inode.project)
}

/// The record without what no program sees.
fn seen(inode: &Inode) -> Inode {
    Inode { accessed: Time::default(), name_place: 0, ..inode.clone() }
}

/// The names of the extended attributes that have changed.
fn xattrs(ino: u64, change: &InodeChange) -> Result<BTreeSet<Vec<u8>>> {
    let items = change.xattrs.iter().flat_map(|Pair { before, after }| [before, after]).flatten();
    let name = |item: &marram_store::Item| {
        let record = XattrRecord::decode(&item.value);
        record.map(|it| it.name.to_vec()).map_err(|error| from_record(ino, &error))
    };
    items.map(name).collect()
}

/// What a side has touched, by number.
fn touched_by(sides: &ThreeWay<'_>, changes: &Changes) -> Result<BTreeMap<u64, Touched>> {
    let mut touched = BTreeMap::new();
    for (ino, change) in &changes.by_inode {
        if let Some(found) = Touched::of(*ino, change, &|name| sides.key(name))? {
            touched.insert(*ino, found);
        }
    }
    Ok(touched)
}

/// What the parent has changed since the base that the fork has changed too, or that `overlaps`
/// names, sorted by path.
pub(crate) fn overtaken(sides: &ThreeWay<'_>, overlaps: Overlaps<'_>) -> Result<Vec<Conflict>> {
    let theirs = touched_by(sides, sides.theirs)?;
    let mut found = BTreeSet::new();
    for (ino, ours) in touched_by(sides, sides.ours)? {
        let written = theirs.get(&ino).map_or_else(Vec::new, |theirs| theirs.overlaps(&ours));
        found.extend(overlaps(&ours).into_iter().chain(written).map(|overlap| (ino, overlap)));
    }
    sides.prepare_paths(found.iter().map(|(ino, _)| *ino))?;
    let mut conflicts = BTreeSet::new();
    for (ino, Overlap { name, what }) in found {
        let path = match &name {
            Some(name) => sides.path_of_name(ino, name)?,
            None => sides.path_of(ino)?,
        };
        let (kind, detail) = (ConflictKind::Overtaken, format!("{what} by others"));
        conflicts.insert(Conflict { path, kind, detail });
    }
    Ok(conflicts.into_iter().collect())
}
