//! The bytes of a stream: what `send` writes and `receive` reads. `docs/stream.md` is the
//! specification.
//!
//! A stream comes through pipes, files and networks, from senders that are not trusted. So each
//! record has a checksum that covers all records before it too: what is cut, altered, repeated,
//! left out or in another order is found at the record where it happens.

mod begin;
mod item;
#[cfg(test)]
mod tests;
mod token;

pub use begin::{SnapshotIdentity, StreamBegin};
pub use item::{StreamBlock, StreamContent, StreamPut};
pub use token::{Received, ResumeToken};

use crate::FormatError;
use crate::key::{KEY_BYTES, Key};
use crate::reader::Reader;
use crate::version::FormatVersion;
use bytes::BufMut;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The version of streams that this crate reads and writes.
pub const STREAM_VERSION: FormatVersion = FormatVersion { major: 1, minor: 1 };
/// Bytes that every stream starts with.
pub const STREAM_PREFIX_BYTES: usize = 16;
/// Bytes of a record before its payload.
pub const RECORD_HEAD_BYTES: usize = 16;
/// Bytes of a record after its payload.
pub const RECORD_CHECKSUM_BYTES: usize = 16;
/// Longest payload, in bytes: an item with the longest block.
pub const RECORD_PAYLOAD_BYTES_MAX: usize = (1 << 20) + (16 << 10);
/// Longest value of an item, in bytes.
pub const STREAM_VALUE_BYTES_MAX: usize = 4096;
/// Longest block, in bytes.
pub const STREAM_BLOCK_BYTES_MAX: u32 = 1 << 20;

const MAGIC: [u8; 8] = *b"\x89MRMS\r\n\x1a";
const WHAT: &str = "stream";
const RECORD: &str = "record of a stream";

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// What the stream is.
    Begin = 1,
    /// An item is this.
    Put = 2,
    /// An item is there no more.
    Remove = 3,
    /// The stream is whole.
    End = 4,
}

/// The head of a record. Nothing is verified by it: only [`RecordChain::open`] says whether there
/// is a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// What it is.
    pub kind: RecordKind,
    /// Bytes of its payload, at most [`RECORD_PAYLOAD_BYTES_MAX`].
    pub payload_len: usize,
    /// How many records come before it.
    pub number: u64,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamEnd {
    /// Items put.
    pub puts: u64,
    /// Items removed.
    pub removals: u64,
    /// Blocks sent with their content.
    pub blocks: u64,
    /// Stored bytes of those.
    pub stored_bytes: u64,
    /// Checksum of all bytes before the end record.
    pub whole: u128,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRecord<'a> {
    /// What the stream is.
    Begin(StreamBegin),
    /// An item is this.
    Put(StreamPut<'a>),
    /// The item under this key is there no more.
    Remove(Key),
    /// The stream is whole.
    End(StreamEnd),
}

/// The prefix of a stream that is sent from its beginning.
pub fn stream_prefix() -> [u8; STREAM_PREFIX_BYTES] {
    prefix_of(0)
}

/// The prefix with the least minor version that has all of the stream.
fn prefix_of(minor: u16) -> [u8; STREAM_PREFIX_BYTES] {
    let mut prefix = [0; STREAM_PREFIX_BYTES];
    prefix[..8].copy_from_slice(&MAGIC);
    prefix[8..10].copy_from_slice(&STREAM_VERSION.major.to_le_bytes());
    prefix[10..12].copy_from_slice(&minor.to_le_bytes());
    prefix
}

/// Whether bytes begin as a stream does.
pub fn is_stream(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Looks whether this program can read the stream that begins so.
///
/// # Errors
/// Something else, or a stream of a later version or with unknown features.
pub fn check_stream_prefix(prefix: &[u8; STREAM_PREFIX_BYTES]) -> Result<(), FormatError> {
    let mut from = Reader::new(WHAT, prefix);
    let magic: [u8; 8] = from.array("magic")?;
    if magic != MAGIC {
        return Err(FormatError::Foreign { what: WHAT, found: magic.to_vec() });
    }
    let found = FormatVersion { major: from.u16("version")?, minor: from.u16("version")? };
    if found.major != STREAM_VERSION.major {
        return Err(FormatError::Newer { what: WHAT, found, supported: STREAM_VERSION });
    }
    let bits = from.u32("features")?;
    if bits != 0 {
        let names = format!("bits {bits:#x}");
        return Err(FormatError::Features { what: WHAT, bits: u64::from(bits), names });
    }
    from.finish()
}

impl RecordKind {
    fn from_number(number: u8) -> Option<RecordKind> {
        let all = [RecordKind::Begin, RecordKind::Put, RecordKind::Remove, RecordKind::End];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

impl RecordHead {
    /// The encoded head.
    fn encode(self) -> [u8; RECORD_HEAD_BYTES] {
        let mut head = [0; RECORD_HEAD_BYTES];
        head[0] = self.kind as u8;
        let len = u32::try_from(self.payload_len).expect("a payload is short");
        head[4..8].copy_from_slice(&len.to_le_bytes());
        head[8..].copy_from_slice(&self.number.to_le_bytes());
        head
    }

    /// Decodes a head.
    ///
    /// # Errors
    /// A kind without a meaning, or a payload that is too long.
    pub fn decode(bytes: &[u8; RECORD_HEAD_BYTES]) -> Result<RecordHead, FormatError> {
        let mut from = Reader::new(RECORD, bytes);
        let number = from.u8("kind")?;
        let Some(kind) = RecordKind::from_number(number) else {
            return Err(from.unexpected("kind", 0, u64::from(number), "1 to 4"));
        };
        from.reserved(3)?;
        let len = from.u32("length")?;
        let payload_len = usize::try_from(len).ok().filter(|len| *len <= RECORD_PAYLOAD_BYTES_MAX);
        let Some(payload_len) = payload_len else {
            return Err(from.unexpected("length", 4, u64::from(len), "at most 1064960"));
        };
        let number = from.u64("number")?;
        from.finish()?;
        Ok(RecordHead { kind, payload_len, number })
    }
}

/// The checksums of a stream's records, one after another.
#[derive(Clone)]
pub struct RecordChain {
    previous: [u8; RECORD_CHECKSUM_BYTES],
    number: u64,
    whole: Xxh3,
}

impl RecordChain {
    /// The chain of the records that follow this prefix.
    pub fn new(prefix: &[u8; STREAM_PREFIX_BYTES]) -> RecordChain {
        let mut whole = Xxh3::new();
        whole.update(prefix);
        RecordChain { previous: *prefix, number: 0, whole }
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.number
    }

    /// Checksum of all bytes so far.
    pub fn whole(&self) -> u128 {
        self.whole.digest128()
    }

    /// Appends the record with this payload to `out`.
    ///
    /// # Panics
    /// If the payload is longer than [`RECORD_PAYLOAD_BYTES_MAX`].
    pub fn seal(&mut self, kind: RecordKind, payload: &[u8], out: &mut Vec<u8>) {
        assert!(payload.len() <= RECORD_PAYLOAD_BYTES_MAX, "a payload has its limit");
        let head = RecordHead { kind, payload_len: payload.len(), number: self.number }.encode();
        let checksum = self.checksum(&head, payload).to_le_bytes();
        out.extend_from_slice(&head);
        out.extend_from_slice(payload);
        out.extend_from_slice(&checksum);
        self.pass(&head, payload, checksum);
    }

    /// Verifies a record that has been read.
    ///
    /// # Errors
    /// Its number or its checksum is another one.
    pub fn open(
        &mut self,
        head: &[u8; RECORD_HEAD_BYTES],
        payload: &[u8],
        checksum: [u8; RECORD_CHECKSUM_BYTES],
    ) -> Result<(), FormatError> {
        let found = self.checksum(head, payload);
        if found.to_le_bytes() != checksum {
            let expected = u128::from_le_bytes(checksum);
            return Err(FormatError::Checksum { what: RECORD, found, expected });
        }
        let number = RecordHead::decode(head)?.number;
        if number != self.number {
            let from = Reader::new(RECORD, head);
            return Err(from.unexpected("number", 8, number, "the number of records before it"));
        }
        self.pass(head, payload, checksum);
        Ok(())
    }

    fn checksum(&self, head: &[u8], payload: &[u8]) -> u128 {
        checksum_of(&self.previous, head, payload)
    }

    fn pass(&mut self, head: &[u8], payload: &[u8], checksum: [u8; RECORD_CHECKSUM_BYTES]) {
        self.whole.update(head);
        self.whole.update(payload);
        self.whole.update(&checksum);
        self.previous = checksum;
        self.number += 1;
    }
}

fn checksum_of(previous: &[u8], head: &[u8], payload: &[u8]) -> u128 {
    // One call on what is short is faster than three on a stream.
    const SHORT_BYTES: usize = 512;
    if payload.len() <= SHORT_BYTES {
        let mut bytes = [0; RECORD_CHECKSUM_BYTES + RECORD_HEAD_BYTES + SHORT_BYTES];
        let mut rest = &mut bytes[..];
        rest.put_slice(previous);
        rest.put_slice(head);
        rest.put_slice(payload);
        let left = rest.len();
        return xxh3_128(&bytes[..bytes.len() - left]);
    }
    let mut hash = Xxh3::new();
    hash.update(previous);
    hash.update(head);
    hash.update(payload);
    hash.digest128()
}

/// Verifies a record on its own, by the 16 bytes before it: the checksum of the record before, or
/// the prefix. Nothing is said of its number.
///
/// # Errors
/// Its checksum is another one.
pub fn verify_record(
    previous: &[u8; RECORD_CHECKSUM_BYTES],
    head: &[u8; RECORD_HEAD_BYTES],
    payload: &[u8],
    checksum: [u8; RECORD_CHECKSUM_BYTES],
) -> Result<(), FormatError> {
    let found = checksum_of(previous, head, payload);
    let expected = u128::from_le_bytes(checksum);
    if found == expected {
        return Ok(());
    }
    Err(FormatError::Checksum { what: RECORD, found, expected })
}

impl std::fmt::Debug for RecordChain {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "RecordChain after {} records", self.number)
    }
}

impl StreamRecord<'_> {
    /// Decodes the payload of a record.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(kind: RecordKind, payload: &[u8]) -> Result<StreamRecord<'_>, FormatError> {
        Ok(match kind {
            RecordKind::Begin => StreamRecord::Begin(StreamBegin::decode(payload)?),
            RecordKind::Put => StreamRecord::Put(StreamPut::decode(payload)?),
            RecordKind::Remove => {
                let mut from = Reader::new("remove record", payload);
                let key = Key::decode(&from.array::<KEY_BYTES>("key")?);
                from.finish()?;
                StreamRecord::Remove(key)
            }
            RecordKind::End => StreamRecord::End(StreamEnd::decode(payload)?),
        })
    }
}

impl StreamEnd {
    /// The encoded payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48);
        for number in [self.puts, self.removals, self.blocks, self.stored_bytes] {
            out.put_u64_le(number);
        }
        out.put_slice(&self.whole.to_le_bytes());
        out
    }

    fn decode(payload: &[u8]) -> Result<StreamEnd, FormatError> {
        let mut from = Reader::new("end record", payload);
        let end = StreamEnd {
            puts: from.u64("items put")?,
            removals: from.u64("items removed")?,
            blocks: from.u64("blocks")?,
            stored_bytes: from.u64("stored bytes")?,
            whole: u128::from_le_bytes(from.array("checksum of the whole")?),
        };
        from.finish()?;
        Ok(end)
    }
}
