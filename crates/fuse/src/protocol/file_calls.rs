//! Control calls of our own on files: for what FUSE has no requests for.
//!
//! **In two steps.** The kernel keeps pages and sizes of files, and only it can take them back
//! safely: it does so around `fallocate` and `copy_file_range`, with the file locked. So a range is
//! not moved or shared by a control call itself. That prepares it ([`FileCall::Prepare`]), and an
//! ordinary call of the kind that the kernel knows performs it: `fallocate` zeroing, from the
//! beginning on, as many bytes as the answer to the first says, or `copy_file_range` with just the
//! target's range that was prepared. So the right to do it is checked by the kernel as for these
//! calls, dirty pages come down before, and cached ones go after.
//!
//! If the second step finds nothing prepared, it must do no harm: to zero so many bytes needs more
//! space than there can be, and a range that is copied has the same content (whether it was shared
//! is found out with [`FileCall::Withdraw`]).

use super::flags::ioctl;
use marram_vfs::{Allocate, Extent, ExtentPlace, OwnerUsage, UsageOwner};

/// Lengths that stand for something prepared begin here, in bytes: nobody can zero so many.
pub(crate) const PREPARED_BYTES_MIN: u64 = 1 << 62;
/// Most extents in one answer.
pub const EXTENTS_MAX: usize = (EXTENTS_BYTES - EXTENTS_HEADER_BYTES) / EXTENT_BYTES;
/// Bytes of what [`FileCall::Prepare`] takes and gives.
pub(crate) const PREPARE_BYTES: usize = 32;
/// Bytes of what [`FileCall::Withdraw`] takes and gives.
pub(crate) const WITHDRAW_BYTES: usize = 16;
/// Bytes of what [`FileCall::Extents`] takes and gives.
pub(crate) const EXTENTS_BYTES: usize = 8192;
/// Bytes of what [`FileCall::Usage`] takes and gives.
pub(crate) const USAGE_BYTES: usize = 40;
/// What stands for no limit.
const NO_LIMIT: u64 = u64::MAX;
const EXTENTS_HEADER_BYTES: usize = 16;
const EXTENT_BYTES: usize = 48;

/// What is to be done with a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// One of the kinds of allocation that the kernel does not pass on.
    Allocate(Allocate),
    /// Share the blocks of what is copied into it, or fail.
    Share,
}

/// Numbers of the deeds.
const DEEDS: [(u32, Deed); 5] = [
    (1, Deed::Allocate(Allocate::Collapse)),
    (2, Deed::Allocate(Allocate::Insert)),
    (3, Deed::Allocate(Allocate::Unshare)),
    (4, Deed::Allocate(Allocate::UnshareKeepSize)),
    (5, Deed::Share),
];

/// A control call on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCall {
    /// The next fitting call on the file is meant for this.
    Prepare {
        /// What is to be done.
        deed: Deed,
        /// Where the range begins, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Nothing is to be shared any more with the range that was prepared for it.
    Withdraw {
        /// Where the range begins, in bytes.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Report where the content lies that ends after a place.
    Extents {
        /// The place, in bytes.
        offset: u64,
    },
    /// Report what an owner uses, and may use, of the file system.
    Usage {
        /// The owner whose usage is asked for.
        owner: UsageOwner,
    },
}

/// The answer to [`FileCall::Prepare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// How many bytes to zero, from the beginning on, so that an allocation is done; 0 of other
    /// deeds.
    pub len: u64,
    /// The kernel owns the size of files, and must hear of a new one.
    pub kernel_owns_sizes: bool,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

impl FileCall {
    /// Whether `command` is one of these.
    pub fn is_one(command: u32) -> bool {
        matches!(command, ioctl::PREPARE | ioctl::WITHDRAW | ioctl::EXTENTS | ioctl::USAGE)
    }

    /// Reads a call from what its argument points to; `None` if it makes no sense. What is not used
    /// must be zeros, so that it can mean something later.
    pub fn decode(command: u32, input: &[u8]) -> Option<FileCall> {
        let (call, used) = match command {
            ioctl::PREPARE if input.len() == PREPARE_BYTES => {
                let number = u32_at(input, 0)?;
                let (_, deed) = DEEDS.into_iter().find(|(known, _)| *known == number)?;
                let (offset, len) = (u64_at(input, 8)?, u64_at(input, 16)?);
                if u32_at(input, 4)? != 0 {
                    return None;
                }
                (FileCall::Prepare { deed, offset, len }, 24)
            }
            ioctl::WITHDRAW if input.len() == WITHDRAW_BYTES => {
                (FileCall::Withdraw { offset: u64_at(input, 0)?, len: u64_at(input, 8)? }, 16)
            }
            ioctl::EXTENTS if input.len() == EXTENTS_BYTES => {
                (FileCall::Extents { offset: u64_at(input, 0)? }, 8)
            }
            ioctl::USAGE if input.len() == USAGE_BYTES => {
                let id = u32_at(input, 4)?;
                let owner = match u32_at(input, 0)? {
                    1 => UsageOwner::User(id),
                    2 => UsageOwner::Group(id),
                    3 => UsageOwner::Project(id),
                    _ => return None,
                };
                (FileCall::Usage { owner }, 8)
            }
            _ => return None,
        };
        let unused = input.get(used..)?;
        unused.iter().all(|byte| *byte == 0).then_some(call)
    }

    /// The command and what its argument points to.
    pub fn encode(self) -> (u32, Vec<u8>) {
        let mut bytes = Vec::new();
        let (command, len) = match self {
            FileCall::Prepare { deed, offset, len } => {
                let number = DEEDS.iter().find(|(_, known)| *known == deed);
                let number = number.map_or(0, |(number, _)| *number);
                bytes.extend(u64::from(number).to_le_bytes());
                bytes.extend(offset.to_le_bytes());
                bytes.extend(len.to_le_bytes());
                (ioctl::PREPARE, PREPARE_BYTES)
            }
            FileCall::Withdraw { offset, len } => {
                bytes.extend(offset.to_le_bytes());
                bytes.extend(len.to_le_bytes());
                (ioctl::WITHDRAW, WITHDRAW_BYTES)
            }
            FileCall::Extents { offset } => {
                bytes.extend(offset.to_le_bytes());
                (ioctl::EXTENTS, EXTENTS_BYTES)
            }
            FileCall::Usage { owner } => {
                let (class, id) = match owner {
                    UsageOwner::User(id) => (1_u32, id),
                    UsageOwner::Group(id) => (2, id),
                    UsageOwner::Project(id) => (3, id),
                };
                bytes.extend(class.to_le_bytes());
                bytes.extend(id.to_le_bytes());
                (ioctl::USAGE, USAGE_BYTES)
            }
        };
        bytes.resize(len, 0);
        (command, bytes)
    }
}

impl Prepared {
    /// As the answer has it.
    pub fn encode(self) -> Vec<u8> {
        let mut bytes = self.len.to_le_bytes().to_vec();
        bytes.extend(u32::from(self.kernel_owns_sizes).to_le_bytes());
        bytes.resize(PREPARE_BYTES, 0);
        bytes
    }

    /// Reads it from an answer; `None` if that makes no sense.
    pub fn decode(bytes: &[u8]) -> Option<Prepared> {
        let kernel_owns_sizes = match u32_at(bytes, 8)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Prepared { len: u64_at(bytes, 0)?, kernel_owns_sizes })
    }
}

/// The answer to [`FileCall::Usage`].
pub fn encode_usage(usage: &OwnerUsage) -> Vec<u8> {
    let limit = |limit: Option<u64>| limit.unwrap_or(NO_LIMIT);
    let words = [usage.bytes, limit(usage.bytes_limit), usage.inodes, limit(usage.inodes_limit), 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Reads usage from an answer; `None` if that makes no sense.
pub fn decode_usage(bytes: &[u8]) -> Option<OwnerUsage> {
    let limit = |at| u64_at(bytes, at).map(|limit| Some(limit).filter(|limit| *limit != NO_LIMIT));
    Some(OwnerUsage {
        bytes: u64_at(bytes, 0)?,
        bytes_limit: limit(8)?,
        inodes: u64_at(bytes, 16)?,
        inodes_limit: limit(24)?,
    })
}

/// Kinds of places, as an answer numbers them.
mod place {
    pub(super) const RESERVED: u32 = 1;
    pub(super) const WAITING: u32 = 2;
    pub(super) const BESIDE: u32 = 3;
    pub(super) const STORED: u32 = 4;
    pub(super) const STORED_SHARED: u32 = 5;
}

/// The answer to [`FileCall::Extents`], which has at most [`EXTENTS_MAX`].
pub fn encode_extents(extents: &[Extent]) -> Vec<u8> {
    let count = extents.len().min(EXTENTS_MAX);
    let mut bytes = Vec::with_capacity(EXTENTS_BYTES);
    bytes.extend((count as u64).to_le_bytes());
    bytes.resize(EXTENTS_HEADER_BYTES, 0);
    for extent in &extents[..count] {
        bytes.extend(encode_extent(extent));
    }
    bytes.resize(EXTENTS_BYTES, 0);
    bytes
}

fn encode_extent(extent: &Extent) -> [u8; EXTENT_BYTES] {
    let plain = |kind| (kind, 0, [0; 4]);
    let (kind, device, numbers) = match extent.place {
        ExtentPlace::Reserved => plain(place::RESERVED),
        ExtentPlace::Waiting => plain(place::WAITING),
        ExtentPlace::Beside => plain(place::BESIDE),
        ExtentPlace::Stored { device, address, stored_bytes, block_bytes, block_start, shared } => {
            let kind = if shared { place::STORED_SHARED } else { place::STORED };
            // A block has at most 16 MiB, so these two fit into a word together.
            let block = block_bytes << 32 | block_start & u64::from(u32::MAX);
            (kind, u32::from(device), [address, stored_bytes, block, 0])
        }
    };
    let mut bytes = [0; EXTENT_BYTES];
    bytes[..8].copy_from_slice(&extent.offset.to_le_bytes());
    bytes[8..16].copy_from_slice(&extent.len.to_le_bytes());
    bytes[16..20].copy_from_slice(&kind.to_le_bytes());
    bytes[20..24].copy_from_slice(&device.to_le_bytes());
    for (word, number) in bytes[24..].chunks_exact_mut(8).zip(numbers) {
        word.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Reads extents from an answer; `None` if that makes no sense.
pub fn decode_extents(bytes: &[u8]) -> Option<Vec<Extent>> {
    let count = usize::try_from(u64_at(bytes, 0)?).ok().filter(|count| *count <= EXTENTS_MAX)?;
    let extents = bytes.get(EXTENTS_HEADER_BYTES..)?;
    let extents: Vec<Extent> =
        extents.chunks_exact(EXTENT_BYTES).take(count).map_while(decode_extent).collect();
    (extents.len() == count).then_some(extents)
}

fn decode_extent(bytes: &[u8]) -> Option<Extent> {
    let kind = u32_at(bytes, 16)?;
    let block = u64_at(bytes, 40)?;
    let place = match kind {
        place::RESERVED => ExtentPlace::Reserved,
        place::WAITING => ExtentPlace::Waiting,
        place::BESIDE => ExtentPlace::Beside,
        place::STORED | place::STORED_SHARED => ExtentPlace::Stored {
            device: u16::try_from(u32_at(bytes, 20)?).ok()?,
            address: u64_at(bytes, 24)?,
            stored_bytes: u64_at(bytes, 32)?,
            block_bytes: block >> 32,
            block_start: block & u64::from(u32::MAX),
            shared: kind == place::STORED_SHARED,
        },
        _ => return None,
    };
    Some(Extent { offset: u64_at(bytes, 0)?, len: u64_at(bytes, 8)?, place })
}

#[cfg(test)]
mod tests {
    use super::{
        DEEDS, FileCall, Prepared, decode_extents, decode_usage, encode_extents, encode_usage,
    };
    use marram_vfs::{Extent, ExtentPlace, OwnerUsage, UsageOwner};

    #[test]
    fn calls_survive_the_way_and_others_are_refused() {
        let mut calls = vec![
            FileCall::Withdraw { offset: 7, len: u64::MAX },
            FileCall::Extents { offset: 1 << 62 },
            FileCall::Usage { owner: UsageOwner::User(0) },
            FileCall::Usage { owner: UsageOwner::Group(u32::MAX) },
            FileCall::Usage { owner: UsageOwner::Project(7) },
        ];
        calls.extend(DEEDS.map(|(_, deed)| FileCall::Prepare { deed, offset: 3, len: 4 }));
        for call in calls {
            let (command, mut bytes) = call.encode();
            assert!(FileCall::is_one(command));
            assert_eq!(command >> 16 & 0x3fff, u32::try_from(bytes.len()).unwrap(), "its number");
            assert_eq!(FileCall::decode(command, &bytes), Some(call));
            assert_eq!(FileCall::decode(command, &bytes[1..]), None);
            assert_eq!(FileCall::decode(command + 1, &bytes), None);
            if !matches!(call, FileCall::Withdraw { .. }) {
                *bytes.last_mut().unwrap() = 1;
                assert_eq!(FileCall::decode(command, &bytes), None, "what is not used is zeros");
            }
        }
    }

    #[test]
    fn answers_survive_the_way() {
        let prepared = Prepared { len: (1 << 62) + 9, kernel_owns_sizes: true };
        assert_eq!(Prepared::decode(&prepared.encode()), Some(prepared));
        let usage = OwnerUsage { bytes: 5, bytes_limit: None, inodes: 6, inodes_limit: Some(7) };
        assert_eq!(decode_usage(&encode_usage(&usage)), Some(usage));
        assert_eq!(decode_usage(&encode_usage(&usage)[..31]), None);
        let stored = ExtentPlace::Stored {
            device: 3,
            address: 1 << 50,
            stored_bytes: 8192,
            block_bytes: 1 << 20,
            block_start: 77,
            shared: true,
        };
        let places =
            [ExtentPlace::Reserved, ExtentPlace::Waiting, ExtentPlace::Beside, stored, stored];
        let extents = places.map(|place| Extent { offset: 5, len: 6, place });
        let mut bytes = encode_extents(&extents);
        assert_eq!(decode_extents(&bytes).unwrap(), extents);
        bytes[0] = 6;
        assert_eq!(decode_extents(&bytes), None, "one more than there are");
        bytes[1] = 9;
        assert_eq!(decode_extents(&bytes), None);
    }
}
