//! The superblock: what an image is, which features it has, and where everything lies.

use crate::bytes::{u16_at, u32_at};
use crate::checksum;
use crate::error::ImageError;
use std::ops::Range;

/// Where the superblock lies, in bytes.
pub const SUPERBLOCK_AT: u64 = 1024;
/// Bytes of the superblock.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// Bytes of a group descriptor of an image without 64-bit numbers, and the fewest of one with them.
const DESCRIPTOR_BYTES: usize = 32;
const LONG_DESCRIPTOR_BYTES_MIN: usize = 64;
/// What stands at [`field::MAGIC`].
const MAGIC: u16 = 0xef53;
/// The one kind of checksums that there is.
const CRC_32C: u8 = 1;
/// Most bytes of a block.
const BLOCK_BYTES_MAX: usize = 4096;
/// The state of an image that was unmounted.
pub(crate) const STATE_VALID: u16 = 1;
/// The state of an image in which something was wrong.
pub(crate) const STATE_ERRORS: u16 = 2;
/// The image has a journal.
const COMPAT_HAS_JOURNAL: u32 = 4;
/// Inodes may have extended attributes.
const COMPAT_XATTRS: u32 = 8;
/// The superblock names the groups that have copies of it. Directories ahead, a journal,
/// attributes, room for groups, indexes: what they use is known. Copies of the superblock in chosen
/// groups and a file of orphans are not.
const COMPAT_SEARCHABLE: u32 = 0x1 | 0x4 | 0x8 | 0x10 | 0x20;
/// The journal has to be replayed.
pub(crate) const INCOMPAT_RECOVER: u32 = 4;
const INCOMPAT_FILETYPE: u32 = 2;
const INCOMPAT_FLEX_BG: u32 = 0x200;
const INCOMPAT_EXTENTS: u32 = 0x40;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_SEED: u32 = 0x2000;
/// What can be read, and not be written.
const INCOMPAT_READ: u32 = INCOMPAT_EXTENTS | INCOMPAT_64BIT | INCOMPAT_SEED;
const RO_SPARSE_SUPER: u32 = 1;
const RO_LARGE_FILE: u32 = 2;
const RO_CHECKSUMS: u32 = 0x400;

/// Places of fields.
pub(crate) mod field {
    pub(crate) const FREE_BLOCKS: usize = 12;
    pub(crate) const FREE_INODES: usize = 16;
    pub(crate) const MAGIC: usize = 56;
    pub(crate) const STATE: usize = 58;
    pub(crate) const INCOMPAT: usize = 96;
    pub(crate) const LABEL: usize = 120;
    pub(crate) const LAST_MOUNTED: usize = 136;
    pub(crate) const LAST_ORPHAN: usize = 232;
    pub(crate) const DESCRIPTOR_BYTES: usize = 254;
    pub(crate) const BLOCKS_HIGH: usize = 336;
    pub(crate) const CHECKSUM_KIND: usize = 373;
    pub(crate) const CHECKSUM_SEED: usize = 624;
    pub(crate) const CHECKSUM: usize = 1020;
}

/// Features that are known by name: those that nothing can be read without.
const INCOMPAT_NAMES: [(u32, &str); 13] = [
    (1, "compression"),
    (8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extents"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x10000, "encrypt"),
    (0x20000, "casefold"),
];
/// Those that nothing can be written without.
const RO_NAMES: [(u32, &str); 9] = [
    (4, "btree_dir"),
    (0x10, "uninit_bg"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x8000, "verity"),
    (0x10000, "orphan_present"),
];
/// sparse_super, large_file, huge_file, dir_nlink, extra_isize.
const RO_WRITABLE: u32 = RO_SPARSE_SUPER | RO_LARGE_FILE | 8 | 0x20 | 0x40;

/// What is known of an image without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number among all images.
    pub id: [u8; 16],
    /// Its label.
    pub label: String,
    /// What the kernel calls such an image: `ext2`, `ext3` with a journal, `ext4` with what is only
    /// read here.
    pub kind: &'static str,
}

/// Where everything lies.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) block_bytes: usize,
    pub(crate) blocks: u64,
    pub(crate) first_block: u64,
    pub(crate) blocks_per_group: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_per_group: u64,
    pub(crate) groups: u64,
    pub(crate) inode_bytes: usize,
    pub(crate) descriptor_bytes: usize,
    /// With what the checksums of all metadata begin, if there are any.
    pub(crate) checksums: Option<u32>,
    /// Files may have extents in place of pointers.
    pub(crate) has_extents: bool,
    /// Bytes of an inode beyond the first 128 that have a meaning in new inodes.
    pub(crate) extra_bytes: u16,
    pub(crate) first_ino: u64,
    pub(crate) reserved_blocks: u64,
    pub(crate) has_kinds: bool,
    pub(crate) has_large_files: bool,
    pub(crate) has_xattrs: bool,
    /// Few groups have copies of the superblock.
    pub(crate) has_few_backups: bool,
    /// All that is in use without a name, and which groups have copies, is known.
    pub(crate) is_searchable: bool,
    pub(crate) journal_ino: Option<u64>,
    /// The journal has to be replayed before anything is believed.
    pub(crate) needs_replay: bool,
}

impl Geometry {
    /// The blocks of a group.
    pub(crate) fn group_blocks(&self, group: u64) -> Range<u64> {
        let first = self.first_block + group * self.blocks_per_group;
        first..(first + self.blocks_per_group).min(self.blocks)
    }

    /// The blocks of a group with copies of the superblock and the descriptors.
    pub(crate) fn backup_blocks(&self, group: u64) -> Range<u64> {
        let is_power = |of: u64| {
            let mut power = of;
            while power < group {
                power *= of;
            }
            power == group
        };
        let has = !self.has_few_backups || group <= 1 || [3, 5, 7].into_iter().any(is_power);
        let start = self.group_blocks(group).start;
        start..start + if has { 1 + self.descriptor_blocks() } else { 0 }
    }

    /// The block and place of the superblock.
    pub(crate) fn superblock(&self) -> (u64, usize) {
        if self.block_bytes == 1024 { (1, 0) } else { (0, 1024) }
    }

    /// The block and place of a group's descriptor.
    pub(crate) fn descriptor(&self, group: u64) -> (u64, usize) {
        let per_block = (self.block_bytes / self.descriptor_bytes) as u64;
        let block = self.first_block + 1 + group / per_block;
        (block, (group % per_block) as usize * self.descriptor_bytes)
    }

    /// Blocks that the group descriptors take.
    pub(crate) fn descriptor_blocks(&self) -> u64 {
        self.groups.div_ceil((self.block_bytes / self.descriptor_bytes) as u64)
    }

    /// Blocks that a group's inode table takes.
    pub(crate) fn table_blocks(&self) -> u64 {
        (self.inodes_per_group * self.inode_bytes as u64).div_ceil(self.block_bytes as u64)
    }

    /// Pointers in a block.
    pub(crate) fn pointers(&self) -> u64 {
        (self.block_bytes / 4) as u64
    }
}

/// What the superblock says of an image, if it is one that can be read.
///
/// # Errors
/// It is none, or has a feature that this program does not read.
pub fn decode_header(bytes: &[u8]) -> Result<Header, ImageError> {
    check_magic(bytes)?;
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[104..120]);
    let label = &bytes[field::LABEL..field::LABEL + 16];
    let end = label.iter().position(|byte| *byte == 0).unwrap_or(16);
    let label = String::from_utf8_lossy(&label[..end]).into_owned();
    let is_ext4 = u32_at(bytes, field::INCOMPAT) & INCOMPAT_READ != 0
        || u32_at(bytes, 100) & RO_CHECKSUMS != 0;
    let kind = match (is_ext4, u32_at(bytes, 92) & COMPAT_HAS_JOURNAL) {
        (true, _) => "ext4",
        (false, 0) => "ext2",
        (false, _) => "ext3",
    };
    Ok(Header { id, label, kind })
}

fn check_magic(bytes: &[u8]) -> Result<(), ImageError> {
    if bytes.len() < SUPERBLOCK_BYTES || u16_at(bytes, field::MAGIC) != MAGIC {
        return Err(ImageError::NoImage("there is no superblock".to_owned()));
    }
    Ok(())
}

/// The first unknown feature of some, by its name or number.
fn feature(bits: u32, names: &[(u32, &str)]) -> Option<String> {
    let lowest = bits & bits.wrapping_neg();
    let named = names.iter().find(|(bit, _)| *bit == lowest).map(|(_, name)| (*name).to_owned());
    (bits != 0).then(|| named.unwrap_or_else(|| format!("{lowest:#x}")))
}

fn check_features(bytes: &[u8], is_writable: bool) -> Result<(), ImageError> {
    let known = INCOMPAT_FILETYPE | INCOMPAT_RECOVER | INCOMPAT_FLEX_BG | INCOMPAT_READ;
    if let Some(feature) = feature(u32_at(bytes, field::INCOMPAT) & !known, &INCOMPAT_NAMES) {
        let next = "take the kernel's ext4, or make an image by `mke2fs -t ext2` or `-t ext3`";
        return Err(ImageError::Feature { feature, limit: "cannot be read here", next });
    }
    let unknown = feature(u32_at(bytes, field::INCOMPAT) & INCOMPAT_READ, &INCOMPAT_NAMES)
        .or_else(|| feature(u32_at(bytes, 100) & !RO_WRITABLE, &RO_NAMES));
    if let Some(feature) = unknown.filter(|_| is_writable) {
        let next = "mount it with `ro`";
        return Err(ImageError::Feature { feature, limit: "cannot be written here", next });
    }
    Ok(())
}

/// Reads the superblock of an image on a medium of so many bytes.
///
/// # Errors
/// It is none, makes no sense, or has features that cannot be served.
pub(crate) fn decode(
    bytes: &[u8],
    medium_bytes: u64,
    is_writable: bool,
) -> Result<Geometry, ImageError> {
    check_magic(bytes)?;
    let revision = u32_at(bytes, 76);
    if revision > 1 {
        return Err(ImageError::Damaged(format!("revision {revision}")));
    }
    if revision == 1 {
        check_features(bytes, is_writable)?;
    }
    let dynamic = |value: u64, old: u64| if revision == 1 { value } else { old };
    let features = |at| if revision == 1 { u32_at(bytes, at) } else { 0 };
    let block_bytes = 1024_usize.checked_shl(u32_at(bytes, 24)).unwrap_or(0);
    let number = |at| u64::from(u32_at(bytes, at));
    let blocks_per_group = number(32).max(1);
    let (blocks, first_block) = (number(4), number(20));
    let is_long = features(field::INCOMPAT) & INCOMPAT_64BIT != 0;
    if is_long && u32_at(bytes, field::BLOCKS_HIGH) != 0 {
        let (feature, limit) = ("64bit with 2^32 blocks or more", "cannot be read here");
        let next = "take the kernel's ext4";
        return Err(ImageError::Feature { feature: feature.to_owned(), limit, next });
    }
    let geometry = Geometry {
        block_bytes,
        blocks,
        first_block,
        blocks_per_group,
        inodes: number(0),
        inodes_per_group: number(40),
        groups: blocks.saturating_sub(first_block).div_ceil(blocks_per_group),
        inode_bytes: dynamic(u64::from(u16_at(bytes, 88)), 128) as usize,
        descriptor_bytes: match is_long {
            true => usize::from(u16_at(bytes, field::DESCRIPTOR_BYTES)),
            false => DESCRIPTOR_BYTES,
        },
        checksums: checksums(bytes, features(100), features(field::INCOMPAT))?,
        has_extents: features(field::INCOMPAT) & INCOMPAT_EXTENTS != 0,
        extra_bytes: u16_at(bytes, 350).max(32),
        first_ino: dynamic(number(84), 11),
        reserved_blocks: number(8),
        has_kinds: features(field::INCOMPAT) & INCOMPAT_FILETYPE != 0,
        has_large_files: features(100) & RO_LARGE_FILE != 0,
        has_xattrs: features(92) & COMPAT_XATTRS != 0,
        has_few_backups: features(100) & RO_SPARSE_SUPER != 0,
        is_searchable: features(92) & !COMPAT_SEARCHABLE == 0,
        journal_ino: (features(92) & COMPAT_HAS_JOURNAL != 0)
            .then(|| number(224))
            .filter(|number| *number != 0),
        needs_replay: features(field::INCOMPAT) & INCOMPAT_RECOVER != 0,
    };
    check(&geometry, number(32), medium_bytes)?;
    Ok(geometry)
}

/// With what checksums begin, if the image has any; that of the superblock itself is looked at.
fn checksums(bytes: &[u8], read: u32, incompat: u32) -> Result<Option<u32>, ImageError> {
    if read & RO_CHECKSUMS == 0 {
        return Ok(None);
    }
    let (kind, sum) = (bytes[field::CHECKSUM_KIND], u32_at(bytes, field::CHECKSUM));
    if kind != CRC_32C {
        return Err(ImageError::Damaged(format!("checksums of a kind {kind} that is not known")));
    }
    if checksum::add(checksum::START, &bytes[..field::CHECKSUM]) != sum {
        return Err(ImageError::Damaged("the checksum of its superblock is wrong".to_owned()));
    }
    Ok(Some(match incompat & INCOMPAT_SEED {
        0 => checksum::add(checksum::START, &bytes[104..120]),
        _ => u32_at(bytes, field::CHECKSUM_SEED),
    }))
}

fn check(it: &Geometry, blocks_per_group: u64, medium_bytes: u64) -> Result<(), ImageError> {
    let bad = |what: String| Err(ImageError::Damaged(what));
    if !(1024..=BLOCK_BYTES_MAX).contains(&it.block_bytes) {
        return bad(format!("blocks of {} bytes; 1024, 2048 and 4096 can be read", it.block_bytes));
    }
    if it.first_block != u64::from(it.block_bytes == 1024) || it.blocks <= it.first_block {
        return bad(format!("{} blocks from block {}", it.blocks, it.first_block));
    }
    if it.blocks * it.block_bytes as u64 > medium_bytes {
        let says = it.blocks * it.block_bytes as u64;
        return bad(format!("it has {medium_bytes} bytes, and its superblock says {says}"));
    }
    let bits = it.block_bytes as u64 * 8;
    if blocks_per_group == 0 || blocks_per_group > bits || !blocks_per_group.is_multiple_of(8) {
        return bad(format!("{blocks_per_group} blocks in a group"));
    }
    let good_inode = it.inode_bytes.is_power_of_two()
        && (128..=it.block_bytes.min(512)).contains(&it.inode_bytes);
    if !good_inode {
        return bad(format!("inodes of {} bytes; 128, 256 and 512 can be read", it.inode_bytes));
    }
    let descriptor = it.descriptor_bytes;
    let is_long = descriptor.is_power_of_two()
        && (LONG_DESCRIPTOR_BYTES_MIN..=it.block_bytes).contains(&descriptor);
    if descriptor != DESCRIPTOR_BYTES && !is_long {
        return bad(format!("group descriptors of {descriptor} bytes"));
    }
    let per_group = it.inodes_per_group;
    if per_group == 0 || per_group > bits || !per_group.is_multiple_of(8) {
        return bad(format!("{per_group} inodes in a group"));
    }
    if it.inodes != per_group * it.groups || it.first_ino < 11 || it.first_ino > it.inodes {
        return bad(format!("{} inodes, the first of users being {}", it.inodes, it.first_ino));
    }
    Ok(())
}
