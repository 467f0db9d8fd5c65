//! Records of a few fixed fields: sections, orphans, counters; and symlink targets.

use super::NameRule;
use crate::FormatError;
use crate::reader::Reader;

/// Bytes of an encoded section.
pub const SECTION_BYTES: usize = 12;
/// Bytes of the encoded counters.
pub const COUNTERS_BYTES: usize = 24;
/// Largest [`Counters::next_inode`]: no dataset comes to it.
pub const NEXT_INODE_MAX: u64 = 1 << 63;

const COUNTERS_VERSION: u32 = 1;
const TARGET_BYTES_MAX: usize = 4095;

/// The value of a section item: which bytes of its block (or, without one, how many reserved
/// bytes) lie at the file offset in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Bytes of the file that it covers; at least 1.
    pub len_bytes: u64,
    /// Where in the block they begin; 0 without a block.
    pub block_start: u32,
}

/// Why an inode has an orphan item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OrphanReason {
    /// It has no name: all of it goes when it is no longer in use.
    Nameless = 1,
    /// It has a name, but sections past its size wait to be removed.
    Tail = 2,
}

/// The value of the counters item at offset 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// No inode number at or above it has ever been used.
    pub next_inode: u64,
    /// Seed of the hashes of names.
    pub name_seed: u64,
    /// When two names of a directory are the same.
    pub names: NameRule,
}

/// The value of the counters items at other offsets: the number of inodes is the sum of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeCount(pub i64);

impl Section {
    /// The encoded record.
    pub fn encode(&self) -> [u8; SECTION_BYTES] {
        let mut bytes = [0; SECTION_BYTES];
        bytes[..8].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[8..].copy_from_slice(&self.block_start.to_le_bytes());
        bytes
    }

    /// Decodes the section that lies at `offset` in its file and whose block, if it has one, has
    /// `block_bytes`.
    ///
    /// # Errors
    /// A wrong length; a section that is empty, passes the largest file, or passes its block.
    pub fn decode(
        bytes: &[u8],
        offset: u64,
        block_bytes: Option<u64>,
    ) -> Result<Section, FormatError> {
        let mut fields = Reader::new("section", bytes);
        let len_bytes = fields.u64("length")?;
        let end = offset.checked_add(len_bytes).filter(|end| *end <= i64::MAX as u64);
        if len_bytes == 0 || end.is_none() {
            return Err(fields.unexpected("length", 0, len_bytes, "1 to the end of the file"));
        }
        let block_start = fields.u32("start")?;
        let start = u64::from(block_start);
        let fits = match block_bytes {
            Some(block_bytes) => start.checked_add(len_bytes).is_some_and(|end| end <= block_bytes),
            None => start == 0,
        };
        if !fits {
            return Err(fields.unexpected("start", 8, start, "a slice inside the block"));
        }
        fields.finish()?;
        Ok(Section { len_bytes, block_start })
    }
}

impl OrphanReason {
    /// The encoded record.
    pub fn encode(self) -> [u8; 1] {
        [self as u8]
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// A wrong length or a reason without a meaning.
    pub fn decode(bytes: &[u8]) -> Result<OrphanReason, FormatError> {
        let mut fields = Reader::new("orphan", bytes);
        let reason = match fields.u8("reason")? {
            1 => OrphanReason::Nameless,
            2 => OrphanReason::Tail,
            other => return Err(fields.unexpected("reason", 0, u64::from(other), "1 or 2")),
        };
        fields.finish()?;
        Ok(reason)
    }
}

impl Counters {
    /// The encoded record.
    pub fn encode(&self) -> [u8; COUNTERS_BYTES] {
        let mut bytes = [0; COUNTERS_BYTES];
        bytes[..4].copy_from_slice(&COUNTERS_VERSION.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.names.number().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.next_inode.to_le_bytes());
        bytes[16..].copy_from_slice(&self.name_seed.to_le_bytes());
        bytes
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// A wrong length or version, a name rule without a meaning, more inodes than there can be.
    pub fn decode(bytes: &[u8]) -> Result<Counters, FormatError> {
        let mut fields = Reader::new("counters", bytes);
        let version = fields.u32("record version")?;
        if version != COUNTERS_VERSION {
            return Err(fields.unexpected("record version", 0, u64::from(version), "1"));
        }
        let names = NameRule::read(&mut fields)?;
        let next_inode = fields.u64("next inode")?;
        if next_inode > NEXT_INODE_MAX {
            return Err(fields.unexpected("next inode", 8, next_inode, "at most 2^63"));
        }
        let name_seed = fields.u64("name seed")?;
        fields.finish()?;
        Ok(Counters { next_inode, name_seed, names })
    }
}

impl InodeCount {
    /// The encoded record.
    pub fn encode(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// A wrong length.
    pub fn decode(bytes: &[u8]) -> Result<InodeCount, FormatError> {
        let mut fields = Reader::new("inode count", bytes);
        let count = fields.i64("count")?;
        fields.finish()?;
        Ok(InodeCount(count))
    }
}

/// Checks the value of a symbolic link's target item, which is the target itself.
///
/// # Errors
/// An empty target or one of more than 4095 bytes.
pub fn decode_target(bytes: &[u8]) -> Result<&[u8], FormatError> {
    if bytes.is_empty() || bytes.len() > TARGET_BYTES_MAX {
        let fields = Reader::new("symlink target", bytes);
        return Err(fields.unexpected("length", 0, bytes.len() as u64, "1 to 4095"));
    }
    Ok(bytes)
}
