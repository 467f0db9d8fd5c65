//! What a mount shows: a dataset, and in the hidden directory `.marram` at its root the snapshots
//! and forks of that dataset (docs/decisions/0018-namespace-of-a-mount.md).
//!
//! [`Namespace`] is a file system that passes each operation on to the file system that it is
//! about: the dataset itself, or a **member**, which is a snapshot or a fork below `.marram`. Inode
//! numbers tell them apart, see [`numbers`]; those of the dataset itself stay as they are,
//! so an operation on it costs one comparison more.
//!
//! A member is opened when somebody first looks it up, and closed when the kernel has forgotten all
//! of it; see [`members`]. What `.marram` itself shows is in [`control_directories`]; `routing` has
//! the operations, `permissions` the rights of datasets that check them themselves.

mod catalogue;
mod control_directories;
mod members;
mod numbers;
mod past;
#[cfg(test)]
mod past_tests;
mod permissions;
mod routing;
#[cfg(test)]
mod tests;

pub(super) use catalogue::{Catalogue, Opened};
pub(super) use members::Place;

use crate::engine::Volume;
use crate::engine::changes::Known;
use crate::engine::home::ControlDirectory;
use control_directories::{ControlDirectories, Directory};
use marram_store::Source;
use marram_vfs::{AccessRules, Attributes, Error, FileSystem, Ino, Result};
use members::{Member, Members};
use numbers::{BASE_SLOT, CONTROL_SLOT, FIRST_MEMBER_SLOT, join, slot_of};
use std::collections::{BTreeSet, HashSet};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

/// What a number of a mount stands for.
pub(super) struct Resolved {
    /// The member; `None` for the dataset itself.
    pub(super) member: Option<Source>,
    /// The inode that is shown as the root of that.
    pub(super) root: Ino,
    /// Its file system.
    pub(super) volume: Arc<dyn Volume>,
    /// The inode in that.
    pub(super) ino: Ino,
}

/// A dataset with its members, as one file system.
pub(super) struct Namespace {
    base: Arc<dyn Volume>,
    /// The inode that is shown as the root of the mount.
    root: Ino,
    control: Option<ControlDirectories>,
    /// Whether each directory below the root shows its past.
    has_pasts: bool,
    members: Members,
}

/// The file system that an inode belongs to.
enum Files<'a> {
    Base(&'a (dyn Volume + 'static)),
    Member(Arc<Member>),
}

impl Files<'_> {
    /// The file system, with the capabilities that it has.
    fn system(&self) -> &dyn FileSystem {
        &**self
    }
}

impl Deref for Files<'_> {
    type Target = dyn Volume;

    fn deref(&self) -> &Self::Target {
        match self {
            Files::Base(base) => *base,
            Files::Member(member) => &**member.files(),
        }
    }
}

impl Namespace {
    /// The dataset `base`, of which the directory `root` is shown; with a catalogue also what is
    /// in its control directories, which belong to `owner`.
    pub(super) fn new(
        base: Arc<dyn Volume>,
        root: Ino,
        control: Option<(Box<dyn Catalogue>, marram_vfs::Caller)>,
    ) -> Namespace {
        let control = control.map(|(catalogue, owner)| ControlDirectories::new(catalogue, owner));
        // A mode does not say which users lists of that kind let through.
        let has_pasts = control.is_some() && !matches!(base.access_rules(), AccessRules::Own(_));
        Namespace { base, root, control, has_pasts, members: Members::default() }
    }

    /// The dataset itself.
    pub(super) fn base(&self) -> &Arc<dyn Volume> {
        &self.base
    }

    /// The file systems of the dataset and of all open members.
    pub(super) fn volumes(&self) -> Vec<Arc<dyn Volume>> {
        // Members of one snapshot share its file system.
        let mut known = HashSet::new();
        let members = self.members.all().into_iter().map(|member| Arc::clone(member.files()));
        let all = std::iter::once(Arc::clone(&self.base)).chain(members);
        all.filter(|volume| known.insert(Arc::as_ptr(volume).cast::<()>())).collect()
    }

    /// The inode of the dataset that is shown as the root of the mount.
    pub(super) fn root(&self) -> Ino {
        self.root
    }

    /// What a number of the mount stands for.
    ///
    /// # Errors
    /// [`Error::Stale`] for what is not open; [`Error::NotPermitted`] for `.marram` itself.
    pub(super) fn resolve(&self, ino: Ino) -> Result<Resolved> {
        let (files, inner) = self.at(ino)?;
        Ok(match files {
            Files::Base(_) => Resolved {
                member: None,
                root: self.root,
                volume: Arc::clone(&self.base),
                ino: inner,
            },
            Files::Member(member) => Resolved {
                member: Some(member.source().clone()),
                root: member.whole_root(),
                volume: Arc::clone(member.files()),
                ino: inner,
            },
        })
    }

    /// The file system of an open member.
    pub(super) fn files_of_member(&self, source: &Source) -> Option<Arc<dyn Volume>> {
        let member = self.members.find(|member| member.source() == source)?;
        Some(Arc::clone(member.files()))
    }

    /// What the kernel knows of an open member, by its numbers.
    pub(super) fn known_of_member(&self, source: &Source) -> Vec<Ino> {
        let mut members = self.members.all();
        members.retain(|member| member.source() == source);
        let Some(first) = members.first() else { return Vec::new() };
        // They share a file system: which of them the kernel knows an inode by, it does not say.
        let known = first.files().known().map(Known::inodes).unwrap_or_default();
        let of_member = |member: &Arc<Member>| -> Vec<Ino> {
            known.iter().filter_map(|ino| join(member.slot(), *ino).ok()).collect()
        };
        members.iter().flat_map(of_member).collect()
    }

    /// What `ino` of the dataset itself is to the kernel.
    pub(super) fn number_in_base(&self, ino: Ino) -> Ino {
        self.shown(ino)
    }

    /// What `ino` of an open member is to the kernel; `None` if that member is not open.
    pub(super) fn number_in_member(&self, source: &Source, ino: Ino) -> Option<Ino> {
        let member = self.members.find(|member| member.source() == source)?;
        join(member.slot(), ino).ok()
    }

    /// Lets go of a member that is about to be destroyed: what the kernel knows of it is stale from
    /// now on. Returns where it was seen, as far as it was open.
    pub(super) fn evict(&self, source: &Source) -> Vec<Place> {
        self.members.evict(source)
    }

    /// Where an open member is seen.
    pub(super) fn place_of(&self, source: &Source) -> Option<Place> {
        self.members.find(|member| member.source() == source).map(|member| member.place().clone())
    }

    /// The path of an open member below the root of the mount.
    pub(super) fn path_of_member(&self, source: &Source) -> Option<PathBuf> {
        self.place_of(source).map(|place| place.path())
    }

    /// What is listed in a control directory, and what is open there, be it that it is gone.
    pub(super) fn member_names(&self, directory: ControlDirectory) -> BTreeSet<String> {
        let listed = self.control.iter().filter_map(|it| it.catalogue.names(directory).ok());
        let open = self.members.all().into_iter().map(|member| member.place().clone());
        let open = open.filter(|place| place.directory == directory).map(|place| place.name);
        listed.flatten().chain(open).collect()
    }

    /// What the open member is that is seen there.
    pub(super) fn source_at(&self, place: &Place) -> Option<Source> {
        self.members.find(|member| member.place() == place).map(|member| member.source().clone())
    }

    /// Closes members of which the kernel knows nothing any more and that nobody has used for a
    /// while; returns those that nobody has used for long but the kernel knows.
    ///
    /// Called about once a second: that is the clock of "a while".
    pub(super) fn close_unused(&self) -> Vec<Place> {
        self.members.close_unused()
    }

    /// Closes the member `source` if the kernel knows nothing of it any more; true if it is not
    /// open afterwards.
    pub(super) fn close_if_forgotten(&self, source: &Source) -> bool {
        self.members.close_if_forgotten(source)
    }

    /// Whether `ino` is `.marram` or one of the directories in it.
    pub(super) fn is_control_directory(&self, ino: Ino) -> bool {
        self.directory(ino).is_some()
    }

    /// The number of the control directory that a place is in.
    pub(super) fn control_directory_ino(&self, place: &Place) -> Option<Ino> {
        self.control.as_ref().map(|_| match place.of {
            Ino::ROOT => Directory::Listing(place.directory).number(),
            of => Directory::PastSnapshots(of).number(),
        })
    }

    /// Where a snapshot of that name is seen, or was looked for: at the root, and in the past of
    /// directories whose snapshots the kernel knows.
    pub(super) fn places_of_snapshot(&self, name: &str) -> Vec<Place> {
        let directory = ControlDirectory::Snapshots;
        let pasts = self.control.as_ref().map(ControlDirectories::known_pasts).unwrap_or_default();
        let all = std::iter::once(Ino::ROOT).chain(pasts);
        all.map(|of| Place { directory, name: name.to_owned(), of }).collect()
    }

    /// The numbers of all lists of snapshots that the kernel knows below the root.
    pub(super) fn known_pasts(&self) -> Vec<Ino> {
        let pasts = self.control.as_ref().map(ControlDirectories::known_pasts).unwrap_or_default();
        pasts.into_iter().map(|of| Directory::PastSnapshots(of).number()).collect()
    }

    /// The control directories of forks of which the kernel may know names.
    pub(super) fn directories_of_forks(&self) -> Vec<ControlDirectory> {
        self.control.as_ref().map(ControlDirectories::of_forks).unwrap_or_default()
    }

    /// The number of a control directory, and a note that its names have changed.
    pub(super) fn control_directory_changed(&self, directory: ControlDirectory) -> Option<Ino> {
        let control = self.control.as_ref()?;
        control.note_change();
        Some(Directory::Listing(directory).number())
    }

    /// The number of the control directory that a place is in, and a note that its names have
    /// changed.
    pub(super) fn place_changed(&self, place: &Place) -> Option<Ino> {
        self.control.as_ref()?.note_change();
        self.control_directory_ino(place)
    }

    /// The dataset's inode that a number of the mount without slot stands for.
    fn in_base(&self, ino: Ino) -> Ino {
        match ino {
            _ if self.root == Ino::ROOT => ino,
            Ino::ROOT => self.root,
            _ if ino == self.root => Ino::ROOT,
            _ => ino,
        }
    }

    /// The number in the mount of a dataset's inode: the opposite, which is the same.
    fn shown(&self, ino: Ino) -> Ino {
        self.in_base(ino)
    }

    /// Whom an operation on `ino` is for.
    fn at(&self, ino: Ino) -> Result<(Files<'_>, Ino)> {
        match slot_of(ino) {
            BASE_SLOT => Ok((Files::Base(&*self.base), self.in_base(ino))),
            CONTROL_SLOT..FIRST_MEMBER_SLOT => Err(Error::NotPermitted),
            slot => Ok((Files::Member(self.members.get(slot)?), numbers::inner_of(ino))),
        }
    }

    /// The directory below `.marram`, or that itself, that `ino` is.
    fn directory(&self, ino: Ino) -> Option<Directory> {
        match slot_of(ino) {
            BASE_SLOT | FIRST_MEMBER_SLOT.. => None,
            CONTROL_SLOT if self.control.is_some() => Directory::of(ino),
            _ if self.has_pasts => Directory::of(ino),
            _ => None,
        }
    }

    /// Attributes that come from `files`, with the number that the kernel is to know and, if
    /// `pinned`, their pin counted.
    fn told(&self, files: &Files<'_>, found: Attributes, pinned: bool) -> Result<Attributes> {
        match files {
            Files::Base(base) => {
                let ino = self.shown(found.ino);
                if slot_of(ino) == BASE_SLOT {
                    return Ok(Attributes { ino, ..found });
                }
                if pinned {
                    base.forget(found.ino, 1);
                }
                Err(Error::NumberTooLarge)
            }
            Files::Member(member) => member.told(found, pinned),
        }
    }
}
