//! Extended attributes and access control lists, as users get, set and remove them.

use crate::acl::AccessList;
use crate::inode::{Inode, Time};
use crate::state::operations::names::SETGID;
use crate::state::xattrs::{ACCESS_LIST, Attribute, DEFAULT_LIST, split};
use crate::state::{Work, check_changeable, damaged, number};
use marram_vfs::{Error, Ino, Result, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrMode};

/// The bits of a mode that a list stands for.
const MODE: u32 = 0o777;

fn is_list(index: u8) -> bool {
    matches!(index, ACCESS_LIST | DEFAULT_LIST)
}

/// A list of an image.
fn stored(value: &[u8]) -> Result<AccessList> {
    let list = AccessList::decode_stored(value);
    list.map_err(|_| damaged("an access control list makes no sense"))
}

fn check_name(name: &[u8]) -> Result<(u8, &[u8])> {
    if name.is_empty() {
        return Err(Error::InvalidArgument("attribute name"));
    }
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    split(name)
}

impl Work<'_> {
    /// The value of an extended attribute.
    pub(crate) fn xattr(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let inode = self.inode(number(ino)?)?;
        let (index, name) = check_name(name)?;
        let all = self.attributes_of(&inode)?;
        let found = all.into_iter().find(|it| it.is(index, name)).ok_or(Error::NoAttribute)?;
        match is_list(index) {
            true => Ok(stored(&found.value)?.encode()),
            false => Ok(found.value),
        }
    }

    /// The names of all extended attributes.
    pub(crate) fn list_xattrs(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(number(ino)?)?;
        Ok(self.attributes_of(&inode)?.iter().filter_map(Attribute::full_name).collect())
    }

    /// Sets an extended attribute; a list changes the mode too.
    pub(crate) fn set_xattr(
        &mut self,
        ino: Ino,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
        clear_setgid: bool,
    ) -> Result<()> {
        let target = number(ino)?;
        let mut inode = self.inode(target)?;
        check_changeable(&inode)?;
        let (index, name) = check_name(name)?;
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Error::ValueTooLarge);
        }
        let mut all = self.attributes_of(&inode)?;
        let known = all.iter().position(|it| it.is(index, name));
        match (mode, known) {
            (XattrMode::Create, Some(_)) => return Err(Error::Exists),
            (XattrMode::Replace, None) => return Err(Error::NoAttribute),
            _ => (),
        }
        let value = match index {
            DEFAULT_LIST if !inode.is_directory() => return Err(Error::AccessDenied),
            DEFAULT_LIST => Some(AccessList::decode(value)?.encode_stored()),
            ACCESS_LIST => {
                let list = AccessList::decode(value)?;
                inode.set_mode(inode.mode() & !MODE | list.mode());
                if clear_setgid {
                    inode.set_mode(inode.mode() & !SETGID);
                }
                (!list.is_minimal()).then(|| list.encode_stored())
            }
            _ => Some(value.to_vec()),
        };
        known.into_iter().for_each(|place| drop(all.remove(place)));
        all.extend(value.map(|value| Attribute::new(index, name, value)));
        inode.set_time(Time::Changed, self.now);
        self.store_attributes((target, &mut inode), all, &[]).map(drop)
    }

    /// Removes an extended attribute. Of a list that is not there, nothing is said.
    pub(crate) fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> Result<()> {
        let target = number(ino)?;
        let mut inode = self.inode(target)?;
        check_changeable(&inode)?;
        let (index, name) = check_name(name)?;
        let mut all = self.attributes_of(&inode)?;
        match all.iter().position(|it| it.is(index, name)) {
            Some(place) => drop(all.remove(place)),
            None if is_list(index) => return Ok(()),
            None => return Err(Error::NoAttribute),
        }
        inode.set_time(Time::Changed, self.now);
        self.store_attributes((target, &mut inode), all, &[]).map(drop)
    }

    /// Brings the list of an inode in step with its mode; the inode is stored if it has one.
    pub(crate) fn follow_mode(&mut self, target: u64, inode: &mut Inode) -> Result<()> {
        let mut all = self.attributes_of(inode)?;
        let Some(known) = all.iter_mut().find(|it| it.is(ACCESS_LIST, b"")) else { return Ok(()) };
        let mut list = stored(&known.value)?;
        list.set_mode(inode.mode());
        known.value = list.encode_stored();
        self.store_attributes((target, inode), all, &[]).map(drop)
    }

    /// What a new inode gets of the list of its directory, and the mode that is left; none if the
    /// directory has none to give.
    pub(crate) fn inherited(
        &mut self,
        above: &Inode,
        permissions: u32,
        is_directory: bool,
    ) -> Result<Option<(u32, Vec<Attribute>)>> {
        let all = self.attributes_of(above)?;
        let Some(given) = all.into_iter().find(|it| it.is(DEFAULT_LIST, b"")) else {
            return Ok(None);
        };
        let list = stored(&given.value)?.limited_to(permissions);
        let mut own = Vec::new();
        if !list.is_minimal() {
            own.push(Attribute::new(ACCESS_LIST, b"", list.encode_stored()));
        }
        if is_directory {
            own.push(given);
        }
        Ok(Some((permissions & !MODE | list.mode(), own)))
    }
}
