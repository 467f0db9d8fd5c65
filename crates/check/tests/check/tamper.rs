//! Rewrites a pool with something wrong in it, and everything else in order: trees are taken apart
//! into items, changed, and written anew, with space, sums and checksums that fit.
//!
//! The bitmaps stay as they are: what the rewriting takes and frees goes into the tail.

use crate::fixture::check_all;
use bytes::Bytes;
use marram_check::{Finding, FindingKind};
use marram_codec::{ChecksumKind, checksum};
use marram_device::{Device, Error, Result, checked_range};
use marram_format::dataset::DatasetRecord;
use marram_format::group::Group;
use marram_format::key::Key;
use marram_format::node::{BranchEntry, LeafEntry, Node, encode_branch, encode_leaf};
use marram_format::pointer::{Checksum, Extent, Place, Pointer, PointerFlags, grains_needed};
use marram_format::space::{Tail, ZONE_BITMAP_BYTES, ZONE_GRAINS, pool_kind};
use marram_format::superblock::{RING_OFFSETS, SUPERBLOCK_BYTES, Superblock, slot_offset};
use std::collections::BTreeMap;

/// Items of a tree: value and encoded pointer.
pub(crate) type Items = BTreeMap<Key, (Bytes, Option<Bytes>)>;

/// Bytes as a device that cannot be written to.
struct Borrowed<'b>(&'b [u8]);

impl Borrowed<'_> {
    fn refuse(&self, action: &'static str, offset: u64, len: u64) -> Result<()> {
        let (device, reason) = (self.name(), "read-only".to_owned());
        Err(Error::Failed { device, action, offset, len, reason })
    }
}

impl Device for Borrowed<'_> {
    fn name(&self) -> String {
        "image".to_owned()
    }

    fn size(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = checked_range("image", offset, buffer.len() as u64, self.0.len() as u64)?;
        let start = usize::try_from(range.start).unwrap();
        buffer.copy_from_slice(&self.0[start..start + buffer.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.refuse("write", offset, buffer.len() as u64)
    }

    fn flush(&self) -> Result<()> {
        self.refuse("flush", 0, 0)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.refuse("discard", offset, len)
    }
}

/// How the nodes of a tree are written; what is not as the engine does it is wrong on purpose.
pub(crate) struct Nodes {
    pub(crate) tree: u64,
    pub(crate) birth: Group,
    pub(crate) flags: PointerFlags,
    /// Items of a leaf.
    pub(crate) leaf_items: usize,
    /// What is added to the level of branches.
    pub(crate) level_added: u8,
    /// What becomes of the bytes of leaves before they are written.
    pub(crate) spoil_leaf: Option<fn(&mut Vec<u8>)>,
    /// What becomes of the keys of branches.
    pub(crate) branch_key: fn(usize, Key) -> Key,
}

impl Nodes {
    fn new(tree: u64, birth: Group) -> Nodes {
        Nodes {
            tree,
            birth,
            flags: PointerFlags::METADATA,
            leaf_items: 40,
            level_added: 0,
            spoil_leaf: None,
            branch_key: |_, key| key,
        }
    }
}

/// The bytes of a pool, and what is in use of them.
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    pub(crate) superblock: Superblock,
    pub(crate) tail: fn(&mut Tail),
    /// By what the bitmaps and the tail said in the beginning, and what was done since.
    used: Vec<bool>,
    /// By what the bitmaps alone said in the beginning.
    recorded: Vec<bool>,
}

impl Image {
    pub(crate) fn new(bytes: Vec<u8>) -> Image {
        let slots = RING_OFFSETS.iter().flat_map(|offset| {
            let start = usize::try_from(*offset).unwrap();
            bytes[start..start + 64 * SUPERBLOCK_BYTES].chunks_exact(SUPERBLOCK_BYTES)
        });
        let superblock =
            slots.filter_map(|slot| Superblock::decode(slot).ok()).max_by_key(|sb| sb.group);
        let superblock = superblock.unwrap();
        let grains = bytes.len() / 4096;
        let (used, recorded) = (vec![false; grains], vec![false; grains]);
        let mut image = Image { bytes, superblock, tail: |_| {}, used, recorded };
        image.read_space();
        image
    }

    fn read_space(&mut self) {
        let (items, _) = self.items(self.superblock.pool_tree.as_ref());
        self.recorded[..256].fill(true);
        for (key, (value, _)) in &items {
            if key.kind == pool_kind::ZONE {
                assert_eq!(value.len(), ZONE_BITMAP_BYTES);
                let start = usize::try_from(key.offset * ZONE_GRAINS).unwrap();
                let zone = &mut self.recorded[start..];
                for (grain, used) in zone.iter_mut().take(16_384).enumerate() {
                    *used = value[grain / 8] >> (grain % 8) & 1 == 1;
                }
            }
        }
        self.used = self.recorded.clone();
        let tail = Tail::decode(&self.content(self.superblock.tail.as_ref().unwrap())).unwrap();
        for (extents, used) in [(tail.allocated, true), (tail.freed, false)] {
            extents.into_iter().for_each(|extent| self.mark(extent, used));
        }
    }

    fn mark(&mut self, extent: Extent, used: bool) {
        let start = usize::try_from(extent.start).unwrap();
        self.used[start..start + extent.grains as usize].fill(used);
    }

    pub(crate) fn free(&mut self, pointer: &Pointer) {
        pointer.extents().for_each(|extent| self.mark(extent, false));
    }

    /// Grains that nobody uses, from the end of the device.
    pub(crate) fn allocate(&mut self, grains: u32) -> Extent {
        let len = grains as usize;
        let start = (256..self.used.len() - len)
            .rev()
            .find(|start| !self.used[*start..start + len].contains(&true))
            .unwrap();
        let extent = Extent { device: 0, start: start as u64, grains };
        self.mark(extent, true);
        extent
    }

    /// The first copy of a block, unpacked.
    pub(crate) fn content(&self, pointer: &Pointer) -> Vec<u8> {
        let Place::Stored { copies, .. } = &pointer.place else { panic!("an embedded block") };
        let mut stored = Vec::new();
        for piece in &copies[0] {
            let start = usize::try_from(piece.start * 4096).unwrap();
            stored.extend_from_slice(&self.bytes[start..start + piece.grains as usize * 4096]);
        }
        stored.truncate(pointer.physical_len as usize);
        marram_codec::decompress(pointer.codec, &stored, pointer.logical_len as usize).unwrap()
    }

    /// All items of a tree, and the pointers to its nodes.
    pub(crate) fn items(&self, root: Option<&Pointer>) -> (Items, Vec<Pointer>) {
        let (mut items, mut nodes) = (Items::new(), Vec::new());
        let mut waiting: Vec<Pointer> = root.cloned().into_iter().collect();
        while let Some(pointer) = waiting.pop() {
            match Node::decode(self.content(&pointer).into()).unwrap() {
                Node::Leaf(leaf) => {
                    for index in 0..leaf.len() {
                        items.insert(leaf.key(index), (leaf.value(index), leaf.pointer(index)));
                    }
                }
                Node::Branch(branch) => waiting.extend(
                    (0..branch.len()).map(|index| Pointer::decode(&branch.pointer(index)).unwrap()),
                ),
            }
            nodes.push(pointer);
        }
        (items, nodes)
    }

    /// Writes bytes as a new block.
    pub(crate) fn write(&mut self, bytes: &[u8], copies: usize) -> Pointer {
        let len = u32::try_from(bytes.len()).unwrap();
        let grains = u32::try_from(grains_needed(len)).unwrap();
        let places: Vec<Vec<Extent>> = (0..copies).map(|_| vec![self.allocate(grains)]).collect();
        for extent in places.iter().flatten() {
            let start = usize::try_from(extent.start * 4096).unwrap();
            self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        }
        let checksum =
            Checksum { kind: ChecksumKind::Xxh3.id(), bytes: checksum(ChecksumKind::Xxh3, bytes) };
        Pointer {
            birth: self.superblock.group,
            logical_len: len,
            physical_len: len,
            codec: 0,
            flags: PointerFlags::METADATA,
            place: Place::Stored { checksum, copies: places },
        }
    }

    fn write_node(&mut self, bytes: &[u8], nodes: &Nodes) -> Pointer {
        Pointer { birth: nodes.birth, flags: nodes.flags, ..self.write(bytes, 2) }
    }

    /// Writes a tree; returns its root and the grains of its nodes.
    pub(crate) fn build(&mut self, items: &Items, nodes: &Nodes) -> (Pointer, u64) {
        let mut grains = 0;
        let mut children = Vec::new();
        let entries: Vec<LeafEntry> = items
            .iter()
            .map(|(key, (value, pointer))| LeafEntry {
                key: *key,
                value: value.clone(),
                pointer: pointer.clone(),
            })
            .collect();
        for run in entries.chunks(nodes.leaf_items) {
            let mut bytes = encode_leaf(nodes.tree, run).to_vec();
            if let Some(spoil) = nodes.spoil_leaf {
                spoil(&mut bytes);
            }
            let pointer = self.write_node(&bytes, nodes);
            grains += pointer.grains();
            children.push(BranchEntry { key: run[0].key, pointer: pointer.encode() });
        }
        let mut level = 1;
        while children.len() > 1 {
            let mut above = Vec::new();
            for run in children.chunks(100) {
                let change = |(index, entry): (usize, &BranchEntry)| BranchEntry {
                    key: (nodes.branch_key)(index, entry.key),
                    pointer: entry.pointer.clone(),
                };
                let run: Vec<BranchEntry> = run.iter().enumerate().map(change).collect();
                let bytes = encode_branch(nodes.tree, level + nodes.level_added, &run);
                let pointer = self.write_node(&bytes, nodes);
                grains += pointer.grains();
                above.push(BranchEntry { key: run[0].key, pointer: pointer.encode() });
            }
            children = above;
            level += 1;
        }
        (Pointer::decode(&children[0].pointer).unwrap(), grains)
    }

    /// Changes the pool's own tree.
    pub(crate) fn edit_pool(&mut self, edit: impl FnOnce(&mut Items, &mut Nodes)) {
        let (mut items, nodes) = self.items(self.superblock.pool_tree.as_ref());
        nodes.iter().for_each(|node| self.free(node));
        self.free(&self.superblock.tail.clone().unwrap());
        let mut how = Nodes::new(0, self.superblock.group);
        how.leaf_items = 5;
        edit(&mut items, &mut how);
        self.superblock.pool_tree = Some(self.build(&items, &how).0);
        let copies = vec![vec![self.allocate(1)], vec![self.allocate(1)]];
        self.superblock.tail = Some(self.write_tail(copies));
        self.superblock.allocated_grains =
            self.used.iter().filter(|used| **used).count() as u64 - 256;
        self.write_superblock();
    }

    fn write_tail(&mut self, copies: Vec<Vec<Extent>>) -> Pointer {
        let mut tail = Tail::default();
        for grain in 0..self.used.len() {
            let extents = match (self.used[grain], self.recorded[grain]) {
                (true, false) => &mut tail.allocated,
                (false, true) => &mut tail.freed,
                _ => continue,
            };
            let start = grain as u64;
            match extents.last_mut() {
                Some(last) if last.end() == start && !start.is_multiple_of(ZONE_GRAINS) => {
                    last.grains += 1
                }
                _ => extents.push(Extent { device: 0, start, grains: 1 }),
            }
        }
        (self.tail)(&mut tail);
        let bytes = tail.encode();
        assert!(bytes.len() <= 4096, "the tail fits a grain");
        for copy in copies.iter().flatten() {
            let start = usize::try_from(copy.start * 4096).unwrap();
            self.bytes[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        let sum = checksum(ChecksumKind::Xxh3, &bytes);
        let len = u32::try_from(bytes.len()).unwrap();
        Pointer {
            birth: self.superblock.group,
            logical_len: len,
            physical_len: len,
            codec: 0,
            flags: PointerFlags::METADATA,
            place: Place::Stored {
                checksum: Checksum { kind: ChecksumKind::Xxh3.id(), bytes: sum },
                copies,
            },
        }
    }

    pub(crate) fn write_superblock(&mut self) {
        let bytes = self.superblock.encode();
        for ring in 0..2 {
            let start = usize::try_from(slot_offset(ring, self.superblock.group)).unwrap();
            self.bytes[start..start + SUPERBLOCK_BYTES].copy_from_slice(&bytes);
        }
    }

    /// The record of a dataset.
    pub(crate) fn record(&self, name: &str) -> DatasetRecord {
        let (items, _) = self.items(self.superblock.pool_tree.as_ref());
        let records = items.into_iter().filter(|(key, _)| key.kind == pool_kind::DATASET);
        records
            .map(|(_, (value, _))| DatasetRecord::decode(&value).unwrap())
            .find(|record| record.name == name)
            .unwrap()
    }

    /// Changes the record of a dataset.
    pub(crate) fn edit_record(&mut self, name: &str, edit: impl FnOnce(&mut DatasetRecord)) {
        let mut record = self.record(name);
        let key = marram_format::space::dataset_key(record.id);
        edit(&mut record);
        self.edit_pool(|items, _| {
            items.insert(key, (record.encode(), None));
        });
    }

    /// Changes the items of a dataset that has no snapshots.
    pub(crate) fn edit_dataset(&mut self, name: &str, edit: impl FnOnce(&mut Items, &mut Nodes)) {
        let record = self.record(name);
        let (mut items, nodes) = self.items(record.root.as_ref());
        nodes.iter().for_each(|node| self.free(node));
        let freed: u64 = nodes.iter().map(Pointer::grains).sum();
        let mut how = Nodes::new(record.id, self.superblock.group);
        edit(&mut items, &mut how);
        let (root, taken) = self.build(&items, &how);
        self.edit_record(name, |record| {
            record.root = Some(root);
            record.referenced_grains = record.referenced_grains + taken - freed;
        });
    }

    /// Changes the items of the root dataset.
    pub(crate) fn edit_root(&mut self, edit: impl FnOnce(&mut Items)) {
        self.edit_dataset("root", |items, _| edit(items));
    }

    pub(crate) fn check(&self) -> Vec<Finding> {
        check_all(&Borrowed(&self.bytes)).1
    }

    /// Exactly these kinds of findings are made.
    #[track_caller]
    pub(crate) fn assert_found(&self, expected: &[FindingKind]) -> Vec<Finding> {
        let findings = self.check();
        let mut kinds: Vec<FindingKind> = findings.iter().map(|finding| finding.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(kinds, expected, "{}", texts.join("\n"));
        findings
    }
}
