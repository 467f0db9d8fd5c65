//! Blocks of others that a dataset takes over with its next commit.
//!
//! They need no space, as they are there. But the dataset refers to that much more, so its quota
//! counts them from the batch on that puts them.

use crate::base::pointers::decode_pointer;
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_store::{Batch, Block, Edit, Item};
use std::collections::HashSet;

/// Blocks that are to be adopted, each once however many items refer to it: a commit counts them
/// so too.
#[derive(Debug, Default)]
pub(crate) struct ForeignBlocks {
    addresses: HashSet<u64>,
    bytes: u64,
}

impl ForeignBlocks {
    /// Those of a batch.
    pub(crate) fn of(batch: &Batch<'_>) -> ForeignBlocks {
        let mut foreign_blocks = ForeignBlocks::default();
        for edit in &batch.edits {
            if let Edit::Put { item, .. } = edit {
                foreign_blocks.note(item);
            }
        }
        foreign_blocks
    }

    /// Takes in the block of an item, if it is to be adopted; returns whether it is.
    pub(crate) fn note(&mut self, item: &Item) -> bool {
        let Some(Block::Stored(token)) = item.block.as_ref().filter(|_| is_adoption(item)) else {
            return false;
        };
        // A pointer that makes no sense fails the commit, which reports it.
        if let Ok(pointer) = decode_pointer(&token.place)
            && let Some(address) = pointer.address()
            && self.addresses.insert(address)
        {
            self.bytes += pointer.grains() * GRAIN_BYTES;
        }
        true
    }

    /// What the dataset will refer to more, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

/// Whether the item has a block that the next commit is to adopt.
pub(crate) fn is_adoption(item: &Item) -> bool {
    matches!(&item.block, Some(Block::Stored(token)) if Pointer::peek_waiting(&token.place))
}
