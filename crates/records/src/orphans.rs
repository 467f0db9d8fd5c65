//! Orphan items: inodes of which something waits to be removed.

use marram_format::record::OrphanReason;
use marram_store::{Item, Key, kind};

/// The key of the orphan item of an inode.
pub fn orphan_key(ino: u64) -> Key {
    Key::new(0, kind::ORPHAN, ino)
}

/// The orphan item of an inode that waits for this reason.
pub fn orphan_item(reason: OrphanReason) -> Item {
    Item::plain(reason.encode().to_vec())
}
