//! Keys of items: (object, kind, offset).
//!
//! One ordered map of items holds a whole dataset. All items of an object lie together, and of
//! those all of one kind, in order of offset.

/// Bytes of an encoded key.
pub const KEY_BYTES: usize = 17;

/// The key of an item. The order of keys is that of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The inode (or, in the pool's own tree, the dataset or zone) that the item belongs to.
    pub object: u64,
    /// What kind of item it is: one of the constants in [`kind`].
    pub kind: u8,
    /// Position among the items of that kind: file offset, name hash, sequence number.
    pub offset: u64,
}

/// The kinds of items of a dataset.
pub mod kind {
    /// The inode record; offset 0.
    pub const INODE: u8 = 1;
    /// A directory entry; offset is 54 bits of the name's hash and 8 bits that distinguish names of
    /// one hash.
    pub const ENTRY: u8 = 2;
    /// An extended attribute; offset as for directory entries.
    pub const XATTR: u8 = 3;
    /// A symbolic link's target; offset 0.
    pub const TARGET: u8 = 4;
    /// A section of a file; offset is the position of its first byte in the file.
    pub const SECTION: u8 = 5;
    /// An inode without a name that waits for its space to be freed; object 0, offset the inode.
    pub const ORPHAN: u8 = 6;
    /// What the dataset knows of itself (the next inode number, counts); object 0.
    pub const COUNTERS: u8 = 7;
    /// How often a shared block is referred to; object 0, offset its address. The engine's own.
    pub const REFERENCES: u8 = 8;
    /// What the inodes of one owner use; object 0, offset the owner's class and id.
    pub const USAGE: u8 = 9;
    /// What the inodes of one owner may use at most; object 0, offset as for the usage.
    pub const LIMIT: u8 = 10;
}

impl Key {
    /// The smallest key.
    pub const MIN: Key = Key { object: 0, kind: 0, offset: 0 };
    /// The largest key.
    pub const MAX: Key = Key { object: u64::MAX, kind: u8::MAX, offset: u64::MAX };

    /// A key from its three parts.
    pub const fn new(object: u64, kind: u8, offset: u64) -> Key {
        Key { object, kind, offset }
    }

    /// The encoded key: its fields big-endian, so that bytes sort as keys do.
    pub fn encode(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..8].copy_from_slice(&self.object.to_be_bytes());
        bytes[8] = self.kind;
        bytes[9..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    /// Decodes a key; every 17 bytes are one.
    pub fn decode(bytes: &[u8; KEY_BYTES]) -> Key {
        let [o0, o1, o2, o3, o4, o5, o6, o7, kind, p0, p1, p2, p3, p4, p5, p6, p7] = *bytes;
        Key {
            object: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            kind,
            offset: u64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7]),
        }
    }

    /// The next key in order, or `None` after the largest.
    pub fn successor(self) -> Option<Key> {
        let (offset, carry) = self.offset.overflowing_add(1);
        let (kind, carry) = self.kind.overflowing_add(u8::from(carry));
        let object = self.object.checked_add(u64::from(carry))?;
        Some(Key { object, kind, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn encoded_keys_sort_as_keys_do() {
        let keys = [
            Key::MIN,
            Key::new(0, 1, u64::MAX),
            Key::new(1, 0, 0),
            Key::new(1, 5, 255),
            Key::new(1, 5, 256),
            Key::new(256, 0, 0),
            Key::MAX,
        ];
        for pair in keys.windows(2) {
            assert!(pair[0].encode() < pair[1].encode());
            assert_eq!(Key::decode(&pair[0].encode()), pair[0]);
        }
    }

    #[test]
    fn the_successor_carries_over_fields() {
        assert_eq!(Key::new(1, 255, u64::MAX).successor(), Some(Key::new(2, 0, 0)));
        assert_eq!(Key::new(1, 2, 3).successor(), Some(Key::new(1, 2, 4)));
        assert_eq!(Key::MAX.successor(), None);
    }
}
