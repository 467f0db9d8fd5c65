//! Extended attributes.
//!
//! They are found as directory entries are, by the hash of their names. A value that is too large
//! for an item is the item's block.

use crate::directory::{Probe, probe};
use crate::failure::{from_record, from_store};
use marram_format::record::{XATTR_INLINE_BYTES_MAX, XattrRecord, name_offset};
use marram_store::{Block, Item, Key, View, kind};
use marram_vfs::Result;

/// The file capabilities of a program, dropped with its other privileges.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The key of the attribute at a place of an inode.
pub fn xattr_key(ino: u64, offset: u64) -> Key {
    Key::new(ino, kind::XATTR, offset)
}

/// The item of an attribute.
pub fn xattr_item(name: &[u8], value: &[u8]) -> Item {
    if value.len() > XATTR_INLINE_BYTES_MAX {
        let record = XattrRecord { name, value: b"" };
        return Item::with_block(record.encode(), Block::fresh(value.to_vec()));
    }
    Item::plain(XattrRecord { name, value }.encode())
}

/// Looks for an attribute of an inode, by the seed of the file system.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn probe_xattr(
    view: &dyn View,
    seed: u64,
    ino: u64,
    name: &[u8],
) -> Result<Probe<(u64, Item)>> {
    probe(view, ino, kind::XATTR, name_offset(seed, name), &|key, item| {
        let record = XattrRecord::decode(&item.value)?;
        Ok((record.name == name).then(|| (key.offset, item.clone())))
    })
}

/// The value of an attribute, if it is there.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn xattr_value(view: &dyn View, seed: u64, ino: u64, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some((_, item)) = probe_xattr(view, seed, ino, name)?.found else {
        return Ok(None);
    };
    if let Some(block) = &item.block {
        return Ok(Some(view.read_block(block).map_err(from_store)?.to_vec()));
    }
    let record = XattrRecord::decode(&item.value).map_err(|error| from_record(ino, &error))?;
    Ok(Some(record.value.to_vec()))
}
