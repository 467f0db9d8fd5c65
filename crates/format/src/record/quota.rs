//! What the inodes of an owner use, and what they may use.

use crate::FormatError;
use crate::reader::Reader;

/// Which id of an inode an owner is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OwnerClass {
    /// The owning user.
    User = 0,
    /// The owning group.
    Group = 1,
    /// The project; inodes of project 0 belong to none.
    Project = 2,
}

/// The most that one inode counts for, in bytes: sums of many must not pass what a number holds.
pub const INODE_USAGE_BYTES_MAX: u64 = 1 << 53;

/// One owner: a user, group or project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId {
    /// What kind of owner it is.
    pub class: OwnerClass,
    /// Its number.
    pub id: u32,
}

/// The value of a usage item: sums over the inodes of one owner. An owner without inodes has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of content, each inode's rounded up to 4096, as `du` says, and at most
    /// [`INODE_USAGE_BYTES_MAX`].
    pub bytes: i64,
    /// Inodes.
    pub inodes: i64,
}

/// The value of a limit item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Most bytes; `i64::MAX` is no limit.
    pub bytes: i64,
    /// Most inodes; `i64::MAX` is no limit.
    pub inodes: i64,
}

impl OwnerId {
    /// The offset in keys of usage and limit items.
    pub fn to_offset(self) -> u64 {
        (self.class as u64) << 32 | u64::from(self.id)
    }

    /// The owner that an offset names, if it names one.
    pub fn from_offset(offset: u64) -> Option<OwnerId> {
        let class = match offset >> 32 {
            0 => OwnerClass::User,
            1 => OwnerClass::Group,
            2 => OwnerClass::Project,
            _ => return None,
        };
        let id = u32::try_from(offset & u64::from(u32::MAX)).ok()?;
        Some(OwnerId { class, id })
    }
}

impl Usage {
    /// The encoded record.
    pub fn encode(&self) -> [u8; 16] {
        encode(self.bytes, self.inodes)
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// A wrong length, or less than nothing in use.
    pub fn decode(bytes: &[u8]) -> Result<Usage, FormatError> {
        let (bytes, inodes) = decode("usage", bytes)?;
        Ok(Usage { bytes, inodes })
    }
}

impl Limit {
    /// No limit at all.
    pub const NONE: Limit = Limit { bytes: i64::MAX, inodes: i64::MAX };

    /// The encoded record.
    pub fn encode(&self) -> [u8; 16] {
        encode(self.bytes, self.inodes)
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// A wrong length, or a limit below nothing.
    pub fn decode(bytes: &[u8]) -> Result<Limit, FormatError> {
        let (bytes, inodes) = decode("limit", bytes)?;
        Ok(Limit { bytes, inodes })
    }
}

fn encode(bytes: i64, inodes: i64) -> [u8; 16] {
    let mut encoded = [0; 16];
    encoded[..8].copy_from_slice(&bytes.to_le_bytes());
    encoded[8..].copy_from_slice(&inodes.to_le_bytes());
    encoded
}

fn decode(what: &'static str, encoded: &[u8]) -> Result<(i64, i64), FormatError> {
    let mut fields = Reader::new(what, encoded);
    let mut sums = [0; 2];
    for (sum, field) in sums.iter_mut().zip(["bytes", "inodes"]) {
        let at = fields.at();
        *sum = fields.i64(field)?;
        if *sum < 0 {
            return Err(fields.unexpected(field, at, sum.cast_unsigned(), "0 or more"));
        }
    }
    fields.finish()?;
    Ok((sums[0], sums[1]))
}
