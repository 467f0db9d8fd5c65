//! The pool's own tree: what is in it, and whether each item is where and what it can be.

use crate::block_set::BlockSet;
use crate::blocks::Copies;
use crate::checker::Checker;
use crate::finding::{FindingKind, Place};
use crate::tree::{Item, Tree, Visitor, walk};
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::group::Group;
use marram_format::key::{KEY_BYTES, Key};
use marram_format::operation::{OPERATION_NUMBERS_MAX, OperationRecord};
use marram_format::pointer::{GRAIN_BYTES, Pointer, PointerFlags};
use marram_format::space::{
    DeadChunk, OwnersRecord, ReclaimRecord, SUMMARY_ZONES, Tail, ZONE_BITMAP_BYTES, cursor_key,
    dataset_key, pool_kind,
};
use marram_format::superblock::Superblock;
use marram_format::transaction::TransactionRecord;
use marram_format::version::feature;
use std::collections::BTreeMap;

/// The first object number of dead lists.
const DEAD_OBJECT_MIN: u64 = 1 << 32;
/// Addresses of zones and summaries: the device is in the bits above.
const DEVICE_SHIFT: u32 = 48;

/// A record as it was found.
pub(crate) struct FoundDataset {
    pub(crate) record: DatasetRecord,
    /// Birth of the leaf that it lies in: nothing below the root can be younger.
    pub(crate) birth: Group,
}

/// A dead list.
#[derive(Default)]
pub(crate) struct DeadList {
    pub(crate) blocks: BlockSet,
    /// Birth of its youngest block.
    pub(crate) youngest: Group,
}

/// A dead list in reclaim: what it has that is free is its own, and was met with it.
pub(crate) struct ReclaimList {
    pub(crate) record: ReclaimRecord,
    /// What belongs to the list that it leads to.
    pub(crate) older: BlockSet,
}

/// What the pool's own tree says.
#[derive(Default)]
pub(crate) struct PoolTree {
    pub(crate) datasets: BTreeMap<u64, FoundDataset>,
    pub(crate) dead_lists: BTreeMap<u64, DeadList>,
    pub(crate) reclaims: BTreeMap<u64, ReclaimList>,
    pub(crate) cursors: BTreeMap<u64, Key>,
    /// Transactions over two pools that are not over.
    pub(crate) transactions: BTreeMap<u64, TransactionRecord>,
    /// The log of operations.
    pub(crate) operations: BTreeMap<u64, OperationRecord>,
    complete: bool,
}

/// Reads the pool's own tree and the tail, and compares the bitmaps with what was met so far.
pub(crate) fn read(checker: &mut Checker<'_>, superblock: &Superblock) -> PoolTree {
    let tree = Tree {
        dataset: None,
        id: 0,
        root: superblock.pool_tree.as_ref(),
        youngest: superblock.group,
        before: Group(0),
        enter_older: true,
        from: Key::MIN,
    };
    let mut pool = PoolTree { complete: true, ..PoolTree::default() };
    let walked = walk(checker, &tree, &mut pool);
    pool.complete &= walked;
    let is_noted = superblock.features_read_compatible & feature::RECLAIM != 0;
    if !pool.reclaims.is_empty() && !is_noted {
        let detail = "the superblock does not tell of the feature reclaim";
        checker.report.report(FindingKind::ReclaimList, Place::pool(), detail);
    }
    let tail = read_tail(checker, superblock);
    match (pool.complete, tail) {
        (true, Some(tail)) => settle(checker, superblock, &tail),
        _ => checker.complete = false,
    }
    pool
}

fn read_tail(checker: &mut Checker<'_>, superblock: &Superblock) -> Option<Tail> {
    let Some(pointer) = &superblock.tail else { return Some(Tail::default()) };
    let place = Place::pool();
    checker.check_birth(pointer, superblock.group, &place);
    checker.reach(pointer, &place);
    let content = checker.read_metadata(pointer, Copies::All, &place)?;
    match Tail::decode(&content) {
        Ok(tail) => Some(tail),
        Err(error) => {
            let place = place.at(crate::checker::offset_of(pointer));
            checker.report.report(FindingKind::MetadataMalformed, place, error.to_string());
            None
        }
    }
}

fn settle(checker: &mut Checker<'_>, superblock: &Superblock, tail: &Tail) {
    for (zone, detail) in checker.space.check_summaries() {
        let detail = format!("zone {zone}: {detail}");
        checker.report.report(FindingKind::SpaceSummary, Place::pool(), detail);
    }
    for fault in checker.space.settle(tail) {
        let place = Place::device(fault.grain.saturating_mul(GRAIN_BYTES));
        checker.report.report(fault.kind, place, fault.detail);
    }
    for run in checker.space.reached_but_free() {
        let place = Place::device(run.start * GRAIN_BYTES);
        let detail = format!("{} grains of the pool's own structures", run.grains);
        checker.report.report(FindingKind::SpaceFree, place, detail);
    }
    let found = checker.space.recorded_grains();
    if found != superblock.allocated_grains {
        let detail = format!("{} instead of {found}", superblock.allocated_grains);
        checker.report.report(FindingKind::AllocatedGrains, Place::pool(), detail);
    }
}

impl Visitor for PoolTree {
    fn node(&mut self, _pointer: &Pointer) {}

    fn item(&mut self, checker: &mut Checker<'_>, item: Item) {
        if item.pointer.is_some() {
            let detail = "no item of the pool's own tree has a block";
            let place = Place::pool().key(item.key);
            checker.report.report(FindingKind::ItemBlock, place, detail);
        }
        let result = match (item.key.object, item.key.kind) {
            (0, pool_kind::LOG) => self.operation(&item),
            (1, pool_kind::DATASET) => self.dataset(&item),
            (2, pool_kind::SUMMARY) => self.summary(checker, &item),
            (3, pool_kind::ZONE) => self.zone(checker, &item),
            (4, pool_kind::CURSOR) => self.cursor(&item),
            (5, pool_kind::OWNERS) => owners(checker, &item),
            (6, pool_kind::RECLAIM) => self.reclaim(&item),
            (7, pool_kind::TRANSACTION) => self.transaction(&item),
            (DEAD_OBJECT_MIN.., pool_kind::DEAD) => self.dead(checker, &item),
            (
                _,
                pool_kind::DATASET..=pool_kind::LOG | pool_kind::CURSOR..=pool_kind::TRANSACTION,
            ) => Err((FindingKind::ItemMisplaced, "no such item is looked for there".to_owned())),
            (_, kind) => Err((FindingKind::ItemUnknown, format!("kind {kind}"))),
        };
        if let Err((kind, detail)) = result {
            self.complete &= kind == FindingKind::ItemUnknown;
            checker.report.report(kind, Place::pool().key(item.key), detail);
        }
    }

    fn gap(&mut self) {
        self.complete = false;
    }
}

type ItemResult = Result<(), (FindingKind, String)>;

fn malformed(reason: impl ToString) -> (FindingKind, String) {
    (FindingKind::ItemMalformed, reason.to_string())
}

/// The number in the low bits of an offset whose high bits name the device.
fn on_first_device(offset: u64) -> Result<u64, (FindingKind, String)> {
    match offset >> DEVICE_SHIFT {
        0 => Ok(offset),
        device => Err((FindingKind::ItemMisplaced, format!("there is no device {device}"))),
    }
}

impl PoolTree {
    fn dataset(&mut self, item: &Item) -> ItemResult {
        let record = DatasetRecord::decode(&item.value).map_err(malformed)?;
        if dataset_key(record.id) != item.key {
            let detail = format!("the record of dataset {}", record.id);
            return Err((FindingKind::ItemMisplaced, detail));
        }
        self.datasets.insert(record.id, FoundDataset { record, birth: item.birth });
        Ok(())
    }

    fn summary(&mut self, checker: &mut Checker<'_>, item: &Item) -> ItemResult {
        let run = on_first_device(item.key.offset)?;
        let counts = item.value.chunks_exact(4);
        let len = counts.len() as u64;
        if !counts.remainder().is_empty() || len > SUMMARY_ZONES {
            return Err(malformed(format!("a summary of {} bytes", item.value.len())));
        }
        let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        checker.space.add_summary(run, counts.map(number).collect());
        Ok(())
    }

    fn zone(&mut self, checker: &mut Checker<'_>, item: &Item) -> ItemResult {
        let zone = on_first_device(item.key.offset)?;
        let bitmap = <[u8; ZONE_BITMAP_BYTES]>::try_from(&item.value[..]);
        let bitmap =
            bitmap.map_err(|_| malformed(format!("a bitmap of {} bytes", item.value.len())))?;
        if let Some(fault) = checker.space.add_bitmap(zone, &bitmap) {
            let place = Place::device(fault.grain.saturating_mul(GRAIN_BYTES)).key(item.key);
            checker.report.report(fault.kind, place, fault.detail);
        }
        Ok(())
    }

    fn cursor(&mut self, item: &Item) -> ItemResult {
        let bytes = <[u8; KEY_BYTES]>::try_from(&item.value[..]);
        let bytes =
            bytes.map_err(|_| malformed(format!("a cursor of {} bytes", item.value.len())))?;
        let dataset = item.key.offset;
        let found = self.datasets.get(&dataset).map(|found| found.record.state);
        if item.key != cursor_key(dataset) || found != Some(DatasetState::Destroying) {
            let detail = format!("dataset {dataset} is not being destroyed");
            return Err((FindingKind::ItemMisplaced, detail));
        }
        self.cursors.insert(dataset, Key::decode(&bytes));
        Ok(())
    }

    /// Comes before all dead lists.
    fn reclaim(&mut self, item: &Item) -> ItemResult {
        let record = ReclaimRecord::decode(&item.value).map_err(malformed)?;
        let list = ReclaimList { record, older: BlockSet::default() };
        self.reclaims.insert(item.key.offset, list);
        Ok(())
    }

    fn transaction(&mut self, item: &Item) -> ItemResult {
        let record = TransactionRecord::decode(&item.value).map_err(malformed)?;
        self.transactions.insert(item.key.offset, record);
        Ok(())
    }

    fn operation(&mut self, item: &Item) -> ItemResult {
        let record = OperationRecord::decode(&item.value).map_err(malformed)?;
        let number = item.key.offset;
        if !(1..OPERATION_NUMBERS_MAX).contains(&number) {
            return Err((FindingKind::ItemMisplaced, format!("no entry has the number {number}")));
        }
        self.operations.insert(number, record);
        Ok(())
    }

    fn dead(&mut self, checker: &mut Checker<'_>, item: &Item) -> ItemResult {
        let chunk = DeadChunk::decode(&item.value).map_err(malformed)?;
        let list = item.key.object - DEAD_OBJECT_MIN;
        if !self.reclaims.contains_key(&list) {
            self.dead_lists.entry(list).or_default();
        }
        for bytes in chunk.pointers {
            let place = Place::pool().key(item.key);
            match Pointer::decode(&bytes) {
                Ok(pointer) => {
                    checker.check_birth(&pointer, item.birth, &place);
                    self.dead_block(checker, list, &pointer, &place);
                }
                Err(error) => {
                    let kind = FindingKind::PointerMalformed;
                    checker.report.report(kind, place, error.to_string());
                }
            }
        }
        Ok(())
    }

    /// A block on a dead list. Of one in reclaim, what is free belongs to the list itself.
    fn dead_block(
        &mut self,
        checker: &mut Checker<'_>,
        list: u64,
        pointer: &Pointer,
        place: &Place,
    ) {
        match self.reclaims.get_mut(&list) {
            None => {
                let dead = self.dead_lists.entry(list).or_default();
                dead.youngest = dead.youngest.max(pointer.birth);
                dead.blocks.add(pointer);
            }
            Some(from) if pointer.birth <= from.record.threshold => from.older.add(pointer),
            Some(_) if pointer.flags.contains(PointerFlags::METADATA) => {
                checker.reach(pointer, place);
            }
            Some(_) => checker.reach_content(pointer, place),
        }
    }

    /// The blocks on a dead list, and those that other lists lead to it.
    pub(crate) fn dead_blocks(&self, list: u64) -> BlockSet {
        let own = self.dead_lists.get(&list).map_or_else(BlockSet::default, |found| found.blocks);
        let to_it = self.reclaims.values().filter(|from| from.record.destination == list);
        to_it.fold(own, |blocks, from| blocks.plus(from.older))
    }
}

/// Comes before all dead lists: what is free on one in reclaim may have other owners.
fn owners(checker: &mut Checker<'_>, item: &Item) -> ItemResult {
    let record = OwnersRecord::decode(&item.value).map_err(malformed)?;
    checker.owners.add(item.key.offset, record.count);
    if !checker.may_be_owned {
        // The block is freed then without a look at its other owners.
        let detail = "the superblock does not tell of the feature owners";
        let place = Place::pool().key(item.key);
        checker.report.report(FindingKind::ItemMisplaced, place, detail);
    }
    Ok(())
}
