//! Extended attributes as a part of other operations: found, stored, dropped.

use crate::frame::change::Change;
use crate::volume::Volume;
use marram_format::record::name_offset;
use marram_records::directory::Probe;
use marram_records::lists::ListName;
use marram_records::xattr;
use marram_records::xattr::{xattr_item, xattr_key};
use marram_store::Item;
use marram_vfs::Result;

pub(crate) fn probe_xattr(volume: &Volume, ino: u64, name: &[u8]) -> Result<Probe<(u64, Item)>> {
    xattr::probe_xattr(&*volume.view, volume.counters.seed(), ino, name)
}

/// The value of an attribute, if it is there. The lock is held.
pub(crate) fn xattr_value(volume: &Volume, ino: u64, name: &[u8]) -> Result<Option<Vec<u8>>> {
    xattr::xattr_value(&*volume.view, volume.counters.seed(), ino, name)
}

/// Sets an attribute as a part of another operation.
pub(crate) fn store_xattr(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    ino: u64,
    name: &[u8],
    value: &[u8],
) -> Result<()> {
    let probe = probe_xattr(volume, ino, name)?;
    let offset = match &probe.found {
        Some((offset, _)) => *offset,
        None => probe.free()?,
    };
    change.batch.put(xattr_key(ino, offset), xattr_item(name, value));
    Ok(())
}

/// Gives a new inode its first attributes, of different names.
pub(crate) fn add_new_xattrs(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    ino: u64,
    attributes: &[(ListName, Vec<u8>)],
) {
    let mut taken = Vec::new();
    for (list, value) in attributes {
        let mut offset = name_offset(volume.counters.seed(), list.bytes());
        while taken.contains(&offset) {
            offset += 1;
        }
        taken.push(offset);
        change.batch.put(xattr_key(ino, offset), xattr_item(list.bytes(), value));
    }
}

/// Removes an attribute, if it is there, as a part of another operation.
pub(crate) fn drop_xattr(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    ino: u64,
    name: &[u8],
) -> Result<()> {
    if let Some((offset, _)) = probe_xattr(volume, ino, name)?.found {
        change.batch.remove(xattr_key(ino, offset));
    }
    Ok(())
}
