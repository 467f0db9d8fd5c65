//! Values of a dataset's items: what an inode, a name, an attribute or a section is in bytes.
//!
//! `docs/format-records.md` is the specification. Numbers are little-endian. Every decoder takes
//! untrusted bytes: a wrong length, kind or range is a [`crate::FormatError`], never a panic; and
//! every value that a decoder accepts encodes to the same bytes again: no byte is without meaning.

mod entry;
mod inode;
mod small;

pub use entry::{Entry, XattrRecord};
pub use inode::{INODE_BYTES, Inode, InodeKind, Time, state};
pub use small::{
    COUNTERS_BYTES, Counters, InodeCount, OrphanReason, SECTION_BYTES, Section, decode_target,
};

/// Bits of a name's hash in the offset of an entry or attribute; the low eight bits below them
/// tell names of equal hash apart. 54 and 8 leave room for a directory cookie of offset + 1 in 63
/// bits.
pub const NAME_HASH_BITS: u32 = 54;
/// How many names of equal hash a directory (or the attributes of an inode) can hold.
pub const NAME_SLOTS: u64 = 256;
/// Largest extended attribute value that is kept in the item itself; a larger one has a block.
pub const XATTR_INLINE_BYTES_MAX: usize = 3072;

/// The offset of the first slot for a name, in keys of entries and attributes: XXH3 of the name
/// with the dataset's seed, its low 54 bits, shifted over the slot bits.
pub fn name_offset(seed: u64, name: &[u8]) -> u64 {
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(name, seed);
    (hash & ((1 << NAME_HASH_BITS) - 1)) * NAME_SLOTS
}

#[cfg(test)]
mod tests;
