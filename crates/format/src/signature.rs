//! The signature page: the first 4096 bytes of a device, written once, for programs that only
//! want to know what lies there. Nothing is read from it that the superblock does not say too.

use crate::FormatError;
use crate::superblock::{SUPERBLOCK_BYTES, open_page, put_label, put_version};
use crate::superblock::{take_label, take_version};
use crate::version::FormatVersion;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes of the signature page, which lies at the start of the device.
pub const SIGNATURE_BYTES: usize = SUPERBLOCK_BYTES;
/// What a device of a pool starts with.
pub const SIGNATURE_MAGIC: [u8; 8] = *b"MarramFS";

const WHAT: &str = "signature";

/// What the signature page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Version of the format that created the pool.
    pub version: FormatVersion,
    /// The pool's id.
    pub pool_id: [u8; 16],
    /// The pool's label, at most [`crate::superblock::LABEL_BYTES_MAX`] bytes.
    pub label: String,
    /// When the pool was created, in seconds since 1970.
    pub created_seconds: i64,
}

impl Signature {
    /// The page, checksum included.
    ///
    /// # Panics
    /// If the label is too long.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SIGNATURE_BYTES);
        out.extend_from_slice(&SIGNATURE_MAGIC);
        put_version(&mut out, self.version);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.pool_id);
        put_label(&mut out, &self.label);
        out.extend_from_slice(&self.created_seconds.to_le_bytes());
        out.resize(SIGNATURE_BYTES - 16, 0);
        let checksum = xxh3_128(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes the page.
    ///
    /// # Errors
    /// As for [`crate::superblock::Superblock::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Signature, FormatError> {
        let mut from = open_page(WHAT, SIGNATURE_MAGIC, bytes)?;
        let version = take_version(&mut from)?;
        from.reserved(4)?;
        Ok(Signature {
            version,
            pool_id: from.array("pool id")?,
            label: take_label(&mut from)?,
            created_seconds: from.i64("time of creation")?,
        })
    }
}
