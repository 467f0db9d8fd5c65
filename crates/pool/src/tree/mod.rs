//! The copy-on-write B+tree: an ordered map of items on media.
//!
//! Nodes have no links to their neighbours and are never changed where they lie: an update writes
//! new nodes from the leaves up to a new root, and the old root stays whole (Rodeh, "B-trees,
//! shadowing, and clones"). Updates come in bulk, sorted, once a group commit, so each node on
//! the way is rewritten once however many of its items change.
//!
//! A root is the encoded pointer of a node; no root is the empty tree.

mod changes;
mod prune;
mod read;
mod update;

use bytes::Bytes;
use marram_format::node::Node;
use marram_store::Result;
use std::sync::Arc;

pub(crate) use changes::{Differing, beside, changes};
pub(crate) use prune::{PruneSink, Pruned, prune};
pub(crate) use read::{Found, find, get, last, scan};
pub(crate) use update::{Change, SMALL_BYTES, update};

/// Deepest tree, in levels. 32 KiB nodes hold at least 4 children each, in practice hundreds.
pub(crate) const LEVELS_MAX: u8 = 24;

/// Where nodes come from.
pub(crate) trait NodeSource {
    /// The node that an encoded pointer leads to, verified.
    fn node(&self, pointer: &Bytes) -> Result<Arc<Node>>;
}

/// Where new nodes go to, and what becomes of old ones.
pub(crate) trait NodeSink: NodeSource {
    /// Writes a node and returns its encoded pointer.
    fn write_node(&mut self, node: Bytes) -> Result<Bytes>;

    /// Makes the nodes that were written readable; the cache need not have kept them.
    fn settle(&mut self) -> Result<()>;

    /// The tree no longer uses this node.
    fn drop_node(&mut self, pointer: &Bytes) -> Result<()>;

    /// The tree no longer has an item with this pointer.
    fn drop_block(&mut self, pointer: Bytes);
}

#[cfg(test)]
mod tests;
