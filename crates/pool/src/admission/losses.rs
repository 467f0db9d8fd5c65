//! The blocks that changes of a dataset let go of.

use crate::base::pointers::decode_pointer;
use crate::memtable::foreign_blocks::is_adoption;
use marram_format::group::Group;
use marram_format::pointer::Pointer;
use marram_store::{Block, Item, Result};
use std::collections::HashMap;

/// How many references blocks lose by changes of a dataset.
#[derive(Default)]
pub(crate) struct Losses(HashMap<(u64, Option<Group>), (Pointer, i64)>);

impl Losses {
    /// An item that refers to a block goes, or gets another one. The item's pointer says whether
    /// the dataset counts the references; a pointer that was read long ago may be out of date.
    pub(crate) fn lose(&mut self, pointer: Pointer) {
        if let Some(found) = self.count(&pointer, 1) {
            *found = pointer;
        }
    }

    /// An item is put; it may refer to a block that the dataset has already.
    pub(crate) fn gain(&mut self, item: &Item) -> Result<()> {
        let token = match &item.block {
            Some(Block::Stored(token)) if !is_adoption(item) => Some(token),
            Some(Block::Fresh(fresh)) => fresh.stored(),
            _ => None,
        };
        if let Some(token) = token {
            self.count(&decode_pointer(&token.place)?, -1);
        }
        Ok(())
    }

    /// Content that lies beside its item is no block.
    fn count(&mut self, pointer: &Pointer, by: i64) -> Option<&mut Pointer> {
        let identity = (pointer.address()?, pointer.adopted());
        let (found, lost) = self.0.entry(identity).or_insert_with(|| (pointer.clone(), 0));
        *lost += by;
        Some(found)
    }

    /// The blocks that lose more references than they gain, with their address, and how many more.
    pub(crate) fn blocks(self) -> impl Iterator<Item = (Pointer, u64, u64)> {
        let lost = self.0.into_iter().filter(|(_, (_, lost))| *lost > 0);
        lost.map(|((address, _), (pointer, lost))| (pointer, address, lost.unsigned_abs()))
    }
}
