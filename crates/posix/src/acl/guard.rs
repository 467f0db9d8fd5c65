//! Permissions where NFSv4 lists hold: what the kernel checks elsewhere is checked here.
//!
//! The questions are Linux's (what `fs/namei.c`, `fs/attr.c` and `fs/open.c` check before they call
//! a file system), the answers those of the lists. User 0 is bound by nothing. The owner may always
//! read and write attributes and list. Where a question is about more than one inode, the kernel
//! holds the directories still while it asks and acts: names do not move in between.
//!
//! A check that is missing here is a hole that stays unseen: each operation of a server has its
//! [`Action`], and `cargo xtask real acl` tries all of them as a stranger.

use super::nfs4::{List, Rights, Verdict, Who};
use crate::acl::stored;
use crate::frame::privileges::SETGID;
use crate::frame::{lookup, together};
use crate::volume::Volume;
use marram_format::record::{Inode, InodeKind};
use marram_records::lists::{AccessLists, ListName};
use marram_vfs::{
    AccessControl, Action, Error, Identity, Ino, Name, Opened, Opening, Result, SetAttributes,
    SetTime,
};

const STICKY: u16 = 0o1000;
const SETUID: u16 = 0o4000;
const EXECUTE_ANY: u16 = 0o111;
const SETGID_EXECUTE: u16 = 0o2010;
/// Rights that no list takes from the owner.
const OWNERS: Rights = Rights(
    Rights::READ_ATTRIBUTES.0
        | Rights::WRITE_ATTRIBUTES.0
        | Rights::READ_ACL.0
        | Rights::WRITE_ACL.0,
);

/// An inode that a caller wants to use.
struct Object {
    ino: u64,
    inode: Inode,
    list: List,
}

impl Object {
    fn is_directory(&self) -> bool {
        self.inode.kind == InodeKind::Directory
    }

    fn is_owned_by(&self, who: &dyn Identity) -> bool {
        self.inode.uid == who.uid()
    }

    /// What the list says, and what it cannot take away.
    fn verdict(&self, who: &dyn Identity, wanted: Rights) -> Verdict {
        let wanted = if self.is_owned_by(who) { wanted & !OWNERS } else { wanted };
        if who.is_privileged() || wanted.is_empty() {
            return Verdict::Allowed;
        }
        self.list.evaluate(wanted, |named| match named {
            Who::Owner => self.is_owned_by(who),
            Who::Group => who.is_member(self.inode.gid),
            Who::Everyone => true,
            Who::NamedUser(uid) => uid == who.uid(),
            Who::NamedGroup(gid) => who.is_member(gid),
        })
    }

    fn allows(&self, who: &dyn Identity, wanted: Rights) -> bool {
        self.verdict(who, wanted) == Verdict::Allowed
    }

    fn demand(&self, who: &dyn Identity, wanted: Rights) -> Result<()> {
        if self.allows(who, wanted) { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// For what is the owner's: others get an error that says so.
    fn demand_as_owner(&self, who: &dyn Identity, wanted: Rights) -> Result<()> {
        if self.allows(who, wanted) { Ok(()) } else { Err(Error::NotPermitted) }
    }
}

/// What adding something to a directory takes.
fn adding(is_directory: bool) -> Rights {
    let add = if is_directory { Rights::APPEND_DATA } else { Rights::WRITE_DATA };
    Rights::EXECUTE | add
}

/// Lists are judged as they are now, also where others have just changed them.
impl AccessControl for Volume {
    fn authorize(&self, who: &dyn Identity, action: Action<'_>) -> Result<()> {
        together::looking(self, || may_act(self, who, action), |_| {})
    }

    fn authorize_open(&self, who: &dyn Identity, ino: Ino, how: Opening) -> Result<Opened> {
        together::looking(self, || opened(self, who, ino, how), |_| {})
    }

    fn authorize_change(
        &self,
        who: &dyn Identity,
        ino: Ino,
        set: &mut SetAttributes,
    ) -> Result<()> {
        if who.is_privileged() {
            return Ok(());
        }
        let asked = *set;
        let judged = || {
            let mut set = asked;
            may_change(self, who, ino, &mut set).map(|()| set)
        };
        *set = together::looking(self, judged, |_| {})?;
        Ok(())
    }
}

fn may_act(volume: &Volume, who: &dyn Identity, action: Action<'_>) -> Result<()> {
    match action {
        Action::Search(ino) => may_search(volume, who, ino),
        Action::Reach(ino) => may_reach(volume, who, ino),
        Action::Probe { ino, read, write, execute } => {
            let asked = [
                (read, Rights::READ_DATA),
                (write, Rights::WRITE_DATA),
                (execute, Rights::EXECUTE),
            ];
            may_use(volume, who, ino, asked)
        }
        Action::List(ino) => object_of(volume, ino)?.demand(who, Rights::READ_DATA),
        Action::ReadAttributes(ino) => object_of(volume, ino)?.demand(who, Rights::READ_ATTRIBUTES),
        Action::Create { parent, directory } => {
            object_of(volume, parent)?.demand(who, adding(directory))
        }
        Action::Link { ino, parent } => may_link(volume, who, ino, parent),
        Action::Remove { parent, name } => may_remove(volume, who, parent, name),
        Action::Rename { parent, name, new_parent, new_name, exchange } => {
            may_rename(volume, who, (parent, name), (new_parent, new_name), exchange)
        }
        Action::ReadXattr { ino, name } => may_read_xattr(volume, who, ino, name),
        Action::WriteXattr { ino, name } => may_write_xattr(volume, who, ino, name),
    }
}

fn opened(volume: &Volume, who: &dyn Identity, ino: Ino, how: Opening) -> Result<Opened> {
    let object = object_of(volume, ino)?;
    let asked = [(how.read, Rights::READ_DATA), (how.execute, Rights::EXECUTE)];
    let asked = asked.iter().filter(|(asked, _)| *asked);
    let base = asked.fold(Rights::NONE, |all, (_, rights)| all | *rights);
    let write = if how.write { Rights::WRITE_DATA } else { Rights::NONE };
    if object.allows(who, base | write) {
        return Ok(Opened::AsAsked);
    }
    if how.write && how.append && object.allows(who, base | Rights::APPEND_DATA) {
        return Ok(Opened::AppendOnly);
    }
    Err(Error::AccessDenied)
}

fn may_change(
    volume: &Volume,
    who: &dyn Identity,
    ino: Ino,
    set: &mut SetAttributes,
) -> Result<()> {
    let object = object_of(volume, ino)?;
    may_set_mode(who, &object, set)?;
    may_set_owner(who, &object, set)?;
    if set.size.is_some() {
        object.demand(who, Rights::WRITE_DATA)?;
    }
    may_set_times(who, &object, set)
}

/// The mode goes with the list. Setgid is for members of the group.
fn may_set_mode(who: &dyn Identity, object: &Object, set: &mut SetAttributes) -> Result<()> {
    let Some(permissions) = set.permissions else {
        return Ok(());
    };
    object.demand_as_owner(who, Rights::WRITE_ACL)?;
    let setgid = u32::from(SETGID);
    if permissions & setgid != 0 && !who.is_member(set.gid.unwrap_or(object.inode.gid)) {
        set.permissions = Some(permissions & !setgid);
    }
    Ok(())
}

/// A caller with `WRITE_OWNER` may take the inode, and give it one of the caller's own groups; the
/// owner may only do the latter. Programs lose their privileges on the way.
fn may_set_owner(who: &dyn Identity, object: &Object, set: &mut SetAttributes) -> Result<()> {
    if set.uid.is_none() && set.gid.is_none() {
        return Ok(());
    }
    if !object.is_owned_by(who) {
        object.demand_as_owner(who, Rights::WRITE_OWNER)?;
    }
    let takes = set.uid.is_none_or(|uid| uid == who.uid());
    let own = |gid| gid == object.inode.gid || who.is_member(gid);
    if !takes || !set.gid.is_none_or(own) {
        return Err(Error::NotPermitted);
    }
    set.clear_privileges = true;
    Ok(())
}

/// A caller with `WRITE_DATA` may set the present time, another time only one with
/// `WRITE_ATTRIBUTES`.
fn may_set_times(who: &dyn Identity, object: &Object, set: &SetAttributes) -> Result<()> {
    let times = [set.accessed, set.modified];
    if times == [None; 2] || object.allows(who, Rights::WRITE_ATTRIBUTES) {
        return Ok(());
    }
    if times.iter().flatten().any(|time| *time != SetTime::Now) {
        return Err(Error::NotPermitted);
    }
    object.demand(who, Rights::WRITE_DATA)
}

/// The lock keeps the inode and its list together.
fn object_of(volume: &Volume, ino: Ino) -> Result<Object> {
    let _held = volume.locks.read(ino.0);
    let inode = volume.load_inode(ino.0)?;
    let list = stored::nfs4_list(volume, ino.0, &inode)?;
    Ok(Object { ino: ino.0, inode, list })
}

/// What a name in a directory leads to, if there is such a name.
fn named_object(volume: &Volume, parent: Ino, name: Name<'_>) -> Result<Option<Object>> {
    let found = lookup::find_entry(volume, parent.0, name)?;
    found.map(|entry| object_of(volume, Ino(entry.ino))).transpose()
}

/// That a file is no directory is for the lookup to say.
fn may_search(volume: &Volume, who: &dyn Identity, ino: Ino) -> Result<()> {
    if who.is_privileged() {
        return Ok(());
    }
    let object = object_of(volume, ino)?;
    if object.is_directory() { object.demand(who, Rights::EXECUTE) } else { Ok(()) }
}

/// FIFOs and sockets are opened without a word to the file system. So their names lead only callers
/// to them that may use them in all ways.
fn may_reach(volume: &Volume, who: &dyn Identity, ino: Ino) -> Result<()> {
    if who.is_privileged() {
        return Ok(());
    }
    let object = object_of(volume, ino)?;
    match object.inode.kind {
        InodeKind::Fifo => object.demand(who, Rights::READ_DATA | Rights::WRITE_DATA),
        InodeKind::Socket => object.demand(who, Rights::WRITE_DATA),
        _ => Ok(()),
    }
}

/// Nobody runs a file that has no execute bit at all.
fn may_use(
    volume: &Volume,
    who: &dyn Identity,
    ino: Ino,
    asked: [(bool, Rights); 3],
) -> Result<()> {
    let object = object_of(volume, ino)?;
    let asked = asked.iter().filter(|(asked, _)| *asked);
    let wanted = asked.fold(Rights::NONE, |all, (_, rights)| all | *rights);
    let program = object.inode.kind == InodeKind::Regular && wanted.has(Rights::EXECUTE);
    if program && object.inode.permissions & EXECUTE_ANY == 0 {
        return Err(Error::AccessDenied);
    }
    object.demand(who, wanted)
}

/// As with `fs.protected_hardlinks`: a name keeps a file alive, so a link needs the right to have
/// written the file anyway.
fn may_link(volume: &Volume, who: &dyn Identity, ino: Ino, parent: Ino) -> Result<()> {
    let object = object_of(volume, ino)?;
    object_of(volume, parent)?.demand(who, adding(object.is_directory()))?;
    let permissions = object.inode.permissions;
    let privileged = permissions & SETUID != 0 || permissions & SETGID_EXECUTE == SETGID_EXECUTE;
    let plain = object.inode.kind == InodeKind::Regular && !privileged;
    let writable = plain && object.allows(who, Rights::READ_DATA | Rights::WRITE_DATA);
    if who.is_privileged() || object.is_owned_by(who) || writable {
        return Ok(());
    }
    Err(Error::NotPermitted)
}

fn may_remove(volume: &Volume, who: &dyn Identity, parent: Ino, name: Name<'_>) -> Result<()> {
    let directory = object_of(volume, parent)?;
    directory.demand(who, Rights::EXECUTE)?;
    let found = named_object(volume, parent, name)?;
    found.map_or(Ok(()), |object| may_delete(who, &directory, &object))
}

fn may_rename(
    volume: &Volume,
    who: &dyn Identity,
    from: (Ino, Name<'_>),
    to: (Ino, Name<'_>),
    exchange: bool,
) -> Result<()> {
    if who.is_privileged() {
        return Ok(());
    }
    let (old, new) = (object_of(volume, from.0)?, object_of(volume, to.0)?);
    old.demand(who, Rights::EXECUTE)?;
    new.demand(who, Rights::EXECUTE)?;
    let moves = |object: &Object, away: &Object, into: &Object| {
        may_delete(who, away, object)?;
        into.demand(who, adding(object.is_directory()))?;
        if object.is_directory() && away.ino != into.ino {
            object.demand(who, Rights::WRITE_DATA)?;
        }
        Ok(())
    };
    if let Some(source) = named_object(volume, from.0, from.1)? {
        moves(&source, &old, &new)?;
    }
    match named_object(volume, to.0, to.1)? {
        Some(target) if exchange => moves(&target, &new, &old),
        Some(target) => may_delete(who, &new, &target),
        None => Ok(()),
    }
}

/// The namespaces of the system and of administrators are the kernel's to check.
fn may_read_xattr(volume: &Volume, who: &dyn Identity, ino: Ino, name: &[u8]) -> Result<()> {
    match () {
        () if ListName::of(name).is_some() => object_of(volume, ino)?.demand(who, Rights::READ_ACL),
        () if name.starts_with(b"user.") => {
            object_of(volume, ino)?.demand(who, Rights::READ_NAMED_ATTRS)
        }
        () => Ok(()),
    }
}

fn may_write_xattr(volume: &Volume, who: &dyn Identity, ino: Ino, name: &[u8]) -> Result<()> {
    match () {
        () if ListName::of(name).is_some() => {
            object_of(volume, ino)?.demand_as_owner(who, Rights::WRITE_ACL)
        }
        () if name.starts_with(b"user.") => {
            object_of(volume, ino)?.demand(who, Rights::WRITE_NAMED_ATTRS)
        }
        () => Ok(()),
    }
}

/// What checks permissions, if it is not the kernel.
pub(crate) fn guard(volume: &Volume) -> Option<&dyn AccessControl> {
    (volume.lists == AccessLists::Nfs4).then_some(volume)
}

/// RFC 8881, section 6.2.1.3.2: the right to delete the object, or to delete what is in the
/// directory, whatever the other list says; where both say nothing, the right to add files. With
/// the sticky bit, only owners.
fn may_delete(who: &dyn Identity, directory: &Object, object: &Object) -> Result<()> {
    let owns = directory.is_owned_by(who) || object.is_owned_by(who);
    if directory.inode.permissions & STICKY != 0 && !owns && !who.is_privileged() {
        return Err(Error::NotPermitted);
    }
    let verdicts =
        [object.verdict(who, Rights::DELETE), directory.verdict(who, Rights::DELETE_CHILD)];
    if verdicts.contains(&Verdict::Allowed) {
        return Ok(());
    }
    if verdicts.contains(&Verdict::Denied) {
        return Err(Error::AccessDenied);
    }
    directory.demand(who, Rights::WRITE_DATA)
}
