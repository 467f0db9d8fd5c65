//! Blocks that lie outside of the database: their names, and where they are.

use super::bucket::BucketPlace;
use super::fields::put_counted;
use super::item::BlockId;
use super::{Fields, malformed};
use crate::failure::damaged;
use marram_store::Result;
use std::fmt;
use std::str::FromStr;

/// The number of an upload: no two of a store have the same.
pub type UploadId = [u8; 8];

/// Bytes of the row of an object that perhaps no block refers to.
const KEY_BYTES: usize = 40;
/// Digits of a block's id in a name.
const BLOCK_DIGITS: usize = 64;
/// A directory, as the kind of a place.
const DIRECTORY: u8 = 1;
/// A bucket, as the kind of a place.
const BUCKET: u8 = 2;

/// The name of an object: the id of the block, and the upload that brought it. Nothing else ever
/// gets it, also not the same block when it comes back: so an object that is removed late, by a
/// client that slept, is none that others need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// The keyed hash of the content.
    pub block: BlockId,
    /// The upload.
    pub upload: UploadId,
}

impl ObjectName {
    /// The row that lets a sweep look whether the object is needed.
    pub fn key(&self) -> Vec<u8> {
        [&self.block[..], &self.upload].concat()
    }

    /// The name in the key of such a row; none of other keys.
    pub fn of_key(key: &[u8]) -> Option<ObjectName> {
        let (block, upload) = key.split_first_chunk()?;
        let upload = upload.try_into().ok().filter(|_| key.len() == KEY_BYTES)?;
        Some(ObjectName { block: *block, upload })
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.block.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
        out.write_str("-")?;
        self.upload.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl FromStr for ObjectName {
    type Err = marram_store::Error;

    fn from_str(text: &str) -> Result<ObjectName> {
        let wrong = || malformed("the name of an object", "it is no id with an upload");
        let (block, upload) = text.split_at_checked(BLOCK_DIGITS).ok_or_else(wrong)?;
        let upload = upload.strip_prefix('-').ok_or_else(wrong)?;
        let name = ObjectName {
            block: digits(block).ok_or_else(wrong)?,
            upload: digits(upload).ok_or_else(wrong)?,
        };
        Ok(name)
    }
}

/// Bytes written as hexadecimal digits in small letters.
pub(super) fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Where blocks lie outside of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlocksPlace {
    /// In a directory, by its path from the root on.
    Directory(String),
    /// In a bucket.
    Bucket(BucketPlace),
}

impl BlocksPlace {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            BlocksPlace::Directory(path) => {
                let mut out = vec![DIRECTORY];
                put_counted(&mut out, path.as_bytes());
                out
            }
            BlocksPlace::Bucket(place) => {
                let mut out = vec![BUCKET];
                place.put(&mut out);
                out
            }
        }
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// It is no such value, or of a kind that this program does not know.
    pub fn decode(bytes: &[u8]) -> Result<BlocksPlace> {
        let mut fields = Fields::new("the place of blocks", bytes);
        let kind = fields.u8()?;
        let place = match kind {
            DIRECTORY => BlocksPlace::Directory(fields.text()?),
            BUCKET => BlocksPlace::Bucket(BucketPlace::take(&mut fields)?),
            _ => {
                let place = "row blocks of header".to_owned();
                let reason = format!("a place of kind {kind} is not known to this program");
                return Err(damaged("the place of blocks", place, reason));
            }
        };
        fields.end()?;
        match &place {
            BlocksPlace::Directory(path) if !path.starts_with('/') => {
                fields.refuse("the path of a directory does not begin at the root")
            }
            _ => Ok(place),
        }
    }
}

impl fmt::Display for BlocksPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlocksPlace::Directory(path) => out.write_str(path),
            BlocksPlace::Bucket(place) => place.fmt(out),
        }
    }
}
