//! What can go wrong with compressed bytes and with the names of codecs.

use thiserror::Error;

/// Why a codec refused its input.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// No codec has this id: a newer format, or damage.
    #[error("no compression codec has the id {id}")]
    UnknownCodec {
        /// The id as found.
        id: u8,
    },
    /// The compressed bytes are not a stream of this codec.
    #[error("{codec}: {len_bytes} compressed bytes cannot be decoded: {reason}")]
    Damaged {
        /// Name of the codec.
        codec: &'static str,
        /// How many compressed bytes there are.
        len_bytes: usize,
        /// What the decoder said.
        reason: String,
    },
    /// The stream decodes to another number of bytes than it should.
    #[error("{codec}: decodes to {actual_bytes} bytes instead of {expected_bytes}")]
    WrongLength {
        /// Name of the codec.
        codec: &'static str,
        /// The length that was asked for, in bytes.
        expected_bytes: usize,
        /// The length that came out, in bytes.
        actual_bytes: usize,
    },
    /// The text names no compression.
    #[error(
        "{text:?} is not a compression: use off, lz4, lzo, zle, zstd, zstd:LEVEL (-7 to -1, \
         1 to 19), gzip or gzip:LEVEL (1 to 9)"
    )]
    UnknownCompression {
        /// The text as given.
        text: String,
    },
    /// The text names a compression, but its level is out of range or it takes none.
    #[error("{text:?}: {codec} takes {valid}")]
    BadLevel {
        /// The text as given.
        text: String,
        /// Name of the codec.
        codec: &'static str,
        /// The levels that it takes, in words.
        valid: &'static str,
    },
    /// The text names no checksum.
    #[error("{text:?} is not a checksum: use xxh3 or blake3")]
    UnknownChecksumName {
        /// The text as given.
        text: String,
    },
}
