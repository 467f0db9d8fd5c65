//! Extended attributes: which are kept, and how they are set, listed and removed.

use crate::acl::stored;
use crate::frame::change::Change;
use crate::frame::flags::check_not_frozen;
use crate::frame::stored_attributes;
use crate::volume::Volume;
use marram_format::record::{XattrRecord, state};
use marram_records::failure::{from_record, from_store};
use marram_records::lists::ListName;
use marram_records::xattr::{CAPABILITY, xattr_item, xattr_key};
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

pub(crate) fn get_xattr(volume: &Volume, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
    if let Some(list) = ListName::of(name) {
        return stored::read_list(volume, ino, list);
    }
    let _held = volume.locks.read(ino);
    let inode = volume.load_inode(ino)?;
    check_namespace(name)?;
    if name == CAPABILITY && inode.state & state::CAPABILITY == 0 {
        return Err(Error::NoAttribute);
    }
    stored_attributes::xattr_value(volume, ino, name)?.ok_or(Error::NoAttribute)
}

pub(crate) fn put_xattr(
    volume: &Volume,
    ino: u64,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Result<()> {
    if let Some(list) = ListName::of(name) {
        return stored::write_list(volume, ino, list, value, mode, false);
    }
    let _held = volume.locks.write(&[ino]);
    let mut change = Change::begin(volume)?;
    check_not_frozen(change.inode(ino)?)?;
    check_name(name)?;
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return Err(Error::ValueTooLarge);
    }
    let probe = stored_attributes::probe_xattr(volume, ino, name)?;
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

pub(crate) fn list_xattr_names(volume: &Volume, ino: u64) -> Result<Vec<Vec<u8>>> {
    let _held = volume.locks.read(ino);
    volume.load_inode(ino)?;
    let mut names = Vec::new();
    let mut failure = None;
    let mut visit = |_: Key, item: &Item| {
        match XattrRecord::decode(&item.value) {
            Ok(record) if is_hidden(volume, record.name) => (),
            Ok(record) => names.push(record.name.to_vec()),
            Err(error) => failure = Some(from_record(ino, &error)),
        }
        failure.is_none()
    };
    volume
        .view
        .scan(xattr_key(ino, 0), xattr_key(ino, u64::MAX), &mut visit)
        .map_err(from_store)?;
    failure.map_or(Ok(names), Err)
}

pub(crate) fn delete_xattr(volume: &Volume, ino: u64, name: &[u8]) -> Result<()> {
    if let Some(list) = ListName::of(name) {
        return stored::remove_list(volume, ino, list);
    }
    let _held = volume.locks.write(&[ino]);
    let mut change = Change::begin(volume)?;
    check_not_frozen(change.inode(ino)?)?;
    check_namespace(name)?;
    let (offset, _) =
        stored_attributes::probe_xattr(volume, ino, name)?.found.ok_or(Error::NoAttribute)?;
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

/// Whether an attribute is a list that the dataset does not obey.
fn is_hidden(volume: &Volume, name: &[u8]) -> bool {
    ListName::of(name).is_some_and(|list| !stored::obeys(volume, list))
}
