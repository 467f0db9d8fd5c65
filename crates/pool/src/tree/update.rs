//! Changing a tree in bulk.

use super::read::malformed;
use super::{LEVELS_MAX, NodeSink};
use bytes::Bytes;
use marram_format::key::Key;
use marram_format::node::{
    Branch, BranchEntry, Leaf, LeafEntry, NODE_BYTES_MAX, NODE_HEADER_BYTES, Node,
    branch_entry_bytes, encode_branch, encode_leaf, leaf_entry_bytes,
};
use marram_store::Result;

/// One change: the new item under a key, or none.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) key: Key,
    /// Value and encoded pointer of the new item; `None` removes.
    pub(crate) item: Option<(Bytes, Option<Bytes>)>,
}

/// A node that is smaller than this is put together with a neighbour.
pub(crate) const SMALL_BYTES: usize = NODE_BYTES_MAX / 4;
/// How full nodes are made when content is spread over several.
const FILL_BYTES: usize = NODE_BYTES_MAX / 16 * 15 - NODE_HEADER_BYTES;

/// Applies `changes`, sorted by key and with distinct keys, to the tree at `root`, and returns
/// the new root. `tree` is the number that its nodes carry.
pub(crate) fn update(
    sink: &mut dyn NodeSink,
    tree: u64,
    root: Option<&Bytes>,
    changes: &[Change],
) -> Result<Option<Bytes>> {
    debug_assert!(changes.windows(2).all(|pair| pair[0].key < pair[1].key));
    if changes.is_empty() {
        return Ok(root.cloned());
    }
    let mut update = Update { sink, tree };
    let (mut level, mut nodes) = match root {
        Some(root) => update.node(root, changes, LEVELS_MAX)?,
        None => (0, leaves(merge_items(update.sink, &[], changes))),
    };
    loop {
        if nodes.is_empty() {
            return Ok(None);
        }
        if let [Built::Branch(entries)] = &nodes[..]
            && let [only] = &entries[..]
        {
            return update.lower(only.pointer.clone());
        }
        let mut entries = update.write_all(level, nodes)?;
        if entries.len() == 1 {
            return Ok(entries.pop().map(|entry| entry.pointer));
        }
        level += 1;
        nodes = branches(entries);
    }
}

/// A node that has not been written.
enum Built {
    Leaf(Vec<LeafEntry>),
    Branch(Vec<BranchEntry>),
}

/// A child of a branch that is being rebuilt.
enum Child {
    Kept(BranchEntry),
    Built(Built),
}

struct Update<'a> {
    sink: &'a mut dyn NodeSink,
    tree: u64,
}

impl Update<'_> {
    /// Rebuilds the node at `pointer`; returns its level and what takes its place.
    fn node(
        &mut self,
        pointer: &Bytes,
        changes: &[Change],
        levels: u8,
    ) -> Result<(u8, Vec<Built>)> {
        let node = self.sink.node(pointer)?;
        let built = match &*node {
            Node::Leaf(leaf) => {
                let entries = leaf_entries(leaf);
                let merged = merge_items(self.sink, &entries, changes);
                (0, leaves(merged))
            }
            Node::Branch(branch) => (node.level(), self.branch(branch, changes, levels)?),
        };
        self.sink.drop_node(pointer)?;
        Ok(built)
    }

    fn branch(&mut self, branch: &Branch, changes: &[Change], levels: u8) -> Result<Vec<Built>> {
        let levels = levels.checked_sub(1).ok_or_else(|| malformed("too deep"))?;
        let mut children = Vec::with_capacity(branch.len());
        let mut rest = changes;
        let mut child_level = 0;
        for index in 0..branch.len() {
            let mine = if index + 1 < branch.len() {
                let end = branch.key(index + 1);
                rest.partition_point(|change| change.key < end)
            } else {
                rest.len()
            };
            let (now, later) = rest.split_at(mine);
            rest = later;
            let pointer = branch.pointer(index);
            if now.is_empty() {
                children.push(Child::Kept(BranchEntry { key: branch.key(index), pointer }));
            } else {
                let (level, nodes) = self.node(&pointer, now, levels)?;
                child_level = level;
                children.extend(nodes.into_iter().map(Child::Built));
            }
        }
        let children = self.join_small(children)?;
        let mut entries = Vec::with_capacity(children.len());
        for child in children {
            entries.push(match child {
                Child::Kept(entry) => entry,
                Child::Built(built) => self.write(child_level, built)?,
            });
        }
        Ok(branches(entries))
    }

    /// Puts built nodes that are small together with a neighbour, read from media if need be.
    fn join_small(&mut self, children: Vec<Child>) -> Result<Vec<Child>> {
        let mut joined: Vec<Child> = Vec::with_capacity(children.len());
        for child in children {
            let wanted = is_small(&child) || joined.last().is_some_and(is_small);
            match joined.pop() {
                Some(before) if wanted => {
                    let (before, after) = (self.open(before)?, self.open(child)?);
                    joined.extend(join(before, after).into_iter().map(Child::Built));
                }
                before => {
                    joined.extend(before);
                    joined.push(child);
                }
            }
        }
        Ok(joined)
    }

    /// The content of a child; one on media is dropped, as it will be written anew.
    fn open(&mut self, child: Child) -> Result<Built> {
        let entry = match child {
            Child::Built(built) => return Ok(built),
            Child::Kept(entry) => entry,
        };
        let node = self.sink.node(&entry.pointer)?;
        self.sink.drop_node(&entry.pointer)?;
        Ok(match &*node {
            Node::Leaf(leaf) => Built::Leaf(leaf_entries(leaf)),
            Node::Branch(branch) => Built::Branch(branch_entries(branch)),
        })
    }

    /// A root with one child is not needed: the child is the root, and so on down.
    fn lower(&mut self, pointer: Bytes) -> Result<Option<Bytes>> {
        self.sink.settle()?;
        let mut pointer = pointer;
        for _ in 0..LEVELS_MAX {
            let node = self.sink.node(&pointer)?;
            match &*node {
                Node::Branch(branch) if branch.len() == 1 => {
                    self.sink.drop_node(&pointer)?;
                    pointer = branch.pointer(0);
                }
                _ => return Ok(Some(pointer)),
            }
        }
        Err(malformed("too deep"))
    }

    fn write_all(&mut self, level: u8, nodes: Vec<Built>) -> Result<Vec<BranchEntry>> {
        nodes.into_iter().map(|node| self.write(level, node)).collect()
    }

    fn write(&mut self, level: u8, node: Built) -> Result<BranchEntry> {
        let (key, bytes) = match &node {
            Built::Leaf(entries) => (entries[0].key, encode_leaf(self.tree, entries)),
            Built::Branch(entries) => (entries[0].key, encode_branch(self.tree, level, entries)),
        };
        Ok(BranchEntry { key, pointer: self.sink.write_node(bytes)? })
    }
}

fn leaf_entries(leaf: &Leaf) -> Vec<LeafEntry> {
    (0..leaf.len())
        .map(|index| LeafEntry {
            key: leaf.key(index),
            value: leaf.value(index),
            pointer: leaf.pointer(index),
        })
        .collect()
}

fn branch_entries(branch: &Branch) -> Vec<BranchEntry> {
    (0..branch.len())
        .map(|index| BranchEntry { key: branch.key(index), pointer: branch.pointer(index) })
        .collect()
}

/// The items of a leaf with the changes applied; the sink gets the replaced pointers.
fn merge_items(sink: &mut dyn NodeSink, old: &[LeafEntry], changes: &[Change]) -> Vec<LeafEntry> {
    let mut merged = Vec::with_capacity(old.len() + changes.len());
    let mut old = old.iter().peekable();
    for change in changes {
        while let Some(entry) = old.next_if(|entry| entry.key < change.key) {
            merged.push(entry.clone());
        }
        if let Some(replaced) = old.next_if(|entry| entry.key == change.key)
            && let Some(pointer) = &replaced.pointer
        {
            sink.drop_block(pointer.clone());
        }
        if let Some((value, pointer)) = &change.item {
            let (value, pointer) = (value.clone(), pointer.clone());
            merged.push(LeafEntry { key: change.key, value, pointer });
        }
    }
    merged.extend(old.cloned());
    merged
}

fn leaf_bytes(entry: &LeafEntry) -> usize {
    leaf_entry_bytes(entry.value.len(), entry.pointer.as_ref().map_or(0, Bytes::len))
}

fn branch_bytes(entry: &BranchEntry) -> usize {
    branch_entry_bytes(entry.pointer.len())
}

fn leaves(entries: Vec<LeafEntry>) -> Vec<Built> {
    spread(entries, leaf_bytes).into_iter().map(Built::Leaf).collect()
}

fn branches(entries: Vec<BranchEntry>) -> Vec<Built> {
    spread(entries, branch_bytes).into_iter().map(Built::Branch).collect()
}

/// Cuts entries into runs that fit nodes: one if they fit one, else about equally full ones.
fn spread<E>(entries: Vec<E>, bytes_of: fn(&E) -> usize) -> Vec<Vec<E>> {
    let total: usize = entries.iter().map(bytes_of).sum();
    if entries.is_empty() {
        return Vec::new();
    }
    if total + NODE_HEADER_BYTES <= NODE_BYTES_MAX {
        return vec![entries];
    }
    let share = total.div_ceil(total.div_ceil(FILL_BYTES));
    let mut runs = Vec::new();
    let mut run = Vec::new();
    let mut run_bytes = 0;
    for entry in entries {
        let bytes = bytes_of(&entry);
        let full = run_bytes + bytes + NODE_HEADER_BYTES > NODE_BYTES_MAX;
        if !run.is_empty() && (full || run_bytes >= share) {
            runs.push(std::mem::take(&mut run));
            run_bytes = 0;
        }
        run_bytes += bytes;
        run.push(entry);
    }
    runs.push(run);
    runs
}

fn is_small(child: &Child) -> bool {
    match child {
        Child::Kept(_) => false,
        Child::Built(Built::Leaf(entries)) => {
            entries.iter().map(leaf_bytes).sum::<usize>() < SMALL_BYTES
        }
        Child::Built(Built::Branch(entries)) => {
            entries.iter().map(branch_bytes).sum::<usize>() < SMALL_BYTES
        }
    }
}

fn join(before: Built, after: Built) -> Vec<Built> {
    match (before, after) {
        (Built::Leaf(mut entries), Built::Leaf(more)) => {
            entries.extend(more);
            leaves(entries)
        }
        (Built::Branch(mut entries), Built::Branch(more)) => {
            entries.extend(more);
            branches(entries)
        }
        (before, after) => vec![before, after],
    }
}
