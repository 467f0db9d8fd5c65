//! In what two trees differ.
//!
//! Both are walked side by side. A subtree that both lead to by the same pointer is the same in
//! both and is skipped, at whatever level each has it: so the cost follows the difference, also
//! when nodes were split or joined or a tree has grown a level.

use super::read::malformed;
use super::{Found, LEVELS_MAX, NodeSource};
use bytes::Bytes;
use marram_format::key::{KEY_BYTES, Key};
use marram_format::node::{Leaf, Node};
use marram_store::Result;
use std::cmp::Ordering;
use std::sync::Arc;

/// An item that is not the same in both trees.
pub(crate) struct Differing {
    pub(crate) before: Option<Found>,
    pub(crate) after: Option<Found>,
}

/// Visits the items from `from` on in which the trees differ, by ascending keys, until the visitor
/// returns false.
pub(crate) fn changes(
    source: &dyn NodeSource,
    (before, after): (Option<&Bytes>, Option<&Bytes>),
    from: Key,
    visit: &mut dyn FnMut(Differing) -> bool,
) -> Result<()> {
    walk(source, (before, after), from, (Same::PassedOver, visit))
}

/// As [`changes`], with all items of the leaves that are not the same in both trees.
pub(crate) fn beside(
    source: &dyn NodeSource,
    (before, after): (Option<&Bytes>, Option<&Bytes>),
    from: Key,
    visit: &mut dyn FnMut(Differing) -> bool,
) -> Result<()> {
    walk(source, (before, after), from, (Same::Visited, visit))
}

/// What becomes of items that are the same in leaves that are not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Same {
    PassedOver,
    Visited,
}

fn walk(
    source: &dyn NodeSource,
    (before, after): (Option<&Bytes>, Option<&Bytes>),
    from: Key,
    (same, visit): (Same, &mut dyn FnMut(Differing) -> bool),
) -> Result<()> {
    let mut before = Cursor::new(source, before, from);
    let mut after = Cursor::new(source, after, from);
    loop {
        if let (Some(here), Some(there)) = (before.way.last_mut(), after.way.last_mut()) {
            pass_same(here, there, same);
        }
        let (here, there) = (before.front()?, after.front()?);
        let order = match (&here, &there) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(here), Some(there)) if here.is_same_subtree(there) => {
                before.pass();
                after.pass();
                continue;
            }
            (Some(here), Some(there)) => here.order(there),
        };
        let opens = |front: &Option<Front>, is_first: bool| {
            is_first && front.as_ref().is_some_and(|front| front.level > 0)
        };
        if opens(&here, order != Ordering::Greater) {
            before.open()?;
        } else if opens(&there, order != Ordering::Less) {
            after.open()?;
        } else {
            let found = Differing {
                before: (order != Ordering::Greater).then(|| before.take()).flatten(),
                after: (order != Ordering::Less).then(|| after.take()).flatten(),
            };
            if !visit(found) {
                return Ok(());
            }
        }
    }
}

/// Passes over what comes next in both and is the same: that is most of what two nodes have, and
/// nothing need be taken out of them to see it.
fn pass_same((had, here): &mut Step, (has, there): &mut Step, same: Same) {
    let is_same = |here: usize, there: usize| match (&**had, &**has) {
        (Node::Branch(had), Node::Branch(has)) => {
            here < had.len()
                && there < has.len()
                && had.pointer_bytes(here) == has.pointer_bytes(there)
        }
        (Node::Leaf(had), Node::Leaf(has)) => {
            same == Same::PassedOver
                && here < had.len()
                && there < has.len()
                && is_same_item(had.parts(here), has.parts(there))
        }
        _ => false,
    };
    while is_same(*here, *there) {
        (*here, *there) = (*here + 1, *there + 1);
    }
}

fn is_same_item(before: Parts<'_>, after: Parts<'_>) -> bool {
    before.0 == after.0 && before.1 == after.1 && is_same_content(before.2, after.2)
}

impl Differing {
    /// The key under which they differ.
    pub(crate) fn key(&self) -> Key {
        let found = self.after.as_ref().or(self.before.as_ref());
        found.expect("one of both has something").key
    }

    pub(crate) fn is_same(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => {
                let pointers = [&before.pointer, &after.pointer];
                let [had, has] = pointers.map(|pointer| pointer.as_deref().unwrap_or_default());
                before.value == after.value && is_same_content(had, has)
            }
            _ => false,
        }
    }
}

/// Whether two encoded pointers, empty ones for none, lead to the same block, whatever flags and
/// birth they have: a block that was marked as shared, or adopted from another dataset, is still
/// the same.
fn is_same_content(before: &[u8], after: &[u8]) -> bool {
    /// Where flags and birth of an encoded pointer are.
    const FLAGS_AND_BIRTH: std::ops::Range<usize> = 2..12;
    before.get(..FLAGS_AND_BIRTH.start) == after.get(..FLAGS_AND_BIRTH.start)
        && before.get(FLAGS_AND_BIRTH.end..) == after.get(FLAGS_AND_BIRTH.end..)
}

/// Encoded key, value and encoded pointer of an item.
type Parts<'a> = (&'a [u8; KEY_BYTES], &'a [u8], &'a [u8]);

/// A node that was entered, with the next of its entries.
type Step = (Arc<Node>, usize);

/// What comes next in a tree: an item, or a subtree that has not been looked into.
struct Front {
    /// The item's key; no key of the subtree is smaller.
    key: Key,
    /// 0 for an item; else one more than the level of the subtree's node, or the most possible
    /// where nobody has read it yet: the root.
    level: u8,
    /// Of a subtree.
    pointer: Option<Bytes>,
}

impl Front {
    fn is_same_subtree(&self, other: &Front) -> bool {
        self.pointer.is_some() && self.pointer == other.pointer
    }

    /// What to look into, or report, first: what begins earlier, of two that begin with the same
    /// key the higher one; `Equal` if both.
    fn order(&self, other: &Front) -> Ordering {
        self.key.cmp(&other.key).then(other.level.cmp(&self.level))
    }
}

/// A way through a tree that enters only chosen nodes.
struct Cursor<'s> {
    source: &'s dyn NodeSource,
    from: Key,
    root: Option<Bytes>,
    way: Vec<Step>,
}

impl<'s> Cursor<'s> {
    fn new(source: &'s dyn NodeSource, root: Option<&Bytes>, from: Key) -> Cursor<'s> {
        Cursor { source, from, root: root.cloned(), way: Vec::new() }
    }

    fn front(&mut self) -> Result<Option<Front>> {
        if let Some(root) = &self.root {
            let pointer = Some(root.clone());
            return Ok(Some(Front { key: Key::MIN, level: u8::MAX, pointer }));
        }
        while let Some((node, index)) = self.way.last() {
            match &**node {
                Node::Leaf(leaf) if *index < leaf.len() => {
                    return Ok(Some(Front { key: leaf.key(*index), level: 0, pointer: None }));
                }
                Node::Branch(branch) if *index < branch.len() => {
                    let pointer = Some(branch.pointer(*index));
                    return Ok(Some(Front {
                        key: branch.key(*index),
                        level: node.level(),
                        pointer,
                    }));
                }
                _ => {
                    self.way.pop();
                    self.pass();
                }
            }
        }
        Ok(None)
    }

    /// Passes over what comes next.
    fn pass(&mut self) {
        if self.root.take().is_none()
            && let Some((_, index)) = self.way.last_mut()
        {
            *index += 1;
        }
    }

    /// Enters the subtree that comes next.
    fn open(&mut self) -> Result<()> {
        let pointer = match (&self.root, self.way.last()) {
            (Some(root), _) => root.clone(),
            (None, Some((node, index))) => match &**node {
                Node::Branch(branch) => branch.pointer(*index),
                Node::Leaf(_) => return Err(malformed("an item was to be entered")),
            },
            (None, None) => return Err(malformed("nothing was to be entered")),
        };
        if self.way.len() >= usize::from(LEVELS_MAX) {
            return Err(malformed("deeper than any tree can be"));
        }
        let node = self.source.node(&pointer)?;
        if let Some((parent, _)) = self.way.last()
            && parent.level() != node.level() + 1
        {
            return Err(malformed("a node is not below its parent"));
        }
        let first = match &*node {
            Node::Leaf(leaf) => leaf.search(&self.from).unwrap_or_else(|place| place),
            Node::Branch(branch) => branch.child_for(&self.from),
        };
        self.root = None;
        self.way.push((node, first));
        Ok(())
    }

    /// The item that comes next; it is passed over.
    fn take(&mut self) -> Option<Found> {
        let (node, index) = self.way.last_mut()?;
        let leaf: &Leaf = match &**node {
            Node::Leaf(leaf) => leaf,
            Node::Branch(_) => return None,
        };
        let found = Found::at(leaf, *index);
        *index += 1;
        Some(found)
    }
}
