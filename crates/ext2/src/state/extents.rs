//! Which blocks a file of an ext4 image has: a tree of extents, whose root is in the inode.
//!
//! Trees are only read. One is of at most five levels below its root, and each level says how many
//! are below it, so a search ends whatever an image claims.

use crate::bytes::{u16_at, u32_at};
use crate::checksum;
use crate::error::failed;
use crate::inode::Inode;
use crate::state::{Work, damaged};
use marram_vfs::Result;

const MAGIC: u16 = 0xf30a;
/// Bytes before the entries of a node, and of an entry.
const HEAD: usize = 12;
const ENTRY: usize = 12;
/// Most levels below the root.
const DEPTH_MAX: u16 = 5;
/// Most blocks of an extent with content. One that says more is shorter by so many, and all zeros.
const WRITTEN_MAX: u64 = 32_768;

/// What a node says of a place in a file.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Nothing was written there.
    Hole,
    Block(u64),
    /// The node in that block knows, and there are so many levels below it.
    Below(u64, u16),
}

/// What a node says of a place; none if it makes no sense.
fn step(bytes: &[u8], at: u64, expected: Option<u16>) -> Option<Step> {
    let (count, most, depth) = (u16_at(bytes, 2), u16_at(bytes, 4), u16_at(bytes, 6));
    let is_known = u16_at(bytes, 0) == MAGIC && count <= most && depth <= DEPTH_MAX;
    if !is_known || expected.is_some_and(|expected| expected != depth) {
        return None;
    }
    let entries = bytes.get(HEAD..HEAD + usize::from(count) * ENTRY)?;
    let (entries, _) = entries.as_chunks::<ENTRY>();
    let first = |entry: &[u8; ENTRY]| u64::from(u32_at(entry, 0));
    let Some(which) = entries.partition_point(|entry| first(entry) <= at).checked_sub(1) else {
        return Some(Step::Hole);
    };
    let entry = &entries[which];
    if depth > 0 {
        let block = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
        return Some(Step::Below(block, depth - 1));
    }
    let (len, within) = (u64::from(u16_at(entry, 4)), at - first(entry));
    if len > WRITTEN_MAX || within >= len {
        return Some(Step::Hole);
    }
    let start = u64::from(u32_at(entry, 8)) | u64::from(u16_at(entry, 6)) << 32;
    Some(Step::Block(start + within))
}

impl Work<'_> {
    /// A node, if its checksum is right: it is summed up once, for a file of many extents asks for
    /// the same node again and again. No operation changes one.
    fn read_node(&mut self, block: u64, seed: Option<u32>) -> Result<Option<&[u8]>> {
        let cache = &mut self.state.cache;
        let Some(seed) = seed else { return cache.read(block).map(Some).map_err(failed) };
        let is_good = |bytes: &[u8]| checksum::is_good_extents(seed, bytes);
        cache.read_good(block, seed, is_good).map_err(failed)
    }

    /// The block of a file at a place, 0 for a hole.
    pub(super) fn map_extent(&mut self, inode: &Inode, at: u64) -> Result<u64> {
        let bad = |place: String| damaged(format!("the extents in {place} make no sense"));
        let mut found = step(inode.pointer_bytes(), at, None).ok_or_else(|| bad("an inode".into()));
        loop {
            match found? {
                Step::Hole => return Ok(0),
                Step::Block(block) => {
                    self.state.check_block(block)?;
                    return Ok(block);
                }
                Step::Below(block, depth) => {
                    self.state.check_block(block)?;
                    let bytes = self.read_node(block, inode.seed)?;
                    let known = bytes.and_then(|bytes| step(bytes, at, Some(depth)));
                    found = known.ok_or_else(|| bad(format!("block {block}")));
                }
            }
        }
    }
}
