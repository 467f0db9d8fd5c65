//! Trees of pages: the content of a file, a directory, the inode table, extended attributes.
//!
//! A root pointer has the height of its tree. A null pointer stands for pages of zeros. Of a tree
//! with a size all pointers to pages behind the size are free memory: they are never followed.

use crate::layout::{FANOUT, FIRST_PAGE, HEIGHT_MAX, PAGE, height_for, span, split_root};
use crate::state::State;
use crate::state::commit::Plan;
use crate::state::sharing::{Branch, Leaves, Way};
use marram_vfs::{Error, Result};
use std::collections::BTreeMap;

/// A tree that is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    /// The tree as it is: the pages above the bottom are to become the dataset's own.
    pub(crate) way: Way,
    /// How many pages its pointers shall count for.
    pub(crate) end: u64,
}

/// Trees without a size count all pages.
pub(crate) const UNSIZED: u64 = u64::MAX;

/// Pages by their place in the tree.
pub(crate) type Pages = BTreeMap<u64, u64>;

/// A node of a tree.
#[derive(Clone, Copy)]
struct Inner {
    at: u64,
    height: u64,
    /// The place of the first page below it.
    first: u64,
}

/// A page that a walk has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Met {
    /// Its address.
    pub(crate) at: u64,
    /// Its height; 0 is a page of content.
    pub(crate) height: u64,
    /// The place of the first page below it, or its own.
    pub(crate) first: u64,
}

impl State {
    /// The page of a tree at a place; 0 if there is none.
    pub(crate) fn page_at(&self, root: u64, place: u64) -> Result<u64> {
        let (mut at, mut height) = split_root(root);
        if at == 0 || place >= span(height.min(HEIGHT_MAX)) {
            return Ok(0);
        }
        while height > 0 && at != 0 {
            height -= 1;
            at = self.memory.word(self.page_address(at)? + place / span(height) % FANOUT * 8)?;
        }
        if at == 0 { Ok(0) } else { self.page_address(at) }
    }

    /// An address, if it is that of a page that can be allocated.
    pub(crate) fn page_address(&self, at: u64) -> Result<u64> {
        let places = FIRST_PAGE * PAGE..self.memory.bytes();
        if !at.is_multiple_of(PAGE) || !places.contains(&at) {
            return Err(Error::Damaged(format!("the pointer {at:#x} leads nowhere")));
        }
        Ok(at)
    }

    /// Puts pages into a tree, and makes it count `end` pages. Places that come to count and get no
    /// page become holes. The pages that are replaced are free after the operation.
    pub(crate) fn put(&mut self, tree: Tree, new: &Pages, plan: &mut Plan) -> Result<()> {
        self.own_nodes(tree, new)?;
        let root = if tree.way.valid == 0 { 0 } else { self.memory.word(tree.way.root_at)? };
        let pages = if tree.end == UNSIZED {
            new.last_key_value().map_or(0, |(place, _)| place + 1)
        } else {
            tree.end
        };
        let needed = height_for(pages);
        let (at, height) = split_root(root);
        if at == 0 {
            return self.put_root(tree, needed, new, plan);
        }
        if height >= needed && height == 0 {
            if let Some(page) = new.get(&0) {
                plan.edit(tree.way.root_at, *page);
                self.freed.push(Branch::leaf(at));
            }
            return Ok(());
        }
        if height > 0 {
            self.descend(tree, Inner { at, height, first: 0 }, new, plan)?;
        }
        if height < needed {
            self.grow(tree, (at, height), needed, new, plan)?;
        }
        Ok(())
    }

    /// Makes the nodes whose pointers change the dataset's own.
    fn own_nodes(&mut self, tree: Tree, new: &Pages) -> Result<()> {
        let way = Way { lowest: 1, ..tree.way };
        let extends = tree.end != UNSIZED && tree.end > way.valid && way.valid > 0;
        let last = extends.then(|| way.valid - 1);
        let places = new.keys().copied().filter(|place| *place < way.valid).chain(last);
        places.into_iter().try_for_each(|place| self.own_way(way, place).map(drop))
    }

    /// Gives a tree without pages a root.
    fn put_root(&mut self, tree: Tree, height: u64, new: &Pages, plan: &mut Plan) -> Result<()> {
        let root = match new.is_empty() {
            true => 0,
            false => self.build(tree, height, 0, new)? | height,
        };
        if tree.way.valid == 0 {
            return self.memory.store(tree.way.root_at, 8, root);
        }
        if root != 0 {
            plan.edit(tree.way.root_at, root);
        }
        Ok(())
    }

    /// Puts nodes above the root until the tree is high enough. What counts is the same before and
    /// after the switch.
    fn grow(
        &mut self,
        tree: Tree,
        (root, mut height): (u64, u64),
        needed: u64,
        new: &Pages,
        plan: &mut Plan,
    ) -> Result<()> {
        let mut at = root;
        while height < needed {
            let mut pointers = vec![at];
            for slot in 1..FANOUT {
                let first = slot * span(height);
                if tree.end != UNSIZED && first >= tree.end {
                    break;
                }
                pointers.push(self.build(tree, height, first, new)?);
            }
            at = self.fresh_node(&pointers)?;
            if height == 0
                && let Some(page) = new.get(&0)
            {
                plan.edit(at, *page);
                self.freed.push(Branch::leaf(root));
            }
            height += 1;
        }
        plan.early(tree.way.root_at, at | height);
        Ok(())
    }

    fn fresh_node(&mut self, pointers: &[u64]) -> Result<u64> {
        let node = self.take_page()?;
        let bytes: Vec<u8> = pointers.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.fill(node, &bytes)?;
        Ok(node)
    }

    /// The root pointer of a new tree of these pages, which nothing refers to yet.
    pub(crate) fn fresh_tree(&mut self, new: &Pages) -> Result<u64> {
        let end = new.last_key_value().map_or(0, |(place, _)| place + 1);
        let height = height_for(end);
        let way = Way { root_at: 0, valid: 0, leaves: Leaves::Bytes, lowest: 0 };
        let tree = Tree { way, end };
        Ok(self.build(tree, height, 0, new)? | height)
    }

    /// A new subtree with the pages that lie in it; 0 if none does.
    fn build(&mut self, tree: Tree, height: u64, first: u64, new: &Pages) -> Result<u64> {
        if new.range(first..first + span(height)).next().is_none() {
            return Ok(0);
        }
        if height == 0 {
            return Ok(new[&first]);
        }
        let below = span(height - 1);
        let mut pointers = Vec::new();
        for slot in 0..FANOUT {
            let first = first + slot * below;
            if tree.end != UNSIZED && first >= tree.end {
                break;
            }
            pointers.push(self.build(tree, height - 1, first, new)?);
        }
        self.fresh_node(&pointers)
    }

    /// Changes what lies below a node that is in use.
    fn descend(&mut self, tree: Tree, node: Inner, new: &Pages, plan: &mut Plan) -> Result<()> {
        let below = span(node.height - 1);
        let end = node.first.saturating_add(span(node.height));
        let mut in_node = new.range(node.first..end).map(|(place, _)| *place);
        let (first_new, last_new) = (in_node.next(), in_node.next_back());
        let extends = tree.end != UNSIZED && tree.end > tree.way.valid;
        let from = match (extends, first_new) {
            (true, Some(place)) => place.min(tree.way.valid),
            (true, None) => tree.way.valid,
            (false, Some(place)) => place,
            (false, None) => return Ok(()),
        };
        let last = last_new.or(first_new).map_or(0, |place| place + 1);
        let to = if extends { tree.end.max(last) } else { last }.min(end);
        let from = from.max(node.first) - node.first;
        let slots = from / below..to.saturating_sub(node.first).div_ceil(below).min(FANOUT);
        for slot in slots {
            self.put_below(tree, node, slot, new, plan)?;
        }
        Ok(())
    }

    /// Changes what lies below one pointer of a node that is in use.
    fn put_below(
        &mut self,
        tree: Tree,
        node: Inner,
        slot: u64,
        new: &Pages,
        plan: &mut Plan,
    ) -> Result<()> {
        let (height, at) = (node.height - 1, node.at + slot * 8);
        let first = node.first + slot * span(height);
        let counts = first < tree.way.valid;
        let old = if counts { self.memory.word(at)? } else { 0 };
        let brings = new.range(first..first + span(height)).next().is_some();
        if old != 0 && height > 0 {
            return self.descend(tree, Inner { at: old, height, first }, new, plan);
        }
        if !brings {
            return if counts { Ok(()) } else { self.memory.store(at, 8, 0) };
        }
        let page = self.build(tree, height, first, new)?;
        if !counts {
            return self.memory.store(at, 8, page);
        }
        plan.edit(at, page);
        if old != 0 {
            self.freed.push(Branch::leaf(old));
        }
        Ok(())
    }

    /// Visits the pages of a tree that count, parents first, that begin at `from` or behind.
    ///
    /// # Errors
    /// What `visit` fails with; a pointer that leads nowhere.
    pub(crate) fn walk(
        &self,
        root: u64,
        (from, valid): (u64, u64),
        visit: &mut dyn FnMut(Met) -> Result<()>,
    ) -> Result<()> {
        let (at, height) = split_root(root);
        if height > HEIGHT_MAX || at == 0 && height != 0 {
            return Err(Error::Damaged(format!("the root pointer {root:#x} makes no sense")));
        }
        if at == 0 || valid == 0 {
            return Ok(());
        }
        // Each page of a tree has one place in it: else there is no end to what it shows.
        let (mut met, most) = (0, self.memory.bytes() / PAGE);
        let mut counted = |page: Met| {
            met += 1;
            match met > most {
                true => Err(Error::Damaged("a tree has more pages than the image".to_owned())),
                false => visit(page),
            }
        };
        self.walk_below(Met { at, height, first: 0 }, (from, valid), &mut counted)
    }

    fn walk_below(
        &self,
        met: Met,
        (from, valid): (u64, u64),
        visit: &mut dyn FnMut(Met) -> Result<()>,
    ) -> Result<()> {
        self.page_address(met.at)?;
        if met.first >= from {
            visit(met)?;
        }
        if met.height == 0 {
            return Ok(());
        }
        let height = met.height - 1;
        let start = from.saturating_sub(met.first) / span(height);
        for slot in start..FANOUT {
            let first = met.first + slot * span(height);
            if first >= valid {
                break;
            }
            let at = self.memory.word(met.at + slot * 8)?;
            if at != 0 {
                self.walk_below(Met { at, height, first }, (from, valid), visit)?;
            }
        }
        Ok(())
    }
}
