//! The walk of a tree: every node verified, every item handed out in order of keys.
//!
//! Each level must be one less than the one above, and the keys of a node must lie between those
//! that its parent has beside it. So a walk comes to an end whatever the bytes say, and enters no
//! node twice.

use crate::blocks::Copies;
use crate::checker::{Checker, offset_of};
use crate::finding::{FindingKind, Place};
use bytes::Bytes;
use marram_format::group::Group;
use marram_format::key::Key;
use marram_format::node::{Branch, Leaf, Node};
use marram_format::pointer::{Pointer, PointerFlags};

/// A tree, and what of it is to be walked.
pub(crate) struct Tree<'t> {
    /// Name of the dataset; none for the pool's own tree.
    pub(crate) dataset: Option<&'t str>,
    /// The number that its own nodes carry.
    pub(crate) id: u64,
    pub(crate) root: Option<&'t Pointer>,
    /// Nothing in it is younger.
    pub(crate) youngest: Group,
    /// What was born in or before this group belongs to the tree before it.
    pub(crate) before: Group,
    /// Whether to enter nodes that belong to the tree before it.
    pub(crate) enter_older: bool,
    /// What lies before this key is not there any more.
    pub(crate) from: Key,
}

/// An item as a leaf has it.
pub(crate) struct Item {
    pub(crate) key: Key,
    pub(crate) value: Bytes,
    pub(crate) pointer: Option<Pointer>,
    /// Birth of the leaf.
    pub(crate) birth: Group,
}

/// Takes what a walk finds.
pub(crate) trait Visitor {
    /// A node is part of the tree.
    fn node(&mut self, pointer: &Pointer);

    /// An item is.
    fn item(&mut self, checker: &mut Checker<'_>, item: Item);

    /// Something is missing between the item before and the next one.
    fn gap(&mut self);
}

impl Tree<'_> {
    /// Whether a block belongs to this tree, and not to the one before it.
    pub(crate) fn owns(&self, pointer: &Pointer) -> bool {
        pointer.birth > self.before
    }

    fn place(&self, pointer: &Pointer, first: Key) -> Place {
        Place::of(self.dataset).key(first).at(offset_of(pointer))
    }
}

/// The keys that a node may hold.
#[derive(Clone, Copy)]
struct Bounds {
    first: Key,
    /// The first key that it may not hold.
    end: Option<Key>,
}

impl Bounds {
    fn contains(&self, key: Key) -> bool {
        key >= self.first && self.end.is_none_or(|end| key < end)
    }
}

/// Walks a tree; returns whether all of it could be read.
pub(crate) fn walk(checker: &mut Checker<'_>, tree: &Tree<'_>, to: &mut dyn Visitor) -> bool {
    let Some(root) = tree.root else { return true };
    let all = Bounds { first: Key::MIN, end: None };
    let mut walk = Walk { checker, tree, to, complete: true };
    walk.node(root, all, None, tree.youngest);
    walk.complete
}

struct Walk<'w, 'a> {
    checker: &'w mut Checker<'a>,
    tree: &'w Tree<'w>,
    to: &'w mut dyn Visitor,
    complete: bool,
}

impl Walk<'_, '_> {
    /// Walks what lies below a pointer.
    fn node(&mut self, pointer: &Pointer, bounds: Bounds, level: Option<u8>, youngest: Group) {
        let owned = self.tree.owns(pointer);
        if !owned && !self.tree.enter_older {
            return;
        }
        let place = self.tree.place(pointer, bounds.first);
        if !pointer.flags.contains(PointerFlags::METADATA) {
            let detail = "a pointer to a tree node is not flagged as metadata";
            self.checker.report.report(FindingKind::PointerFlags, place.clone(), detail);
        }
        if pointer.flags.contains(PointerFlags::ADOPTED) {
            let detail = "a pointer to a tree node is flagged as adopted";
            self.checker.report.report(FindingKind::PointerFlags, place.clone(), detail);
        }
        self.checker.check_birth(pointer, youngest, &place);
        self.to.node(pointer);
        if owned {
            self.checker.summary.nodes += 1;
            if !self.checker.reach(pointer, &place) {
                return self.gap();
            }
        }
        let Some(node) = self.read(pointer, owned, &place) else { return self.gap() };
        if !self.fits(&node, bounds, level, owned, &place) {
            return self.gap();
        }
        match &node {
            Node::Leaf(leaf) => self.leaf(leaf, pointer.birth),
            Node::Branch(branch) => self.branch(branch, node.level(), bounds, pointer.birth),
        }
    }

    fn gap(&mut self) {
        self.complete = false;
        self.to.gap();
    }

    /// Reads a node: all copies by the tree that it belongs to, else one.
    fn read(&mut self, pointer: &Pointer, owned: bool, place: &Place) -> Option<Node> {
        if !owned && let Some(node) = self.checker.blocks.cached(pointer) {
            return Some(node);
        }
        let copies = if owned { Copies::All } else { Copies::First };
        let content = self.checker.read_metadata(pointer, copies, place)?;
        match Node::decode(content) {
            Ok(node) => {
                self.checker.blocks.keep(pointer, &node);
                Some(node)
            }
            Err(error) => {
                let kind = FindingKind::MetadataMalformed;
                self.checker.report.report(kind, place.clone(), error.to_string());
                None
            }
        }
    }

    /// Whether a node can be where it was found.
    fn fits(
        &mut self,
        node: &Node,
        bounds: Bounds,
        level: Option<u8>,
        owned: bool,
        place: &Place,
    ) -> bool {
        let is_foreign = node.tree() != self.tree.id;
        // Snapshots that a clone took over, or went on from, were written for another dataset.
        let is_taken_over =
            self.tree.dataset.is_some() && (1..self.checker.foreign_below).contains(&node.tree());
        if owned && is_foreign && !is_taken_over {
            let detail = format!("it is of tree {}, not {}", node.tree(), self.tree.id);
            self.checker.report.report(FindingKind::NodeTree, place.clone(), detail);
        }
        if level.is_some_and(|level| level != node.level()) {
            let level = level.unwrap_or_default();
            let detail = format!("level {} instead of {level}", node.level());
            self.checker.report.report(FindingKind::NodeLevel, place.clone(), detail);
            return false;
        }
        let outside = match node {
            Node::Leaf(leaf) => first_and_last(leaf.len(), |index| leaf.key(index), bounds),
            Node::Branch(branch) => first_and_last(branch.len(), |index| branch.key(index), bounds),
        };
        let Some(key) = outside else { return true };
        let detail = format!("{key:?} is not below its parent's key or reaches past the next");
        self.checker.report.report(FindingKind::NodeBounds, place.clone(), detail);
        false
    }

    fn branch(&mut self, branch: &Branch, level: u8, bounds: Bounds, birth: Group) {
        let first = if self.tree.from > Key::MIN { branch.child_for(&self.tree.from) } else { 0 };
        for index in first..branch.len() {
            let end = match index + 1 < branch.len() {
                true => Some(branch.key(index + 1)),
                false => bounds.end,
            };
            let bounds = Bounds { first: branch.key(index), end };
            match Pointer::decode(&branch.pointer(index)) {
                Ok(pointer) => self.node(&pointer, bounds, level.checked_sub(1), birth),
                Err(error) => {
                    let place = Place::of(self.tree.dataset).key(bounds.first);
                    let kind = FindingKind::PointerMalformed;
                    self.checker.report.report(kind, place, error.to_string());
                    self.gap();
                }
            }
        }
    }

    fn leaf(&mut self, leaf: &Leaf, birth: Group) {
        for index in 0..leaf.len() {
            let key = leaf.key(index);
            let pointer = match leaf.pointer(index).map(|bytes| Pointer::decode(&bytes)) {
                None => None,
                Some(Ok(pointer)) => {
                    self.check_feature(&pointer, key);
                    Some(pointer)
                }
                Some(Err(error)) => {
                    let place = Place::of(self.tree.dataset).key(key);
                    let kind = FindingKind::PointerMalformed;
                    self.checker.report.report(kind, place, error.to_string());
                    self.gap();
                    continue;
                }
            };
            let item = Item { key, value: leaf.value(index), pointer, birth };
            self.to.item(self.checker, item);
        }
    }

    /// A program without the feature must be kept from a pool that has such a pointer.
    fn check_feature(&mut self, pointer: &Pointer, key: Key) {
        if pointer.is_scattered() && !self.checker.may_be_scattered {
            let place = Place::of(self.tree.dataset).key(key);
            let detail = format!(
                "it lies in {} pieces, and the superblock does not tell of the feature scattered",
                pointer.extents().count()
            );
            self.checker.report.report(FindingKind::PointerMalformed, place, detail);
        }
    }
}

/// The first or last key of a node if it is out of bounds; the others lie between.
fn first_and_last(len: usize, key: impl Fn(usize) -> Key, bounds: Bounds) -> Option<Key> {
    let ends = [Some(0), len.checked_sub(1)].into_iter().flatten().filter(|index| *index < len);
    ends.map(key).find(|key| !bounds.contains(*key))
}

/// Nodes that one look-up may read: honest trees need fewer, hostile ones could ask for any number.
const LOOKUP_NODES_MAX: usize = 4096;
/// Nodes that all look-ups of a check together may read.
pub(crate) const ALL_LOOKUP_NODES_MAX: usize = 1 << 18;

/// A look-up beside the walk: the items of a tree from one key to another. What cannot be read is
/// passed over.
pub(crate) struct Lookup<'v> {
    pub(crate) from: Key,
    pub(crate) to: Key,
    /// Stops the look-up by returning false.
    pub(crate) visit: &'v mut dyn FnMut(Key, &Bytes) -> bool,
    nodes_left: usize,
}

impl<'v> Lookup<'v> {
    pub(crate) fn new(
        from: Key,
        to: Key,
        visit: &'v mut dyn FnMut(Key, &Bytes) -> bool,
    ) -> Lookup<'v> {
        Lookup { from, to, visit, nodes_left: LOOKUP_NODES_MAX }
    }

    /// Runs it from a root.
    pub(crate) fn run(mut self, checker: &mut Checker<'_>, root: &Pointer) {
        self.node(checker, root, None);
    }

    fn node(&mut self, checker: &mut Checker<'_>, pointer: &Pointer, level: Option<u8>) -> bool {
        if self.nodes_left == 0 || checker.lookup_nodes_left == 0 {
            return false;
        }
        self.nodes_left -= 1;
        checker.lookup_nodes_left -= 1;
        let Some(node) = checker.blocks.node(pointer) else { return true };
        if level.is_some_and(|level| level != node.level()) {
            return true;
        }
        match &node {
            Node::Leaf(leaf) => {
                let first = leaf.search(&self.from).unwrap_or_else(|place| place);
                let mut inside =
                    (first..leaf.len()).take_while(|index| leaf.key(*index) <= self.to);
                inside.all(|index| (self.visit)(leaf.key(index), &leaf.value(index)))
            }
            Node::Branch(branch) => {
                let mut inside = branch.child_for(&self.from)..=branch.child_for(&self.to);
                let below = node.level().checked_sub(1);
                inside.all(|index| match Pointer::decode(&branch.pointer(index)) {
                    Ok(child) => self.node(checker, &child, below),
                    Err(_) => true,
                })
            }
        }
    }
}
