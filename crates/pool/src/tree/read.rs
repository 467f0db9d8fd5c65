//! Looking things up.

use super::{LEVELS_MAX, NodeSource};
use bytes::Bytes;
use marram_format::key::Key;
use marram_format::node::{Branch, Leaf, Node};
use marram_store::{Damage, Error, Result};

/// An item as a leaf has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) key: Key,
    pub(crate) value: Bytes,
    pub(crate) pointer: Option<Bytes>,
}

impl Found {
    pub(super) fn at(leaf: &Leaf, index: usize) -> Found {
        Found { key: leaf.key(index), value: leaf.value(index), pointer: leaf.pointer(index) }
    }
}

/// A tree whose nodes pass their checksums and yet make no sense.
pub(super) fn malformed(reason: &str) -> Error {
    Error::Damaged(Damage {
        what: "a tree",
        place: "its nodes".to_owned(),
        reason: reason.to_owned(),
    })
}

/// The item under `key`.
pub(crate) fn get(
    source: &dyn NodeSource,
    root: Option<&Bytes>,
    key: Key,
) -> Result<Option<Found>> {
    let Some(root) = root else { return Ok(None) };
    find(source, root, key).map(|(_, found)| found)
}

/// The leaf that `key` belongs into, by its pointer, and the item that it has under it.
pub(crate) fn find(
    source: &dyn NodeSource,
    root: &Bytes,
    key: Key,
) -> Result<(Bytes, Option<Found>)> {
    let mut pointer = root.clone();
    for _ in 0..LEVELS_MAX {
        match &*source.node(&pointer)? {
            Node::Branch(branch) => pointer = branch.pointer(branch.child_for(&key)),
            Node::Leaf(leaf) => {
                let found = leaf.search(&key).ok().map(|index| Found::at(leaf, index));
                return Ok((pointer, found));
            }
        }
    }
    Err(malformed("deeper than any tree can be"))
}

/// Visits the items from `from` to `to`, both included, until the visitor returns false; returns
/// whether it never did.
pub(crate) fn scan(
    source: &dyn NodeSource,
    root: Option<&Bytes>,
    from: Key,
    to: Key,
    visit: &mut dyn FnMut(Found) -> bool,
) -> Result<bool> {
    match root {
        Some(root) if from <= to => scan_node(source, root, from, to, LEVELS_MAX, visit),
        _ => Ok(true),
    }
}

fn scan_node(
    source: &dyn NodeSource,
    pointer: &Bytes,
    from: Key,
    to: Key,
    levels: u8,
    visit: &mut dyn FnMut(Found) -> bool,
) -> Result<bool> {
    let node = source.node(pointer)?;
    match &*node {
        Node::Leaf(leaf) => Ok(scan_leaf(leaf, from, to, visit)),
        Node::Branch(branch) => {
            let levels = levels.checked_sub(1).ok_or_else(|| malformed("too deep"))?;
            for index in branch.child_for(&from)..branch.len() {
                if index > 0 && branch.key(index) > to {
                    break;
                }
                if !scan_node(source, &branch.pointer(index), from, to, levels, visit)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

fn scan_leaf(leaf: &Leaf, from: Key, to: Key, visit: &mut dyn FnMut(Found) -> bool) -> bool {
    let start = leaf.search(&from).unwrap_or_else(|place| place);
    (start..leaf.len())
        .take_while(|index| leaf.key(*index) <= to)
        .all(|index| visit(Found::at(leaf, index)))
}

/// The item with the greatest key from `from` to `to`, both included.
pub(crate) fn last(
    source: &dyn NodeSource,
    root: Option<&Bytes>,
    from: Key,
    to: Key,
) -> Result<Option<Found>> {
    match root {
        Some(root) if from <= to => last_in(source, root, from, to, LEVELS_MAX),
        _ => Ok(None),
    }
}

fn last_in(
    source: &dyn NodeSource,
    pointer: &Bytes,
    from: Key,
    to: Key,
    levels: u8,
) -> Result<Option<Found>> {
    let node = source.node(pointer)?;
    match &*node {
        Node::Leaf(leaf) => {
            let end = leaf.search(&to).map_or_else(|place| place, |index| index + 1);
            let index = end.checked_sub(1).filter(|index| leaf.key(*index) >= from);
            Ok(index.map(|index| Found::at(leaf, index)))
        }
        Node::Branch(branch) => last_in_children(source, branch, from, to, levels),
    }
}

/// The child for `to` may hold only greater keys than `to`; then the one before it is asked.
fn last_in_children(
    source: &dyn NodeSource,
    branch: &Branch,
    from: Key,
    to: Key,
    levels: u8,
) -> Result<Option<Found>> {
    let levels = levels.checked_sub(1).ok_or_else(|| malformed("too deep"))?;
    let first = branch.child_for(&from);
    for index in (first..=branch.child_for(&to)).rev() {
        let found = last_in(source, &branch.pointer(index), from, to, levels)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
