//! Sizes as people write them: a number and a binary unit.
//!
//! K, M, G, T and P count in powers of 1024, with or without `iB` or `B` after them, in either
//! case: `20G`, `512MiB`, `1.5t`, `4096`.

use crate::error::{Error, Result};

const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// Reads a size in bytes.
///
/// # Errors
/// Says what a size looks like when `text` is none, or is larger than a 64-bit number.
pub(crate) fn parse_size(text: &str) -> Result<u64> {
    let bad = || {
        Error::usage(format!(
            "{text:?} is no size: write a number and perhaps a unit, as in 4096, 512M, 20G or 1.5T"
        ))
    };
    let digits = text
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = unit_shift(unit).ok_or_else(bad)?;
    scaled(number, shift).ok_or_else(bad)
}

/// How far a unit shifts to the left; `None` if it is no unit.
fn unit_shift(unit: &str) -> Option<u32> {
    let upper = unit.to_ascii_uppercase();
    if matches!(upper.as_str(), "" | "B") {
        return Some(0);
    }
    let letter = upper.chars().next()?;
    if !matches!(&upper[letter.len_utf8()..], "" | "B" | "IB") {
        return None;
    }
    let index = UNITS.iter().position(|candidate| *candidate == letter)?;
    Some(10 * (u32::try_from(index).ok()? + 1))
}

/// `number` times two to the power of `shift`, exact to the byte below.
fn scaled(number: &str, shift: u32) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let mut bytes = whole.checked_mul(1_u128 << shift)?;
    if !fraction.is_empty() {
        let parts: u128 = fraction.parse().ok()?;
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        bytes = bytes.checked_add((parts << shift) / scale)?;
    }
    u64::try_from(bytes).ok()
}

/// Writes a size with three digits or so, for people: `0B`, `512B`, `4.00K`, `19.9G`.
pub(crate) fn format_size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1000.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let decimals = match scaled {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::{format_size, parse_size};

    #[test]
    fn sizes_are_read_with_binary_units() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("512M", 512 << 20),
            ("20G", 20 << 30),
            ("20GiB", 20 << 30),
            ("20gb", 20 << 30),
            ("1.5T", 3 << 39),
            ("100b", 100),
            ("8E", 8 << 60),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        let bad = [
            "",
            "G",
            "-1",
            "1X",
            "1 G",
            "1.G",
            ".5G",
            "1..5G",
            "16E",
            "20GiBs",
            "1.5.5G",
            "0x10",
            "99999999999999999999999999999999999999999",
            "1.0000000001G",
            "\u{fc}",
        ];
        for text in bad {
            let error = parse_size(text).unwrap_err();
            assert!(error.message.contains("512M"), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_are_written_short() {
        let cases = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (20 << 30, "20.0G"),
            (1000 << 20, "0.98G"),
            (u64::MAX, "16.0E"),
        ];
        for (bytes, text) in cases {
            assert_eq!(format_size(bytes), text);
        }
    }
}
