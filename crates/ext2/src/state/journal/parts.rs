//! What the blocks of the ring say, in each form that JBD2 has: tags of 8 to 16 bytes, numbers of
//! 32 or 64 bits, checksums or none.

use super::{
    COMMIT, DESCRIPTOR, HEADER_BYTES, INCOMPAT_REVOKE, MAGIC, REVOKE, TAG_BYTES, TAG_ESCAPED,
    TAG_ID_BYTES, TAG_LAST, TAG_SAME_ID, bad, word,
};
use crate::checksum;
use crate::error::ImageError;

/// Features of journals: numbers of 64 bits, and checksums in two forms.
const INCOMPAT_64BIT: u32 = 2;
const INCOMPAT_CHECKSUMS: u32 = 8;
const INCOMPAT_LONG_CHECKSUMS: u32 = 0x10;
/// The one kind of checksums that there is.
const CRC_32C: u8 = 4;
/// Where the superblock has its features, the kind of checksums, its id and its own checksum.
const FEATURES_AT: usize = 40;
const KIND_AT: usize = 80;
const ID_AT: usize = 48;
const CHECKSUM_AT: usize = 252;
/// Bytes of the superblock.
const SUPERBLOCK_BYTES: usize = 1024;
/// Where a commit block has its checksum.
const COMMIT_CHECKSUM_AT: usize = 16;
/// Bytes of a checksum, which ends descriptors and revokes.
const CHECKSUM_BYTES: usize = 4;
/// Bytes of a tag with a long checksum.
const LONG_TAG_BYTES: usize = 16;

/// A block of the ring with a header.
pub(super) enum Part {
    /// It belongs to the transaction, and its checksum is wrong.
    Torn,
    Descriptor(Vec<Tag>),
    Revoke(Vec<u64>),
    Commit,
}

/// A block that a transaction has changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    pub(super) block: u64,
    pub(super) is_escaped: bool,
    /// The checksum of the copy, as far as there is room for it.
    checksum: u32,
}

/// How checksums stand in tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    /// The lower half.
    Halves,
    Whole,
}

/// The form of a journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    is_long: bool,
    /// With what checksums begin, if there are any.
    sums: Option<(u32, Sums)>,
}

impl Form {
    /// What a superblock says that has features.
    ///
    /// # Errors
    /// There are some that are not known here, or its checksum is wrong.
    pub(super) fn of(bytes: &[u8]) -> Result<Form, ImageError> {
        let features = word(bytes, FEATURES_AT);
        let known = INCOMPAT_REVOKE | INCOMPAT_64BIT | INCOMPAT_CHECKSUMS | INCOMPAT_LONG_CHECKSUMS;
        if features & !known != 0 {
            return Err(bad(&format!("has features that are not known here: {features:#x}")));
        }
        let sums = match (features & INCOMPAT_CHECKSUMS, features & INCOMPAT_LONG_CHECKSUMS) {
            (0, 0) => None,
            (_, 0) => Some(Sums::Halves),
            _ => Some(Sums::Whole),
        };
        let own = &bytes[..SUPERBLOCK_BYTES];
        let end = CHECKSUM_AT + CHECKSUM_BYTES;
        let is_good = bytes[KIND_AT] == CRC_32C
            && checksum::add_without(checksum::START, own, CHECKSUM_AT, end)
                == word(own, CHECKSUM_AT);
        if sums.is_some() && !is_good {
            return Err(bad("has a superblock whose checksum is wrong"));
        }
        let seed = checksum::add(checksum::START, &bytes[ID_AT..ID_AT + TAG_ID_BYTES]);
        Ok(Form { is_long: features & INCOMPAT_64BIT != 0, sums: sums.map(|it| (seed, it)) })
    }

    /// That of a superblock without features.
    pub(super) fn plain() -> Form {
        Form { is_long: false, sums: None }
    }

    /// Whether it is the one that is also written here.
    pub(super) fn is_plain(&self) -> bool {
        !self.is_long && self.sums.is_none()
    }

    /// What a block of the ring says, if it belongs to a transaction.
    pub(super) fn part(&self, bytes: &[u8], sequence: u32) -> Option<Part> {
        if word(bytes, 0) != MAGIC || word(bytes, 8) != sequence {
            return None;
        }
        let end = bytes.len() - if self.sums.is_some() { CHECKSUM_BYTES } else { 0 };
        let is_good_at = |at: usize| {
            self.sums.is_none_or(|(seed, _)| {
                checksum::add_without(seed, bytes, at, at + CHECKSUM_BYTES) == word(bytes, at)
            })
        };
        match word(bytes, 4) {
            DESCRIPTOR if is_good_at(end) => Some(Part::Descriptor(self.tags(&bytes[..end]))),
            COMMIT if is_good_at(COMMIT_CHECKSUM_AT) => Some(Part::Commit),
            REVOKE if is_good_at(end) => Some(Part::Revoke(self.revoked(&bytes[..end]))),
            DESCRIPTOR | COMMIT | REVOKE => Some(Part::Torn),
            _ => None,
        }
    }

    /// Whether a copy of a block is as it was written.
    pub(super) fn is_good_copy(&self, tag: &Tag, sequence: u32, bytes: &[u8]) -> bool {
        let Some((seed, sums)) = self.sums else { return true };
        let sum = checksum::add(checksum::add(seed, &sequence.to_be_bytes()), bytes);
        match sums {
            Sums::Whole => sum == tag.checksum,
            Sums::Halves => sum & 0xffff == tag.checksum,
        }
    }

    fn tag_bytes(&self) -> usize {
        match self.sums {
            Some((_, Sums::Whole)) => LONG_TAG_BYTES,
            Some((_, Sums::Halves)) => TAG_BYTES + 2 + if self.is_long { 4 } else { 0 },
            None => TAG_BYTES + if self.is_long { 4 } else { 0 },
        }
    }

    fn tags(&self, bytes: &[u8]) -> Vec<Tag> {
        let tag_bytes = self.tag_bytes();
        let (mut at, mut tags) = (HEADER_BYTES, Vec::new());
        while at + tag_bytes <= bytes.len() {
            let second = word(bytes, at + 4);
            let (flags, checksum) = match self.sums {
                Some((_, Sums::Whole)) => (second, word(bytes, at + 12)),
                _ => (second & 0xffff, second >> 16),
            };
            let high = if self.is_long { u64::from(word(bytes, at + 8)) } else { 0 };
            let block = u64::from(word(bytes, at)) | high << 32;
            tags.push(Tag { block, is_escaped: flags & TAG_ESCAPED != 0, checksum });
            at += tag_bytes + if flags & TAG_SAME_ID == 0 { TAG_ID_BYTES } else { 0 };
            if flags & TAG_LAST != 0 {
                break;
            }
        }
        tags
    }

    fn revoked(&self, bytes: &[u8]) -> Vec<u64> {
        let end = (word(bytes, HEADER_BYTES) as usize).min(bytes.len());
        let numbers = bytes.get(HEADER_BYTES + 4..end).unwrap_or_default();
        match self.is_long {
            true => {
                let number = |it: &[u8]| u64::from(word(it, 0)) << 32 | u64::from(word(it, 4));
                numbers.chunks_exact(8).map(number).collect()
            }
            false => numbers.chunks_exact(4).map(|it| u64::from(word(it, 0))).collect(),
        }
    }
}
