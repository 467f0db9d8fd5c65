//! Items as rows have them, and blocks.

use super::fields::put_counted;
use super::object::UploadId;
use super::{Fields, malformed};
use bytes::Bytes;
use marram_store::{BLOCK_BYTES_MAX, Block, Item, Result, Token, VALUE_BYTES_MAX};

/// The keyed hash of a block's content.
pub type BlockId = [u8; 32];

/// A reference to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which.
    pub id: BlockId,
    /// Bytes of its content.
    pub len: u32,
}

/// An item whose block is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    /// The value.
    pub value: Bytes,
    /// The block.
    pub block: Option<Reference>,
}

/// The newest row under a key of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The period in which it came to be.
    pub birth: u64,
    /// The item; none where an inherited one was removed.
    pub item: Option<StoredItem>,
}

/// A row that has ended, and that a snapshot needs. Its birth stands in its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// The period in which it ended.
    pub death: u64,
    /// The item; none where an inherited one was removed.
    pub item: Option<StoredItem>,
}

/// A block as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRow<'a> {
    /// What compressed it: an id of `marram_codec::codec_id`.
    pub codec: u8,
    /// Bytes of its content.
    pub len: u32,
    /// The stored bytes.
    pub stored: &'a [u8],
}

/// The "codec" of a row whose block lies outside of the database; its stored bytes are the number
/// of the upload.
const OUTSIDE: u8 = 0x80;
const NONE: u8 = 0;
const PLAIN: u8 = 1;
const WITH_BLOCK: u8 = 2;

impl Reference {
    /// The reference in a token of this store.
    ///
    /// # Errors
    /// The token is of another store.
    pub fn of_token(token: &Token) -> Result<Reference> {
        let mut fields = Fields::new("a token", &token.place);
        let id = fields.array()?;
        fields.end()?;
        Ok(Reference { id, len: token.len })
    }

    /// The token of a block.
    pub fn token(&self) -> Token {
        Token { place: Bytes::copy_from_slice(&self.id), len: self.len }
    }
}

impl StoredItem {
    /// The item as callers of a view get it.
    pub fn item(&self) -> Item {
        let block = self.block.as_ref().map(|block| Block::Stored(block.token()));
        Item { value: self.value.clone(), block }
    }

    /// Bytes that it refers to.
    pub fn bytes(&self) -> u64 {
        self.value.len() as u64 + self.block.map_or(0, |block| u64::from(block.len))
    }
}

/// Appends an item.
pub(super) fn put_item(out: &mut Vec<u8>, item: Option<&StoredItem>) {
    let Some(item) = item else { return out.push(NONE) };
    match &item.block {
        None => out.push(PLAIN),
        Some(block) => {
            out.push(WITH_BLOCK);
            out.extend_from_slice(&block.id);
            out.extend_from_slice(&block.len.to_le_bytes());
        }
    }
    put_counted(out, &item.value);
}

/// Reads an item.
pub(super) fn take_item(fields: &mut Fields<'_>) -> Result<Option<StoredItem>> {
    let block = match fields.u8()? {
        NONE => return Ok(None),
        PLAIN => None,
        WITH_BLOCK => Some(Reference { id: fields.array()?, len: fields.u32()? }),
        _ => return fields.refuse("an item is of no known form"),
    };
    if block.is_some_and(|block| !(1..=BLOCK_BYTES_MAX).contains(&(block.len as usize))) {
        return fields.refuse("a block is of no possible length");
    }
    let value = fields.counted()?;
    match value.len() <= VALUE_BYTES_MAX {
        true => Ok(Some(StoredItem { value: Bytes::copy_from_slice(value), block })),
        false => fields.refuse("a value is too long"),
    }
}

fn encode(period: u64, item: Option<&StoredItem>) -> Vec<u8> {
    let mut out = period.to_le_bytes().to_vec();
    put_item(&mut out, item);
    out
}

fn decode(what: &'static str, bytes: &[u8]) -> Result<(u64, Option<StoredItem>)> {
    let mut fields = Fields::new(what, bytes);
    let period = fields.u64()?;
    let item = take_item(&mut fields)?;
    fields.end()?;
    Ok((period, item))
}

impl Head {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        encode(self.birth, self.item.as_ref())
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// It is no such value.
    pub fn decode(bytes: &[u8]) -> Result<Head> {
        decode("a head", bytes).map(|(birth, item)| Head { birth, item })
    }
}

impl Past {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        encode(self.death, self.item.as_ref())
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// It is no such value.
    pub fn decode(bytes: &[u8]) -> Result<Past> {
        decode("a past item", bytes).map(|(death, item)| Past { death, item })
    }
}

impl<'a> BlockRow<'a> {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.codec];
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(self.stored);
        out
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// It is no such value.
    pub fn decode(bytes: &'a [u8]) -> Result<BlockRow<'a>> {
        let mut fields = Fields::new("a block", bytes);
        let (codec, len) = (fields.u8()?, fields.u32()?);
        if len as usize > BLOCK_BYTES_MAX {
            return fields.refuse("it is longer than a block can be");
        }
        Ok(BlockRow { codec, len, stored: fields.rest() })
    }

    /// The row of a block that lies outside.
    pub fn outside(len: u32, upload: &'a UploadId) -> BlockRow<'a> {
        BlockRow { codec: OUTSIDE, len, stored: upload }
    }

    /// The upload that brought the block, if it lies outside.
    ///
    /// # Errors
    /// The row says that it does, and not where.
    pub fn upload(&self) -> Result<Option<UploadId>> {
        if self.codec != OUTSIDE {
            return Ok(None);
        }
        let upload = self.stored.try_into();
        upload.map(Some).map_err(|_| malformed("a block", "its upload is no number"))
    }
}
