//! What holds a block, as the last commit has it: whether its space comes back when certain items
//! of one dataset let go of it.
//!
//! The answer is the same sum that a commit makes when it gives a block back (`commit`). The birth
//! decides for snapshots and clones, the count of references for other items, the count of owners
//! for other datasets. The answer may be out of date as soon as it is given. An action on it must
//! be right with either answer, and may lose space by a wrong one, but nothing else.

use crate::base::pointers::is_shared;
use crate::io::At;
use crate::memtable::dataset::Dataset;
use crate::state::State;
use crate::tree::{self, NodeSource};
use bytes::Bytes;
use marram_format::group::Group;
use marram_format::pointer::{Pointer, PointerFlags};
use marram_format::space::{OwnersRecord, ReferenceRecord, owners_key, references_key};
use marram_format::version::feature;
use marram_store::{Damage, Error, Result};

impl State {
    /// Whether so many items of a dataset, all of which refer to a block, are all that hold it.
    /// Content that lies beside its item has no other holder.
    pub(crate) fn is_held_only_by(
        &self,
        dataset: &Dataset,
        pointer: &Pointer,
        references: u64,
    ) -> Result<bool> {
        let Some(address) = pointer.address() else {
            return Ok(true);
        };
        let previous = self.records.read().get(dataset.id).map(|record| record.previous_group);
        let is_own = previous.is_some_and(|previous: Group| pointer.birth > previous);
        Ok(is_own
            && self.references_to(dataset, pointer, address)? == references
            && !self.has_other_owners(pointer, address)?)
    }

    /// How many items of a dataset refer to a block.
    pub(crate) fn references_to(
        &self,
        dataset: &Dataset,
        pointer: &Pointer,
        address: u64,
    ) -> Result<u64> {
        if !is_shared(pointer) {
            return Ok(1);
        }
        let key = references_key(address, pointer.adopted());
        let Some(item) = dataset.get(&self.media, key)? else {
            return Ok(u64::MAX);
        };
        let record = ReferenceRecord::decode(&item.value);
        record.map(|record| record.count).map_err(|error| {
            let place = format!("{key:?}");
            Error::Damaged(Damage { what: "a reference count", place, reason: error.to_string() })
        })
    }

    fn has_other_owners(&self, pointer: &Pointer, address: u64) -> Result<bool> {
        let features = self.superblock.lock().features_read_compatible;
        if features & feature::OWNERS == 0 || pointer.flags.contains(PointerFlags::METADATA) {
            return Ok(false);
        }
        loop {
            let epoch = self.media.epoch();
            match self.owners_of(address) {
                // A commit has passed: what was read may be of a tree whose grains are used anew.
                Err(Error::Damaged(_)) if self.media.epoch() != epoch => {}
                owners => return Ok(owners? > 1),
            }
        }
    }

    /// Owners of a block that is in use, as the last commit has them.
    pub(crate) fn owners_of(&self, address: u64) -> Result<u64> {
        // Asked first: under a later number what is read of this root could be made good over what
        // lies there by then.
        let at = At { media: &self.media, epoch: self.media.epoch() };
        let root = self.superblock.lock().pool_tree.as_ref().map(Pointer::encode);
        owners_in(&at, root.as_ref(), address)
    }
}

/// Owners of a block, as a tree of the pool's own has them.
pub(crate) fn owners_in(
    source: &dyn NodeSource,
    pool_tree: Option<&Bytes>,
    address: u64,
) -> Result<u64> {
    match tree::get(source, pool_tree, owners_key(address))? {
        None => Ok(1),
        Some(found) => {
            let record = OwnersRecord::decode(&found.value);
            Ok(record.map_err(|error| damaged(error.to_string()))?.count)
        }
    }
}

fn damaged(reason: String) -> Error {
    Error::Damaged(Damage { what: "the owners of a block", place: "the pool".to_owned(), reason })
}
