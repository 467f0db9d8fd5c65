//! The token of a receive that was cut: with it the sender goes on where the receiver stands.
//!
//! It travels through terminals, scripts and people, so it is hexadecimal digits with a checksum,
//! and names the snapshot by its identity. Any pool that has that snapshot can go on, wherever it
//! was sent from first.

use super::begin::{SnapshotIdentity, put_identity, take_identity};
use crate::FormatError;
use crate::key::{KEY_BYTES, Key};
use crate::reader::Reader;
use bytes::BufMut;
use xxhash_rust::xxh3::xxh3_64;

const WHAT: &str = "resume token";
const VERSION: u8 = 1;
const INCREMENTAL: u8 = 1 << 0;
/// Bytes of a token before its checksum.
const BODY_BYTES: usize = 2 + 24 + 24 + Received::BYTES;
/// Bytes of a token.
const TOKEN_BYTES: usize = BODY_BYTES + 8;

/// How much of a stream a receiver has: everything up to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The key of the last item.
    pub after: Key,
    /// Items put.
    pub puts: u64,
    /// Items removed.
    pub removals: u64,
    /// Blocks that came with their content.
    pub blocks: u64,
    /// Stored bytes of those.
    pub stored_bytes: u64,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeToken {
    /// The snapshot that is being received.
    pub snapshot: SnapshotIdentity,
    /// The one that it goes on from; none of a full stream.
    pub base: Option<SnapshotIdentity>,
    /// What the receiver has.
    pub received: Received,
}

impl Received {
    /// Bytes of the encoded form.
    pub const BYTES: usize = KEY_BYTES + 4 * 8;

    /// Nothing but the way to an item.
    pub fn up_to(after: Key) -> Received {
        Received { after, puts: 0, removals: 0, blocks: 0, stored_bytes: 0 }
    }

    /// The encoded form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Received::BYTES);
        out.put_slice(&self.after.encode());
        for number in [self.puts, self.removals, self.blocks, self.stored_bytes] {
            out.put_u64_le(number);
        }
        out
    }

    /// Decodes it.
    ///
    /// # Errors
    /// Too few bytes, or too many.
    pub fn decode(bytes: &[u8]) -> Result<Received, FormatError> {
        let mut from = Reader::new("position in a stream", bytes);
        let received = Received::take(&mut from)?;
        from.finish()?;
        Ok(received)
    }

    fn take(from: &mut Reader<'_>) -> Result<Received, FormatError> {
        Ok(Received {
            after: Key::decode(&from.array("last item")?),
            puts: from.u64("items put")?,
            removals: from.u64("items removed")?,
            blocks: from.u64("blocks")?,
            stored_bytes: from.u64("stored bytes")?,
        })
    }
}

impl ResumeToken {
    /// The token as text: lower-case hexadecimal digits.
    pub fn text(&self) -> String {
        let mut bytes = vec![VERSION, u8::from(self.base.is_some())];
        put_identity(&mut bytes, Some(self.snapshot));
        put_identity(&mut bytes, self.base);
        bytes.put_slice(&self.received.encode());
        let checksum = xxh3_64(&bytes);
        bytes.put_u64_le(checksum);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads a token.
    ///
    /// # Errors
    /// Something else, or a token that was cut or altered, or one of a later version.
    pub fn parse(text: &str) -> Result<ResumeToken, FormatError> {
        let bytes = bytes_of(text.trim())
            .ok_or_else(|| FormatError::Foreign { what: WHAT, found: first_of(text) })?;
        let mut whole = Reader::new(WHAT, &bytes);
        let version = whole.u8("version")?;
        if version != VERSION {
            return Err(whole.unexpected("version", 0, u64::from(version), "1"));
        }
        let (body, checksum) = bytes.split_at(bytes.len().min(BODY_BYTES));
        let mut end = Reader::new(WHAT, checksum);
        let expected = u128::from(end.u64("checksum")?);
        end.finish()?;
        let found = u128::from(xxh3_64(body));
        if found != expected {
            return Err(FormatError::Checksum { what: WHAT, found, expected });
        }
        ResumeToken::decode(&body[1..])
    }

    fn decode(body: &[u8]) -> Result<ResumeToken, FormatError> {
        let mut from = Reader::new(WHAT, body);
        let flags = from.u8("flags")?;
        if flags & !INCREMENTAL != 0 {
            return Err(from.unexpected("flags", 1, u64::from(flags), "0 or 1"));
        }
        let snapshot = take_identity(&mut from)?;
        let base = take_identity(&mut from)?;
        let base = (flags & INCREMENTAL != 0).then_some(base);
        let received = Received::take(&mut from)?;
        from.finish()?;
        Ok(ResumeToken { snapshot, base, received })
    }
}

/// The bytes that hexadecimal digits stand for, if they may be those of a token.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || text.len() > 2 * TOKEN_BYTES || !text.bytes().all(is_digit) {
        return None;
    }
    let pair = |pair: &[u8]| {
        let digits = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(digits, 16).ok()
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

/// The first bytes of what is no token, for the error.
fn first_of(text: &str) -> Vec<u8> {
    text.bytes().take(8).collect()
}
