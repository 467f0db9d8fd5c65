//! The trees of datasets and snapshots.
//!
//! The blocks of a tree that were born after the snapshot before it are its own; the others are
//! those of that snapshot. So walking each tree for its own blocks meets every block once, and what
//! a tree shares with the one before it, with its dead list, must be exactly what that one has.

mod contents;
mod files;
mod links;
mod names;
mod object;
mod paths;
mod references;
mod usage;

pub use files::{FileFault, FileItem, FileSystemItems, InodeCounts};

use crate::block_set::BlockSet;
use crate::blocks::Reading;
use crate::checker::Checker;
use crate::finding::{FindingKind, Place};
use crate::graph::{in_order, predecessor};
use crate::pool::{FoundDataset, PoolTree};
use crate::tree::{Item, Tree, Visitor, walk};
use bytes::Bytes;
use contents::Contents;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::key::{Key, kind};
use marram_format::pointer::{Pointer, PointerFlags};
use std::collections::{BTreeMap, HashMap};

/// The blocks of a tree, and those of them that are not its own.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    all: BlockSet,
    older: BlockSet,
}

/// What is known of trees that were walked.
#[derive(Default)]
struct Walked {
    by_dataset: BTreeMap<u64, Sums>,
    by_root: HashMap<Bytes, BlockSet>,
}

/// Checks all trees.
pub(crate) fn check_all(checker: &mut Checker<'_>, pool: &PoolTree) {
    let mut walked = Walked::default();
    for id in in_order(&pool.datasets) {
        let Some(found) = pool.datasets.get(&id) else { continue };
        match found.record.state {
            DatasetState::Live => checker.summary.datasets += 1,
            DatasetState::Snapshot => checker.summary.snapshots += 1,
            DatasetState::Destroying => checker.summary.destroying += 1,
        }
        let sums = match found.record.state {
            DatasetState::Destroying => check_own(checker, pool, found),
            DatasetState::Snapshot if !checker.options.snapshots => check_own(checker, pool, found),
            DatasetState::Live if is_receiving(&found.record) => check_own(checker, pool, found),
            _ => check_one(checker, &mut walked, found),
        };
        if let Some(sums) = sums {
            check_sums(checker, pool, &walked, &found.record, sums);
            walked.by_dataset.insert(id, sums);
        }
    }
}

/// Whether it is a dataset into which a stream was being received: there is no whole file system in
/// it yet, and it goes when the pool is next served.
fn is_receiving(record: &DatasetRecord) -> bool {
    record.name.starts_with("receive:")
}

/// A tree as far as it is its own.
fn tree_of(found: &FoundDataset) -> Tree<'_> {
    let record = &found.record;
    let is_snapshot = record.state == DatasetState::Snapshot;
    Tree {
        dataset: Some(&record.name),
        id: if is_snapshot { record.parent } else { record.id },
        root: record.root.as_ref(),
        youngest: if is_snapshot { found.birth.min(record.created_group) } else { found.birth },
        before: record.previous_group,
        enter_older: false,
        from: Key::MIN,
    }
}

/// Walks what a tree has of its own, for its space alone.
fn check_own(checker: &mut Checker<'_>, pool: &PoolTree, found: &FoundDataset) -> Option<Sums> {
    let from = pool.cursors.get(&found.record.id).copied().unwrap_or(Key::MIN);
    let tree = Tree { from, ..tree_of(found) };
    if !walk(checker, &tree, &mut OwnBlocks { tree: &tree }) {
        checker.complete = false;
    }
    None
}

/// Walks a whole tree and the file system in it; returns what blocks it has, if all of it could be
/// read.
fn check_one(checker: &mut Checker<'_>, walked: &mut Walked, found: &FoundDataset) -> Option<Sums> {
    let tree = Tree { enter_older: true, ..tree_of(found) };
    let encoded = tree.root.map(Pointer::encode);
    if let (Some(root), Some(encoded)) = (tree.root, &encoded)
        && !tree.owns(root)
        && let Some(all) = walked.by_root.get(encoded)
    {
        return Some(Sums { all: *all, older: *all });
    }
    let mut contents = Contents::new(&tree);
    let complete = walk(checker, &tree, &mut contents);
    contents.count_inodes(&mut checker.summary);
    if complete {
        contents.finish(checker);
    } else {
        checker.complete = false;
        let detail = "what names, links and counts of its file system say of each other";
        let place = Place::of(tree.dataset);
        checker.report.report(FindingKind::Unchecked, place, detail);
    }
    let sums = Sums { all: contents.all, older: contents.older };
    if let Some(encoded) = encoded.filter(|_| complete) {
        walked.by_root.insert(encoded, sums.all);
    }
    complete.then_some(sums)
}

fn check_sums(
    checker: &mut Checker<'_>,
    pool: &PoolTree,
    walked: &Walked,
    record: &DatasetRecord,
    sums: Sums,
) {
    let place = Place::of(Some(&record.name));
    if sums.all.grains != record.referenced_grains {
        let detail = format!("{} instead of {}", record.referenced_grains, sums.all.grains);
        checker.report.report(FindingKind::DatasetGrains, place.clone(), detail);
    }
    let before = predecessor(record);
    let had = match before {
        0 => Some(BlockSet::default()),
        id => walked.by_dataset.get(&id).map(|sums| sums.all),
    };
    let Some(had) = had else { return };
    let dead = pool.dead_blocks(record.dead_list);
    if sums.older.plus(dead) != had {
        let detail = format!(
            "the snapshot before has {} blocks ({} grains), this one has {} of them ({} grains) \
             and {} on its dead list ({} grains)",
            had.blocks, had.grains, sums.older.blocks, sums.older.grains, dead.blocks, dead.grains
        );
        checker.report.report(FindingKind::DeadContent, place, detail);
    }
}

/// What an item's block means for the tree that the item lies in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holding {
    /// The block is counted elsewhere: by the item that counts references.
    Counted,
    /// It belongs to the tree before.
    Older,
    /// It is this tree's own.
    Own,
}

fn holding(tree: &Tree<'_>, key: Key, pointer: &Pointer) -> Holding {
    if pointer.flags.contains(PointerFlags::SHARED) && key.kind != kind::REFERENCES {
        Holding::Counted
    } else if tree.owns(pointer) {
        Holding::Own
    } else {
        Holding::Older
    }
}

/// A tree's own block of content was met; returns what was read of it if anything is wrong.
fn take_own(checker: &mut Checker<'_>, pointer: &Pointer, place: &Place) -> Option<Reading> {
    checker.summary.blocks += 1;
    checker.reach_content(pointer, place);
    if checker.options.read_data { checker.verify(pointer) } else { None }
}

/// Meets the blocks that belong to a tree, and looks at nothing else.
struct OwnBlocks<'t> {
    tree: &'t Tree<'t>,
}

impl Visitor for OwnBlocks<'_> {
    fn node(&mut self, _pointer: &Pointer) {}

    fn item(&mut self, checker: &mut Checker<'_>, item: Item) {
        if let Some(pointer) = &item.pointer {
            let place = Place::of(self.tree.dataset).key(item.key);
            checker.check_birth(pointer, item.birth, &place);
            if holding(self.tree, item.key, pointer) == Holding::Own
                && let Some(reading) = take_own(checker, pointer, &place)
            {
                checker.report_content(pointer, &reading, &place);
            }
        }
    }

    fn gap(&mut self) {}
}
