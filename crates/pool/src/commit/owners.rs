//! Blocks that several datasets own: adopted by one commit, given back by others.
//!
//! **Adoptions come before anything is given back**, in all datasets: a block that its old
//! owner drops in the commit in which the new one adopts it must stay. Until then an adopted
//! pointer has birth 0, in the layers and in the intent log.

use crate::base::pointers::decode_pointer;
use crate::commit::draft::Commit;
use crate::commit::steps::Step;
use crate::io::cache_key;
use crate::memtable::overlay::{Entry, Layer, flatten};
use marram_format::dataset::DatasetRecord;
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

/// The dataset no longer uses a block or node: it is free at once, or a snapshot still has it.
pub(crate) fn release(
    commit: &mut Commit<'_>,
    record: &mut DatasetRecord,
    pointer: &Pointer,
) -> Result<()> {
    let grains = pointer.grains();
    record.referenced_grains = record.referenced_grains.saturating_sub(grains);
    if pointer.birth > record.previous_group {
        return free(commit, pointer);
    }
    if grains > 0 {
        record.dead_grains += grains;
        commit.add_dead(record.dead_list, pointer.encode());
    }
    Ok(())
}

/// One owner gives a block back; without others its grains are free.
pub(crate) fn free(commit: &mut Commit<'_>, pointer: &Pointer) -> Result<()> {
    if lose_owner(commit, pointer)? {
        return Ok(());
    }
    // Readers go on from the old root until the commit is durable, however long a device takes.
    commit.unused.extend(cache_key(pointer));
    let mut space = commit.pool.space.lock();
    pointer.extents().try_for_each(|extent| space.free(extent, &commit.pool.committed()))
}

/// Counts the owners that the frozen layers bring: a step of its own adopts a block anew.
pub(super) fn adopt_all<'s>(
    commit: &mut Commit<'_>,
    steps: impl Iterator<Item = &'s Step>,
) -> Result<()> {
    for Step { layers, .. } in steps {
        if layers.iter().any(|layer| !layer.foreign_blocks.is_empty()) {
            for address in adopted(layers)? {
                let count = owners_of(commit, address)?;
                commit.owners.counts.insert(address, Count { now: count.now + 1, ..count });
                commit.set_feature(feature::OWNERS);
            }
        }
    }
    Ok(())
}

/// Takes one owner of a block away; returns whether it has others.
pub(super) fn lose_owner(commit: &mut Commit<'_>, pointer: &Pointer) -> Result<bool> {
    let may_have_owners =
        !pointer.flags.contains(PointerFlags::METADATA) && commit.features & feature::OWNERS != 0;
    let Some(address) = pointer.address().filter(|_| may_have_owners) else {
        return Ok(false);
    };
    let count = owners_of(commit, address)?;
    let now = count.now.checked_sub(1).ok_or_else(|| {
        damaged(format!("block {address:#x} is given back more often than it has owners"))
    })?;
    commit.owners.counts.insert(address, Count { now, ..count });
    Ok(now > 0)
}

fn owners_of(commit: &Commit<'_>, address: u64) -> Result<Count> {
    if let Some(count) = commit.owners.counts.get(&address) {
        return Ok(*count);
    }
    let before = commit.pool.owners_of(address)?;
    Ok(Count { before, now: before })
}

/// Puts the counts that have changed among the items of the pool's own tree.
pub(super) fn collect_owners(commit: &mut Commit<'_>) {
    for (address, Count { before, now }) in std::mem::take(&mut commit.owners.counts) {
        if before != now && (before > 1 || now > 1) {
            let record = (now > 1).then(|| OwnersRecord { count: now }.encode());
            commit.items.insert(owners_key(address), record);
        }
    }
}
