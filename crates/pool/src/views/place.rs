//! Where the blocks of a view lie.

use crate::base::pointers::{decode_pointer, is_shared};
use marram_format::pointer::{Extent, GRAIN_BYTES, Place, Pointer};
use marram_store::{Block, BlockPlace};

/// The pieces of a block's first copy; none of content that lies beside its item.
fn first_copy(pointer: &Pointer) -> &[Extent] {
    match &pointer.place {
        Place::Stored { copies, .. } => copies.first().map_or(&[], Vec::as_slice),
        Place::Embedded(_) => &[],
    }
}

/// Where a block is that has been written.
pub(crate) fn place_of(block: &Block) -> Option<BlockPlace> {
    let token = match block {
        Block::Stored(token) => token,
        Block::Fresh(fresh) => fresh.stored()?,
    };
    let pointer = decode_pointer(&token.place).ok()?;
    let pieces = first_copy(&pointer);
    let end = |piece: &Extent| (piece.start + u64::from(piece.grains)) * GRAIN_BYTES;
    Some(BlockPlace {
        address: pieces.first().map(|piece| (piece.device, piece.start * GRAIN_BYTES)),
        end_address: pieces.first().filter(|_| pieces.len() == 1).map(end),
        pieces: pieces.len() as u64,
        stored_bytes: pointer.grains() * GRAIN_BYTES,
        may_be_shared: is_shared(&pointer)
            || matches!(block, Block::Fresh(_))
            || Pointer::peek_waiting(&token.place),
    })
}
