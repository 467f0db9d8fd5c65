//! Permissions in a transaction. They are checked here and not by the kernel.
//!
//! A kernel that checks them asks for the attributes of each directory that it walks through,
//! and nothing tells that from `stat`. So a command that makes a name in a directory would have
//! read its times (`docs/decisions/0056-view-of-a-transaction.md`). What the kernel asks of a file
//! system that checks by itself are names, and attributes only for callers that want them.
//!
//! The questions are Linux's (`fs/namei.c`, `fs/attr.c`, `fs/xattr.c`, `fs/open.c`); so are the
//! answers, by mode bits and, where the dataset has them, POSIX access control lists. A dataset
//! with rules of its own goes on deciding, and what it is asked about is noted.

use super::Recording;
use crate::read_set::Aspect;
use crate::rights::Subject;
use marram_history::{READ, SEARCH, WRITE};
use marram_vfs::{
    AccessControl, AccessRules, Action, Error, Identity, Ino, Kind, Name, Opened, Opening, Result,
    SetAttributes, SetTime,
};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const SETGID_EXECUTE: u32 = 0o2010;
/// The attribute of an access control list that decides.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// A name that is taken from somewhere.
type Place<'a> = (Ino, Name<'a>);

impl Recording {
    /// The rules of the file system inside, if it has its own.
    fn own(&self) -> Option<&dyn AccessControl> {
        match self.files.access_rules() {
            AccessRules::Own(control) => Some(control),
            AccessRules::ModeBits | AccessRules::PosixLists => None,
        }
    }

    /// What decides about an inode, noted.
    fn subject(&self, ino: Ino) -> Result<Subject> {
        self.note(ino, Aspect::Rights);
        let attributes = self.files.attributes(ino)?;
        let list = match self.files.access_rules() {
            AccessRules::PosixLists => match self.files.xattr(ino, ACCESS_LIST) {
                Ok(list) => Some(list),
                Err(Error::NoAttribute | Error::NotSupported) => None,
                Err(error) => return Err(error),
            },
            AccessRules::ModeBits | AccessRules::Own(_) => None,
        };
        Ok(Subject { attributes, list })
    }

    fn named_subject(&self, (parent, name): Place<'_>) -> Result<Option<Subject>> {
        self.note_name(parent, name);
        self.named(parent, name).map(|found| self.subject(found.ino)).transpose()
    }

    fn demand(&self, who: &dyn Identity, ino: Ino, wanted: u16) -> Result<()> {
        self.subject(ino)?.demand(who, wanted)
    }

    /// FIFOs and sockets are opened without a word to the file system. So their names lead only
    /// callers to them that may use them in all ways.
    fn may_reach(&self, who: &dyn Identity, ino: Ino) -> Result<()> {
        let kind = self.files.attributes(ino)?.kind;
        match kind {
            Kind::Fifo => self.demand(who, ino, READ | WRITE),
            Kind::Socket => self.demand(who, ino, WRITE),
            _ => Ok(()),
        }
    }

    /// As with `fs.protected_hardlinks`.
    fn may_link(&self, who: &dyn Identity, ino: Ino, parent: Ino) -> Result<()> {
        self.demand(who, parent, WRITE | SEARCH)?;
        let subject = self.subject(ino)?;
        let (kind, mode) = (subject.attributes.kind, subject.attributes.permissions);
        let is_privileged = mode & SETUID != 0 || mode & SETGID_EXECUTE == SETGID_EXECUTE;
        let is_plain = kind == Kind::Regular && !is_privileged;
        match subject.is_owned_by(who) || is_plain && subject.allows(who, READ | WRITE) {
            true => Ok(()),
            false => Err(Error::NotPermitted),
        }
    }

    fn may_rename(
        &self,
        who: &dyn Identity,
        (from, to): (Place<'_>, Place<'_>),
        exchange: bool,
    ) -> Result<()> {
        let (old, new) = (self.subject(from.0)?, self.subject(to.0)?);
        old.demand(who, WRITE | SEARCH)?;
        new.demand(who, WRITE | SEARCH)?;
        let leaves_its_parent = |moved: &Subject| {
            let is_directory = moved.attributes.kind == Kind::Directory && from.0 != to.0;
            if is_directory { moved.demand(who, WRITE) } else { Ok(()) }
        };
        if let Some(moved) = self.named_subject(from)? {
            old.may_lose(who, &moved)?;
            leaves_its_parent(&moved)?;
        }
        if let Some(target) = self.named_subject(to)? {
            new.may_lose(who, &target)?;
            if exchange {
                leaves_its_parent(&target)?;
            }
        }
        Ok(())
    }

    fn may_use_xattr(
        &self,
        who: &dyn Identity,
        (ino, name): (Ino, &[u8]),
        wanted: u16,
    ) -> Result<()> {
        match () {
            // The kernel's to check are the namespaces of the system and of administrators.
            () if name.starts_with(b"user.") => self.demand(who, ino, wanted),
            () if name.starts_with(b"system.") && wanted == WRITE => {
                self.subject(ino)?.demand_ownership(who)
            }
            () => Ok(()),
        }
    }

    fn decide(&self, who: &dyn Identity, action: Action<'_>) -> Result<()> {
        match action {
            Action::Search(ino) => self.demand(who, ino, SEARCH),
            Action::Reach(ino) => self.may_reach(who, ino),
            Action::Probe { ino, read, write, execute } => {
                self.demand(who, ino, wanted(read, write, execute))
            }
            Action::List(ino) => self.demand(who, ino, READ),
            Action::ReadAttributes(_) => Ok(()),
            Action::Create { parent, .. } => self.demand(who, parent, WRITE | SEARCH),
            Action::Link { ino, parent } => self.may_link(who, ino, parent),
            Action::Remove { parent, name } => {
                let directory = self.subject(parent)?;
                directory.demand(who, WRITE | SEARCH)?;
                let gone = self.named_subject((parent, name))?;
                gone.map_or(Ok(()), |gone| directory.may_lose(who, &gone))
            }
            Action::Rename { parent, name, new_parent, new_name, exchange } => {
                self.may_rename(who, ((parent, name), (new_parent, new_name)), exchange)
            }
            Action::ReadXattr { ino, name } => self.may_use_xattr(who, (ino, name), READ),
            Action::WriteXattr { ino, name } => self.may_use_xattr(who, (ino, name), WRITE),
        }
    }

    /// Takes note of what a question to rules of the file system's own is about.
    fn note_question(&self, action: Action<'_>) {
        let rights = |ino| self.note(ino, Aspect::Rights);
        let named = |(parent, name): Place<'_>| {
            rights(parent);
            self.note_name(parent, name);
            if let Some(found) = self.named(parent, name) {
                rights(found.ino);
            }
        };
        match action {
            Action::Search(ino)
            | Action::Reach(ino)
            | Action::List(ino)
            | Action::ReadAttributes(ino)
            | Action::Probe { ino, .. }
            | Action::ReadXattr { ino, .. }
            | Action::WriteXattr { ino, .. }
            | Action::Create { parent: ino, .. } => rights(ino),
            Action::Link { ino, parent } => [ino, parent].into_iter().for_each(rights),
            Action::Remove { parent, name } => named((parent, name)),
            Action::Rename { parent, name, new_parent, new_name, .. } => {
                named((parent, name));
                named((new_parent, new_name));
            }
        }
    }
}

fn wanted(read: bool, write: bool, execute: bool) -> u16 {
    let bits = [(read, READ), (write, WRITE), (execute, SEARCH)];
    bits.iter().filter(|(asked, _)| *asked).map(|(_, bit)| bit).sum()
}

impl AccessControl for Recording {
    fn authorize(&self, who: &dyn Identity, action: Action<'_>) -> Result<()> {
        let _going = self.begin()?;
        match self.own() {
            None => self.decide(who, action),
            Some(own) => {
                self.note_question(action);
                own.authorize(who, action)
            }
        }
    }

    fn authorize_open(&self, who: &dyn Identity, ino: Ino, how: Opening) -> Result<Opened> {
        let _going = self.begin()?;
        // An empty file is read without a request.
        if how.read || how.execute {
            self.note(ino, Aspect::Content);
        }
        if let Some(own) = self.own() {
            self.note(ino, Aspect::Rights);
            return own.authorize_open(who, ino, how);
        }
        self.demand(who, ino, wanted(how.read, how.write, how.execute))?;
        Ok(Opened::AsAsked)
    }

    fn authorize_change(
        &self,
        who: &dyn Identity,
        ino: Ino,
        set: &mut SetAttributes,
    ) -> Result<()> {
        let _going = self.begin()?;
        if let Some(own) = self.own() {
            self.note(ino, Aspect::Rights);
            return own.authorize_change(who, ino, set);
        }
        let subject = self.subject(ino)?;
        if who.is_privileged() {
            return Ok(());
        }
        may_set_mode(who, &subject, set)?;
        may_set_owner(who, &subject, set)?;
        if set.size.is_some() {
            subject.demand(who, WRITE)?;
        }
        may_set_times(who, &subject, set)
    }
}

/// Setgid is for members of the group.
fn may_set_mode(who: &dyn Identity, subject: &Subject, set: &mut SetAttributes) -> Result<()> {
    let Some(permissions) = set.permissions else { return Ok(()) };
    subject.demand_ownership(who)?;
    let group = set.gid.unwrap_or(subject.attributes.gid);
    if permissions & SETGID != 0 && !who.is_member(group) {
        set.permissions = Some(permissions & !SETGID);
    }
    Ok(())
}

/// The owner may give a file one of the owner's groups. Programs lose their privileges on the way.
fn may_set_owner(who: &dyn Identity, subject: &Subject, set: &mut SetAttributes) -> Result<()> {
    if set.uid.is_none() && set.gid.is_none() {
        return Ok(());
    }
    let attributes = &subject.attributes;
    let stays = set.uid.is_none_or(|uid| uid == attributes.uid);
    let own = |gid| gid == attributes.gid || who.is_member(gid);
    if !subject.is_owned_by(who) || !stays || !set.gid.is_none_or(own) {
        return Err(Error::NotPermitted);
    }
    set.clear_privileges = true;
    Ok(())
}

/// A caller that may write may set the present time; another time only the owner.
fn may_set_times(who: &dyn Identity, subject: &Subject, set: &SetAttributes) -> Result<()> {
    let times = [set.accessed, set.modified];
    if times == [None; 2] || subject.is_owned_by(who) {
        return Ok(());
    }
    if times.iter().flatten().any(|time| *time != SetTime::Now) {
        return Err(Error::NotPermitted);
    }
    subject.demand(who, WRITE)
}
