//! What programs that watch files and directories see of a change behind the kernel's back.
//!
//! A watched directory is known to the kernel, so changes elsewhere are not shown. What is shown is
//! what watchers make of a change done by system calls: names that come and go, content and
//! attributes that change. A rename is a name that goes and one that comes.

use super::mounts::Served;
use crate::engine::Volume;
use crate::engine::changes::{Changes, Known};
use marram_fuse::Shown;
use marram_store::Source;
use marram_vfs::{Error, Ino, Kind, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most changes of each kind that are shown of one operation.
const SHOWN_MAX: usize = 10_000;

/// Changes by directory.
type ByDirectory = BTreeMap<Ino, Vec<(Vec<u8>, Shown)>>;

/// The changes of one operation that watchers could see.
#[derive(Default)]
pub(super) struct ShownChanges {
    /// Names that are gone: shown while the kernel still remembers what they led to.
    pub(super) removed: ByDirectory,
    /// Names that are there: shown when the kernel asks for them anew.
    pub(super) made: ByDirectory,
    /// Inodes whose names stay as they were.
    pub(super) touched: ByDirectory,
    /// How many more there are.
    pub(super) left_out: usize,
}

impl ShownChanges {
    /// Those of directories that the kernel knows, and of inodes that it knows elsewhere.
    pub(super) fn of(volume: &dyn Volume, known: &dyn Known, changes: &Changes) -> ShownChanges {
        let mut shown = ShownChanges::default();
        if known.count() == 0 {
            return shown;
        }
        let mut is_made = BTreeSet::new();
        let names: BTreeSet<_> =
            changes.names.iter().filter(|(parent, _)| known.has(*parent)).collect();
        shown.left_out =
            names.len().saturating_sub(SHOWN_MAX) + changes.inodes.len().saturating_sub(SHOWN_MAX);
        for (parent, name) in names.into_iter().take(SHOWN_MAX) {
            match found(volume, *parent, name) {
                Ok((ino, kind)) => {
                    is_made.insert(ino);
                    shown.made.entry(*parent).or_default().push((name.clone(), Shown::Made(kind)));
                }
                Err(Error::NotFound) => {
                    shown.removed.entry(*parent).or_default().push((name.clone(), Shown::Removed));
                }
                Err(_) => (),
            }
        }
        for inode in changes.inodes.iter().take(SHOWN_MAX) {
            let (ino, is_content) = (inode.ino, !inode.content.is_empty());
            let is_list = is_content
                && volume.attributes(ino).is_ok_and(|found| found.kind == Kind::Directory);
            if is_list || is_made.contains(&ino) {
                continue;
            }
            let Some((parent, name)) = known.place_of(ino) else { continue };
            if known.has(ino) || known.has(parent) {
                let change = if is_content { Shown::Modified } else { Shown::Attributes };
                shown.touched.entry(parent).or_default().push((name, change(ino)));
            }
        }
        shown
    }
}

/// What a name leads to.
fn found(volume: &dyn Volume, parent: Ino, name: &[u8]) -> marram_vfs::Result<(Ino, Kind)> {
    let there = volume.lookup(parent, Name::new(name)?)?;
    volume.forget(there.ino, 1);
    Ok((there.ino, there.kind))
}

/// A mount whose watchers are to see changes of a volume.
pub(super) struct Watched<'a> {
    /// The mount.
    pub(super) mount: &'a Served,
    /// What has changed: what the mount shows, or a member of it.
    pub(super) source: &'a Source,
    /// What the kernel knows of it.
    pub(super) known: &'a dyn Known,
    /// What an inode is to the kernel.
    pub(super) number: &'a dyn Fn(Ino) -> Option<Ino>,
}

/// Changes in one directory, as the kernel numbers what they are of.
struct Directory {
    number: Ino,
    path: PathBuf,
    changes: Vec<(Vec<u8>, Shown)>,
}

impl Watched<'_> {
    /// Shows changes. What the kernel does not take is left out: the place cannot be seen from
    /// this process, or a program was quicker.
    pub(super) fn show(&self, changes: &ByDirectory) {
        let directories: Vec<Directory> =
            changes.iter().filter_map(|it| self.directory(it)).collect();
        if directories.is_empty() {
            return;
        }
        let _unseen = self.mount.session.reenact(|reenactor| {
            for Directory { number, path, changes } in &directories {
                let Ok(directory) = reenactor.directory(*number, path) else { continue };
                for (name, shown) in changes {
                    if let Ok(name) = Name::new(name) {
                        let _unseen = directory.show(name, *shown);
                    }
                }
            }
        });
    }

    /// The changes in one directory, if it can be seen.
    fn directory(&self, (parent, changes): (&Ino, &Vec<(Vec<u8>, Shown)>)) -> Option<Directory> {
        let numbered =
            |(name, shown): &(Vec<u8>, Shown)| Some((name.clone(), self.numbered(*shown)?));
        Some(Directory {
            number: (self.number)(*parent)?,
            path: self.path_of(*parent)?,
            changes: changes.iter().filter_map(numbered).collect(),
        })
    }

    /// The same change with the number that the kernel knows.
    fn numbered(&self, shown: Shown) -> Option<Shown> {
        Some(match shown {
            Shown::Modified(ino) => Shown::Modified((self.number)(ino)?),
            Shown::Attributes(ino) => Shown::Attributes((self.number)(ino)?),
            Shown::Made(_) | Shown::Removed => shown,
        })
    }

    /// Where a directory is seen.
    fn path_of(&self, directory: Ino) -> Option<PathBuf> {
        let path = self.known.path_of(directory)?;
        let below = Path::new(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(&path)));
        Some(self.root()?.join(below))
    }

    /// Where the root of what has changed is seen.
    fn root(&self) -> Option<PathBuf> {
        let mount = &self.mount.directory;
        if self.mount.source == *self.source {
            return Some(mount.clone());
        }
        Some(mount.join(self.mount.namespace.path_of_member(self.source)?))
    }
}
