//! Pages that several states have together.
//!
//! A snapshot is one more pointer to the page at the top of an inode table. So a page is a
//! dataset's own if one pointer leads to it and to each page on the way. What is about to change
//! is made so first, from the top down: a page with several pointers is copied, which no reader
//! sees, and the copy's pointers lead to the same pages as before. A page is free when no pointer
//! leads to it.
//!
//! All states that have a page agree on which of its pointers count: an inode's mode and size
//! say that, and they change after its own way has been made.

use crate::layout::{
    FANOUT, FLAG_INLINE, HEIGHT_MAX, INODE, INODES, PAGE, field, pages_of, span, split_root,
};
use crate::state::tree::UNSIZED;
use crate::state::{Basics, Node, State};
use marram_vfs::{Error, Ino, Kind, Result};

/// What the pages at the bottom of a tree are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Pages of inodes.
    Inodes,
    /// Pages without pointers.
    Bytes,
}

/// A page of a tree, with what says which of its pointers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Its address.
    pub(crate) at: u64,
    /// Its height; 0 at the bottom.
    pub(crate) height: u64,
    /// The place of the first page below it, or its own.
    pub(crate) first: u64,
    /// How many pages of the whole tree count.
    pub(crate) valid: u64,
    /// What lies at the bottom.
    pub(crate) leaves: Leaves,
}

impl Branch {
    /// A page at the bottom of a tree that has no pointers.
    pub(crate) fn leaf(at: u64) -> Branch {
        Branch { at, height: 0, first: 0, valid: UNSIZED, leaves: Leaves::Bytes }
    }

    /// The top of a tree, if it has pages.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the root pointer makes no sense.
    pub(crate) fn top(root: u64, valid: u64, leaves: Leaves) -> Result<Option<Branch>> {
        let (at, height) = split_root(root);
        if height > HEIGHT_MAX || at == 0 && height != 0 {
            return Err(Error::Damaged(format!("the root pointer {root:#x} makes no sense")));
        }
        let branch = Branch { at, height, first: 0, valid, leaves };
        Ok((at != 0 && valid != 0).then_some(branch))
    }

    /// How many of its pointers count, of a page above the bottom.
    pub(crate) fn slots(&self) -> u64 {
        let below = self.valid.saturating_sub(self.first);
        below.div_ceil(span(self.height - 1)).min(FANOUT)
    }

    /// The page that one of its pointers leads to.
    pub(crate) fn below(&self, slot: u64, at: u64) -> Branch {
        let height = self.height - 1;
        Branch { at, height, first: self.first + slot * span(height), ..*self }
    }
}

/// A tree and the lowest height of the pages that are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Address of the root pointer.
    pub(crate) root_at: u64,
    /// How many pages count.
    pub(crate) valid: u64,
    /// What lies at the bottom.
    pub(crate) leaves: Leaves,
    /// The height down to which a page is made its dataset's own.
    pub(crate) lowest: u64,
}

impl State {
    /// The trees of an inode.
    pub(crate) fn trees_of(&self, node: Node, basics: &Basics) -> Result<Vec<Branch>> {
        let root = self.memory.word(node.field(field::ROOT))?;
        let valid = match basics.kind()? {
            Kind::Directory => UNSIZED,
            Kind::Symlink if basics.flags & FLAG_INLINE != 0 => 0,
            Kind::Regular | Kind::Symlink => pages_of(basics.size),
            _ => 0,
        };
        let content = if valid == 0 { None } else { Branch::top(root, valid, Leaves::Bytes)? };
        let mut trees: Vec<Branch> = content.into_iter().collect();
        if basics.has_xattrs() {
            let (root, pages) = self.xattr_tree(node)?;
            trees.extend(Branch::top(root, pages, Leaves::Bytes)?);
        }
        Ok(trees)
    }

    /// The pages that the pointers in a page lead to, as far as they count.
    pub(crate) fn children(&self, branch: &Branch) -> Result<Vec<Branch>> {
        if branch.height > 0 {
            let bytes = self.page(branch.at)?;
            let words = bytes
                .chunks_exact(8)
                .map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
            let counted = (0..branch.slots()).zip(words).filter(|(_, at)| *at != 0);
            return Ok(counted.map(|(slot, at)| branch.below(slot, at)).collect());
        }
        let mut trees = Vec::new();
        if branch.leaves == Leaves::Inodes {
            for node in inodes_in(branch) {
                if self.is_used(node)? {
                    trees.extend(self.trees_of(node, &self.basics(node)?)?);
                }
            }
        }
        Ok(trees)
    }

    /// Makes the page that a pointer leads to the dataset's own; the pointer lies in a page that
    /// is. Returns its address.
    fn own_page(&mut self, pointer: u64, branch: &Branch) -> Result<u64> {
        if !self.space.is_shared(branch.at) {
            return Ok(branch.at);
        }
        let children = self.children(branch)?;
        let bytes = self.page(branch.at)?;
        let page = self.apart(|state| {
            let page = state.take_page()?;
            state.memory.fill(page, &bytes)?;
            state.memory.persist();
            let height = state.memory.word(pointer)? & (PAGE - 1);
            state.memory.store(pointer, 8, page | height)?;
            state.memory.persist();
            Ok(page)
        })?;
        for child in children {
            self.space.share(child.at);
        }
        self.space.release(branch.at);
        Ok(page)
    }

    /// Makes the pages of a tree on the way to a place the dataset's own, as far as there are any.
    /// Returns the address of the lowest that is meant; 0 if it is not there.
    pub(crate) fn own_way(&mut self, way: Way, place: u64) -> Result<u64> {
        let root = self.memory.word(way.root_at)?;
        let Some(mut branch) = Branch::top(root, way.valid, way.leaves)? else { return Ok(0) };
        if place >= span(branch.height) || place >= way.valid {
            return Ok(0);
        }
        let mut pointer = way.root_at;
        while branch.at != 0 && branch.height >= way.lowest {
            branch.at = self.own_page(pointer, &branch)?;
            if branch.height == way.lowest {
                return Ok(branch.at);
            }
            let slot = place / span(branch.height - 1) % FANOUT;
            pointer = branch.at + slot * 8;
            branch = branch.below(slot, self.memory.word(pointer)?);
        }
        Ok(0)
    }

    /// The way to inodes.
    pub(crate) fn table_way(&self) -> Way {
        let root_at = self.dataset.root_at();
        Way { root_at, valid: UNSIZED, leaves: Leaves::Inodes, lowest: 0 }
    }

    /// Makes the page of an inode the dataset's own: the inode is about to change.
    pub(crate) fn own(&mut self, ino: Ino) -> Result<Node> {
        self.node(ino)?;
        let page = self.own_way(self.table_way(), ino.0 / INODES)?;
        Ok(Node { ino: ino.0, at: page + ino.0 % INODES * INODE })
    }

    /// Whether the page of an inode is the dataset's own.
    pub(crate) fn is_own_way(&self, place: u64) -> Result<bool> {
        let (mut at, mut height) = split_root(self.memory.word(self.dataset.root_at())?);
        while at != 0 && !self.space.is_shared(at) {
            if height == 0 {
                return Ok(true);
            }
            height -= 1;
            at = self.memory.word(at + place / span(height) % FANOUT * 8)?;
        }
        Ok(false)
    }

    /// Frees the pages of a tree of bytes from `from` on, once the running operation is durable.
    pub(crate) fn free_from(&mut self, way: Way, from: u64) -> Result<()> {
        if from > 0 {
            self.own_way(Way { lowest: 1, ..way }, from - 1)?;
        }
        let root = self.memory.word(way.root_at)?;
        let mut left: Vec<Branch> = Branch::top(root, way.valid, way.leaves)?.into_iter().collect();
        while let Some(branch) = left.pop() {
            let end = branch.first.saturating_add(span(branch.height));
            if branch.first >= from {
                self.freed.push(branch);
            } else if branch.height > 0 && end > from {
                left.extend(self.children(&branch)?);
            }
        }
        Ok(())
    }

    /// Frees what the operation that is durable now has put out of use, with all that only this
    /// leads to.
    pub(crate) fn release_freed(&mut self) {
        while let Some(branch) = self.freed.pop() {
            if self.space.release(branch.at)
                && let Ok(children) = self.children(&branch)
            {
                self.freed.extend(children);
            }
        }
    }
}

/// The places of inodes in a page of the inode table.
pub(crate) fn inodes_in(branch: &Branch) -> impl Iterator<Item = Node> + use<> {
    let (first, page) = (branch.first * INODES, branch.at);
    (0..INODES).map(move |which| Node { ino: first + which, at: page + which * INODE })
}
