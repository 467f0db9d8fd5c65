//! The different versions of one file or directory over the snapshots of its dataset.
//!
//! It is followed from the present back: by its path, and where a state has nothing there by its
//! inode, so what was renamed is found under the name that it had. Of a file each state is asked
//! for its record alone: every change that a user sees moves the time in it, so two states with
//! the same time are one version, and only others are compared. Of a directory the items are
//! walked in which two states differ. So it costs the snapshots and what has changed, and never
//! what is there.

use crate::counterpart::way_to;
use crate::diff::{AttributeChange, Difference, What, attribute_changes, diff};
use crate::equal::file_ranges;
use crate::paths::{Paths, join};
use crate::permission::Sight;
use crate::stable_source::StableSource;
use marram_format::record::{Inode, InodeKind};
use marram_records::failure::from_store;
use marram_records::inode::kind_of;
use marram_records::sections::Section;
use marram_records::state::{State, same_block, same_inode};
use marram_store::{DatasetName, DatasetReport, Source, Store};
use marram_vfs::{Error, Identity, Ino, Kind, Result, Timestamp};
use std::sync::Arc;

/// Of larger files with another time the bytes are not read, in bytes.
const COMPARED_BYTES_MAX: u64 = 16 << 20;

/// What is asked for.
#[derive(Clone, Copy)]
pub struct VersionsOf<'a> {
    /// The dataset.
    pub dataset: &'a DatasetName,
    /// A directory that is there now.
    pub directory: Ino,
    /// The path below it; none for the directory itself. There need not be anything now.
    pub names: &'a [Vec<u8>],
    /// The user whose rights in each state bound the answer; none if nothing does.
    pub user: Option<&'a dyn Identity>,
}

/// A state of the file or directory, and which snapshots have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The snapshots that have it, newest first; the live dataset before them, if that has it.
    pub sources: Vec<Source>,
    /// When the oldest of these snapshots was made: seconds since 1970. None if only the present
    /// has it.
    pub since_seconds: Option<i64>,
    /// What is there; nothing if it is not there.
    pub found: Option<Found>,
    /// What happened since the version before it.
    pub change: VersionChange,
}

/// What a snapshot has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The path from the root.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file, entries of a directory.
    pub size: u64,
    /// The last change of content.
    pub modified: Timestamp,
}

/// What happened between two versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionChange {
    /// There is no older snapshot.
    Oldest,
    /// It is new, or there again.
    Created,
    /// It is gone.
    Removed,
    /// It is another file or directory in these respects.
    Changed(Vec<Aspect>),
    /// So much differs in the directory.
    Below(Counts),
}

/// In what a file differs from the version before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// The content, or where a symlink leads to.
    Content,
    /// The permissions.
    Mode,
    /// The user or group.
    Owner,
    /// Flags or the project.
    Flags,
    /// Extended attributes or access lists.
    Xattrs,
    /// It is of another kind.
    Kind,
    /// It has another path.
    Path,
}

/// How much differs in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// What is new, or came in.
    pub created: u64,
    /// What is gone, or went out.
    pub removed: u64,
    /// What is otherwise.
    pub changed: u64,
}

impl Counts {
    fn note(&mut self, difference: &Difference) {
        match difference.what {
            What::Created => self.created += 1,
            What::Removed => self.removed += 1,
            _ if difference.is_time_of_names() => {}
            _ => self.changed += 1,
        }
    }
}

/// What one state has.
struct Sighting {
    /// As it is named for users, and as it is read.
    shown: Source,
    read: Source,
    created_seconds: Option<i64>,
    state: State,
    found: Option<(u64, Inode, Vec<u8>)>,
}

/// The versions of a file or directory, newest first: each with the snapshots that have it one
/// after the other. None if no state has it.
///
/// # Errors
/// No such dataset or directory; a failed read.
pub fn versions(store: &dyn Store, of: VersionsOf<'_>) -> Result<Vec<Version>> {
    let live = Source::live(of.dataset.clone());
    let present = StableSource::of(store, &live, "diff")?;
    let root = store.report(&live).map_err(from_store)?.root_object;
    let mut track = Track { store, root, user: of.user, names: Vec::new(), known: None };
    track.names = track.names_of(&track.open(present.source())?, of)?;
    let mut newer = track.look(live, present.source().clone(), None)?.ok_or(Error::Stale)?;
    let mut versions = vec![of_sighting(&newer)];
    for report in snapshots_of(store, of.dataset)? {
        let created = Some(report.created_seconds);
        let sighted = track.look(report.source.clone(), report.source, created)?;
        let Some(older) = sighted else { continue };
        let change = track.changes(&older, &newer)?;
        if let Some(version) = versions.last_mut() {
            match change {
                None => {
                    version.sources.push(older.shown.clone());
                    version.since_seconds = older.created_seconds;
                }
                Some(change) => {
                    version.change = change;
                    versions.push(of_sighting(&older));
                }
            }
        }
        newer = older;
    }
    // What was not there yet is no version, and what never was has none.
    if versions.last().is_some_and(|oldest| oldest.found.is_none()) {
        versions.pop();
    }
    Ok(versions)
}

/// The snapshots that users see, newest first.
fn snapshots_of(store: &dyn Store, dataset: &DatasetName) -> Result<Vec<DatasetReport>> {
    let mut reports = store.list().map_err(from_store)?;
    reports.retain(|report| {
        let source = &report.source;
        source.dataset == *dataset && source.snapshot.is_some() && !source.is_own()
    });
    reports.sort_by_key(|report| std::cmp::Reverse(report.number));
    Ok(reports)
}

fn of_sighting(sighting: &Sighting) -> Version {
    let found = sighting.found.as_ref().map(|(_, inode, path)| Found {
        path: path.clone(),
        kind: kind_of(inode.kind),
        size: inode.size,
        modified: Timestamp {
            seconds: inode.modified.seconds,
            nanoseconds: inode.modified.nanoseconds,
        },
    });
    Version {
        sources: vec![sighting.shown.clone()],
        since_seconds: sighting.created_seconds,
        found,
        change: VersionChange::Oldest,
    }
}

/// Where it is looked for in the next older state.
struct Track<'s> {
    store: &'s dyn Store,
    root: u64,
    user: Option<&'s dyn Identity>,
    names: Vec<Vec<u8>>,
    /// The inode that a newer state has.
    known: Option<(u64, Inode)>,
}

impl<'s> Track<'s> {
    /// The path that is meant, from the root.
    fn names_of(&self, present: &State, of: VersionsOf<'_>) -> Result<Vec<Vec<u8>>> {
        let inode = present.named_inode(of.directory.0)?.ok_or(Error::Stale)?;
        if inode.kind != InodeKind::Directory {
            return Err(Error::NotDirectory);
        }
        let path = Paths::new(present).of(of.directory.0)?.ok_or(Error::NotFound)?;
        if !self.is_reached(present, &path)? {
            return Err(Error::NotFound);
        }
        let above = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        Ok(above.map(<[u8]>::to_vec).chain(of.names.iter().cloned()).collect())
    }

    /// What the user may know of a state below a directory; none if nothing bounds it.
    fn sight(&self, state: &State, below: u64) -> Result<Option<Sight<'s>>> {
        let of = (Ino(self.root), Ino(below));
        self.user.map(|user| Sight::new(Arc::clone(&state.view), of, user)).transpose()
    }

    /// Whether the user comes to a path in a state.
    fn is_reached(&self, state: &State, path: &[u8]) -> Result<bool> {
        match self.sight(state, self.root)? {
            Some(mut sight) => Ok(sight.at(path)?.is_reached),
            None => Ok(true),
        }
    }

    fn open(&self, source: &Source) -> Result<State> {
        State::open(self.store.open(source).map_err(from_store)?, self.root)
    }

    /// What a state has of it; `None` if the state has gone meanwhile.
    fn look(
        &mut self,
        shown: Source,
        read: Source,
        created_seconds: Option<i64>,
    ) -> Result<Option<Sighting>> {
        let state = match self.store.open(&read) {
            Ok(view) => State::open(view, self.root)?,
            Err(marram_store::Error::NoDataset(_)) => return Ok(None),
            Err(error) => return Err(from_store(error)),
        };
        let found = self.look_up(&state)?;
        if let Some((ino, inode, _)) = &found {
            self.known = Some((*ino, inode.clone()));
        }
        Ok(Some(Sighting { shown, read, created_seconds, state, found }))
    }

    fn look_up(&mut self, state: &State) -> Result<Option<(u64, Inode, Vec<u8>)>> {
        let ino = match way_to(state, state.root, &self.names) {
            Ok(way) => Some(way.last().map_or(state.root, |entry| entry.ino)),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        if let Some(ino) = ino {
            let path = self.names.iter().fold(b"/".to_vec(), |path, name| join(&path, name));
            if !self.is_reached(state, &path)? {
                return Ok(None);
            }
            return Ok(state.named_inode(ino)?.map(|inode| (ino, inode, path)));
        }
        let Some((ino, known)) = &self.known else { return Ok(None) };
        let Some(inode) = state.named_inode(*ino)?.filter(|inode| same_inode(inode, known)) else {
            return Ok(None);
        };
        let path = Paths::new(state).of(*ino)?;
        let Some(path) = path else { return Ok(None) };
        if !self.is_reached(state, &path)? {
            return Ok(None);
        }
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        self.names = names.map(<[u8]>::to_vec).collect();
        Ok(Some((*ino, inode, path)))
    }
    /// What happened between two states of it, if anything did.
    fn changes(&self, older: &Sighting, newer: &Sighting) -> Result<Option<VersionChange>> {
        let ((a_ino, a, a_path), (b_ino, b, b_path)) = match (&older.found, &newer.found) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Ok(Some(VersionChange::Created)),
            (Some(_), None) => return Ok(Some(VersionChange::Removed)),
            (Some(older), Some(newer)) => (older, newer),
        };
        if a.kind != b.kind {
            return Ok(Some(VersionChange::Changed(vec![Aspect::Kind])));
        }
        let mut aspects = match a.kind {
            InodeKind::Directory => {
                let counts = self.counts_below((older, newer), *b_ino)?;
                if counts != Counts::default() {
                    return Ok(Some(VersionChange::Below(counts)));
                }
                Vec::new()
            }
            _ => aspects((&older.state, *a_ino, a), (&newer.state, *b_ino, b))?,
        };
        if a_path != b_path {
            aspects.push(Aspect::Path);
        }
        Ok((!aspects.is_empty()).then_some(VersionChange::Changed(aspects)))
    }

    /// How much differs below a directory, of what the user may know.
    fn counts_below(
        &self,
        (older, newer): (&Sighting, &Sighting),
        directory: u64,
    ) -> Result<Counts> {
        let mut sights =
            self.sight(&older.state, directory)?.zip(self.sight(&newer.state, directory)?);
        let (mut counts, mut failure) = (Counts::default(), None);
        let mut note = |difference: &Difference| -> Result<()> {
            let is_known = match &mut sights {
                Some((before, after)) => are_names_known((before, after), difference)?,
                None => true,
            };
            is_known.then(|| counts.note(difference));
            Ok(())
        };
        diff(self.store, &older.read, &newer.read, Ino(directory), &mut |difference| {
            failure = note(&difference).err();
            failure.is_none()
        })?;
        failure.map_or(Ok(counts), Err)
    }
}

/// Whether the names of a difference are in directories that the user can list, in both states.
fn are_names_known(
    (before, after): (&mut Sight<'_>, &mut Sight<'_>),
    difference: &Difference,
) -> Result<bool> {
    let old = difference.old_path.as_deref().unwrap_or(&difference.path);
    let both = [before.at(old)?, after.at(&difference.path)?];
    Ok(both.iter().all(|seen| !seen.exists || seen.is_listed))
}

/// In what two states of a file differ, times aside.
fn aspects(a: (&State, u64, &Inode), b: (&State, u64, &Inode)) -> Result<Vec<Aspect>> {
    let ((old, a_ino, before), (new, b_ino, after)) = (a, b);
    let is_same = a_ino == b_ino && same_inode(before, after);
    if is_same && before.changed == after.changed {
        return Ok(Vec::new());
    }
    let mut aspects = Vec::new();
    if has_other_content(a, b)? {
        aspects.push(Aspect::Content);
    }
    let attributes = attribute_changes(before, after);
    let differs = |aspect: Aspect| attributes.iter().any(|change| aspect_of(*change) == aspect);
    let of_attributes = [Aspect::Mode, Aspect::Owner, Aspect::Flags];
    aspects.extend(of_attributes.into_iter().filter(|aspect| differs(*aspect)));
    if old.xattrs(a_ino)? != new.xattrs(b_ino)? {
        aspects.push(Aspect::Xattrs);
    }
    Ok(aspects)
}

/// Whether two states of a file have different content. The bytes of a large one are read only if
/// its time says that they are the same, and its blocks that they may not be.
fn has_other_content(
    (old, a_ino, before): (&State, u64, &Inode),
    (new, b_ino, after): (&State, u64, &Inode),
) -> Result<bool> {
    if before.size != after.size || before.device != after.device {
        return Ok(true);
    }
    if before.kind != InodeKind::Regular {
        return Ok(old.target(a_ino)? != new.target(b_ino)?);
    }
    let sections = (old.sections(a_ino, before.size)?, new.sections(b_ino, after.size)?);
    let is_same = |(a, b): (&Section, &Section)| {
        let is_same_block = match (&a.block, &b.block) {
            (Some(a), Some(b)) => same_block((old, a), (new, b)),
            (a, b) => a.is_none() && b.is_none(),
        };
        (a.at, a.len, a.block_start) == (b.at, b.len, b.block_start) && is_same_block
    };
    if sections.0.len() == sections.1.len() && sections.0.iter().zip(&sections.1).all(is_same) {
        return Ok(false);
    }
    if before.size > COMPARED_BYTES_MAX && before.modified != after.modified {
        return Ok(true);
    }
    Ok(!file_ranges((old, before, a_ino), (new, after, b_ino))?.is_empty())
}

fn aspect_of(change: AttributeChange) -> Aspect {
    match change {
        AttributeChange::Permissions(..) => Aspect::Mode,
        AttributeChange::User(..) | AttributeChange::Group(..) => Aspect::Owner,
        AttributeChange::Flags(..) | AttributeChange::Project(..) => Aspect::Flags,
        AttributeChange::Modified(..) => Aspect::Content,
    }
}
