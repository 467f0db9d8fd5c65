//! The items of a dataset, one after another, and the blocks that they have.

use super::files::{FileFault, FileItem, FileSystemItems};
use super::paths::path_of;
use super::references::{Fault, References};
use super::{Holding, holding, take_own};
use crate::block_set::BlockSet;
use crate::checker::{Checker, offset_of};
use crate::finding::{FindingKind, Place};
use crate::summary::Summary;
use crate::tree::{Item, Tree, Visitor};
use marram_format::key::{Key, kind};
use marram_format::pointer::{Pointer, PointerFlags};

/// Objects from this on count references to adopted blocks.
const ADOPTED_OBJECTS: u64 = 1 << 63;
/// Findings of one dataset whose path is looked for.
const PATHS_MAX: u32 = 256;

/// What a dataset holds, as far as it has been seen.
pub(super) struct Contents<'t> {
    tree: &'t Tree<'t>,
    /// All its blocks.
    pub(super) all: BlockSet,
    /// Those that belong to the tree before.
    pub(super) older: BlockSet,
    references: References,
    files: FileSystemItems,
    paths_left: u32,
}

impl Visitor for Contents<'_> {
    fn node(&mut self, pointer: &Pointer) {
        self.add_block(pointer);
    }

    fn item(&mut self, checker: &mut Checker<'_>, item: Item) {
        let lost = self.block(checker, &item);
        let object = item.key.object;
        let counts =
            item.key.kind == kind::REFERENCES && (object == 0 || object >= ADOPTED_OBJECTS);
        if counts {
            self.files.pass_by();
            if let Err(fault) = self.references.count(&item, lost) {
                self.report(checker, item.key, fault);
            }
        } else {
            let block_bytes = item.pointer.as_ref().map(|pointer| u64::from(pointer.logical_len));
            let of_files = FileItem { key: item.key, value: &item.value, block_bytes };
            let mut faults = Vec::new();
            self.files.item(&of_files, &mut faults);
            self.report_all(checker, faults);
        }
        let referred = match &item.pointer {
            Some(pointer) if item.key.kind != kind::REFERENCES => self.references.refer(pointer),
            _ => Ok(false),
        };
        match referred {
            Ok(false) => {}
            Ok(true) => {
                let detail = "the block is shared with other files".to_owned();
                self.report(checker, item.key, (FindingKind::BlockLost, detail));
            }
            Err(fault) => self.report(checker, item.key, fault),
        }
    }

    fn gap(&mut self) {
        self.files.gap();
    }
}

impl<'t> Contents<'t> {
    pub(super) fn new(tree: &'t Tree<'t>) -> Contents<'t> {
        Contents {
            tree,
            all: BlockSet::default(),
            older: BlockSet::default(),
            references: References::default(),
            files: FileSystemItems::default(),
            paths_left: PATHS_MAX,
        }
    }

    fn add_block(&mut self, pointer: &Pointer) {
        self.all.add(pointer);
        if !self.tree.owns(pointer) {
            self.older.add(pointer);
        }
    }

    /// The block of an item; returns whether it is lost.
    fn block(&mut self, checker: &mut Checker<'_>, item: &Item) -> bool {
        let Some(pointer) = &item.pointer else { return false };
        let place = self.place(item.key);
        checker.check_birth(pointer, item.birth, &place);
        let alone = matches!(item.key.kind, kind::USAGE | kind::LIMIT);
        if alone || !matches!(item.key.kind, kind::XATTR | kind::SECTION | kind::REFERENCES..) {
            let offset = offset_of(pointer).unwrap_or_default();
            let detail = format!("it is its value alone, but there is a block at {offset:#x}");
            self.report(checker, item.key, (FindingKind::ItemBlock, detail));
        }
        let metadata = pointer.flags.contains(PointerFlags::METADATA);
        let shared = pointer.flags.contains(PointerFlags::SHARED);
        let adopted = pointer.adopted().is_some();
        if metadata || ((shared || adopted) && pointer.address().is_none()) {
            let detail = match metadata {
                true => "it is flagged as metadata",
                false => "it is flagged as if others could have it",
            };
            let fault = (FindingKind::PointerFlags, detail.to_owned());
            self.report(checker, item.key, fault);
        }
        let held = holding(self.tree, item.key, pointer);
        if held != Holding::Counted {
            self.add_block(pointer);
        }
        held == Holding::Own && self.take(checker, item, pointer)
    }

    /// Meets an own block; looks for the path only if it is damaged.
    fn take(&mut self, checker: &mut Checker<'_>, item: &Item, pointer: &Pointer) -> bool {
        let place = self.place(item.key);
        let Some(reading) = take_own(checker, pointer, &place) else { return false };
        let place = self.full_place(checker, item.key);
        checker.report_content(pointer, &reading, &place)
    }

    /// All items have been seen.
    pub(super) fn finish(&mut self, checker: &mut Checker<'_>) {
        let faults = self.files.finish();
        self.report_all(checker, faults);
        for (key, (kind, detail)) in self.references.finish() {
            self.report(checker, key, (kind, detail));
        }
    }

    /// Counts the inodes that were seen.
    pub(super) fn count_inodes(&self, summary: &mut Summary) {
        let counts = self.files.counts();
        summary.files += counts.files;
        summary.directories += counts.directories;
        summary.other_inodes += counts.others;
    }

    fn report_all(&mut self, checker: &mut Checker<'_>, faults: Vec<FileFault>) {
        for (key, kind, detail) in faults {
            match key {
                Some(key) => self.report(checker, key, (kind, detail)),
                None => checker.report.report(kind, Place::of(self.tree.dataset), detail),
            }
        }
    }

    fn place(&self, key: Key) -> Place {
        let place = Place::of(self.tree.dataset).key(key);
        if key.object == 0 { place } else { place.object(key.object) }
    }

    fn full_place(&mut self, checker: &mut Checker<'_>, key: Key) -> Place {
        let mut place = self.place(key);
        if let Some(root) = self.tree.root
            && key.object != 0
            && self.paths_left > 0
        {
            self.paths_left -= 1;
            place.path = path_of(checker, root, key.object);
        }
        place
    }

    fn report(&mut self, checker: &mut Checker<'_>, key: Key, (kind, detail): Fault) {
        let place = match checker.report.wants(kind) {
            true => self.full_place(checker, key),
            false => self.place(key),
        };
        checker.report.report(kind, place, detail);
    }
}
