//! The compression of a dataset as a property: its names, levels and ids.

use std::fmt;
use std::str::FromStr;

use crate::CodecError;

/// Ids of codecs on media, and the stream that each stands for.
pub mod codec_id {
    /// The bytes as they are.
    pub const OFF: u8 = 0;
    /// An LZ4 block without frame and size.
    pub const LZ4: u8 = 1;
    /// One Zstandard frame.
    pub const ZSTD: u8 = 2;
    /// An LZO1X stream with its end mark.
    pub const LZO: u8 = 3;
    /// A raw DEFLATE stream: neither the header nor the trailer of gzip.
    pub const GZIP: u8 = 4;
    /// Runs of zeros and of literal bytes. Each run opens with a number in LEB128 of at most five
    /// bytes: its low bit is 1 for zeros, the rest is the length of the run, never 0.
    pub const ZLE: u8 = 5;
}

/// How new blocks are compressed. What is written keeps the codec that it was written with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    Off,
    /// LZ4: hardly slower than none.
    #[default]
    Lz4,
    /// Zstandard: the best ratio for its time.
    Zstd {
        /// -7 (fast) to 19 (small); 0 is not used.
        level: i8,
    },
    /// LZO1X: somewhat smaller than LZ4, very much slower to write; for habit and for scripts that
    /// name it.
    Lzo,
    /// DEFLATE: slower and larger than zstd; for habit and for scripts that name it.
    Gzip {
        /// 1 (fast) to 9 (small).
        level: u8,
    },
    /// Only runs of zeros.
    Zle,
}

/// Level of `zstd` without a level.
const ZSTD_LEVEL: i8 = 3;
/// Level of `gzip` without a level.
const GZIP_LEVEL: u8 = 6;

impl Compression {
    /// The id on media of what this makes.
    pub const fn id(self) -> u8 {
        match self {
            Compression::Off => codec_id::OFF,
            Compression::Lz4 => codec_id::LZ4,
            Compression::Zstd { .. } => codec_id::ZSTD,
            Compression::Lzo => codec_id::LZO,
            Compression::Gzip { .. } => codec_id::GZIP,
            Compression::Zle => codec_id::ZLE,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::Off => formatter.write_str("off"),
            Compression::Lz4 => formatter.write_str("lz4"),
            Compression::Zstd { level } => write!(formatter, "zstd:{level}"),
            Compression::Lzo => formatter.write_str("lzo"),
            Compression::Gzip { level } => write!(formatter, "gzip:{level}"),
            Compression::Zle => formatter.write_str("zle"),
        }
    }
}

impl FromStr for Compression {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<Compression, CodecError> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let plain = |compression, codec| match level {
            None => Ok(compression),
            Some(_) => Err(bad_level(text, codec, "no level")),
        };
        match name {
            "off" => plain(Compression::Off, "off"),
            "lz4" => plain(Compression::Lz4, "lz4"),
            "lzo" => plain(Compression::Lzo, "lzo"),
            "zle" => plain(Compression::Zle, "zle"),
            "zstd" => parse_zstd(text, level),
            "gzip" => parse_gzip(text, level),
            _ => Err(CodecError::UnknownCompression { text: text.to_string() }),
        }
    }
}

fn parse_zstd(text: &str, level: Option<&str>) -> Result<Compression, CodecError> {
    let level = match level {
        None => Some(ZSTD_LEVEL),
        Some(digits) => digits.parse().ok(),
    };
    match level {
        Some(level @ (-7..=-1 | 1..=19)) => Ok(Compression::Zstd { level }),
        _ => Err(bad_level(text, "zstd", "a level of -7 to -1 or 1 to 19")),
    }
}

fn parse_gzip(text: &str, level: Option<&str>) -> Result<Compression, CodecError> {
    let level = match level {
        None => Some(GZIP_LEVEL),
        Some(digits) => digits.parse().ok(),
    };
    match level {
        Some(level @ 1..=9) => Ok(Compression::Gzip { level }),
        _ => Err(bad_level(text, "gzip", "a level of 1 to 9")),
    }
}

fn bad_level(text: &str, codec: &'static str, valid: &'static str) -> CodecError {
    CodecError::BadLevel { text: text.to_string(), codec, valid }
}

#[cfg(test)]
mod tests {
    use super::Compression;

    #[test]
    fn names_are_read_and_written() {
        let cases = [
            ("off", Compression::Off, "off"),
            ("lz4", Compression::Lz4, "lz4"),
            ("zstd", Compression::Zstd { level: 3 }, "zstd:3"),
            ("zstd:-7", Compression::Zstd { level: -7 }, "zstd:-7"),
            ("zstd:19", Compression::Zstd { level: 19 }, "zstd:19"),
            ("lzo", Compression::Lzo, "lzo"),
            ("gzip", Compression::Gzip { level: 6 }, "gzip:6"),
            ("gzip:9", Compression::Gzip { level: 9 }, "gzip:9"),
            ("zle", Compression::Zle, "zle"),
        ];
        for (text, compression, canonical) in cases {
            assert_eq!(text.parse(), Ok(compression));
            assert_eq!(compression.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(compression));
        }
        assert_eq!(Compression::default(), Compression::Lz4);
    }

    #[test]
    fn a_wrong_name_is_told_what_would_be_right() {
        let cases = [
            ("brotli", "use off, lz4"),
            ("", "use off, lz4"),
            ("LZ4", "use off, lz4"),
            ("zstd:20", "-7 to -1 or 1 to 19"),
            ("zstd:0", "-7 to -1 or 1 to 19"),
            ("zstd:fast", "-7 to -1 or 1 to 19"),
            ("gzip:0", "1 to 9"),
            ("gzip:-1", "1 to 9"),
            ("lz4:3", "no level"),
            ("off:", "no level"),
        ];
        for (text, hint) in cases {
            let message = text.parse::<Compression>().unwrap_err().to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }
}
