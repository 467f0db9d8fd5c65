//! Inodes: their bytes, and what they mean.

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::checksum;
use crate::superblock::Geometry;
use marram_vfs::{Attributes, Error, Ino, Kind, Result, Timestamp};

/// Pointers in an inode.
pub(crate) const SLOTS: usize = 15;
/// Of those, the ones that point to content.
pub(crate) const DIRECT: usize = 12;
/// Bytes of a target that stands in the inode itself, at most.
pub(crate) const SHORT_TARGET_BYTES_MAX: usize = SLOTS * 4 - 1;
/// The directory has an index.
pub(crate) const FLAG_INDEX: u32 = 0x1000;
/// Nothing may change it, or it may only grow.
pub(crate) const FLAGS_FIXED: u32 = 0x10 | 0x20;
/// Its content is not in blocks that pointers name.
pub(crate) const FLAGS_FOREIGN: u32 = 0x800 | 0x20_0000 | 0x1000_0000;
/// Its blocks are in extents.
pub(crate) const FLAG_EXTENTS: u32 = 0x8_0000;
/// Its blocks are counted in blocks, not in sectors.
const FLAG_HUGE: u32 = 0x4_0000;
/// Where the size is: its low 32 bits, which are all that a directory has.
pub(crate) const SIZE_AT: usize = 4;
/// Links of a directory that has more of them than can be counted.
pub(crate) const LINKS_UNCOUNTED: u32 = 1;
/// Where the pointers are.
const POINTERS_AT: usize = 40;
/// The latest second that 34 bits can say.
const SECONDS_MAX: i64 = (3 << 32) + 0x7fff_ffff;

/// A time of an inode: its place, and that of what does not fit there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    Accessed,
    Changed,
    Modified,
    Created,
}

impl Time {
    fn places(self) -> (usize, usize) {
        match self {
            Time::Accessed => (8, 140),
            Time::Changed => (12, 132),
            Time::Modified => (16, 136),
            Time::Created => (144, 148),
        }
    }
}

/// The bytes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) bytes: Vec<u8>,
    /// With what its checksums begin, and those of all that belongs to it, if there are any.
    pub(crate) seed: Option<u32>,
}

impl Inode {
    /// One that has been read from an image whose checksums begin so, if it has any.
    ///
    /// # Errors
    /// Its checksum is wrong. One that nobody has ever had has none.
    pub(crate) fn read(checksums: Option<u32>, number: u64, bytes: &[u8]) -> Result<Inode> {
        let mut inode = Inode { bytes: bytes.to_vec(), seed: None };
        let generation = inode.generation();
        inode.seed = checksums.map(|it| checksum::inode_seed(it, number, generation));
        let is_bad = |seed| inode.mode() != 0 && !checksum::is_good_inode(seed, bytes);
        match inode.seed.is_some_and(is_bad) {
            true => Err(Error::Damaged(format!("the checksum of inode {number} is wrong"))),
            false => Ok(inode),
        }
    }

    pub(crate) fn mode(&self) -> u32 {
        u32::from(u16_at(&self.bytes, 0))
    }

    pub(crate) fn set_mode(&mut self, mode: u32) {
        put_u16(&mut self.bytes, 0, mode as u16);
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::from_mode(self.mode())
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == Some(Kind::Directory)
    }

    pub(crate) fn permissions(&self) -> u32 {
        self.mode() & 0o7777
    }

    pub(crate) fn uid(&self) -> u32 {
        u32::from(u16_at(&self.bytes, 2)) | u32::from(u16_at(&self.bytes, 120)) << 16
    }

    pub(crate) fn gid(&self) -> u32 {
        u32::from(u16_at(&self.bytes, 24)) | u32::from(u16_at(&self.bytes, 122)) << 16
    }

    pub(crate) fn set_uid(&mut self, uid: u32) {
        put_u16(&mut self.bytes, 2, uid as u16);
        put_u16(&mut self.bytes, 120, (uid >> 16) as u16);
    }

    pub(crate) fn set_gid(&mut self, gid: u32) {
        put_u16(&mut self.bytes, 24, gid as u16);
        put_u16(&mut self.bytes, 122, (gid >> 16) as u16);
    }

    pub(crate) fn links(&self) -> u32 {
        u32::from(u16_at(&self.bytes, 26))
    }

    pub(crate) fn set_links(&mut self, links: u32) {
        put_u16(&mut self.bytes, 26, links as u16);
    }

    /// Counts links more or fewer. A directory that has more subdirectories than can be counted
    /// says so for good, and no other one counts fewer than its name and its entry `.`.
    pub(crate) fn change_links(&mut self, by: i32) {
        let links = self.links();
        let is_least = links == LINKS_UNCOUNTED || by < 0 && links <= 2;
        if !(self.is_directory() && is_least) {
            self.set_links(links.saturating_add_signed(by));
        }
    }

    /// Size in bytes. A directory's is of 32 bits: what would be above is another field.
    pub(crate) fn size(&self) -> u64 {
        let high = if self.kind() == Some(Kind::Regular) { u32_at(&self.bytes, 108) } else { 0 };
        u64::from(u32_at(&self.bytes, SIZE_AT)) | u64::from(high) << 32
    }

    pub(crate) fn set_size(&mut self, size: u64) {
        put_u32(&mut self.bytes, SIZE_AT, size as u32);
        if self.kind() == Some(Kind::Regular) {
            put_u32(&mut self.bytes, 108, (size >> 32) as u32);
        }
    }

    pub(crate) fn flags(&self) -> u32 {
        u32_at(&self.bytes, 32)
    }

    pub(crate) fn set_flags(&mut self, flags: u32) {
        put_u32(&mut self.bytes, 32, flags);
    }

    pub(crate) fn generation(&self) -> u32 {
        u32_at(&self.bytes, 100)
    }

    /// When it was removed, or the next inode without a name.
    pub(crate) fn removed(&self) -> u32 {
        u32_at(&self.bytes, 20)
    }

    pub(crate) fn set_removed(&mut self, value: u32) {
        put_u32(&mut self.bytes, 20, value);
    }

    /// The block of its extended attributes, 0 for none.
    pub(crate) fn attribute_block(&self) -> u64 {
        u64::from(u32_at(&self.bytes, 104))
    }

    pub(crate) fn set_attribute_block(&mut self, block: u64) {
        put_u32(&mut self.bytes, 104, block as u32);
    }

    pub(crate) fn pointer(&self, slot: usize) -> u64 {
        u64::from(u32_at(&self.bytes, POINTERS_AT + slot * 4))
    }

    pub(crate) fn set_pointer(&mut self, slot: usize, block: u64) {
        put_u32(&mut self.bytes, POINTERS_AT + slot * 4, block as u32);
    }

    /// Where the pointers are, which a short target takes.
    pub(crate) fn pointer_bytes(&self) -> &[u8] {
        &self.bytes[POINTERS_AT..POINTERS_AT + SLOTS * 4]
    }

    pub(crate) fn pointer_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[POINTERS_AT..POINTERS_AT + SLOTS * 4]
    }

    fn counts_blocks(&self) -> bool {
        self.flags() & FLAG_HUGE != 0
    }

    /// Space in use, in units of 512 bytes.
    pub(crate) fn sectors(&self, block_bytes: usize) -> u64 {
        let count = u64::from(u32_at(&self.bytes, 28)) | u64::from(u16_at(&self.bytes, 116)) << 32;
        if self.counts_blocks() { count * (block_bytes / 512) as u64 } else { count }
    }

    /// Counts so many blocks more, or fewer.
    pub(crate) fn add_blocks(&mut self, blocks: i64, block_bytes: usize) {
        let each = if self.counts_blocks() { 1 } else { (block_bytes / 512) as i64 };
        let count = u64::from(u32_at(&self.bytes, 28)) | u64::from(u16_at(&self.bytes, 116)) << 32;
        let count = count.saturating_add_signed(blocks * each);
        put_u32(&mut self.bytes, 28, count as u32);
        put_u16(&mut self.bytes, 116, (count >> 32) as u16);
    }

    /// Whether the bytes up to `end` have a meaning.
    fn has(&self, end: usize) -> bool {
        self.bytes.len() > 128
            && end <= 128 + usize::from(u16_at(&self.bytes, 128))
            && end <= self.bytes.len()
    }

    pub(crate) fn time(&self, which: Time) -> Timestamp {
        let (at, extra_at) = which.places();
        if which == Time::Created && !self.has(at + 4) {
            return self.time(Time::Changed);
        }
        let low = i64::from(u32_at(&self.bytes, at) as i32);
        if !self.has(extra_at + 4) {
            return Timestamp { seconds: low, nanoseconds: 0 };
        }
        let extra = u32_at(&self.bytes, extra_at);
        let nanoseconds = (extra >> 2).min(999_999_999);
        Timestamp { seconds: low + (i64::from(extra & 3) << 32), nanoseconds }
    }

    /// Sets a time, as near as the inode can say it.
    pub(crate) fn set_time(&mut self, which: Time, time: Timestamp) {
        let (at, extra_at) = which.places();
        if which == Time::Created && !self.has(at + 4) {
            return;
        }
        if !self.has(extra_at + 4) {
            let seconds = time.seconds.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
            put_u32(&mut self.bytes, at, seconds as u32);
            return;
        }
        let seconds = time.seconds.clamp(i64::from(i32::MIN), SECONDS_MAX);
        let low = seconds as i32;
        let epoch = ((seconds - i64::from(low)) >> 32) as u32 & 3;
        put_u32(&mut self.bytes, at, low as u32);
        put_u32(&mut self.bytes, extra_at, epoch | time.nanoseconds << 2);
    }

    /// Moves the times that a change of content moves.
    pub(crate) fn touch_content(&mut self, now: Timestamp) {
        self.set_time(Time::Modified, now);
        self.set_time(Time::Changed, now);
    }

    /// The device number of a device node.
    pub(crate) fn device(&self) -> u32 {
        match self.pointer(0) {
            0 => self.pointer(1) as u32,
            old => old as u32,
        }
    }

    /// A new inode of a number whose old bytes are known.
    pub(crate) fn new(old: &Inode, geometry: &Geometry, mode: u32, now: Timestamp) -> Inode {
        let mut new = Inode { bytes: vec![0; geometry.inode_bytes], seed: None };
        if new.bytes.len() > 128 {
            let room = (geometry.inode_bytes - 128) as u16;
            put_u16(&mut new.bytes, 128, geometry.extra_bytes.min(room));
        }
        new.set_mode(mode);
        put_u32(&mut new.bytes, 100, old.generation().wrapping_add(1));
        for time in [Time::Accessed, Time::Changed, Time::Modified, Time::Created] {
            new.set_time(time, now);
        }
        new
    }

    /// What users see of it.
    pub(crate) fn attributes(&self, ino: Ino, kind: Kind, block_bytes: usize) -> Attributes {
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        Attributes {
            ino,
            generation: u64::from(self.generation()),
            kind,
            permissions: self.permissions(),
            links: self.links(),
            uid: self.uid(),
            gid: self.gid(),
            device: if is_device { self.device() } else { 0 },
            size: if is_device { 0 } else { self.size() },
            blocks_512: self.sectors(block_bytes),
            accessed: self.time(Time::Accessed),
            modified: self.time(Time::Modified),
            changed: self.time(Time::Changed),
            created: self.time(Time::Created),
        }
    }
}
