//! The items of a dataset, one after another.

use super::links::Links;
use super::object::Object;
use super::paths::path_of;
use super::references::{Fault, References};
use super::usage::Usages;
use super::{Holding, holding, take_own};
use crate::block_set::BlockSet;
use crate::checker::{Checker, offset_of};
use crate::finding::{FindingKind, Place};
use crate::tree::{Item, Tree, Visitor};
use marram_format::key::{Key, kind};
use marram_format::pointer::{Pointer, PointerFlags};
use marram_format::record::{Counters, InodeCount, InodeKind, OrphanReason};

/// Counters of inodes lie at offsets up to this.
const COUNT_OFFSET_MAX: u64 = 1024;
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
    counters: Option<Counters>,
    has_items: bool,
    inode_count: i128,
    inodes: i128,
    references: References,
    links: Links,
    usages: Usages,
    object: Option<Object>,
    /// Something before the next item is missing.
    after_gap: bool,
    paths_left: u32,
}

impl Visitor for Contents<'_> {
    fn node(&mut self, pointer: &Pointer) {
        self.add_block(pointer);
    }

    fn item(&mut self, checker: &mut Checker<'_>, item: Item) {
        self.has_items = true;
        let lost = self.block(checker, &item);
        let counts_adopted =
            item.key.kind == kind::REFERENCES && item.key.object >= ADOPTED_OBJECTS;
        let result = match item.key.object {
            _ if counts_adopted => self.references.count(&item, lost),
            0 => self.of_dataset(&item, lost),
            ino => {
                self.change_object(checker, ino);
                self.of_inode(checker, &item)
            }
        };
        self.after_gap = false;
        if let Err(fault) = result {
            self.report(checker, item.key, fault);
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
        self.after_gap = true;
        if let Some(object) = &mut self.object {
            object.has_gap = true;
        }
    }
}

impl<'t> Contents<'t> {
    pub(super) fn new(tree: &'t Tree<'t>) -> Contents<'t> {
        Contents {
            tree,
            all: BlockSet::default(),
            older: BlockSet::default(),
            counters: None,
            has_items: false,
            inode_count: 0,
            inodes: 0,
            references: References::default(),
            links: Links::default(),
            usages: Usages::default(),
            object: None,
            after_gap: false,
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

    /// An item that belongs to no inode.
    fn of_dataset(&mut self, item: &Item, lost: bool) -> Result<(), Fault> {
        let malformed =
            |error: marram_format::FormatError| (FindingKind::ItemMalformed, error.to_string());
        let offset = item.key.offset;
        match item.key.kind {
            kind::ORPHAN => {
                let reason = OrphanReason::decode(&item.value).map_err(malformed)?;
                self.links.add_orphan(offset, reason);
            }
            kind::COUNTERS if offset == 0 => {
                self.counters = Some(Counters::decode(&item.value).map_err(malformed)?);
            }
            kind::COUNTERS if offset <= COUNT_OFFSET_MAX => {
                let count = InodeCount::decode(&item.value).map_err(malformed)?;
                self.inode_count += i128::from(count.0);
            }
            kind::REFERENCES => self.references.count(item, lost)?,
            kind::USAGE => self.usages.keep(item)?,
            kind::LIMIT => self.usages.limit(item)?,
            kind::INODE..=kind::COUNTERS => {
                let detail = "no such item is looked for there".to_owned();
                return Err((FindingKind::ItemMisplaced, detail));
            }
            other => return Err((FindingKind::ItemUnknown, format!("kind {other}"))),
        }
        Ok(())
    }

    /// The items of an inode begin: those of the one before are complete.
    fn change_object(&mut self, checker: &mut Checker<'_>, ino: u64) {
        if self.object.as_ref().is_some_and(|object| object.ino == ino) {
            return;
        }
        let before = self.object.replace(Object::new(ino, self.after_gap));
        self.finish_object(checker, before);
    }

    fn finish_object(&mut self, checker: &mut Checker<'_>, object: Option<Object>) {
        let Some(object) = object else { return };
        for fault in object.finish() {
            self.report(checker, Key::new(object.ino, kind::INODE, 0), fault);
        }
    }

    fn of_inode(&mut self, checker: &mut Checker<'_>, item: &Item) -> Result<(), Fault> {
        let seed = self.counters.map(|counters| counters.name_seed);
        let Some(object) = &mut self.object else { return Ok(()) };
        match item.key.kind {
            kind::INODE => self.inode(checker, item),
            kind::ENTRY => {
                let (ino, named, fault) = object.entry(item, self.counters)?;
                self.links.add_name(item.key.object, ino, named);
                fault.map_or(Ok(()), Err)
            }
            kind::XATTR => object.attribute(item, seed),
            kind::TARGET => object.target(item),
            kind::SECTION => object.section(item),
            kind::ORPHAN..=kind::LIMIT => {
                let detail = "no such item is looked for there".to_owned();
                Err((FindingKind::ItemMisplaced, detail))
            }
            other => Err((FindingKind::ItemUnknown, format!("kind {other}"))),
        }
    }

    fn inode(&mut self, checker: &mut Checker<'_>, item: &Item) -> Result<(), Fault> {
        let Some(object) = &mut self.object else { return Ok(()) };
        self.inodes += 1;
        let ino = object.ino;
        let inode = match object.record(item) {
            Ok(inode) => inode,
            Err(fault) => {
                self.links.add_damaged(ino);
                self.usages.miss();
                return Err(fault);
            }
        };
        self.links.add_inode(ino, inode);
        self.usages.count(inode);
        match inode.kind {
            InodeKind::Regular => checker.summary.files += 1,
            InodeKind::Directory => checker.summary.directories += 1,
            _ => checker.summary.other_inodes += 1,
        }
        match self.counters {
            Some(counters) if ino >= counters.next_inode => {
                let detail = format!("inode {ino}; {} comes next", counters.next_inode);
                Err((FindingKind::InodeNumber, detail))
            }
            _ => Ok(()),
        }
    }

    /// All items have been seen.
    pub(super) fn finish(&mut self, checker: &mut Checker<'_>) {
        let last = self.object.take();
        self.finish_object(checker, last);
        for (key, (kind, detail)) in self.references.finish() {
            self.report(checker, key, (kind, detail));
        }
        if !self.has_items {
            return;
        }
        let pool = Place::of(self.tree.dataset);
        if self.counters.is_none() {
            let detail = "the item that says which inode comes next";
            checker.report.report(FindingKind::CountersMissing, pool.clone(), detail);
        }
        if self.inode_count != self.inodes {
            let detail = format!("{} instead of {}", self.inode_count, self.inodes);
            checker.report.report(FindingKind::InodeCount, pool, detail);
        }
        for (key, fault) in self.usages.finish() {
            self.report(checker, key, fault);
        }
        for (ino, fault) in self.links.finish() {
            self.report(checker, Key::new(ino, kind::INODE, 0), fault);
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
