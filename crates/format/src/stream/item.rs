//! Items in a stream, and the forms in which their blocks come.

use super::{STREAM_BLOCK_BYTES_MAX, STREAM_VALUE_BYTES_MAX};
use crate::FormatError;
use crate::key::{KEY_BYTES, Key};
use crate::pointer::{Checksum, EMBEDDED_BYTES_MAX, checksum_kind, codec_id};
use crate::reader::Reader;
use bytes::BufMut;

const WHAT: &str = "put record";

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPut<'a> {
    /// Its key.
    pub key: Key,
    /// Its value, at most [`STREAM_VALUE_BYTES_MAX`] bytes.
    pub value: &'a [u8],
    /// Its block.
    pub block: StreamBlock<'a>,
}

/// The block of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamBlock<'a> {
    /// It has none.
    None,
    /// This content.
    Content(StreamContent<'a>),
    /// The one that the base's item under the same key has.
    Kept,
    /// The one that the base's item under another key has.
    OfBase(Key),
    /// The one that an item has which the stream has put before.
    Earlier(Key),
}

/// A block as a pool has it stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamContent<'a> {
    /// One of [`codec_id`].
    pub codec: u8,
    /// Bytes of content, 1 to [`STREAM_BLOCK_BYTES_MAX`].
    pub logical_len: u32,
    /// Checksum of the stored bytes; none if they are at most [`EMBEDDED_BYTES_MAX`].
    pub checksum: Checksum,
    /// The stored bytes, no more than those of content.
    pub stored: &'a [u8],
}

const NONE: u8 = 0;
const CONTENT: u8 = 1;
const KEPT: u8 = 2;
const OF_BASE: u8 = 3;
const EARLIER: u8 = 4;

impl<'a> StreamPut<'a> {
    /// The encoded payload.
    ///
    /// # Panics
    /// If the value or the block is longer than it may be.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.value.len() <= STREAM_VALUE_BYTES_MAX, "a value has its limit");
        let content_len = match &self.block {
            StreamBlock::Content(content) => content.stored.len(),
            _ => 0,
        };
        let mut out = Vec::with_capacity(80 + self.value.len() + content_len);
        out.put_slice(&self.key.encode());
        out.put_u8(match &self.block {
            StreamBlock::None => NONE,
            StreamBlock::Content(_) => CONTENT,
            StreamBlock::Kept => KEPT,
            StreamBlock::OfBase(_) => OF_BASE,
            StreamBlock::Earlier(_) => EARLIER,
        });
        out.put_u16_le(u16::try_from(self.value.len()).expect("a value is short"));
        out.put_slice(self.value);
        match &self.block {
            StreamBlock::None | StreamBlock::Kept => {}
            StreamBlock::OfBase(key) | StreamBlock::Earlier(key) => out.put_slice(&key.encode()),
            StreamBlock::Content(content) => content.put(&mut out),
        }
        out
    }

    /// Decodes the payload.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub(super) fn decode(payload: &'a [u8]) -> Result<StreamPut<'a>, FormatError> {
        let mut from = Reader::new(WHAT, payload);
        let key = take_key(&mut from)?;
        let form = from.u8("form of the block")?;
        let offset = from.at();
        let value_len = usize::from(from.u16("length of the value")?);
        if value_len > STREAM_VALUE_BYTES_MAX {
            let found = value_len as u64;
            return Err(from.unexpected("length of the value", offset, found, "at most 4096"));
        }
        let value = from.take("value", value_len)?;
        let offset = from.at();
        let block = match form {
            NONE => StreamBlock::None,
            CONTENT => StreamBlock::Content(StreamContent::take(&mut from)?),
            KEPT => StreamBlock::Kept,
            OF_BASE => StreamBlock::OfBase(take_key(&mut from)?),
            EARLIER => StreamBlock::Earlier(take_key(&mut from)?),
            other => {
                let found = u64::from(other);
                return Err(from.unexpected("form of the block", KEY_BYTES, found, "0 to 4"));
            }
        };
        if let StreamBlock::Earlier(earlier) = block
            && earlier >= key
        {
            let found = earlier.offset;
            return Err(from.unexpected("key of an earlier item", offset, found, "a smaller key"));
        }
        from.finish()?;
        Ok(StreamPut { key, value, block })
    }
}

fn take_key(from: &mut Reader<'_>) -> Result<Key, FormatError> {
    Ok(Key::decode(&from.array("key")?))
}

impl<'a> StreamContent<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        let checksum_len = Checksum::len_of(self.checksum.kind).expect("the kind is known");
        assert!(self.is_in_range(), "a block has its limits");
        out.put_u8(self.codec);
        out.put_u8(self.checksum.kind);
        out.put_u16_le(0);
        out.put_u32_le(self.logical_len);
        out.put_u32_le(u32::try_from(self.stored.len()).expect("a block is short"));
        out.put_slice(&self.checksum.bytes[..checksum_len]);
        out.put_slice(self.stored);
    }

    fn is_in_range(&self) -> bool {
        (1..=STREAM_BLOCK_BYTES_MAX).contains(&self.logical_len)
            && (1..=self.logical_len as usize).contains(&self.stored.len())
            && (self.checksum.kind != checksum_kind::NONE
                || self.stored.len() <= EMBEDDED_BYTES_MAX)
    }

    fn take(from: &mut Reader<'a>) -> Result<StreamContent<'a>, FormatError> {
        let offset = from.at();
        let codec = from.u8("codec")?;
        if codec > codec_id::ZLE {
            return Err(from.unexpected("codec", offset, u64::from(codec), "0 to 5"));
        }
        let kind = from.u8("checksum kind")?;
        let Some(checksum_len) = Checksum::len_of(kind) else {
            return Err(from.unexpected("checksum kind", offset + 1, u64::from(kind), "0, 1 or 2"));
        };
        from.reserved(2)?;
        let logical_len = from.u32("length of the content")?;
        let stored_len = from.u32("stored length")?;
        let mut checksum = Checksum { kind, bytes: [0; 32] };
        checksum.bytes[..checksum_len].copy_from_slice(from.take("checksum", checksum_len)?);
        let stored = from.take("stored bytes", stored_len as usize)?;
        let content = StreamContent { codec, logical_len, checksum, stored };
        if content.is_in_range() {
            return Ok(content);
        }
        let expected = "1 to as many as the content, with a checksum if they are more than 1024";
        Err(from.unexpected("stored length", offset + 8, u64::from(stored_len), expected))
    }
}
