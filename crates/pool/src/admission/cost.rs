//! What a batch is taken to need, reckoned from the batch alone.

use crate::memtable::foreign_blocks::is_adoption;
use marram_format::node::{NODE_BYTES_MAX, leaf_entry_bytes};
use marram_format::pointer::GRAIN_BYTES;
use marram_store::{Batch, Block, Edit, Item};
use std::collections::HashSet;
use std::sync::Arc;

/// Copies of a node.
pub(crate) const COPIES: u64 = 2;
/// Bytes on media that a changed key is taken to need when free space is reported: neighbours share
/// leaves.
pub(crate) const KEY_BYTES: u64 = 1024;
/// The most that a changed key needs: its leaf is rewritten, perhaps as two, in two copies.
pub(crate) const KEY_BYTES_MAX: u64 = 2 * (NODE_BYTES_MAX as u64 + 2 * GRAIN_BYTES);
/// The keys of one batch are neighbours of a few others: beside so many leaves of their own, they
/// are taken to need [`NEIGHBOUR_BYTES`] each.
const BATCH_LEAVES: u64 = 6;
/// See [`BATCH_LEAVES`].
const NEIGHBOUR_BYTES: u64 = 16 << 10;
/// Keys of the pool's own tree that the records of a fork in memory and of its base change at most.
const FORK_KEYS: u64 = 8;

/// Bytes of content that a batch brings, counted in grains. A block that several items refer to is
/// written once, and one that was written while somebody looked for space is there.
pub(crate) fn content_bytes(batch: &Batch<'_>) -> u64 {
    let mut seen = HashSet::new();
    let bytes = batch.edits.iter().map(|edit| match edit {
        Edit::Put { item: Item { block: Some(Block::Fresh(fresh)), .. }, .. } => {
            let is_again = Arc::strong_count(fresh) > 1 && !seen.insert(Arc::as_ptr(fresh));
            match is_again || fresh.stored().is_some() {
                true => 0,
                false => (fresh.data().len() as u64).next_multiple_of(GRAIN_BYTES),
            }
        }
        Edit::Patch { data, .. } => data.len() as u64,
        Edit::Put { .. } | Edit::Remove { .. } | Edit::Add { .. } => 0,
    });
    bytes.sum()
}

/// Bytes on media that a batch is taken to need. The number of a block's owners is an item of its
/// own in the pool's tree.
pub(crate) fn cost(batch: &Batch<'_>) -> u64 {
    let counters = batch.edits.iter().filter(|edit| matches!(edit, Edit::Add { .. })).count();
    // Counters lie side by side, in a leaf that nearly every batch changes.
    let keys = (batch.edits.len() - counters) as u64 + u64::from(counters > 0);
    let adopts = |edit: &&Edit<'_>| matches!(edit, Edit::Put { item, .. } if is_adoption(item));
    let keys = keys + batch.edits.iter().filter(adopts).count() as u64;
    content_bytes(batch) + cost_of_keys(keys)
}

/// Bytes on media that keys of one batch are taken to need.
fn cost_of_keys(keys: u64) -> u64 {
    let leaves = keys.min(BATCH_LEAVES) * KEY_BYTES_MAX;
    leaves + keys.saturating_sub(BATCH_LEAVES) * NEIGHBOUR_BYTES
}

/// The records of a merge that waits are taken for those of so many forks: two states are kept.
const FORKS_OF_MERGE: usize = 2;

/// As so many forks in memory are taken what waits beside layers, and so many merges more.
pub(crate) fn forks_of(forks: usize, merges: usize) -> u64 {
    (forks + merges * FORKS_OF_MERGE) as u64
}

/// Bytes on media that so many forks in memory are taken to need in the commit that makes records
/// of them, beside what waits: each is a moment of its parent, whose root is written then.
pub(crate) fn cost_of_forks(forks: u64) -> u64 {
    cost_of_keys(forks * FORK_KEYS) + forks * KEY_BYTES_MAX
}

/// What a dry run finds at the very least: the content, and what is put in two
/// copies of leaves. To be had without a look at any tree.
pub(crate) fn least_cost(batch: &Batch<'_>) -> u64 {
    let put = batch.edits.iter().map(|edit| match edit {
        Edit::Put { item, .. } => leaf_entry_bytes(item.value.len(), 0) as u64,
        Edit::Patch { .. } | Edit::Remove { .. } | Edit::Add { .. } => 0,
    });
    content_bytes(batch) + COPIES * put.sum::<u64>()
}
