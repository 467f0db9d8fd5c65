//! What differs in a dataset that receives streams though nobody has changed it: access times,
//! which move when somebody only looks at it, and what had no name when the snapshot was taken,
//! which a mount frees.

use marram_format::key::{Key, kind};
use marram_format::record::{Inode, OrphanReason};

/// Whether what differs under a key only counts what the rest of a dataset has: whatever changes
/// that on purpose changes items under other keys too.
pub fn is_bookkeeping(key: Key) -> bool {
    let kinds = [kind::ORPHAN, kind::COUNTERS, kind::REFERENCES, kind::USAGE];
    key.object == 0 && kinds.contains(&key.kind)
}

/// Whether the inode of an orphan item has no name: nobody can reach it, and a mount frees it.
pub fn is_nameless(orphan: &[u8]) -> bool {
    OrphanReason::decode(orphan) == Ok(OrphanReason::Nameless)
}

/// Whether two values of an inode item differ in nothing but the access time.
pub fn differ_in_access_time(before: &[u8], after: &[u8]) -> bool {
    let decoded = |value: &[u8]| Inode::decode(value).ok();
    let (Some(before), Some(after)) = (decoded(before), decoded(after)) else { return false };
    Inode { accessed: after.accessed, ..before } == after
}
