//! What a commit of all that waits needs and gives back, found key by key.
//!
//! **It is never taken to need less, nor to give back more**, but for what nodes shrink by when
//! they are written anew with other content.

use crate::admission::cost::KEY_BYTES_MAX;
use crate::admission::losses::Losses;
use crate::base::pointers::decode_pointer;
use crate::io::At;
use crate::memtable::dataset::Dataset;
use crate::memtable::foreign_blocks::is_adoption;
use crate::memtable::overlay::Entry;
use crate::state::State;
use crate::state::ledger::{Look, Waiting};
use crate::tree::{self, Found};
use bytes::Bytes;
use marram_format::node::leaf_entry_bytes;
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_store::{Key, Result};
use std::sync::atomic::Ordering;

/// When more keys than these wait for a commit, nobody looks at each of them: one is made, and has
/// so many changes to take in.
const KEYS_MAX: u64 = 256;
/// What is put into nodes or taken out needs or gives back at most so many times its bytes: there
/// are two copies, in grains that are at least half full.
const NODE_PART: u64 = 4;
/// The shortest tail: a grain in each of two copies.
const TAIL_GRAINS_MIN: u64 = 2;

/// What the changed keys need and give back that wait for a commit; `None` if it may be anything.
/// The caller has the turn to commit.
pub(super) fn look_at_keys(pool: &State) -> Option<Waiting> {
    let batches = pool.dirty.batches.load(Ordering::Acquire);
    let (epoch, forks) = (pool.media.epoch(), pool.forks.begun());
    let mut last = pool.ledger.last_look.lock();
    match &*last {
        Some(look) if (look.batches, look.epoch, look.forks) == (batches, epoch, forks) => {
            look.found
        }
        _ => {
            // The commit reports what cannot be read.
            let found = add_up_keys(pool).ok().flatten();
            *last = Some(Look { batches, epoch, forks, found });
            found
        }
    }
}

pub(super) fn add_up_keys(pool: &State) -> Result<Option<Waiting>> {
    // Asked first: what is applied meanwhile is looked at perhaps, and counted by itself too.
    let keys = pool.dirty.edits();
    if keys > KEYS_MAX {
        return Ok(None);
    }
    let freed = tail_bytes_to_spare(pool);
    let mut sum = Waiting { keys, freed, ..Waiting::default() };
    for dataset in pool.all_dirty_datasets() {
        let waiting = waiting_of(pool, &dataset)?;
        sum.needed += waiting.needed;
        sum.freed += waiting.freed;
        sum.left += waiting.left;
        sum.adopted += waiting.adopted;
    }
    Ok(Some(sum))
}

fn waiting_of(pool: &State, dataset: &Dataset) -> Result<Waiting> {
    let (root, entries, adopted) = dataset.uncommitted();
    let at = At { media: &pool.media, epoch: pool.media.epoch() };
    let (mut nodes, mut losses) = (Nodes::default(), Losses::default());
    for (key, entry) in &entries {
        if let Entry::Item(item) = entry {
            losses.gain(item)?;
        }
        let (leaf, found) = leaf_of(&at, root.as_ref(), *key)?;
        nodes.change(leaf, found.as_ref(), entry);
        if let Some(pointer) = found.and_then(|found| found.pointer) {
            losses.lose(decode_pointer(&pointer)?);
        }
    }
    let blocks = freed_blocks(pool, dataset, losses)?;
    if pool.forks.may_hold_blocks_of(dataset.id) || pool.merges.has_any_in(dataset.id) {
        let left = blocks.left + blocks.freed;
        let needed = needed_by_moments(&at, root.as_ref(), dataset)?;
        return Ok(Waiting { needed, left, ..Waiting::default() });
    }
    let freed = nodes.freed_bytes() + blocks.freed;
    Ok(Waiting { needed: nodes.needed_bytes(), freed, adopted, ..blocks })
}

/// The leaf of a key, and what is there.
fn leaf_of(at: &At<'_>, root: Option<&Bytes>, key: Key) -> Result<(Bytes, Option<Found>)> {
    root.map_or(Ok((Bytes::new(), None)), |root| tree::find(at, root, key))
}

/// What the layers of a dataset need where forks in memory may have begun between them, or merges
/// were applied. Each is a moment of the commit then, and writes a leaf that another one changes
/// too by itself.
fn needed_by_moments(at: &At<'_>, root: Option<&Bytes>, dataset: &Dataset) -> Result<u64> {
    let mut needed = 0;
    for entries in dataset.uncommitted_layers() {
        let mut nodes = Nodes::default();
        for (key, entry) in &entries {
            let (leaf, found) = leaf_of(at, root, *key)?;
            nodes.change(leaf, found.as_ref(), entry);
        }
        needed += nodes.needed_bytes();
    }
    Ok(needed)
}

/// Bytes of the blocks that a dataset lets go of and that are free then, or are left to its
/// snapshots. What another dataset owns too is taken as if that one let go of it as well.
fn freed_blocks(pool: &State, dataset: &Dataset, losses: Losses) -> Result<Waiting> {
    let previous = pool.records.read().get(dataset.id).map(|record| record.previous_group);
    let mut blocks = Waiting::default();
    for (pointer, address, lost) in losses.blocks() {
        if pool.references_to(dataset, &pointer, address)? <= lost {
            let is_left = previous.is_some_and(|previous| pointer.birth <= previous);
            let sum = if is_left { &mut blocks.left } else { &mut blocks.freed };
            *sum += pointer.grains() * GRAIN_BYTES;
        }
    }
    Ok(blocks)
}

/// What the tail of the last commit has more than any tail needs.
fn tail_bytes_to_spare(pool: &State) -> u64 {
    let tail = pool.superblock.lock().tail.as_ref().map_or(0, Pointer::grains);
    tail.saturating_sub(TAIL_GRAINS_MIN) * GRAIN_BYTES
}

/// What becomes of the nodes of one tree when keys change. The keys come in order.
#[derive(Default)]
struct Nodes {
    /// The leaf of the last key without a block.
    leaf: Option<Bytes>,
    leaves: u64,
    /// Keys with a block, before or after. Other references to the block are counted in other
    /// items, of leaves that this look does not read. So these keys share none, and adopted blocks
    /// count twice.
    blocks: u64,
    put_bytes: u64,
    taken_bytes: u64,
}

impl Nodes {
    /// A key is to have this entry instead of what was found in its leaf.
    fn change(&mut self, leaf: Bytes, found: Option<&Found>, entry: &Entry) {
        let pointer = found.and_then(|found| found.pointer.as_ref()).map_or(0, Bytes::len);
        let before = found.map_or(0, |found| leaf_entry_bytes(found.value.len(), pointer));
        // Nobody knows yet how short a new pointer is.
        let (after, has_block) = match entry {
            Entry::Removed => (0, false),
            Entry::Item(item) => (leaf_entry_bytes(item.value.len(), 0), item.block.is_some()),
        };
        self.taken_bytes += before.saturating_sub(after) as u64;
        if has_block || pointer > 0 {
            let is_adopted = matches!(entry, Entry::Item(item) if is_adoption(item));
            self.blocks += 1 + u64::from(is_adopted);
            return;
        }
        self.put_bytes += after as u64;
        if self.leaf.as_ref() != Some(&leaf) {
            self.leaves += 1;
            self.leaf = Some(leaf);
        }
    }

    fn needed_bytes(&self) -> u64 {
        (self.leaves + self.blocks) * KEY_BYTES_MAX + self.put_bytes * NODE_PART
    }

    fn freed_bytes(&self) -> u64 {
        self.taken_bytes * NODE_PART
    }
}
