//! What differs between two states, in words of files.

use super::changes::{Changes, InodeChange, NameChanges, Pair, Place};
use super::kept::Kept;
use super::paths::Paths;
use super::ranges::ranges;
use super::state::{State, same_inode};
use crate::failure::from_store;
use crate::inode::kind_of;
use marram_format::record::{Inode, InodeKind};
use marram_store::{Item, Source, Store};
use marram_vfs::{Ino, Kind, Result, Timestamp};
use std::collections::BTreeMap;
use std::ops::Range;

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where, from the root of what is compared (`/` itself): in the second state, or in the first
    /// of what went.
    pub path: Vec<u8>,
    /// Where it was, of what was renamed.
    pub old_path: Option<Vec<u8>>,
    /// The inode.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// What has happened to it.
    pub what: What,
}

/// What has happened to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It is new, or has come from outside of what is compared: then what is in a directory is not
    /// told one by one.
    Created,
    /// It is gone, or went outside of what is compared.
    Removed,
    /// It was moved here from `old_path`.
    Renamed,
    /// A file that was there has got this name too.
    Linked,
    /// A file that is still there has lost this name.
    Unlinked,
    /// Its content has changed.
    Content {
        /// The bytes that differ, in order; what lies past the end of one state counts. Two ranges
        /// with fewer than 64 equal bytes between them are one.
        ranges: Vec<Range<u64>>,
        /// Its size in bytes in the first state.
        old_size: u64,
        /// Its size in bytes in the second state.
        new_size: u64,
    },
    /// Attributes have changed. Of times only that of the last change of content is told, where
    /// nothing else has changed.
    Attributes(Vec<AttributeChange>),
    /// Extended attributes have changed, sorted by name; access control lists are among them.
    Xattrs(Vec<XattrChange>),
}

/// An attribute in both states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeChange {
    /// The low twelve mode bits.
    Permissions(u32, u32),
    /// The owning user.
    User(u32, u32),
    /// The owning group.
    Group(u32, u32),
    /// Flags, in Linux's numbers.
    Flags(u32, u32),
    /// The project.
    Project(u32, u32),
    /// The last change of content.
    Modified(Timestamp, Timestamp),
}

/// An extended attribute in both states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrChange {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value in the first state, if it was there.
    pub old: Option<Vec<u8>>,
    /// Its value in the second state, if it is there.
    pub new: Option<Vec<u8>>,
}

/// Visits what differs between two states of one family, live or as snapshots kept them, of what
/// is below the directory `root` in both, sorted by path, until the visitor returns false. Of what
/// is live a snapshot is taken for as long as that takes.
///
/// Costs what has changed. Where a file has lost the name that it was found by, and keeps another
/// one, all directories are searched once.
///
/// # Errors
/// A dataset or snapshot that is not there, has no file system, or has nothing to do with the
/// other; a failed read.
pub fn diff(
    store: &dyn Store,
    before: &Source,
    after: &Source,
    root: Ino,
    visit: &mut dyn FnMut(Difference) -> bool,
) -> Result<()> {
    let (before, after) = (Kept::of(store, before, "diff")?, Kept::of(store, after, "diff")?);
    let open = |kept: &Kept<'_>| -> Result<State> {
        State::open(store.open(&kept.source).map_err(from_store)?, root.0)
    };
    let (a, b) = (open(&before)?, open(&after)?);
    check_related(&a, &b)?;
    let changes = Changes::gather(store, (&before.source, &after.source), &a, &b)?;
    Comparison::new(&a, &b, &changes).tell(visit)
}

/// Refuses states of different families: names are hashed with a seed that each family has alone.
pub(super) fn check_related(a: &State, b: &State) -> Result<()> {
    let family = |state: &State| (state.counters.name_seed, state.counters.names);
    if family(a) == family(b) {
        return Ok(());
    }
    Err(marram_vfs::Error::InvalidArgument("the two have no common past"))
}

/// Two states and what differs between them.
pub(super) struct Comparison<'a> {
    before: &'a State,
    after: &'a State,
    changes: &'a Changes,
    old_paths: Paths<'a>,
    new_paths: Paths<'a>,
}

/// What is known of a difference until it is told.
enum Told {
    Name(Difference),
    Inside(u64),
}

impl<'a> Comparison<'a> {
    pub(super) fn new(before: &'a State, after: &'a State, changes: &'a Changes) -> Self {
        let (old_paths, new_paths) = (Paths::new(before), Paths::new(after));
        Comparison { before, after, changes, old_paths, new_paths }
    }

    /// Tells all differences, sorted by path.
    pub(super) fn tell(mut self, visit: &mut dyn FnMut(Difference) -> bool) -> Result<()> {
        let mut told = Vec::new();
        for (ino, names) in self.changes.names() {
            self.names(ino, &names, &mut told)?;
        }
        let stayed = |(ino, change): (&u64, &InodeChange)| change.stayed().map(|_| *ino);
        let inside: Vec<u64> = self.changes.by_inode.iter().filter_map(stayed).collect();
        self.new_paths.prepare(inside.iter().copied())?;
        for ino in inside {
            if let Some(path) = self.new_paths.of(ino)? {
                told.push((path, Told::Inside(ino)));
            }
        }
        told.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (path, told) in told {
            let differences = match told {
                Told::Name(difference) => vec![difference],
                Told::Inside(ino) => self.inside(ino, &path)?,
            };
            if !differences.into_iter().all(&mut *visit) {
                break;
            }
        }
        Ok(())
    }

    /// What names say of an inode.
    fn names(
        &mut self,
        ino: u64,
        names: &NameChanges,
        told: &mut Vec<(Vec<u8>, Told)>,
    ) -> Result<()> {
        let mut gone = paths_of(&mut self.old_paths, &names.gone)?;
        let mut came = paths_of(&mut self.new_paths, &names.came)?;
        let both = (self.before.named_inode(ino)?, self.after.named_inode(ino)?);
        let stayed = matches!(&both, (Some(before), Some(after)) if same_inode(before, after));
        let (first_gone, first_came) = match stayed {
            true => (What::Unlinked, What::Linked),
            false => (What::Removed, What::Created),
        };
        let from_outside = stayed && gone.is_empty() && !names.gone.is_empty();
        let to_outside = stayed && came.is_empty() && !names.came.is_empty();
        let mut add = |path: Vec<u8>, old_path: Option<Vec<u8>>, what: What, kind: InodeKind| {
            let (kind, sorted) = (kind_of(kind), path.clone());
            let difference = Difference { path, old_path, ino: Ino(ino), kind, what };
            told.push((sorted, Told::Name(difference)));
        };
        if stayed {
            let renamed = gone.len().min(came.len());
            for ((old, _), (new, kind)) in gone.drain(..renamed).zip(came.drain(..renamed)) {
                add(new, Some(old), What::Renamed, kind);
            }
        }
        for (at, (path, kind)) in gone.into_iter().enumerate() {
            let last = if to_outside { What::Removed } else { first_gone.clone() };
            add(path, None, if at == 0 { last } else { What::Unlinked }, kind);
        }
        for (at, (path, kind)) in came.into_iter().enumerate() {
            let first = if from_outside { What::Created } else { first_came.clone() };
            add(path, None, if at == 0 { first } else { What::Linked }, kind);
        }
        Ok(())
    }

    /// What has changed of an inode that stayed.
    fn inside(&self, ino: u64, path: &[u8]) -> Result<Vec<Difference>> {
        let change = &self.changes.by_inode[&ino];
        let (before, after) = change.stayed().expect("only inodes that stayed are told so");
        let mut all = Vec::new();
        let (content, sizes) = content_ranges(self.before, self.after, change)?;
        if !content.is_empty() {
            let (old_size, new_size) = sizes;
            all.push(What::Content { ranges: content, old_size, new_size });
        }
        let xattrs = xattr_changes(ino, self.before, self.after, &change.xattrs)?;
        if !xattrs.is_empty() {
            all.push(What::Xattrs(xattrs));
        }
        let mut attributes = attribute_changes(before, after);
        let moved_time = before.modified != after.modified;
        if all.is_empty() && change.entries.is_empty() && moved_time {
            let time = |inode| crate::inode::attributes(ino, inode).modified;
            attributes.push(AttributeChange::Modified(time(before), time(after)));
        }
        if !attributes.is_empty() {
            all.push(What::Attributes(attributes));
        }
        let difference = |what| Difference {
            path: path.to_vec(),
            old_path: None,
            ino: Ino(ino),
            kind: kind_of(after.kind),
            what,
        };
        Ok(all.into_iter().map(difference).collect())
    }
}

/// The ranges in which contents differ, and the sizes in both states.
pub(super) type ContentChange = (Vec<Range<u64>>, (u64, u64));

/// The ranges in which the content of a file that stayed differs, and its sizes; none of what is no
/// regular file.
pub(super) fn content_ranges(
    before: &State,
    after: &State,
    change: &InodeChange,
) -> Result<ContentChange> {
    let Some((a, b)) = change.stayed().filter(|(a, _)| a.kind == InodeKind::Regular) else {
        return Ok((Vec::new(), (0, 0)));
    };
    let sizes = (a.size, b.size);
    Ok((ranges(before, after, &change.sections, sizes)?, sizes))
}

/// The paths of names that can be reached from the root, sorted.
fn paths_of(paths: &mut Paths<'_>, places: &[Place]) -> Result<Vec<(Vec<u8>, InodeKind)>> {
    let mut found = Vec::new();
    for Place { directory, entry } in places {
        if let Some(path) = paths.of_name(*directory, &entry.name)? {
            found.push((path, entry.kind));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// The attributes that differ, without times.
pub(super) fn attribute_changes(a: &Inode, b: &Inode) -> Vec<AttributeChange> {
    let permissions = (u32::from(a.permissions), u32::from(b.permissions));
    let all = [
        AttributeChange::Permissions(permissions.0, permissions.1),
        AttributeChange::User(a.uid, b.uid),
        AttributeChange::Group(a.gid, b.gid),
        AttributeChange::Flags(a.flags, b.flags),
        AttributeChange::Project(a.project, b.project),
    ];
    let differs = |change: &AttributeChange| match *change {
        AttributeChange::Permissions(a, b)
        | AttributeChange::User(a, b)
        | AttributeChange::Group(a, b)
        | AttributeChange::Flags(a, b)
        | AttributeChange::Project(a, b) => a != b,
        AttributeChange::Modified(a, b) => a != b,
    };
    all.into_iter().filter(differs).collect()
}

/// The extended attributes that differ, sorted by name.
pub(super) fn xattr_changes(
    ino: u64,
    before: &State,
    after: &State,
    pairs: &[Pair<Item>],
) -> Result<Vec<XattrChange>> {
    let mut by_name: BTreeMap<Vec<u8>, Pair<Vec<u8>>> = BTreeMap::new();
    let none = || Pair { before: None, after: None };
    for pair in pairs {
        if let Some(item) = &pair.before {
            let (name, value) = before.xattr_value(ino, item)?;
            by_name.entry(name).or_insert_with(none).before = Some(value);
        }
        if let Some(item) = &pair.after {
            let (name, value) = after.xattr_value(ino, item)?;
            by_name.entry(name).or_insert_with(none).after = Some(value);
        }
    }
    let changes = by_name.into_iter().map(|(name, Pair { before: old, after: new })| XattrChange {
        name,
        old,
        new,
    });
    Ok(changes.filter(|change| change.old != change.new).collect())
}
