//! Permissions, where the file system decides them itself (NFSv4 lists).

use super::catalogue::Opened;
use super::control_directories::Directory;
use super::{Files, Namespace};
use crate::engine::Volume;
use marram_vfs::{
    AccessControl, AccessRules, Action, Error, Identity, Ino, Opening, Result, SetAttributes,
};

impl Namespace {
    /// Refuses a member that is checked otherwise than the mount: the kernel, or this server,
    /// would let through what it has no rules for.
    pub(super) fn check_same_rules(&self, opened: &Opened) -> Result<()> {
        let kind = |files: &dyn Volume| match files.access_rules() {
            AccessRules::ModeBits => 0,
            AccessRules::PosixLists => 1,
            AccessRules::Own(_) => 2,
        };
        let folds = |files: &dyn Volume| files.capabilities().folds_names;
        let same_names = folds(&*self.base) == folds(&*opened.volume);
        match kind(&*self.base) == kind(&*opened.volume) && same_names {
            true => Ok(()),
            false => Err(Error::NotSupported),
        }
    }

    fn authorize_in(&self, who: &dyn Identity, of: Directory, action: Action<'_>) -> Result<()> {
        let control = self.control.as_ref().ok_or(Error::Stale)?;
        let is_own = || who.is_privileged() || who.uid() == control.owner_of(of);
        let grants = |bit| of.permissions() & bit != 0 || is_own();
        match action {
            Action::Reach(_) | Action::ReadAttributes(_) | Action::ReadXattr { .. } => Ok(()),
            Action::Search(_) | Action::List(_) | Action::Probe { write: false, .. } => {
                let lists = matches!(action, Action::List(_) | Action::Probe { read: true, .. });
                if grants(if lists { 0o4 } else { 0o1 }) {
                    Ok(())
                } else {
                    Err(Error::AccessDenied)
                }
            }
            Action::Probe { .. } => Err(Error::AccessDenied),
            _ => Err(Error::NotPermitted),
        }
    }

    /// Puts a question to the file system that `ino` belongs to.
    fn ask<T>(
        &self,
        ino: Ino,
        question: impl FnOnce(&dyn AccessControl, Ino) -> Result<T>,
    ) -> Result<T> {
        let (files, ino) = self.at(ino)?;
        match files.access_rules() {
            AccessRules::Own(control) => question(control, ino),
            _ => Err(Error::AccessDenied),
        }
    }

    fn in_same(&self, one: Ino, other: Ino) -> Result<Ino> {
        match super::slot_of(one) == super::slot_of(other) {
            true => self.at(other).map(|(_, inner): (Files<'_>, Ino)| inner),
            false => Err(Error::CrossDevice),
        }
    }
}

impl AccessControl for Namespace {
    fn authorize(&self, who: &dyn Identity, action: Action<'_>) -> Result<()> {
        if let Some(directory) = self.directory(subject(&action)) {
            return self.authorize_in(who, directory, action);
        }
        self.ask(subject(&action), |control, ino| {
            let action = match action {
                Action::Link { ino: linked, parent } => {
                    Action::Link { ino: self.in_same(parent, linked)?, parent: ino }
                }
                Action::Rename { parent, name, new_parent, new_name, exchange } => {
                    let new_parent = self.in_same(parent, new_parent)?;
                    Action::Rename { parent: ino, name, new_parent, new_name, exchange }
                }
                other => renumbered(other, ino),
            };
            control.authorize(who, action)
        })
    }

    fn authorize_open(
        &self,
        who: &dyn Identity,
        ino: Ino,
        how: Opening,
    ) -> Result<marram_vfs::Opened> {
        self.ask(ino, |control, ino| control.authorize_open(who, ino, how))
    }

    fn authorize_change(
        &self,
        who: &dyn Identity,
        ino: Ino,
        set: &mut SetAttributes,
    ) -> Result<()> {
        self.ask(ino, |control, ino| control.authorize_change(who, ino, set))
    }
}

/// The inode whose file system has the answer.
fn subject(action: &Action<'_>) -> Ino {
    match *action {
        Action::Search(ino)
        | Action::Reach(ino)
        | Action::List(ino)
        | Action::ReadAttributes(ino)
        | Action::Probe { ino, .. }
        | Action::ReadXattr { ino, .. }
        | Action::WriteXattr { ino, .. } => ino,
        Action::Create { parent, .. }
        | Action::Link { parent, .. }
        | Action::Remove { parent, .. }
        | Action::Rename { parent, .. } => parent,
    }
}

/// The same action on the inode `ino`.
fn renumbered(action: Action<'_>, ino: Ino) -> Action<'_> {
    match action {
        Action::Search(_) => Action::Search(ino),
        Action::Reach(_) => Action::Reach(ino),
        Action::List(_) => Action::List(ino),
        Action::ReadAttributes(_) => Action::ReadAttributes(ino),
        Action::Probe { read, write, execute, .. } => Action::Probe { ino, read, write, execute },
        Action::ReadXattr { name, .. } => Action::ReadXattr { ino, name },
        Action::WriteXattr { name, .. } => Action::WriteXattr { ino, name },
        Action::Create { directory, .. } => Action::Create { parent: ino, directory },
        Action::Remove { name, .. } => Action::Remove { parent: ino, name },
        two @ (Action::Link { .. } | Action::Rename { .. }) => two,
    }
}
