//! What a commit of one large batch needs, found by changing trees as it would, but for writing.
//!
//! It is the code of a commit that is run, on the roots of the last one, with a sink that keeps
//! nothing and counts ([`Counting`]). **What it finds is never less than what the commit takes:**
//!
//! - A node is counted in two copies as long as it is before it is compressed, each with a grain
//!   more, so however its bytes fall into grains; and what leads to it is as long as can be.
//! - A block that is not written yet has the longest pointer, and its content is counted as it is.
//! - Where pointers that are shorter than that could leave a node so small that it is put together
//!   with its neighbour, that one is counted too.
//! - The nodes and blocks that go are put onto a dead list as if a snapshot had them, or given
//!   back as if none had: what needs more counts.
//! - The counts of references are brought in by a change of their own, as a commit does.
//!
//! Bitmaps, records and the tail come from what is kept back, as for every other batch.

use crate::admission::cost::{COPIES, KEY_BYTES_MAX, content_bytes};
use crate::base::pointers::decode_pointer;
use crate::commit::pool_tree::{POOL_TREE, dead_chunks};
use crate::commit::references;
use crate::commit::references::references_changes;
use crate::commit::trees::{count_uses, final_changes, settled};
use crate::io::At;
use crate::memtable::dataset::Dataset;
use crate::memtable::overlay::Entry;
use crate::state::State;
use crate::tree::{self, Change, NodeSink, NodeSource, SMALL_BYTES};
use bytes::Bytes;
use marram_format::dataset::DatasetRecord;
use marram_format::group::Group;
use marram_format::node::{LeafEntry, NODE_HEADER_BYTES, Node, encode_leaf};
use marram_format::pointer::{
    GRAIN_BYTES, POINTER_BYTES_MAX, POINTER_HEADER_BYTES, Pointer, PointerFlags,
};
use marram_format::space::{OwnersRecord, owners_key};
use marram_store::{Batch, Block, Edit, Error, FreshBlock, Item, Key, Result};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// What leads to a node is at most so long: two copies, each in as many pieces as it has grains.
static LONGEST_NODE_POINTER: [u8; 256] = [0; 256];
/// What leads to a block is at most so long: it is in its pointer, or in very many pieces.
static LONGEST_BLOCK_POINTER: [u8; POINTER_BYTES_MAX] = [0; POINTER_BYTES_MAX];
/// Leaves of the pool's own tree that every commit changes, beside what the batch does to it.
const OTHER_LEAVES: u64 = 6;
/// One of so many parts of what was found is counted more: items that are shorter than expected
/// are cut into nodes elsewhere.
const MARGIN_PART: u64 = 16;
/// A counter has two numbers.
const COUNTER_VALUE: &[u8] = &[0; 16];

/// A sink that counts what would be written.
struct Counting<'p> {
    at: At<'p>,
    bytes: u64,
    dropped_nodes: Vec<Bytes>,
    dropped_blocks: Vec<Bytes>,
}

impl<'p> Counting<'p> {
    fn new(at: At<'p>) -> Counting<'p> {
        let (dropped_nodes, dropped_blocks) = (Vec::new(), Vec::new());
        Counting { at, bytes: 0, dropped_nodes, dropped_blocks }
    }
}

impl NodeSource for Counting<'_> {
    /// What was not written is only asked for to see whether a root is needed: it is.
    fn node(&self, pointer: &Bytes) -> Result<Arc<Node>> {
        if **pointer != LONGEST_NODE_POINTER {
            return self.at.node(pointer);
        }
        let only = LeafEntry { key: Key::MIN, value: Bytes::new(), pointer: None };
        decoded(&encode_leaf(POOL_TREE, &[only])).map(Arc::new)
    }
}

impl NodeSink for Counting<'_> {
    fn write_node(&mut self, node: Bytes) -> Result<Bytes> {
        self.bytes += COPIES * (node.len() as u64 + GRAIN_BYTES);
        if may_become_small(&node)? {
            self.bytes += KEY_BYTES_MAX;
        }
        Ok(Bytes::from_static(&LONGEST_NODE_POINTER))
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn drop_node(&mut self, pointer: &Bytes) -> Result<()> {
        self.dropped_nodes.push(pointer.clone());
        Ok(())
    }

    fn drop_block(&mut self, pointer: Bytes) {
        self.dropped_blocks.push(pointer);
    }
}

/// What a batch does to the pool's own tree.
struct Aside {
    adopted: Vec<u64>,
    /// Nodes and blocks that the dataset no longer uses.
    gone: Vec<Pointer>,
}

fn is_content(pointer: &Pointer) -> bool {
    !pointer.flags.contains(PointerFlags::METADATA)
}

/// What a batch makes of the items of its dataset.
#[derive(Default)]
struct Made {
    /// Without the blocks that are not written yet.
    entries: BTreeMap<Key, Entry>,
    /// The keys of the items that have these.
    unwritten: BTreeSet<Key>,
}

impl Made {
    /// `None` if the batch patches blocks, or puts one twice that is not written.
    fn by(batch: &Batch<'_>) -> Option<Made> {
        let mut made = Made::default();
        let mut blocks: HashSet<*const FreshBlock> = HashSet::new();
        for edit in &batch.edits {
            let entry = match edit {
                Edit::Put { key, item } => Entry::Item(Arc::new(match &item.block {
                    Some(Block::Fresh(block)) if block.stored().is_none() => {
                        made.unwritten.insert(*key);
                        blocks.insert(Arc::as_ptr(block)).then_some(())?;
                        Item::plain(item.value.clone())
                    }
                    _ => item.clone(),
                })),
                Edit::Remove { .. } => Entry::Removed,
                Edit::Add { .. } => {
                    Entry::Item(Arc::new(Item::plain(Bytes::from_static(COUNTER_VALUE))))
                }
                Edit::Patch { .. } => return None,
            };
            made.entries.insert(edit.key(), entry);
        }
        Some(made)
    }
}

/// The pointer of a block that is written, as its item will have it.
fn pointer_of(block: &Block, group: Group) -> Result<Pointer> {
    let token = match block {
        Block::Stored(token) => Some(token),
        Block::Fresh(fresh) => fresh.stored(),
    };
    let token = token.ok_or_else(|| Error::Invalid("a block that is not written".to_owned()))?;
    Ok(settled(decode_pointer(&token.place)?, group))
}

/// Whether a node could be small if what it leads to has shorter pointers than it was given: then
/// its neighbour would be read, and written with it.
fn may_become_small(node: &Bytes) -> Result<bool> {
    let to_spare: usize = match decoded(node)? {
        Node::Leaf(leaf) => {
            let pointers = (0..leaf.len()).filter_map(|index| leaf.pointer(index));
            let longest = pointers.filter(|pointer| **pointer == LONGEST_BLOCK_POINTER);
            longest.count() * (POINTER_BYTES_MAX - POINTER_HEADER_BYTES)
        }
        Node::Branch(branch) => {
            let pointers = (0..branch.len()).map(|index| branch.pointer(index));
            let longest = pointers.filter(|pointer| **pointer == LONGEST_NODE_POINTER);
            longest.count() * (LONGEST_NODE_POINTER.len() - POINTER_HEADER_BYTES)
        }
    };
    Ok(to_spare > 0 && node.len() < NODE_HEADER_BYTES + SMALL_BYTES + to_spare)
}

fn decoded(node: &Bytes) -> Result<Node> {
    Node::decode(node.clone()).map_err(|error| Error::Invalid(error.to_string()))
}

/// What a commit needs at most for a batch of a dataset of which nothing waits, in bytes, with the
/// content. `None` if the batch patches blocks, or puts one twice that is not written: then no dry
/// run can know. The caller has the turn to commit.
///
/// # Errors
/// What the commit would find wrong, with the batch or with the trees.
pub(crate) fn dry_run_commit(
    pool: &State,
    dataset: &Dataset,
    batch: &Batch<'_>,
) -> Result<Option<u64>> {
    references::refuse_unbalanced(pool, dataset, &batch.edits)?;
    let Some(made) = Made::by(batch) else { return Ok(None) };
    let record = pool.records.read().get(dataset.id).map(|it| DatasetRecord::clone(it));
    let record = record.ok_or_else(|| Error::NoDataset(format!("number {}", dataset.id)))?;
    let (bytes, aside) = dry_run_tree(pool, dataset, made)?;
    let as_kept = dry_run_pool_tree(pool, &record, &aside, Group(u64::MAX))?;
    let as_free = dry_run_pool_tree(pool, &record, &aside, record.previous_group)?;
    let nodes = bytes + as_kept.max(as_free);
    let others = OTHER_LEAVES * KEY_BYTES_MAX;
    Ok(Some(content_bytes(batch) + nodes + nodes / MARGIN_PART + others))
}

/// What the nodes of a dataset's tree need.
fn dry_run_tree(pool: &State, dataset: &Dataset, made: Made) -> Result<(u64, Aside)> {
    let group = Group(pool.superblock.lock().group.0 + 1);
    let root = dataset.root();
    let mut sink = Counting::new(At { media: &pool.media, epoch: pool.media.epoch() });
    let Made { entries, unwritten } = made;
    let entries = entries.into_iter().collect();
    let (items, mut uses) = count_uses(entries, group, &|block| pointer_of(block, group))?;
    uses.flag_counted(&sink, root.as_ref())?;
    let adopted = uses.adopted_addresses().collect();
    let mut changes = final_changes(items, &uses);
    for change in changes.iter_mut().filter(|change| unwritten.contains(&change.key)) {
        let longest = Bytes::from_static(&LONGEST_BLOCK_POINTER);
        change.item.iter_mut().for_each(|(_, pointer)| *pointer = Some(longest.clone()));
    }
    tree::update(&mut sink, dataset.id, root.as_ref(), &changes)?;
    let dropped = std::mem::take(&mut sink.dropped_blocks);
    let (counts, dead) = references_changes(&sink, root.as_ref(), &uses, &dropped)?;
    tree::update(&mut sink, dataset.id, root.as_ref(), &counts)?;
    let gone = sink.dropped_nodes.iter().chain(&dead).map(|gone| decode_pointer(gone));
    Ok((sink.bytes, Aside { adopted, gone: gone.collect::<Result<_>>()? }))
}

/// What the nodes of the pool's own tree need, if snapshots have what was born up to a group.
fn dry_run_pool_tree(
    pool: &State,
    record: &DatasetRecord,
    aside: &Aside,
    kept: Group,
) -> Result<u64> {
    let (group, root) = {
        let superblock = pool.superblock.lock();
        let root = superblock.pool_tree.as_ref().map(Pointer::encode);
        (Group(superblock.group.0 + 1), root)
    };
    let mut sink = Counting::new(At { media: &pool.media, epoch: pool.media.epoch() });
    let (dead, free): (Vec<_>, Vec<_>) = aside.gone.iter().partition(|it| it.birth <= kept);
    let dead = dead.into_iter().map(Pointer::encode).collect();
    let chunks = dead_chunks(record.dead_list, group, dead);
    let mut items: BTreeMap<Key, Option<Bytes>> =
        chunks.into_iter().map(|(key, chunk)| (key, Some(chunk))).collect();
    for address in free.into_iter().filter(|it| is_content(it)).filter_map(Pointer::address) {
        let count = pool.owners_of(address)?.saturating_sub(1);
        if count > 0 {
            let record = (count > 1).then(|| OwnersRecord { count }.encode());
            items.insert(owners_key(address), record);
        }
    }
    for address in &aside.adopted {
        items.insert(owners_key(*address), Some(OwnersRecord { count: 2 }.encode()));
    }
    let change =
        |(key, value): (Key, Option<Bytes>)| Change { key, item: value.map(|value| (value, None)) };
    let changes: Vec<Change> = items.into_iter().map(change).collect();
    tree::update(&mut sink, POOL_TREE, root.as_ref(), &changes)?;
    Ok(sink.bytes)
}

#[cfg(test)]
mod tests;
