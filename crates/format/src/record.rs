//! Values of a dataset's items: what an inode, a name, an attribute or a section is in bytes.
//!
//! `docs/format-records.md` is the specification. Numbers are little-endian. Every decoder takes
//! untrusted bytes: a wrong length, kind or range is a [`crate::FormatError`], never a panic; and
//! every value that a decoder accepts encodes to the same bytes again: no byte is without meaning.

mod entry;
mod inode;
mod names;
mod quota;
mod small;

pub use entry::{Entry, XattrRecord};
pub use inode::{INODE_BYTES, Inode, InodeKind, Time, state};
pub use names::{FOLDING_VERSION, NameRule, name_offset};
pub use quota::{INODE_USAGE_BYTES_MAX, Limit, OwnerClass, OwnerId, Usage};
pub use small::{
    COUNTERS_BYTES, Counters, InodeCount, NEXT_INODE_MAX, OrphanReason, SECTION_BYTES, Section,
    decode_target,
};

/// Bits of a name's hash in the offset of an entry or attribute; the low eight bits below them
/// tell names of equal hash apart. 54 and 8 leave room for a directory cookie of offset + 1 in 63
/// bits.
pub const NAME_HASH_BITS: u32 = 54;
/// How many names of equal hash a directory (or the attributes of an inode) can hold.
pub const NAME_SLOTS: u64 = 256;
/// Largest extended attribute value that is kept in the item itself; a larger one has a block.
pub const XATTR_INLINE_BYTES_MAX: usize = 3072;

#[cfg(test)]
mod tests;
