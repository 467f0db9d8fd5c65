//! Tree nodes: leaves of items, branches of pointers to nodes.
//!
//! A node is a header, a table with the key and the place of each entry, and what the entries
//! hold, in the same order and without gaps. A binary search touches the table alone, and a
//! decoded node is the bytes themselves: an entry is a slice, nothing is unpacked.
//!
//! Invariant: [`Node::decode`] has checked every bound and the order of all keys, so that no
//! accessor of a decoded node can fail.

use crate::FormatError;
use crate::key::{KEY_BYTES, Key};
use crate::reader::Reader;
use bytes::{BufMut, Bytes, BytesMut};

/// Largest node before compression, in bytes.
pub const NODE_BYTES_MAX: usize = 32768;
/// Bytes of a node's header.
pub const NODE_HEADER_BYTES: usize = 24;
/// Greatest level of a branch; leaves have level 0.
pub const NODE_LEVEL_MAX: u8 = 31;
/// What every node starts with.
pub const NODE_MAGIC: [u8; 4] = *b"MNOD";

const WHAT: &str = "tree node";
const LAYOUT: u8 = 1;
const LEAF_SLOT_BYTES: usize = KEY_BYTES + 4;
const BRANCH_SLOT_BYTES: usize = KEY_BYTES + 2;

/// A node whose bytes have been checked.
#[derive(Clone, Debug)]
pub enum Node {
    /// Items.
    Leaf(Leaf),
    /// Pointers to nodes of the next lower level.
    Branch(Branch),
}

/// Items of a tree in the order of their keys.
#[derive(Clone, Debug)]
pub struct Leaf {
    table: Table,
}

/// Pointers to nodes in the order of their lowest keys.
#[derive(Clone, Debug)]
pub struct Branch {
    table: Table,
}

/// What a leaf holds under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafEntry {
    /// The key.
    pub key: Key,
    /// The item's value.
    pub value: Bytes,
    /// The encoded pointer to the item's block, if it has one; never empty.
    pub pointer: Option<Bytes>,
}

/// A branch's reference to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchEntry {
    /// A lower bound of the keys of the node, above all keys of the node before.
    pub key: Key,
    /// The encoded pointer to the node; never empty.
    pub pointer: Bytes,
}

/// The bytes of a node and how they are laid out.
#[derive(Clone, Debug)]
struct Table {
    bytes: Bytes,
    tree: u64,
    level: u8,
    count: usize,
}

/// Bytes that an entry takes in a leaf, for a value and an encoded pointer (0: none) of these
/// lengths.
pub const fn leaf_entry_bytes(value_len: usize, pointer_len: usize) -> usize {
    LEAF_SLOT_BYTES + value_len + pointer_len
}

/// Bytes that an entry takes in a branch, for an encoded pointer of this length.
pub const fn branch_entry_bytes(pointer_len: usize) -> usize {
    BRANCH_SLOT_BYTES + pointer_len
}

/// Encodes a leaf of the tree of a dataset.
///
/// # Panics
/// If the keys do not ascend, a pointer is empty, or the node would be larger than
/// [`NODE_BYTES_MAX`].
pub fn encode_leaf(tree: u64, entries: &[LeafEntry]) -> Bytes {
    let pointer_len = |entry: &LeafEntry| entry.pointer.as_ref().map_or(0, Bytes::len);
    let total =
        entries.iter().map(|entry| leaf_entry_bytes(entry.value.len(), pointer_len(entry))).sum();
    let mut out = start(tree, 0, entries.len(), total);
    let mut at = NODE_HEADER_BYTES + entries.len() * LEAF_SLOT_BYTES;
    for entry in entries {
        out.put_slice(&entry.key.encode());
        out.put_u16_le(offset_u16(at));
        out.put_u16_le(offset_u16(at + entry.value.len()));
        at += entry.value.len() + pointer_len(entry);
    }
    for entry in entries {
        out.put_slice(&entry.value);
        if let Some(pointer) = &entry.pointer {
            assert!(!pointer.is_empty(), "a pointer is not empty");
            out.put_slice(pointer);
        }
    }
    assert_ascending(entries.iter().map(|entry| entry.key));
    out.freeze()
}

/// Encodes a branch of the tree of a dataset.
///
/// # Panics
/// If there is no entry, the keys do not ascend, a pointer is empty, the level is not from 1 to
/// [`NODE_LEVEL_MAX`], or the node would be larger than [`NODE_BYTES_MAX`].
pub fn encode_branch(tree: u64, level: u8, entries: &[BranchEntry]) -> Bytes {
    assert!((1..=NODE_LEVEL_MAX).contains(&level), "a branch has level 1 to {NODE_LEVEL_MAX}");
    assert!(!entries.is_empty(), "a branch has at least one child");
    let total = entries.iter().map(|entry| branch_entry_bytes(entry.pointer.len())).sum();
    let mut out = start(tree, level, entries.len(), total);
    let mut at = NODE_HEADER_BYTES + entries.len() * BRANCH_SLOT_BYTES;
    for entry in entries {
        assert!(!entry.pointer.is_empty(), "a pointer is not empty");
        out.put_slice(&entry.key.encode());
        out.put_u16_le(offset_u16(at));
        at += entry.pointer.len();
    }
    for entry in entries {
        out.put_slice(&entry.pointer);
    }
    assert_ascending(entries.iter().map(|entry| entry.key));
    out.freeze()
}

/// The place of an encoded key among others, as numbers that compare faster than bytes do.
fn rank(key: &[u8; KEY_BYTES]) -> (u128, u8) {
    let (head, last) = key.split_first_chunk().expect("a key has more than sixteen bytes");
    (u128::from_be_bytes(*head), last[0])
}

/// A buffer that holds the header of a node whose entries take `entry_bytes` bytes.
fn start(tree: u64, level: u8, count: usize, entry_bytes: usize) -> BytesMut {
    let total = NODE_HEADER_BYTES + entry_bytes;
    assert!(total <= NODE_BYTES_MAX, "a node of {total} bytes is larger than {NODE_BYTES_MAX}");
    let mut out = BytesMut::with_capacity(total);
    out.put_slice(&NODE_MAGIC);
    out.put_u8(LAYOUT);
    out.put_u8(level);
    out.put_u16_le(u16::try_from(count).expect("fewer entries than bytes"));
    out.put_u64_le(tree);
    out.put_u32_le(u32::try_from(total).expect("at most NODE_BYTES_MAX"));
    out.put_u32_le(0);
    out
}

fn offset_u16(at: usize) -> u16 {
    u16::try_from(at).expect("offsets in a node are at most NODE_BYTES_MAX")
}

fn assert_ascending(keys: impl Iterator<Item = Key>) {
    assert!(keys.is_sorted_by(|a, b| a < b), "the keys of a node ascend strictly");
}

impl Node {
    /// Decodes a node and checks all of it.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(bytes: Bytes) -> Result<Node, FormatError> {
        let table = Table::decode(bytes)?;
        if table.level == 0 {
            return Ok(Node::Leaf(Leaf { table }));
        }
        let branch = Branch { table };
        branch.check_pointers()?;
        Ok(Node::Branch(branch))
    }

    /// The level: 0 for a leaf, else one more than that of its children.
    pub fn level(&self) -> u8 {
        match self {
            Node::Leaf(_) => 0,
            Node::Branch(branch) => branch.table.level,
        }
    }

    /// The dataset whose tree the node was written for; snapshots and clones share it.
    pub fn tree(&self) -> u64 {
        match self {
            Node::Leaf(leaf) => leaf.table.tree,
            Node::Branch(branch) => branch.table.tree,
        }
    }

    /// The encoded node.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Node::Leaf(leaf) => &leaf.table.bytes,
            Node::Branch(branch) => &branch.table.bytes,
        }
    }
}

impl Leaf {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.table.count
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.table.count == 0
    }

    /// The key of an item.
    ///
    /// # Panics
    /// If there is no item of that index; so do `value` and `pointer`.
    pub fn key(&self, index: usize) -> Key {
        Key::decode(self.table.key_bytes(index))
    }

    /// The value of an item.
    pub fn value(&self, index: usize) -> Bytes {
        let (start, end) = (self.table.offset(index, 0), self.table.offset(index, 1));
        self.table.bytes.slice(start..end)
    }

    /// The encoded pointer to the block of an item, if it has one.
    pub fn pointer(&self, index: usize) -> Option<Bytes> {
        let (start, end) = (self.table.offset(index, 1), self.table.end(index));
        (start < end).then(|| self.table.bytes.slice(start..end))
    }

    /// What an item consists of as it lies in the leaf: encoded key, value, and encoded pointer,
    /// which is empty if there is none. For a search that looks at many and keeps few.
    ///
    /// # Panics
    /// As [`Leaf::key`].
    pub fn parts(&self, index: usize) -> (&[u8; KEY_BYTES], &[u8], &[u8]) {
        let (value, pointer) = (self.table.offset(index, 0), self.table.offset(index, 1));
        let bytes = &self.table.bytes[..self.table.end(index)];
        (self.table.key_bytes(index), &bytes[value..pointer], &bytes[pointer..])
    }

    /// The index of a key, or else the index before which it would stand.
    pub fn search(&self, key: &Key) -> Result<usize, usize> {
        self.table.search(key)
    }
}

impl Branch {
    /// Number of children, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a branch is never empty")]
    pub fn len(&self) -> usize {
        self.table.count
    }

    /// A lower bound of the keys of a child.
    ///
    /// # Panics
    /// If there is no child of that index; so does `pointer`.
    pub fn key(&self, index: usize) -> Key {
        Key::decode(self.table.key_bytes(index))
    }

    /// The encoded pointer to a child.
    pub fn pointer(&self, index: usize) -> Bytes {
        let (start, end) = (self.table.offset(index, 0), self.table.end(index));
        self.table.bytes.slice(start..end)
    }

    /// The same as it lies in the branch, for a search that looks at many.
    ///
    /// # Panics
    /// As [`Branch::key`].
    pub fn pointer_bytes(&self, index: usize) -> &[u8] {
        &self.table.bytes[self.table.offset(index, 0)..self.table.end(index)]
    }

    /// The index of the child under which a key would be.
    pub fn child_for(&self, key: &Key) -> usize {
        match self.table.search(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }

    fn check_pointers(&self) -> Result<(), FormatError> {
        let is_empty = |index: &usize| self.table.offset(*index, 0) == self.table.end(*index);
        match (0..self.table.count).find(is_empty) {
            None => Ok(()),
            Some(index) => Err(FormatError::Unexpected {
                what: WHAT,
                field: "length of a child's pointer",
                offset: self.table.slot(index) + KEY_BYTES,
                found: 0,
                expected: "at least 1",
            }),
        }
    }
}

impl Table {
    fn decode(bytes: Bytes) -> Result<Table, FormatError> {
        let table = Table::decode_header(bytes)?;
        table.check_offsets()?;
        table.check_order()?;
        Ok(table)
    }

    fn decode_header(bytes: Bytes) -> Result<Table, FormatError> {
        let mut from = Reader::new(WHAT, &bytes);
        let magic: [u8; 4] = from.array("magic")?;
        if magic != NODE_MAGIC {
            return Err(FormatError::Foreign { what: WHAT, found: magic.to_vec() });
        }
        from.expect_u8("layout", LAYOUT, "1")?;
        let level = from.u8("level")?;
        if level > NODE_LEVEL_MAX {
            return Err(from.unexpected("level", 5, u64::from(level), "at most 31"));
        }
        let count = usize::from(from.u16("number of entries")?);
        if count == 0 && level > 0 {
            return Err(from.unexpected("number of entries", 6, 0, "at least 1 in a branch"));
        }
        let tree = from.u64("tree")?;
        let len = from.u32("length")?;
        if bytes.len() > NODE_BYTES_MAX || u32::try_from(bytes.len()) != Ok(len) {
            let expected = "the number of bytes of the node, at most 32768";
            return Err(from.unexpected("length", 16, u64::from(len), expected));
        }
        from.reserved(4)?;
        let slot_bytes = if level == 0 { LEAF_SLOT_BYTES } else { BRANCH_SLOT_BYTES };
        from.take("table of entries", count * slot_bytes)?;
        Ok(Table { bytes, tree, level, count })
    }

    /// Every part of an entry starts where the one before ends, the first after the table.
    fn check_offsets(&self) -> Result<(), FormatError> {
        let table_end = self.slot(self.count);
        if self.count == 0 && table_end != self.bytes.len() {
            return Err(FormatError::Trailing {
                what: WHAT,
                offset: table_end,
                extra: self.bytes.len() - table_end,
            });
        }
        let mut previous = table_end;
        for index in 0..self.count {
            for part in 0..self.parts() {
                let found = self.offset(index, part);
                let first = index == 0 && part == 0;
                if found < previous || found > self.bytes.len() || (first && found != table_end) {
                    return Err(FormatError::Unexpected {
                        what: WHAT,
                        field: "offset of an entry",
                        offset: self.slot(index) + KEY_BYTES + part * 2,
                        found: u64::try_from(found).unwrap_or(u64::MAX),
                        expected: "the end of what is before it, inside the node",
                    });
                }
                previous = found;
            }
        }
        Ok(())
    }

    fn check_order(&self) -> Result<(), FormatError> {
        let falls = |index: &usize| self.key_bytes(index - 1) >= self.key_bytes(*index);
        match (1..self.count).find(falls) {
            None => Ok(()),
            Some(index) => Err(FormatError::Order {
                what: WHAT,
                field: "key",
                index,
                offset: self.slot(index),
            }),
        }
    }

    /// Parts of an entry that have an offset of their own.
    fn parts(&self) -> usize {
        if self.level == 0 { 2 } else { 1 }
    }

    /// Where the table has an entry.
    fn slot(&self, index: usize) -> usize {
        NODE_HEADER_BYTES + index * (KEY_BYTES + self.parts() * 2)
    }

    fn key_bytes(&self, index: usize) -> &[u8; KEY_BYTES] {
        assert!(index < self.count, "entry {index} of {}", self.count);
        self.bytes[self.slot(index)..].first_chunk().expect("the table is inside the node")
    }

    /// Where a part of an entry starts.
    fn offset(&self, index: usize, part: usize) -> usize {
        assert!(index < self.count, "entry {index} of {}", self.count);
        let at = self.slot(index) + KEY_BYTES + part * 2;
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    /// Where the last part of an entry ends.
    fn end(&self, index: usize) -> usize {
        if index + 1 < self.count { self.offset(index + 1, 0) } else { self.bytes.len() }
    }

    fn search(&self, key: &Key) -> Result<usize, usize> {
        let wanted = rank(&key.encode());
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match rank(self.key_bytes(middle)).cmp(&wanted) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }
}
