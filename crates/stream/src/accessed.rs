//! Access times: they move when somebody only looks at a dataset that receives streams.

use marram_format::record::Inode;

/// Whether two values of an inode item differ in nothing but the access time.
pub fn differ_in_access_time(before: &[u8], after: &[u8]) -> bool {
    let decoded = |value: &[u8]| Inode::decode(value).ok();
    let (Some(before), Some(after)) = (decoded(before), decoded(after)) else { return false };
    Inode { accessed: after.accessed, ..before } == after
}
