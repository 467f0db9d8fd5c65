//! Records that carry a name: directory entries and extended attributes.

use super::{InodeKind, XATTR_INLINE_BYTES_MAX};
use crate::FormatError;
use crate::reader::Reader;

/// The value of a directory entry item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The inode that the name refers to.
    pub ino: u64,
    /// The kind of that inode.
    pub kind: InodeKind,
    /// The name: 1 to 255 bytes.
    pub name: &'a [u8],
}

/// The value of an extended attribute item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrRecord<'a> {
    /// The attribute's full name: 1 to 255 bytes.
    pub name: &'a [u8],
    /// Its value, empty if the item has a block: then the block is the value.
    pub value: &'a [u8],
}

const ENTRY_HEAD_BYTES: usize = 10;

/// The length byte of a name, which the caller has checked.
fn length_byte(name: &[u8]) -> u8 {
    u8::try_from(name.len()).expect("a name has at most 255 bytes")
}

impl<'a> Entry<'a> {
    /// The encoded record.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENTRY_HEAD_BYTES + self.name.len());
        bytes.extend_from_slice(&self.ino.to_le_bytes());
        bytes.push(self.kind as u8);
        bytes.push(length_byte(self.name));
        bytes.extend_from_slice(self.name);
        bytes
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// A wrong length or kind, or an empty name.
    pub fn decode(bytes: &'a [u8]) -> Result<Entry<'a>, FormatError> {
        let mut fields = Reader::new("directory entry", bytes);
        let ino = fields.u64("inode")?;
        let kind = InodeKind::read(&mut fields)?;
        let name = read_name(&mut fields)?;
        fields.finish()?;
        Ok(Entry { ino, kind, name })
    }
}

impl<'a> XattrRecord<'a> {
    /// The encoded record.
    ///
    /// # Panics
    /// If the name is longer than 255 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + self.name.len() + self.value.len());
        bytes.push(length_byte(self.name));
        bytes.extend_from_slice(self.name);
        bytes.extend_from_slice(self.value);
        bytes
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// An empty or truncated name, or a value that should have had a block.
    pub fn decode(bytes: &'a [u8]) -> Result<XattrRecord<'a>, FormatError> {
        let mut fields = Reader::new("extended attribute", bytes);
        let name = read_name(&mut fields)?;
        let (offset, len) = (fields.at(), fields.left());
        if len > XATTR_INLINE_BYTES_MAX {
            return Err(fields.unexpected("value length", offset, len as u64, "at most 3072"));
        }
        let value = fields.take("value", len)?;
        Ok(XattrRecord { name, value })
    }
}

/// A length byte and as many bytes of name, at least one.
fn read_name<'a>(fields: &mut Reader<'a>) -> Result<&'a [u8], FormatError> {
    let offset = fields.at();
    let len = fields.u8("name length")?;
    if len == 0 {
        return Err(fields.unexpected("name length", offset, 0, "1 to 255"));
    }
    fields.take("name", usize::from(len))
}
