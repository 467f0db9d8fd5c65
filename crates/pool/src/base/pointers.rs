//! Encoded pointers as the engine hands them around.

use bytes::Bytes;
use marram_format::pointer::Pointer;
use marram_store::{Damage, Error, Result, Token};

/// Decodes a pointer that came from a verified node or from an item.
pub(crate) fn decode_pointer(encoded: &[u8]) -> Result<Pointer> {
    Pointer::decode(encoded).map_err(|error| {
        Error::Damaged(Damage {
            what: "a block pointer",
            place: "its node".to_owned(),
            reason: error.to_string(),
        })
    })
}

/// The token of the block that an encoded pointer leads to. The bytes are copied, so that a
/// token does not keep a whole node in memory.
pub(crate) fn token_of(encoded: &Bytes) -> Result<Token> {
    let len = decode_pointer(encoded)?.logical_len;
    Ok(Token { place: Bytes::copy_from_slice(encoded), len })
}
