//! Checksums of blocks.
//!
//! A checksum lives in the pointer that leads to a block, never in the block, so that a write that
//! was lost or went astray is found as well as a flipped bit.

use std::fmt;
use std::str::FromStr;

use crate::CodecError;

/// Bytes of a checksum field, whatever its kind.
pub const CHECKSUM_BYTES: usize = 32;

/// Which function a checksum was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// XXH3 of 128 bits: finds every accident, at the speed of memory.
    #[default]
    Xxh3,
    /// BLAKE3 of 256 bits: also stands against a deliberate change of the device.
    Blake3,
}

impl ChecksumKind {
    /// The id on media.
    pub const fn id(self) -> u8 {
        match self {
            ChecksumKind::Xxh3 => 1,
            ChecksumKind::Blake3 => 2,
        }
    }

    /// The kind with this id, if there is one.
    pub const fn from_id(id: u8) -> Option<ChecksumKind> {
        match id {
            1 => Some(ChecksumKind::Xxh3),
            2 => Some(ChecksumKind::Blake3),
            _ => None,
        }
    }
}

impl fmt::Display for ChecksumKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ChecksumKind::Xxh3 => "xxh3",
            ChecksumKind::Blake3 => "blake3",
        })
    }
}

impl FromStr for ChecksumKind {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<ChecksumKind, CodecError> {
        match text {
            "xxh3" => Ok(ChecksumKind::Xxh3),
            "blake3" => Ok(ChecksumKind::Blake3),
            _ => Err(CodecError::UnknownChecksumName { text: text.to_string() }),
        }
    }
}

/// The checksum of `bytes`. That of XXH3 stands little-endian in the first 16 bytes; the rest is
/// zero.
pub fn checksum(kind: ChecksumKind, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    match kind {
        ChecksumKind::Xxh3 => {
            let mut field = [0; CHECKSUM_BYTES];
            field[..16].copy_from_slice(&xxhash_rust::xxh3::xxh3_128(bytes).to_le_bytes());
            field
        }
        ChecksumKind::Blake3 => *blake3::hash(bytes).as_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::{ChecksumKind, checksum};

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Published vectors: another implementation must read our pools.
    #[test]
    fn the_checksum_of_nothing_is_the_published_one() {
        assert_eq!(
            hexadecimal(&checksum(ChecksumKind::Xxh3, b"")),
            "7f498d4624c30160d8984701d306aa99".to_string() + &"0".repeat(32)
        );
        assert_eq!(
            hexadecimal(&checksum(ChecksumKind::Blake3, b"")),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
    }

    #[test]
    fn ids_and_names_go_both_ways() {
        for kind in [ChecksumKind::Xxh3, ChecksumKind::Blake3] {
            assert_eq!(ChecksumKind::from_id(kind.id()), Some(kind));
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!(ChecksumKind::from_id(0).is_none());
        assert!("md5".parse::<ChecksumKind>().is_err());
    }
}
