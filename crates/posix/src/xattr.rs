//! Extended attributes: which are kept, and how they are set, listed and removed.

use crate::change::Change;
use crate::filesystem::Posix;
use crate::marks::check_not_frozen;
use marram_format::record::{XattrRecord, name_offset, state};
use marram_records::directory::Probe;
use marram_records::failure::{from_record, from_store};
use marram_records::lists::ListName;
use marram_records::xattr::{self, CAPABILITY, xattr_item, xattr_key};
use marram_store::{Admission, Item, Key};
use marram_vfs::{Error, Result, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XattrMode};

/// The namespaces that are kept. Of `system.` only access control lists are, where they are obeyed;
/// see `acl`.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Refuses names in namespaces that are not kept, and a namespace without a name in it.
fn check_namespace(name: &[u8]) -> Result<()> {
    if NAMESPACES.contains(&name) {
        return Err(Error::InvalidArgument("attribute name"));
    }
    match NAMESPACES.iter().any(|prefix| name.starts_with(prefix)) {
        true => Ok(()),
        false => Err(Error::NotSupported),
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(Error::InvalidArgument("attribute name"));
    }
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    check_namespace(name)
}

impl Posix {
    fn probe_xattr(&self, ino: u64, name: &[u8]) -> Result<Probe<(u64, Item)>> {
        xattr::probe_xattr(&*self.view, self.counters.seed(), ino, name)
    }

    pub(crate) fn get_xattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        if let Some(list) = ListName::of(name) {
            return self.read_list(ino, list);
        }
        let _held = self.locks.read(ino);
        let inode = self.load_inode(ino)?;
        check_namespace(name)?;
        if name == CAPABILITY && inode.state & state::CAPABILITY == 0 {
            return Err(Error::NoAttribute);
        }
        self.xattr_value(ino, name)?.ok_or(Error::NoAttribute)
    }

    /// The value of an attribute, if it is there. The lock is held.
    pub(crate) fn xattr_value(&self, ino: u64, name: &[u8]) -> Result<Option<Vec<u8>>> {
        xattr::xattr_value(&*self.view, self.counters.seed(), ino, name)
    }

    /// Sets an attribute as a part of another operation.
    pub(crate) fn store_xattr(
        &self,
        change: &mut Change<'_, '_>,
        ino: u64,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let probe = self.probe_xattr(ino, name)?;
        let offset = match &probe.found {
            Some((offset, _)) => *offset,
            None => probe.free()?,
        };
        change.batch.put(xattr_key(ino, offset), xattr_item(name, value));
        Ok(())
    }

    /// Gives a new inode its first attributes, of different names.
    pub(crate) fn add_new_xattrs(
        &self,
        change: &mut Change<'_, '_>,
        ino: u64,
        attributes: &[(ListName, Vec<u8>)],
    ) {
        let mut taken = Vec::new();
        for (list, value) in attributes {
            let mut offset = name_offset(self.counters.seed(), list.bytes());
            while taken.contains(&offset) {
                offset += 1;
            }
            taken.push(offset);
            change.batch.put(xattr_key(ino, offset), xattr_item(list.bytes(), value));
        }
    }

    pub(crate) fn put_xattr(
        &self,
        ino: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if let Some(list) = ListName::of(name) {
            return self.write_list(ino, list, value, mode, false);
        }
        let _held = self.locks.write(&[ino]);
        let mut change = self.change()?;
        check_not_frozen(change.inode(ino)?)?;
        check_name(name)?;
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Error::ValueTooLarge);
        }
        let probe = self.probe_xattr(ino, name)?;
        let offset = match (mode, &probe.found) {
            (XattrMode::Create, Some(_)) => return Err(Error::Exists),
            (XattrMode::Replace, None) => return Err(Error::NoAttribute),
            (_, Some((offset, _))) => *offset,
            (_, None) => probe.free()?,
        };
        change.batch.put(xattr_key(ino, offset), xattr_item(name, value));
        let now = change.now;
        let inode = change.inode_mut(ino)?;
        inode.changed = now;
        if name == CAPABILITY {
            inode.state |= state::CAPABILITY;
        }
        change.commit()
    }

    pub(crate) fn list_xattr_names(&self, ino: u64) -> Result<Vec<Vec<u8>>> {
        let _held = self.locks.read(ino);
        self.load_inode(ino)?;
        let mut names = Vec::new();
        let mut failure = None;
        let mut visit = |_: Key, item: &Item| {
            match XattrRecord::decode(&item.value) {
                Ok(record) if ListName::of(record.name).is_some_and(|list| !self.obeys(list)) => (),
                Ok(record) => names.push(record.name.to_vec()),
                Err(error) => failure = Some(from_record(ino, &error)),
            }
            failure.is_none()
        };
        self.view
            .scan(xattr_key(ino, 0), xattr_key(ino, u64::MAX), &mut visit)
            .map_err(from_store)?;
        failure.map_or(Ok(names), Err)
    }

    pub(crate) fn delete_xattr(&self, ino: u64, name: &[u8]) -> Result<()> {
        if let Some(list) = ListName::of(name) {
            return self.remove_list(ino, list);
        }
        let _held = self.locks.write(&[ino]);
        let mut change = self.change()?;
        check_not_frozen(change.inode(ino)?)?;
        check_namespace(name)?;
        let (offset, _) = self.probe_xattr(ino, name)?.found.ok_or(Error::NoAttribute)?;
        change.batch.remove(xattr_key(ino, offset));
        change.batch.admission = Admission::Freeing;
        let now = change.now;
        let inode = change.inode_mut(ino)?;
        inode.changed = now;
        if name == CAPABILITY {
            inode.state &= !state::CAPABILITY;
        }
        change.commit()
    }

    /// Removes an attribute, if it is there, as a part of another operation.
    pub(crate) fn drop_xattr(
        &self,
        change: &mut Change<'_, '_>,
        ino: u64,
        name: &[u8],
    ) -> Result<()> {
        if let Some((offset, _)) = self.probe_xattr(ino, name)?.found {
            change.batch.remove(xattr_key(ino, offset));
        }
        Ok(())
    }
}
