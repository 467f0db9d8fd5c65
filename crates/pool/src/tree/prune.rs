//! Giving back a whole tree, step by step.

use super::read::malformed;
use super::{LEVELS_MAX, NodeSource};
use bytes::Bytes;
use marram_format::key::Key;
use marram_format::node::Node;
use marram_store::Result;

/// What becomes of the parts of a tree that is given back.
pub(crate) trait PruneSink: NodeSource {
    /// Whether everything below this node belongs to an older tree and stays.
    fn is_older(&self, pointer: &Bytes) -> Result<bool>;

    /// The node is not needed any more.
    fn node_goes(&mut self, pointer: &Bytes) -> Result<()>;

    /// The item's block loses this reference.
    fn block_goes(&mut self, key: Key, pointer: &Bytes) -> Result<()>;
}

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pruned {
    /// The whole tree is given back.
    All,
    /// Everything below this key is given back; the next step goes on with it.
    Before(Key),
}

/// Gives back at most about `left` leaves of the tree at `root`, from the key `from` on, and takes
/// those that it has given back off `left`.
///
/// A node goes when all below it has gone, so that what a crash leaves can still be walked from
/// the root: nodes before `from` are gone, and are not looked at again.
pub(crate) fn prune(
    sink: &mut dyn PruneSink,
    root: &Bytes,
    from: Key,
    left: &mut usize,
) -> Result<Pruned> {
    prune_node(sink, root, from, left, LEVELS_MAX)
}

fn prune_node(
    sink: &mut dyn PruneSink,
    pointer: &Bytes,
    from: Key,
    left: &mut usize,
    levels: u8,
) -> Result<Pruned> {
    if sink.is_older(pointer)? {
        return Ok(Pruned::All);
    }
    let node = sink.node(pointer)?;
    match &*node {
        Node::Leaf(leaf) => {
            for index in 0..leaf.len() {
                if let Some(block) = leaf.pointer(index) {
                    sink.block_goes(leaf.key(index), &block)?;
                }
            }
            *left = left.saturating_sub(1);
        }
        Node::Branch(branch) => {
            let levels = levels.checked_sub(1).ok_or_else(|| malformed("too deep"))?;
            for index in branch.child_for(&from)..branch.len() {
                if *left == 0 {
                    return Ok(Pruned::Before(branch.key(index)));
                }
                let below = prune_node(sink, &branch.pointer(index), from, left, levels)?;
                if let Pruned::Before(key) = below {
                    return Ok(Pruned::Before(key));
                }
            }
        }
    }
    sink.node_goes(pointer)?;
    Ok(Pruned::All)
}
