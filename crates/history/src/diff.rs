//! What differs between two states, in words of files.

use crate::branch::Branch;
use crate::changes::{Changes, InodeChange, NameChanges, Pair, Place};
use crate::counterpart::number_in_past;
use crate::equal::file_ranges;
use crate::inode_aliases::{InodeAlias, InodeAliases};
use crate::parted::{Kept, NewInodes, Parted};
use crate::paths::Paths;
use crate::ranges::ranges;
use crate::stable_source::StableSource;
use crate::subtree::Subtree;
use marram_format::record::{Inode, InodeKind};
use marram_records::failure::from_store;
use marram_records::inode::kind_of;
use marram_records::state::{State, same_inode};
use marram_store::{Block, Item, ROOT_OBJECT, Source, Store};
use marram_vfs::{Ino, Kind, Result, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where, from the root of what is compared (`/` itself): in the second state, or in the first
    /// of what went.
    pub path: Vec<u8>,
    /// Where it was, of what was renamed.
    pub old_path: Option<Vec<u8>>,
    /// The inode, in the second state, or in the first of what went.
    pub ino: Ino,
    /// The inode in the first state: another one where that is a copy which a rollback made, or a
    /// directory that is found by its path.
    pub old_ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// How large a regular file is, in bytes, where its inode is; else 0.
    pub size: u64,
    /// What has happened to it.
    pub what: What,
}

impl Difference {
    /// Whether only the time has changed at which names of a directory were changed: where a merge
    /// did that, it is the time of the merge.
    pub(crate) fn is_time_of_names(&self) -> bool {
        let is_time = |changes: &Vec<AttributeChange>| {
            changes.iter().all(|change| matches!(change, AttributeChange::Modified(..)))
        };
        self.kind == Kind::Directory && matches!(&self.what, What::Attributes(all) if is_time(all))
    }
}

/// What has happened to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It is new, or has come from outside of what is compared: then what is in a directory is not
    /// reported one by one.
    Created,
    /// It is gone, or went outside of what is compared.
    Removed,
    /// It was moved here from `old_path`.
    Renamed,
    /// A file that was there has got this name too.
    Linked,
    /// A file that is still there has lost this name.
    Unlinked,
    /// Its content has changed, or another file took its place as editors save: then the two
    /// inodes are different.
    Content {
        /// The bytes that differ, in order; what lies past the end of one state counts. Two ranges
        /// with fewer than 64 equal bytes between them are one.
        ranges: Vec<Range<u64>>,
        /// Its size in bytes in the first state.
        old_size: u64,
        /// Its size in bytes in the second state.
        new_size: u64,
    },
    /// Attributes have changed. Of times only that of the last change of content is reported, where
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
/// A state that does not have that inode is asked for the directory that it has under the same
/// path, as by [`roll_back_directory`](crate::roll_back_directory).
///
/// Costs what has changed. Where a file has lost the name that it was found by, and keeps another
/// one, all directories are searched once. Directories that a rollback copied, or that are found by
/// their path, are looked through; and so is all below `root` if a file that has changed, or that a
/// rollback copied, has several names, the newest of them elsewhere.
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
    let (before, after) =
        (StableSource::of(store, before, "diff")?, StableSource::of(store, after, "diff")?);
    let top = top_of(store, (&before.source, &after.source))?;
    let open = |kept: &StableSource<'_>| -> Result<State> {
        State::open(store.open(&kept.source).map_err(from_store)?, top)
    };
    let (a, b) = (open(&before)?, open(&after)?);
    check_related(&a, &b)?;
    let roots = roots(store, &after.source, (&a, &b), root.0)?;
    let (a, b) = (a.below(roots.0), b.below(roots.1));
    if let Some(branch) = Branch::between(store, &before.source, &after.source)? {
        let states = ((&before.source, &a), (&after.source, &b));
        return tell_across(store, &branch.origin, states, visit);
    }
    let changes = Changes::gather(store, (&before.source, &after.source), &a, &b)?;
    let aliases = InodeAliases::find(&a, &b, &changes)?;
    Comparison::new(&a, &b, &changes).with(aliases).tell(visit)
}

/// Tells what differs between the base of a merge and the other one of the two that it is between.
fn tell_across(
    store: &dyn Store,
    origin: &Source,
    ((before, a), (after, b)): (Kept<'_>, Kept<'_>),
    visit: &mut dyn FnMut(Difference) -> bool,
) -> Result<()> {
    let made = NewInodes::of(store, origin, after)?;
    let others = NewInodes::of(store, origin, before)?;
    let parted = Parted::find((&made, b), (&others, a))?;
    let shown = parted.show(b);
    let changes = Changes::gather_across(store, (before, after), (a, &shown), (&parted, b))?;
    Comparison::new(a, &shown, &changes).tell(&mut |difference| {
        if difference.is_time_of_names() {
            return true;
        }
        let ino = match difference.what {
            What::Removed => difference.ino.0,
            _ => shown.own(difference.ino.0).unwrap_or(difference.ino.0),
        };
        visit(Difference { ino: Ino(ino), ..difference })
    })
}

/// The directory that both states have at their top: of a fork and what it began as, that of the
/// fork.
fn top_of(store: &dyn Store, (before, after): (&Source, &Source)) -> Result<u64> {
    let root = |source| store.report(source).map(|report| report.root_object).map_err(from_store);
    Ok(match (root(before)?, root(after)?) {
        (one, ROOT_OBJECT) => one,
        (_, other) => other,
    })
}

/// The numbers of the directory `root` in both states. What neither has is one of the present.
fn roots(
    store: &dyn Store,
    after: &Source,
    (a, b): (&State, &State),
    root: u64,
) -> Result<(u64, u64)> {
    let in_both = |now: &State| -> Result<(u64, u64)> {
        Ok((number_in_past((now, a), root)?, number_in_past((now, b), root)?))
    };
    for state in [b, a] {
        if state.named_inode(root)?.is_some() {
            return in_both(state);
        }
    }
    let present = StableSource::take(store, &after.dataset, "diff")?;
    let view = store.open(&present.source).map_err(from_store)?;
    in_both(&State::open(view, b.root)?)
}

/// Refuses states of different families: names are hashed with a seed that each family has alone.
pub(crate) fn check_related(a: &State, b: &State) -> Result<()> {
    let family = |state: &State| (state.counters.name_seed, state.counters.names);
    if family(a) == family(b) {
        return Ok(());
    }
    Err(marram_vfs::Error::InvalidArgument("the two have no common past"))
}

/// Bytes of contents that are read together before they are compared, in a store that is far away.
const FORESEEN_BYTES: usize = 8 << 20;

/// Two states and what differs between them.
pub(crate) struct Comparison<'a> {
    before: &'a State,
    after: &'a State,
    changes: &'a Changes,
    aliases: InodeAliases,
    old_paths: Paths<'a>,
    new_paths: Paths<'a>,
    /// Directories in which equal entries lead to different inodes.
    renamed_in: BTreeSet<u64>,
}

/// What is known of a difference until it is reported.
enum Reported {
    Name(Difference),
    Inside(u64),
    InodeAlias(u64, InodeAlias),
    Saved(u64, u64),
}

/// What is in an inode of both states.
struct Inside<'i> {
    inos: (u64, u64),
    inodes: (&'i Inode, &'i Inode),
    content: ContentChange,
    xattrs: Vec<XattrChange>,
    /// It is a directory, and names in it have changed.
    has_other_names: bool,
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(before: &'a State, after: &'a State, changes: &'a Changes) -> Self {
        let (old_paths, new_paths) = (Paths::new(before), Paths::new(after));
        let (aliases, renamed_in) = (InodeAliases::default(), BTreeSet::new());
        Comparison { before, after, changes, aliases, old_paths, new_paths, renamed_in }
    }

    /// The same, where some are the same under other numbers.
    pub(crate) fn with(self, aliases: InodeAliases) -> Self {
        Comparison { aliases, ..self }
    }

    /// Reports all differences, sorted by path.
    pub(crate) fn tell(mut self, visit: &mut dyn FnMut(Difference) -> bool) -> Result<()> {
        let mut reported = Vec::new();
        let mut names = self.aliases.apart_from(self.changes.names());
        self.renamed_in = self.add_equal_entries(&mut names)?;
        let directories = |of: fn(&NameChanges) -> &Vec<Place>| {
            names.values().flat_map(of).map(|place| place.directory).collect()
        };
        self.old_paths.foresee(directories(|names| &names.gone))?;
        self.new_paths.foresee(directories(|names| &names.came))?;
        for (ino, names) in names {
            self.names(ino, &names, &mut reported)?;
        }
        let aliases = &self.aliases.by_after;
        let stayed = |(ino, change): (&u64, &InodeChange)| {
            change.stayed().filter(|_| !aliases.contains_key(ino)).map(|_| *ino)
        };
        let inside: Vec<u64> = self.changes.by_inode.iter().filter_map(stayed).collect();
        self.new_paths.prepare(inside.iter().copied())?;
        for ino in inside {
            if let Some(path) = self.new_paths.of(ino)? {
                reported.push((path, Reported::Inside(ino)));
            }
        }
        self.new_paths.prepare(self.aliases.by_after.keys().copied())?;
        for (ino, alias) in &self.aliases.by_after {
            if let Some(path) = self.new_paths.of(*ino)? {
                reported.push((path, Reported::InodeAlias(*ino, *alias)));
            }
        }
        for ((directory, name), (before, after)) in &self.aliases.saved {
            if let Some(path) = self.new_paths.of_name(*directory, name)? {
                reported.push((path, Reported::Saved(*before, *after)));
            }
        }
        reported.sort_by(|(a, _), (b, _)| a.cmp(b));
        while !reported.is_empty() {
            let rest = reported.split_off(self.foresee_contents(&reported));
            for (path, reported) in std::mem::replace(&mut reported, rest) {
                if !self.differences(&path, reported)?.into_iter().all(&mut *visit) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The differences, of what is at this path.
    fn differences(&self, path: &[u8], reported: Reported) -> Result<Vec<Difference>> {
        match reported {
            Reported::Name(difference) => Ok(vec![difference]),
            Reported::Inside(ino) => self.inside(ino, path),
            Reported::InodeAlias(ino, alias) => self.inside_alias(ino, alias, path),
            Reported::Saved(before, ino) => {
                let alias = InodeAlias { before, has_other_names: false };
                self.inside_alias(ino, alias, path)
            }
        }
    }

    /// Has contents read that are compared next, where the store is far away; for how many of what
    /// is to be reported that was.
    fn foresee_contents(&self, reported: &[(Vec<u8>, Reported)]) -> usize {
        if !self.after.is_far() {
            return reported.len();
        }
        let (mut blocks, mut bytes, mut count) = ((Vec::new(), Vec::new()), 0, 0);
        for (_, reported) in reported {
            if let Reported::Inside(ino) = reported {
                for Pair { before, after } in &self.changes.by_inode[ino].sections {
                    let sides = [(before, &mut blocks.0), (after, &mut blocks.1)];
                    for (section, blocks) in sides {
                        let block = section.as_ref().and_then(|section| section.block.as_ref());
                        bytes += block.map_or(0, Block::len);
                        blocks.extend(block.filter(|_| bytes <= FORESEEN_BYTES).cloned());
                    }
                }
            }
            count += 1;
            if bytes > FORESEEN_BYTES {
                break;
            }
        }
        self.before.foresee_blocks(&blocks.0);
        self.after.foresee_blocks(&blocks.1);
        count
    }

    /// Names that lead to another inode of the same number: the entries are equal, so they are no
    /// change of their directory. A regular file in the place of another was saved; what else is
    /// there went and came. Returns which directories those are.
    fn add_equal_entries(
        &mut self,
        names: &mut BTreeMap<u64, NameChanges>,
    ) -> Result<BTreeSet<u64>> {
        let mut directories = BTreeSet::new();
        let others = self.changes.by_inode.iter().filter(|(_, change)| change.is_other());
        let others: BTreeSet<u64> = others.map(|(ino, _)| *ino).collect();
        let mut olds = Subtree::new(self.before, self.before.root).all_places(&others)?;
        for (ino, news) in Subtree::new(self.after, self.after.root).all_places(&others)? {
            let equal = olds.remove(&ino).unwrap_or_default().into_iter();
            let change = names.entry(ino).or_default();
            for place in equal.filter(|place| news.contains(place)) {
                directories.insert(place.directory);
                let is_same_directory = !others.contains(&place.directory);
                if place.entry.kind == InodeKind::Regular && is_same_directory {
                    let both = (place.directory, place.directory);
                    self.aliases.add_saved(both, &place.entry, &place.entry);
                    continue;
                }
                change.gone.push(place.clone());
                change.came.push(place);
            }
        }
        Ok(directories)
    }

    /// What names say of an inode.
    fn names(
        &mut self,
        ino: u64,
        names: &NameChanges,
        reported: &mut Vec<(Vec<u8>, Reported)>,
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
        let size_in = |inode: &Option<Inode>| inode.as_ref().map_or(0, file_size);
        let sizes = (size_in(&both.0), size_in(&both.1));
        let mut add = |path: Vec<u8>, old_path: Option<Vec<u8>>, what: What, kind: InodeKind| {
            let (kind, sorted) = (kind_of(kind), path.clone());
            let ino = Ino(ino);
            let is_gone = matches!(what, What::Removed | What::Unlinked);
            let size = if is_gone { sizes.0 } else { sizes.1 };
            let difference = Difference { path, old_path, ino, old_ino: ino, kind, size, what };
            reported.push((sorted, Reported::Name(difference)));
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
        let inside = Inside {
            inos: (ino, ino),
            inodes: change.stayed().expect("only inodes that stayed are changed inside"),
            content: content_ranges(self.before, self.after, change)?,
            xattrs: xattr_changes(ino, self.before, self.after, &change.xattrs)?,
            has_other_names: self.aliases.has_other_names(ino, &change.entries)
                || self.renamed_in.contains(&ino),
        };
        Ok(inside.differences(path))
    }

    /// What has changed from an inode of the first state to its alias in the second.
    fn inside_alias(&self, ino: u64, alias: InodeAlias, path: &[u8]) -> Result<Vec<Difference>> {
        let (a, b) = (self.before, self.after);
        let (Some(before), Some(after)) = (a.named_inode(alias.before)?, b.named_inode(ino)?)
        else {
            return Ok(Vec::new());
        };
        let ranges = file_ranges((a, &before, alias.before), (b, &after, ino))?;
        let inside = Inside {
            inos: (alias.before, ino),
            inodes: (&before, &after),
            content: (ranges, (before.size, after.size)),
            xattrs: different_xattrs(a.xattrs(alias.before)?, b.xattrs(ino)?),
            has_other_names: alias.has_other_names,
        };
        Ok(inside.differences(path))
    }
}

impl Inside<'_> {
    /// The differences, of what is at this path.
    fn differences(self, path: &[u8]) -> Vec<Difference> {
        let (before, after) = self.inodes;
        let mut all = Vec::new();
        let (ranges, (old_size, new_size)) = self.content;
        if !ranges.is_empty() {
            all.push(What::Content { ranges, old_size, new_size });
        }
        if !self.xattrs.is_empty() {
            all.push(What::Xattrs(self.xattrs));
        }
        let mut attributes = attribute_changes(before, after);
        let moved_time = before.modified != after.modified;
        if all.is_empty() && !self.has_other_names && moved_time {
            let time = |inode| marram_records::inode::attributes(self.inos.1, inode).modified;
            attributes.push(AttributeChange::Modified(time(before), time(after)));
        }
        if !attributes.is_empty() {
            all.push(What::Attributes(attributes));
        }
        let difference = |what| Difference {
            path: path.to_vec(),
            old_path: None,
            ino: Ino(self.inos.1),
            old_ino: Ino(self.inos.0),
            kind: kind_of(after.kind),
            size: file_size(after),
            what,
        };
        all.into_iter().map(difference).collect()
    }
}

/// How large a regular file is; 0 of what else has a size.
fn file_size(inode: &Inode) -> u64 {
    if inode.kind == InodeKind::Regular { inode.size } else { 0 }
}

/// The ranges in which contents differ, and the sizes in both states.
pub(crate) type ContentChange = (Vec<Range<u64>>, (u64, u64));

/// The ranges in which the content of a file that stayed differs, and its sizes; none of what is no
/// regular file.
pub(crate) fn content_ranges(
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
pub(crate) fn attribute_changes(a: &Inode, b: &Inode) -> Vec<AttributeChange> {
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
pub(crate) fn xattr_changes(
    ino: u64,
    before: &State,
    after: &State,
    pairs: &[Pair<Item>],
) -> Result<Vec<XattrChange>> {
    let values = |state: &State, items: &mut dyn Iterator<Item = &Item>| -> Result<Xattrs> {
        items.map(|item| state.xattr_value(ino, item)).collect()
    };
    let old = values(before, &mut pairs.iter().filter_map(|pair| pair.before.as_ref()))?;
    let new = values(after, &mut pairs.iter().filter_map(|pair| pair.after.as_ref()))?;
    Ok(different_xattrs(old, new))
}

/// Values of extended attributes by name.
type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

fn different_xattrs(mut old: Xattrs, mut new: Xattrs) -> Vec<XattrChange> {
    let names: BTreeSet<Vec<u8>> = old.keys().chain(new.keys()).cloned().collect();
    let changes = names.into_iter().map(|name| XattrChange {
        old: old.remove(&name),
        new: new.remove(&name),
        name,
    });
    changes.filter(|change| change.old != change.new).collect()
}
