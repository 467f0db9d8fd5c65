//! The header of a store, and the seals of its rows.

use super::Fields;
use crate::database::Table;
use crate::failure::damaged;
use marram_store::{Error, Result};

/// The version of the format.
pub const VERSION: u32 = 5;
/// Bytes of an encoded header.
pub const HEADER_BYTES: usize = 72;
/// With this a header begins.
const MAGIC: [u8; 8] = *b"MARRAMcl";
/// The feature of a store whose blocks lie outside of the database.
const BLOCKS_OUTSIDE: u32 = 1;
/// Bytes of a seal.
const SEAL_BYTES: usize = 8;

/// What is the same for as long as the store is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number among all stores.
    pub id: [u8; 16],
    /// The key of all hashes.
    pub key: [u8; 32],
    /// Whether blocks lie outside of the database.
    pub has_blocks_outside: bool,
}

impl Header {
    /// The header as a row's value.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let features = if self.has_blocks_outside { BLOCKS_OUTSIDE } else { 0 };
        bytes[12..16].copy_from_slice(&features.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..64].copy_from_slice(&self.key);
        let check = blake3::hash(&bytes[..64]);
        bytes[64..].copy_from_slice(&check.as_bytes()[..SEAL_BYTES]);
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// It is none, is damaged, or of a version or with a feature that this program does not know.
    pub fn decode(bytes: &[u8]) -> Result<Header> {
        let mut fields = Fields::new("the header", bytes);
        let (magic, version, features) = (fields.array()?, fields.u32()?, fields.u32()?);
        if magic != MAGIC {
            return fields.refuse("it is not of a Marram cluster home");
        }
        if version < VERSION {
            let text = format!("it is of version {version}, from before the first release");
            return Err(Error::Invalid(text));
        }
        if version > VERSION {
            let text = format!("it is of version {version}; this program knows up to {VERSION}");
            return Err(Error::Invalid(text));
        }
        let (id, key) = (fields.array()?, fields.array()?);
        let check: [u8; SEAL_BYTES] = fields.array()?;
        fields.end()?;
        if blake3::hash(&bytes[..64]).as_bytes()[..SEAL_BYTES] != check {
            return fields.refuse("its checksum is wrong");
        }
        if features & !BLOCKS_OUTSIDE != 0 {
            let text = format!("it has features {features:#x} that this program does not know");
            return Err(Error::Invalid(text));
        }
        Ok(Header { id, key, has_blocks_outside: features & BLOCKS_OUTSIDE != 0 })
    }
}

/// Seals values, so that a row that was changed, or moved to another key, is found.
#[derive(Clone, Copy)]
pub struct Seal {
    key: [u8; 32],
}

impl Seal {
    /// The seals of a store.
    pub fn of(header: &Header) -> Seal {
        Seal { key: header.key }
    }

    /// A value with the seal of its row behind it.
    pub fn close(&self, table: Table, key: &[u8], mut value: Vec<u8>) -> Vec<u8> {
        let seal = self.of_row(table, key, &value);
        value.extend_from_slice(&seal);
        value
    }

    /// The value, without its seal.
    ///
    /// # Errors
    /// The seal is not that of the row.
    pub fn open<'v>(&self, table: Table, key: &[u8], sealed: &'v [u8]) -> Result<&'v [u8]> {
        let place = || format!("row {} of {}", hexadecimal(key), table.name());
        let Some((value, seal)) = sealed.split_last_chunk::<SEAL_BYTES>() else {
            return Err(damaged("a row", place(), "it is too short"));
        };
        match self.of_row(table, key, value) == *seal {
            true => Ok(value),
            false => Err(damaged("a row", place(), "its checksum is wrong")),
        }
    }

    /// The hash of a content, keyed so that nobody makes two contents with the same.
    pub fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, bytes).as_bytes()
    }

    fn of_row(&self, table: Table, key: &[u8], value: &[u8]) -> [u8; SEAL_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(table.name().as_bytes()).update(&[0]);
        hasher.update(key).update(value);
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(&hasher.finalize().as_bytes()[..SEAL_BYTES]);
        seal
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
