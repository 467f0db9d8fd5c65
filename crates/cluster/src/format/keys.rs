//! Keys of rows.

use super::{BlockId, malformed};
use marram_store::{Key, Result};

/// The row of the header.
pub const HEADER: &[u8] = b"header";
/// The row that says up to which entry the rows follow the log.
pub const FOLLOWED: &[u8] = b"followed";
/// The row that says where blocks lie outside of the database.
pub const BLOCKS: &[u8] = b"blocks";
/// The row with the tokens by which this database holds them.
pub const HOLDER: &[u8] = b"holder";

/// Bytes of a key of items.
const KEY_BYTES: usize = 17;

/// A row of one number: an entry, a dataset, a line.
pub fn number(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// The row of a head.
pub fn head(line: u64, key: Key) -> Vec<u8> {
    [&line.to_be_bytes()[..], &key.encode()].concat()
}

/// The row of a past item.
pub fn past(line: u64, key: Key, birth: u64) -> Vec<u8> {
    [&line.to_be_bytes()[..], &key.encode(), &birth.to_be_bytes()].concat()
}

/// The row of a mark.
pub fn mark(line: u64, period: u64, key: Key) -> Vec<u8> {
    [&line.to_be_bytes()[..], &period.to_be_bytes(), &key.encode()].concat()
}

/// The row of a use: a block, and the row that refers to it.
pub fn usage(block: &BlockId, line: u64, key: Key, birth: u64) -> Vec<u8> {
    [&block[..], &past(line, key, birth)].concat()
}

/// The row of work to do: periods of a line, from behind `after` up to `upto`.
pub fn work(line: u64, after: u64, upto: u64) -> Vec<u8> {
    [line, after, upto].map(u64::to_be_bytes).concat()
}

/// Reads a row of one number.
///
/// # Errors
/// It is of another length.
pub fn decode_number(key: &[u8]) -> Result<u64> {
    let bytes = key.try_into().map_err(|_| malformed("a key", "it is no number"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Reads the row of a head: its line and key.
///
/// # Errors
/// It is of another length.
pub fn decode_head(key: &[u8]) -> Result<(u64, Key)> {
    let wrong = || malformed("a key", "it is no line with a key");
    let (line, key) = key.split_at_checked(8).ok_or_else(wrong)?;
    let key: &[u8; KEY_BYTES] = key.try_into().map_err(|_| wrong())?;
    Ok((decode_number(line)?, Key::decode(key)))
}

/// Reads the row of a past item: its line, key and birth.
///
/// # Errors
/// It is of another length.
pub fn decode_past(key: &[u8]) -> Result<(u64, Key, u64)> {
    let wrong = || malformed("a key", "it is no line with a key and a birth");
    let (head, birth) = key.split_at_checked(8 + KEY_BYTES).ok_or_else(wrong)?;
    let (line, key) = decode_head(head)?;
    Ok((line, key, decode_number(birth)?))
}

/// Reads the row of a mark: its line, period and key.
///
/// # Errors
/// It is of another length.
pub fn decode_mark(row: &[u8]) -> Result<(u64, u64, Key)> {
    let wrong = || malformed("a key", "it is no mark");
    let (line, rest) = row.split_at_checked(8).ok_or_else(wrong)?;
    let (period, key) = decode_head(rest)?;
    Ok((decode_number(line)?, period, key))
}

/// Reads the row of a use: the block, and line, key and birth of the row that refers to it.
///
/// # Errors
/// It is of another length.
pub fn decode_usage(key: &[u8]) -> Result<(BlockId, (u64, Key, u64))> {
    let (block, row) = key.split_first_chunk().ok_or_else(|| malformed("a key", "it is no use"))?;
    Ok((*block, decode_past(row)?))
}

/// Reads the row of work to do.
///
/// # Errors
/// It is of another length.
pub fn decode_work(key: &[u8]) -> Result<[u64; 3]> {
    let (numbers, rest) = key.as_chunks::<8>();
    match (numbers, rest) {
        (&[line, after, upto], []) => Ok([line, after, upto].map(u64::from_be_bytes)),
        _ => Err(malformed("a key", "it is no work")),
    }
}

/// The session of a client from its row's key.
///
/// # Errors
/// It is none.
pub fn decode_session(key: &[u8]) -> Result<[u8; 16]> {
    key.try_into().map_err(|_| malformed("the row of a client", "its key has a wrong length"))
}
