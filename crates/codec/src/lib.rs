//! Checksums, compression, and what new content has in common with old: pure functions over bytes.
//!
//! Nothing here knows of blocks, devices or threads of the engine. Compressed bytes and checksums
//! that come back from media are untrusted: [`decompress`] answers hostile input with an error, and
//! never allocates more than the length that the caller asked for.
//!
//! Codec and checksum ids are part of the format on media and never change their meaning; the
//! byte stream that each id stands for is named in [`codec_id`].

mod checksum;
mod codecs;
mod compress;
mod compression;
pub mod delta;
mod error;
mod probe;
mod zle;

pub use checksum::{CHECKSUM_BYTES, ChecksumKind, checksum};
pub use compress::{compress, compress_with_grain, decompress, decompress_into};
pub use compression::{Compression, codec_id};
pub use error::CodecError;

/// Unit in which compressed blocks are stored, in bytes: what [`compress`] has to save at least.
pub const GRAIN_BYTES: usize = 4096;
