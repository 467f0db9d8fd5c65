//! Encoded pointers as the engine hands them around.

use bytes::Bytes;
use marram_format::group::Group;
use marram_format::pointer::{Pointer, PointerFlags};
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

/// Whether the dataset counts the references to a block.
pub(crate) fn is_shared(pointer: &Pointer) -> bool {
    pointer.flags.contains(PointerFlags::SHARED)
}

/// The pointer with which another dataset takes a block over, waiting for its commit.
pub(crate) fn waiting(pointer: Pointer) -> Pointer {
    Pointer { birth: Group(0), flags: PointerFlags::ADOPTED, ..pointer }
}
