//! The past of a directory: `DIR/.marram/snapshots/NAME` is DIR as the snapshot NAME has it.
//!
//! The directory is known by its inode, so one that was moved or renamed has its past with it. A
//! real entry of the dataset with the name `.marram` is shown instead.
//!
//! **Nobody sees there what was out of reach when the snapshot was taken.** At the root of the
//! mount the kernel itself walks down from the snapshot's root. Here it begins in the middle. So
//! the mode of the directory is shown without the bits of all users that a directory above it might
//! have kept out then. What a mode cannot say is decided against them.

use super::catalogue::Opened;
use super::control_directories::{Directory, HIDDEN_NAME};
use super::members::Seen;
use super::{BASE_SLOT, Files, Namespace, slot_of};
use crate::engine::Volume;
use marram_vfs::{Attributes, Error, Ino, Kind, Name, Result};

/// Most directories above one that are looked at.
const ABOVE_MAX: usize = 65_536;
/// The access list of an inode, as the kernel names it.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// With this begin the names of access lists.
const LIST_PREFIX: &[u8] = b"system.posix_acl_";
/// The bits of the owner, the group and others in a mode.
const OWNER: u32 = 0o700;
const GROUP: u32 = 0o070;
const OTHERS: u32 = 0o007;

/// Whether the name is that of an access list.
pub(super) fn is_list(name: &[u8]) -> bool {
    name.starts_with(LIST_PREFIX)
}

impl Namespace {
    /// Whether a directory of the mount shows its past.
    pub(super) fn shows_past(&self, parent: Ino) -> bool {
        self.has_pasts && slot_of(parent) == BASE_SLOT
    }

    /// Whether the dataset itself has an entry of that name.
    pub(super) fn is_real(&self, parent: Ino, name: Name<'_>) -> bool {
        match self.base.lookup(self.in_base(parent), name) {
            Ok(found) => {
                self.base.forget(found.ino, 1);
                true
            }
            Err(_) => false,
        }
    }

    /// Looks up `.marram` in a directory below the root.
    pub(super) fn look_up_past(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        debug_assert_eq!(name.as_bytes(), HIDDEN_NAME, "the caller has compared it");
        match self.base.lookup(self.in_base(parent), name) {
            Err(Error::NotFound) => self.pin_control(Directory::Past(parent)),
            found => self.told(&Files::Base(&*self.base), found?, true),
        }
    }

    /// A directory of the dataset as it is now, by its number in the mount.
    ///
    /// # Errors
    /// [`Error::Stale`] if there is none.
    pub(super) fn present(&self, of: Ino) -> Result<Attributes> {
        let found = self.base.attributes(self.in_base(of)).map_err(|error| match error {
            Error::NotFound => Error::Stale,
            other => other,
        })?;
        if found.kind == Kind::Directory { Ok(found) } else { Err(Error::Stale) }
    }

    /// The names that a control directory lists: of a past the snapshots that have the directory.
    pub(super) fn names_in(&self, directory: Directory) -> Result<Vec<String>> {
        let control = self.control()?;
        let names = control.names(directory)?;
        let Directory::PastSnapshots(of) = directory else { return Ok(names) };
        let now = self.present(of)?;
        let mut kept = Vec::with_capacity(names.len());
        for name in names {
            let has = || control.catalogue.has_directory(&name, now.ino, now.created);
            match self.members.while_none_goes(has) {
                Ok(true) => kept.push(name),
                // It went since it was listed, or is about to go.
                Ok(false) | Err(Error::NotFound | Error::Busy) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    /// As what a member is seen in the past of a directory; at the root as what it is.
    pub(super) fn seen(&self, opened: &Opened, of: Ino) -> Result<Seen> {
        if of == Ino::ROOT {
            return Ok(Seen { root: opened.root, permissions: None });
        }
        let (files, now) = (&*opened.volume, self.present(of)?);
        let then = files.attributes(now.ino).map_err(|error| match error {
            Error::Stale => Error::NotFound,
            other => other,
        })?;
        // A number that was given out again after a rollback is of another directory.
        if then.kind != Kind::Directory || then.created != now.created {
            return Err(Error::NotFound);
        }
        let kept = reached(files, &then, opened.root)?;
        let permissions = (kept != OWNER | GROUP | OTHERS).then(|| {
            // Its own list gives more than a mode that has been cut.
            let kept = if has_list(files, then.ino) { kept & OWNER } else { kept };
            then.permissions & (kept | !(OWNER | GROUP | OTHERS))
        });
        Ok(Seen { root: then.ino, permissions })
    }
}

/// Which bits of a directory's mode stand for users that all directories above it let through.
fn reached(files: &dyn Volume, directory: &Attributes, root: Ino) -> Result<u32> {
    let mut kept = OWNER | GROUP | OTHERS;
    let mut at = directory.ino;
    for _ in 0..ABOVE_MAX {
        if at == root {
            return Ok(kept);
        }
        let above = files.parent(at).map_err(|error| match error {
            Error::Stale => Error::NotFound,
            other => other,
        })?;
        files.forget(above.ino, 1);
        // Above the root of a fork: it is not in what the member shows.
        if above.ino == at {
            break;
        }
        kept &= let_through(files, &above, directory);
        at = above.ino;
    }
    Err(Error::NotFound)
}

/// The bits of a directory's mode whose users one above it lets through, whichever of its own bits
/// they come by.
fn let_through(files: &dyn Volume, above: &Attributes, directory: &Attributes) -> u32 {
    let searches = |bit: u32| above.permissions & bit != 0;
    let [owner, group, others] = [searches(0o100), searches(0o010), searches(0o001)];
    let has_list = has_list(files, above.ino);
    if owner && group && others && !has_list {
        return OWNER | GROUP | OTHERS;
    }
    let lets_owner = owner && above.uid == directory.uid;
    // The owner above may be one of the group.
    let lets_group = owner && group && above.gid == directory.gid && !has_list;
    let bits = |lets: bool, bits: u32| if lets { bits } else { 0 };
    bits(lets_owner, OWNER) | bits(lets_group, GROUP)
}

/// Whether an inode has an access list, which says more than its mode.
fn has_list(files: &dyn Volume, ino: Ino) -> bool {
    !matches!(files.xattr(ino, ACCESS_LIST), Err(Error::NoAttribute | Error::NotSupported))
}
