//! Blocks that several datasets own: adopted by one commit, given back by others.
//!
//! **Adoptions come before anything is given back**, in all datasets: a block that its old owner
//! drops in the commit in which the new one adopts it must stay. Until then an adopted pointer has
//! birth 0, in the layers and in the intent log.

use super::Commit;
use crate::base::pointers::decode_pointer;
use crate::io::At;
use crate::memtable::overlay::{Entry, Layer, flatten};
use crate::views::pinned_commit::owners_in;
use marram_format::group::Group;
use marram_format::pointer::{Pointer, PointerFlags};
use marram_format::space::{OwnersRecord, owners_key};
use marram_format::version::feature;
use marram_store::{Block, Damage, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many owners the blocks have that a commit adopts or gives back, by address.
#[derive(Debug, Default)]
pub(super) struct Owners {
    counts: BTreeMap<u64, Count>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    before: u64,
    now: u64,
}

/// The pointer with which another dataset takes a block over, waiting for its commit.
pub(crate) fn waiting(pointer: Pointer) -> Pointer {
    Pointer { birth: Group(0), flags: PointerFlags::ADOPTED, ..pointer }
}

impl Commit<'_> {
    /// Counts the owners that the frozen layers bring.
    pub(super) fn adopt_all(&mut self) -> Result<()> {
        for dataset in self.frozen.datasets.clone() {
            let (_, layers) = dataset.frozen();
            if layers.iter().any(|layer| !layer.adoptions.is_empty()) {
                for address in adopted(&layers)? {
                    let count = self.owners_of(address)?;
                    self.owners.counts.insert(address, Count { now: count.now + 1, ..count });
                    self.set_feature(feature::OWNERS);
                }
            }
        }
        Ok(())
    }

    /// Takes one owner of a block away; returns whether it has others.
    pub(super) fn lose_owner(&mut self, pointer: &Pointer) -> Result<bool> {
        let may_have_owners =
            !pointer.flags.contains(PointerFlags::METADATA) && self.features & feature::OWNERS != 0;
        let Some(address) = pointer.address().filter(|_| may_have_owners) else {
            return Ok(false);
        };
        let count = self.owners_of(address)?;
        let now = count.now.checked_sub(1).ok_or_else(|| {
            damaged(format!("block {address:#x} is given back more often than it has owners"))
        })?;
        self.owners.counts.insert(address, Count { now, ..count });
        Ok(now > 0)
    }

    fn owners_of(&self, address: u64) -> Result<Count> {
        if let Some(count) = self.owners.counts.get(&address) {
            return Ok(*count);
        }
        let before = self.pool.owners_of(address)?;
        Ok(Count { before, now: before })
    }

    /// Puts the counts that have changed among the items of the pool's own tree.
    pub(super) fn collect_owners(&mut self) {
        for (address, Count { before, now }) in std::mem::take(&mut self.owners.counts) {
            if before != now && (before > 1 || now > 1) {
                let record = (now > 1).then(|| OwnersRecord { count: now }.encode());
                self.items.insert(owners_key(address), record);
            }
        }
    }
}

impl crate::front::Inner {
    /// Owners of a block that is in use, as the last commit has them.
    pub(crate) fn owners_of(&self, address: u64) -> Result<u64> {
        // Asked first: under a later number what is read of this root could be made good over what
        // lies there by then.
        let at = At { media: &self.media, epoch: self.media.epoch() };
        let root = self.superblock.lock().pool_tree.as_ref().map(Pointer::encode);
        owners_in(&at, root.as_ref(), address)
    }
}

/// The blocks that the layers of a dataset adopt, each once.
fn adopted(layers: &[Arc<Layer>]) -> Result<BTreeSet<u64>> {
    let mut addresses = BTreeSet::new();
    for (_, entry) in flatten(layers) {
        if let Entry::Item(item) = entry
            && let Some(Block::Stored(token)) = &item.block
            && Pointer::peek_waiting(&token.place)
        {
            addresses.extend(decode_pointer(&token.place)?.address());
        }
    }
    Ok(addresses)
}

fn damaged(reason: String) -> Error {
    Error::Damaged(Damage { what: "the owners of a block", place: "the pool".to_owned(), reason })
}
