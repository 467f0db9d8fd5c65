//! Where things lie in an image, and how its words are read. `docs/format-pmem.md` is the
//! specification.
//!
//! Every number is little-endian. A word is eight bytes at an address that eight divides.

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Pointers in a page.
pub(crate) const FANOUT: u64 = PAGE / 8;
/// Bytes of a cache line.
pub(crate) const LINE: u64 = 64;
/// The first bytes of an image.
pub(crate) const MAGIC: [u8; 8] = *b"MARRAMPM";
/// The version of the format.
pub(crate) const VERSION: u32 = 3;
/// Bytes of the header that its checksum covers.
pub(crate) const HEADER_CHECKED: usize = 120;
/// Bytes of the header with its checksum.
pub const HEADER_BYTES: usize = 128;
/// Longest label, in bytes.
pub(crate) const LABEL_BYTES_MAX: usize = 64;
/// Address of the number that bounds the numbers that were given away.
pub(crate) const NUMBER_LIMIT: u64 = 520;
/// Address of the intent word.
pub(crate) const INTENT: u64 = 576;
/// Address of the address of the slot that the intent word is about.
pub(crate) const INTENT_SLOT: u64 = 584;
/// Address of the first word of spare pages.
pub(crate) const SPARE: u64 = 2048;
/// How many such words there are.
pub(crate) const SPARE_WORDS: usize = 256;
/// Address of the word that opens the redo record.
pub(crate) const REDO: u64 = PAGE;
/// Words of a redo record after the first.
pub(crate) const REDO_WORDS_MAX: usize = 1023;
/// Address of the first page of slots.
pub(crate) const SLOTS: u64 = 3 * PAGE;
/// The first page that is allocated.
pub(crate) const FIRST_PAGE: u64 = 4;
/// Least pages of an image.
pub(crate) const PAGES_MIN: u64 = 256;
/// Most pages of an image: an intent names an entry by 40 bits of eight bytes.
pub(crate) const PAGES_MAX: u64 = 1 << 31;
/// Bytes of an inode.
pub(crate) const INODE: u64 = 128;
/// Inodes in a page.
pub(crate) const INODES: u64 = PAGE / INODE;
/// Greatest number of an inode, a dataset or a snapshot.
pub(crate) const NUMBER_MAX: u64 = (1 << 40) - 1;
/// The highest tree: 512 to the seventh pages hold the largest file.
pub(crate) const HEIGHT_MAX: u64 = 6;

/// Bytes of a slot.
pub(crate) const SLOT: u64 = 256;
/// Longest name of a dataset or snapshot, in bytes.
pub(crate) const SLOT_NAME_MAX: usize = 200;

/// Fields of a slot. The first one of a page has the address of the next page, and nothing else.
pub(crate) mod slot_field {
    /// State, kind, and length of the name: one word.
    pub(crate) const HEAD: u64 = 0;
    /// Root pointer of the inode table.
    pub(crate) const ROOT: u64 = 8;
    /// Its number.
    pub(crate) const NUMBER: u64 = 16;
    /// The number of the dataset that it is a snapshot of, or of the snapshot that it began as.
    pub(crate) const OF: u64 = 24;
    /// When it was made, in seconds since 1970.
    pub(crate) const CREATED: u64 = 32;
    /// The inode of its root directory.
    pub(crate) const DIRECTORY: u64 = 40;
    /// Its name.
    pub(crate) const NAME: u64 = 48;
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// A state that changes.
    Dataset,
    /// One that never does.
    Snapshot,
}

/// The first word of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotHead {
    /// The page has no slot from here on.
    End,
    /// The slot is free.
    Free,
    /// It holds something.
    Used {
        /// What.
        kind: SlotKind,
        /// Bytes of its name.
        name_len: usize,
    },
}

impl SlotHead {
    /// Takes a word apart; `None` if it makes no sense.
    pub(crate) fn decode(word: u64) -> Option<SlotHead> {
        let name_len = (word >> 16 & 0xff) as usize;
        let kind = match word >> 8 & 0xff {
            0 => Some(SlotKind::Dataset),
            1 => Some(SlotKind::Snapshot),
            _ => None,
        };
        match (word & 0xff, kind) {
            (0, _) => Some(SlotHead::End),
            (1, Some(kind)) if (1..=SLOT_NAME_MAX).contains(&name_len) => {
                Some(SlotHead::Used { kind, name_len })
            }
            (2, _) => Some(SlotHead::Free),
            _ => None,
        }
    }

    /// The word.
    pub(crate) fn encode(self) -> u64 {
        match self {
            SlotHead::End => 0,
            SlotHead::Free => 2,
            SlotHead::Used { kind, name_len } => {
                let kind = if kind == SlotKind::Snapshot { 1 } else { 0 };
                1 | kind << 8 | (name_len as u64) << 16
            }
        }
    }
}

/// Fields of an inode.
pub(crate) mod field {
    /// Kind and permissions, two bytes.
    pub(crate) const MODE: u64 = 0;
    /// Flags, two bytes.
    pub(crate) const FLAGS: u64 = 2;
    /// Link count, four bytes.
    pub(crate) const LINKS: u64 = 4;
    /// Owning user and group, four bytes each.
    pub(crate) const OWNER: u64 = 8;
    /// Size; of a directory the number of its parent.
    pub(crate) const SIZE: u64 = 16;
    /// Root pointer of the content.
    pub(crate) const ROOT: u64 = 24;
    /// The first of the four times.
    pub(crate) const TIMES: u64 = 32;
    /// Root pointer of the extended attributes.
    pub(crate) const XATTRS: u64 = 64;
    /// The first of the four extensions of times, four bytes each.
    pub(crate) const WIDE: u64 = 72;
    /// Device number, four bytes.
    pub(crate) const DEVICE: u64 = 88;
    /// Target of a short symbolic link.
    pub(crate) const INLINE: u64 = 96;
}

/// The inode has extended attributes.
pub(crate) const FLAG_XATTRS: u16 = 1;
/// The target of the symbolic link lies in the inode.
pub(crate) const FLAG_INLINE: u16 = 2;
/// Longest target that lies in the inode.
pub(crate) const INLINE_BYTES_MAX: usize = 32;

/// The number of pages that hold `bytes`.
pub(crate) const fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE)
}

/// The pages below a pointer of a node of this height.
pub(crate) const fn span(height: u64) -> u64 {
    1 << (9 * height)
}

/// The least height of a tree of `pages`.
pub(crate) fn height_for(pages: u64) -> u64 {
    (0..HEIGHT_MAX).find(|height| span(*height) >= pages).unwrap_or(HEIGHT_MAX)
}

/// A root pointer, taken apart: the page and the height of the tree.
pub(crate) const fn split_root(word: u64) -> (u64, u64) {
    (word & !(PAGE - 1), word & 7)
}

/// The state of an entry, in the high half of its third byte.
const LIVE: u64 = 0x10;

/// The first word of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryWord {
    /// Words that the entry takes, this one included; 0 ends the page.
    pub(crate) units: u64,
    /// Bytes of the name.
    pub(crate) name_len: usize,
    /// The high four bits of the mode.
    pub(crate) kind: u64,
    /// Whether there is an entry; else its place is free.
    pub(crate) live: bool,
    /// The inode.
    pub(crate) ino: u64,
}

impl EntryWord {
    /// Words that an entry with a name of this length needs.
    pub(crate) fn units_for(name_len: usize) -> u64 {
        1 + (name_len as u64).div_ceil(8)
    }

    /// Takes a word apart.
    pub(crate) fn decode(word: u64) -> EntryWord {
        EntryWord {
            units: word & 0xff,
            name_len: (word >> 8 & 0xff) as usize,
            kind: word >> 16 & 0xf,
            live: word >> 16 & 0xf0 == LIVE,
            ino: word >> 24,
        }
    }

    /// The word.
    pub(crate) fn encode(self) -> u64 {
        let state = if self.live { LIVE } else { 0 };
        self.units | (self.name_len as u64) << 8 | (state | self.kind) << 16 | self.ino << 24
    }
}

/// Where in its word an entry has the byte of its state.
pub(crate) const ENTRY_STATE: u64 = 2;

/// What decides whether a link count has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// The count holds if the entry is there.
    Made,
    /// The count holds if the entry is not there.
    Removed,
}

/// An intent word: what decides, the new link count, and the address of the entry.
pub(crate) fn encode_intent(intent: Intent, links: u32, entry: u64) -> u64 {
    let kind = match intent {
        Intent::Made => 1,
        Intent::Removed => 2,
    };
    kind | (u64::from(links) & 0xffff) << 8 | (entry / 8) << 24
}

/// Takes an intent word apart; `None` if it is closed, an error if it makes no sense.
pub(crate) fn decode_intent(word: u64) -> Result<Option<(Intent, u32, u64)>, ()> {
    let rest = ((word >> 8 & 0xffff) as u32, (word >> 24) * 8);
    match word & 0xff {
        0 => Ok(None),
        1 => Ok(Some((Intent::Made, rest.0, rest.1))),
        2 => Ok(Some((Intent::Removed, rest.0, rest.1))),
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{EntryWord, Intent, SlotHead, SlotKind, decode_intent, encode_intent, height_for};
    use marram_vfs::Timestamp;

    #[test]
    fn words_come_back_as_they_were() {
        let entry = EntryWord { units: 33, name_len: 255, kind: 8, live: true, ino: 1 << 39 };
        assert_eq!(EntryWord::decode(entry.encode()), entry);
        assert_eq!(EntryWord::units_for(1), 2);
        assert_eq!(EntryWord::units_for(255), 33);
        let word = encode_intent(Intent::Removed, 65_000, 8 << 39);
        assert_eq!(decode_intent(word), Ok(Some((Intent::Removed, 65_000, 8 << 39))));
        assert_eq!(decode_intent(word & !0xff), Ok(None));
        assert_eq!(decode_intent(word | 0xff), Err(()));
    }

    /// The examples of the specification are what the code makes.
    #[test]
    fn the_specification_has_these_bytes() {
        let text = include_str!("../../../docs/format-pmem.md");
        let entry = EntryWord { units: 2, name_len: 1, kind: 8, live: true, ino: 33 };
        let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 123_453_440 };
        let words = [
            0o100_644 | 1 << 32,
            1000 | 1000 << 32,
            entry.encode(),
            encode_intent(Intent::Made, 2, 0x5018),
            SlotHead::Used { kind: SlotKind::Snapshot, name_len: 6 }.encode(),
            crate::time::encode(time, false).word,
        ];
        for word in words {
            let bytes = word.to_le_bytes().map(|byte| format!("{byte:02x}")).join(" ");
            assert!(text.contains(&format!("`{bytes}`")), "{bytes}");
        }
    }

    #[test]
    fn a_tree_is_as_high_as_it_has_to_be() {
        let heights = [0, 1, 2, 512, 513, 1 << 18, (1 << 18) + 1, 1 << 51].map(height_for);
        assert_eq!(heights, [0, 0, 1, 1, 2, 2, 3, 6]);
    }
}
