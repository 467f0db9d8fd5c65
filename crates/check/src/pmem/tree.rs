//! Trees of pages: a root pointer with the height of its tree, nodes of 512 pointers, pages.

use super::memory::{Checked, Problem, number};
use super::pages::Use;
use super::{Check, PAGE};
use crate::finding::FindingKind as Kind;

/// The highest tree.
const HEIGHT_MAX: u64 = 6;
/// Pointers in a node.
const FANOUT: u64 = 512;

/// A tree.
#[derive(Clone, Copy)]
pub(super) struct Tree {
    /// Where its root pointer lies.
    pub(super) root_at: u64,
    /// The root pointer.
    pub(super) root: u64,
    /// How many of its pages count.
    pub(super) valid: u64,
    /// Inodes are at the bottom.
    pub(super) has_inodes: bool,
}

/// The pages below a pointer of a node of this height.
pub(super) fn span(height: u64) -> u64 {
    1 << (9 * height)
}

/// A page at the bottom of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    /// Its place in the tree.
    pub(super) place: u64,
    /// Its address.
    pub(super) at: u64,
}

/// A pointer that is followed.
#[derive(Clone, Copy)]
struct Step {
    /// Where it lies.
    from: u64,
    at: u64,
    height: u64,
    /// The place of the first page below it.
    first: u64,
}

/// The page and the height that a root pointer says.
pub(super) fn split(root_at: u64, root: u64) -> Checked<(u64, u64)> {
    let (at, height) = (root & !(PAGE - 1), root & (PAGE - 1));
    if height > HEIGHT_MAX || at == 0 && height != 0 {
        let detail = format!("the root pointer {root:#x}");
        return Err(Problem::new(Kind::RootPointer, root_at, detail));
    }
    Ok((at, height))
}

impl Check<'_, '_> {
    /// Meets all pages of a tree that count; those at the bottom, in their order. What is wrong is
    /// reported for the inode that has the tree, and left out.
    pub(super) fn meet_tree(&mut self, owner: Option<u64>, tree: Tree) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        match split(tree.root_at, tree.root) {
            Ok((0, _)) => {}
            Ok((at, height)) => {
                let step = Step { from: tree.root_at, at, height, first: 0 };
                self.meet_below(owner, tree, step, &mut leaves);
            }
            Err(problem) => self.tell_owner(owner, problem),
        }
        leaves
    }

    fn tell_owner(&mut self, owner: Option<u64>, problem: Problem) {
        match owner {
            Some(ino) => self.tell_of(ino, problem),
            None => self.tell(problem),
        }
    }

    fn meet_below(&mut self, owner: Option<u64>, tree: Tree, step: Step, leaves: &mut Vec<Leaf>) {
        if let Err(problem) = self.meet_step(owner, tree, step, leaves) {
            self.tell_owner(owner, problem);
        }
    }

    fn meet_step(
        &mut self,
        owner: Option<u64>,
        tree: Tree,
        step: Step,
        leaves: &mut Vec<Leaf>,
    ) -> Checked<()> {
        let counted = match step.height {
            0 => 0,
            height => (tree.valid - step.first).div_ceil(span(height - 1)).min(FANOUT),
        };
        let found = match tree.has_inodes {
            true => Use::Inodes(step.height, counted),
            false => Use::Bytes(step.height, counted),
        };
        self.pages.meet(step.from, step.at, found)?;
        if step.height == 0 {
            leaves.push(Leaf { place: step.first, at: step.at });
            return Ok(());
        }
        let bytes = self.image.page(step.at)?;
        for slot in 0..counted {
            let at = number(&bytes[..], slot as usize * 8, 8);
            if at != 0 {
                let (from, height) = (step.at + slot * 8, step.height - 1);
                let below = Step { from, at, height, first: step.first + slot * span(height) };
                self.meet_below(owner, tree, below, leaves);
            }
        }
        Ok(())
    }
}
