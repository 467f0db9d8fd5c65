//! A set of blocks, known by how many there are and a fingerprint of all of them.
//!
//! That a dead list holds exactly what one snapshot has and the next has no more is a statement
//! about sets of any size. Sums of hashes compare them in constant memory and in any order.

use marram_codec::{ChecksumKind, checksum};
use marram_format::pointer::{Pointer, PointerFlags};

/// What is kept of a set of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockSet {
    pub(crate) blocks: u64,
    pub(crate) grains: u64,
    fingerprint: u128,
}

/// The identity of a block, whatever the flags that a reference to it carries.
pub(crate) fn fingerprint(pointer: &Pointer) -> u128 {
    let plain = Pointer { flags: PointerFlags::default(), ..pointer.clone() };
    let hash = checksum(ChecksumKind::Xxh3, &plain.encode());
    let mut low = [0; 16];
    low.copy_from_slice(&hash[..16]);
    u128::from_le_bytes(low)
}

impl BlockSet {
    /// Adds a block; what is embedded in its pointer takes no space and does not count.
    pub(crate) fn add(&mut self, pointer: &Pointer) {
        if pointer.address().is_some() {
            self.blocks += 1;
            self.grains += pointer.grains();
            self.fingerprint = self.fingerprint.wrapping_add(fingerprint(pointer));
        }
    }

    /// The blocks of both.
    pub(crate) fn plus(self, other: BlockSet) -> BlockSet {
        BlockSet {
            blocks: self.blocks + other.blocks,
            grains: self.grains + other.grains,
            fingerprint: self.fingerprint.wrapping_add(other.fingerprint),
        }
    }
}
