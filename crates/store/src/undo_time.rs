//! The property `undo`: how long what is destroyed or merged over is kept.

use crate::{Error, Result};

/// How long, if nobody says.
pub const UNDO_DEFAULT: &str = "1h";
/// Nothing is kept.
const OFF: &str = "off";
/// Longest time, in seconds: a year.
const SECONDS_MAX: i64 = 366 * 24 * 3600;
/// Lengths with their seconds.
const UNITS: [(char, i64); 5] =
    [('s', 1), ('m', 60), ('h', 3600), ('d', 24 * 3600), ('w', 7 * 24 * 3600)];

/// Checks a value of the property: a time in seconds, minutes, hours, days or weeks.
///
/// # Errors
/// [`Error::Invalid`] says what makes sense.
pub fn check_undo_time(text: &str) -> Result<String> {
    match seconds_of(text) {
        _ if text == OFF => Ok(text.to_owned()),
        Some(1..=SECONDS_MAX) => Ok(text.to_owned()),
        _ => Err(Error::Invalid(format!(
            "undo={text} makes no sense: use a time as in 30m, 12h, 7d or 4w, at most a year, or \
             off"
        ))),
    }
}

/// How long that is, in seconds; 0 is not at all. Without a value it is the default.
pub fn undo_seconds(value: Option<&str>) -> i64 {
    seconds_of(value.unwrap_or(UNDO_DEFAULT)).unwrap_or(0)
}

fn seconds_of(text: &str) -> Option<i64> {
    let (_, seconds) = UNITS.iter().find(|(unit, _)| text.ends_with(*unit))?;
    let number = text[..text.len() - 1].parse::<u32>().ok()?;
    i64::from(number).checked_mul(*seconds)
}
