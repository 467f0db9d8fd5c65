//! The tree of a dataset takes in what its layers hold.

use super::references::{Uses, references_changes};
use crate::base::pointers::decode_pointer;
use crate::commit::blocks;
use crate::commit::draft::Commit;
use crate::commit::owners;
use crate::io::At;
use crate::memtable::dataset::Dataset;
use crate::memtable::overlay::{Entry, Layer, flatten};
use crate::memtable::settings::Settings;
use crate::tree::{self, Change, NodeSink, NodeSource};
use bytes::Bytes;
use marram_codec::ChecksumKind;
use marram_format::dataset::DatasetRecord;
use marram_format::group::Group;
use marram_format::node::Node;
use marram_format::pointer::Pointer;
use marram_store::{Block, FreshBlock, Key, Result, Token};
use std::collections::HashMap;
use std::sync::Arc;

/// Takes the nodes of one tree.
pub(super) struct TreeSink<'c, 'p> {
    pub(super) commit: &'c mut Commit<'p>,
    pub(super) checksum: ChecksumKind,
    pub(super) dropped_nodes: Vec<Bytes>,
    pub(super) dropped_blocks: Vec<Bytes>,
    pub(super) written_grains: u64,
}

impl<'c, 'p> TreeSink<'c, 'p> {
    pub(super) fn new(commit: &'c mut Commit<'p>, checksum: ChecksumKind) -> TreeSink<'c, 'p> {
        let (dropped_nodes, dropped_blocks) = (Vec::new(), Vec::new());
        TreeSink { commit, checksum, dropped_nodes, dropped_blocks, written_grains: 0 }
    }
}

impl NodeSource for TreeSink<'_, '_> {
    fn node(&self, pointer: &Bytes) -> Result<Arc<Node>> {
        let media = &self.commit.pool.media;
        At { media, epoch: media.epoch() }.node(pointer)
    }
}

impl NodeSink for TreeSink<'_, '_> {
    fn write_node(&mut self, node: Bytes) -> Result<Bytes> {
        let pointer = blocks::write_metadata(self.commit, &node, self.checksum)?;
        self.commit.pool.media.remember_node(&pointer, node);
        self.written_grains += pointer.grains();
        Ok(pointer.encode())
    }

    fn settle(&mut self) -> Result<()> {
        self.commit.queue.write_out()
    }

    fn drop_node(&mut self, pointer: &Bytes) -> Result<()> {
        self.dropped_nodes.push(pointer.clone());
        Ok(())
    }

    fn drop_block(&mut self, pointer: Bytes) {
        self.dropped_blocks.push(pointer);
    }
}

/// What the items of a commit refer to, once all fresh blocks are written.
struct Resolved {
    changes: Vec<Change>,
    uses: Uses,
}

/// The pointer of a block that is adopted by this group, if it waited for that.
pub(super) fn settled(pointer: Pointer, group: Group) -> Pointer {
    match pointer.adopted() {
        Some(Group(0)) => Pointer { birth: group, ..pointer },
        _ => pointer,
    }
}

/// An item whose pointer is not final yet; `None` where one goes.
pub(super) type Counted = (Key, Option<(Bytes, Option<Pointer>)>);

/// Finds the pointers of items, and counts how often each block is referred to.
pub(super) fn count_uses(
    entries: Vec<(Key, Entry)>,
    group: Group,
    pointer_of: &dyn Fn(&Block) -> Result<Pointer>,
) -> Result<(Vec<Counted>, Uses)> {
    let mut uses = Uses::new(group);
    let mut items = Vec::with_capacity(entries.len());
    for (key, entry) in entries {
        let item = match entry {
            Entry::Removed => None,
            Entry::Item(item) => {
                let pointer = item.block.as_ref().map(pointer_of).transpose()?;
                pointer.iter().for_each(|pointer| uses.add(pointer));
                Some((item.value.clone(), pointer))
            }
        };
        items.push((key, item));
    }
    Ok((items, uses))
}

pub(super) fn final_changes(items: Vec<Counted>, uses: &Uses) -> Vec<Change> {
    let encode = |pointer: Pointer| uses.final_pointer(&pointer).encode();
    items
        .into_iter()
        .map(|(key, item)| {
            let item = item.map(|(value, pointer)| (value, pointer.map(encode)));
            Change { key, item }
        })
        .collect()
}

/// Brings frozen layers of a dataset into its tree.
pub(super) fn take_in(
    commit: &mut Commit<'_>,
    dataset: &Dataset,
    layers: &[Arc<Layer>],
) -> Result<()> {
    let root = commit.root_of(dataset);
    let settings = dataset.settings();
    let mut record = commit.record(dataset.id)?;
    let resolved = resolve(commit, root.as_ref(), layers, &settings, &mut record)?;
    let root = update_tree(commit, &mut record, root, &resolved, &settings)?;
    record.root = root.as_deref().map(decode_pointer).transpose()?;
    commit.roots.insert(dataset.id, root);
    commit.records.insert(dataset.id, Some(record));
    Ok(())
}

fn update_tree(
    commit: &mut Commit<'_>,
    record: &mut DatasetRecord,
    root: Option<Bytes>,
    resolved: &Resolved,
    settings: &Settings,
) -> Result<Option<Bytes>> {
    let mut sink = TreeSink::new(commit, settings.checksum);
    let root = tree::update(&mut sink, record.id, root.as_ref(), &resolved.changes)?;
    sink.settle()?;
    let dropped = std::mem::take(&mut sink.dropped_blocks);
    let (counts, dead) = references_changes(&sink, root.as_ref(), &resolved.uses, &dropped)?;
    let root = tree::update(&mut sink, record.id, root.as_ref(), &counts)?;
    let TreeSink { dropped_nodes, written_grains, .. } = sink;
    record.referenced_grains += written_grains;
    for pointer in dropped_nodes.iter().chain(&dead) {
        owners::release(commit, record, &decode_pointer(pointer)?)?;
    }
    Ok(root)
}

/// Writes what is fresh and turns entries into changes of the tree.
fn resolve(
    commit: &mut Commit<'_>,
    root: Option<&Bytes>,
    layers: &[Arc<Layer>],
    settings: &Settings,
    record: &mut DatasetRecord,
) -> Result<Resolved> {
    let entries = flatten(layers);
    let mut fresh: Vec<Arc<FreshBlock>> = Vec::new();
    let mut places: HashMap<*const FreshBlock, usize> = HashMap::new();
    for (_, entry) in &entries {
        if let Entry::Item(item) = entry
            && let Some(Block::Fresh(block)) = &item.block
            && commit.token_of(block).is_none()
        {
            places.entry(Arc::as_ptr(block)).or_insert_with(|| {
                fresh.push(block.clone());
                fresh.len() - 1
            });
        }
    }
    let pointers = blocks::write_fresh(commit, &fresh, settings)?;
    record.referenced_grains += pointers.iter().map(Pointer::grains).sum::<u64>();
    let group = commit.group;
    let token_of = |block: &Arc<FreshBlock>| commit.token_of(block);
    let pointer_of = |block: &Block| match block {
        Block::Stored(token) => Ok(settled(decode_pointer(&token.place)?, group)),
        Block::Fresh(block) => match (token_of(block), places.get(&Arc::as_ptr(block))) {
            (Some(token), _) => decode_pointer(&token.place),
            (None, Some(place)) => Ok(pointers[*place].clone()),
            (None, None) => unreachable!("every fresh block was collected"),
        },
    };
    let (items, mut uses) = count_uses(entries, commit.group, &pointer_of)?;
    record.referenced_grains += uses.adopted_grains();
    let media = &commit.pool.media;
    uses.flag_counted(&At { media, epoch: media.epoch() }, root)?;
    let resolved = Resolved { changes: final_changes(items, &uses), uses };
    for (block, pointer) in fresh.into_iter().zip(&pointers) {
        let pointer = resolved.uses.final_pointer(pointer);
        let token = Token { place: pointer.encode(), len: pointer.logical_len };
        commit.tokens.insert(Arc::as_ptr(&block) as usize, token.clone());
        commit.written.push((block, token));
    }
    Ok(resolved)
}
