//! Moments as text: seconds since 1970 as a date and a time in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of a day without a leap second.
pub(crate) const SECONDS_A_DAY: i64 = 86_400;

/// The present moment in seconds since 1970; 0 on a machine whose clock stands before that.
pub(crate) fn now_seconds() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Writes a moment as `2026-11-21T10:41:18Z`; a moment past the year 9999 as its plain number.
pub(crate) fn format_instant(seconds: i64) -> String {
    let (year, month, day) = civil_date(seconds.div_euclid(SECONDS_A_DAY));
    if !(0..=9999).contains(&year) {
        return seconds.to_string();
    }
    let second = seconds.rem_euclid(SECONDS_A_DAY);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// The date of a day counted from 1970-01-01, by Howard Hinnant's `civil_from_days`.
pub(crate) fn civil_date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// The day of a date counted from 1970-01-01, by Howard Hinnant's `days_from_civil`; `None` for no
/// date of the years 0 to 9999.
pub(crate) fn day_of_date((year, month, day): (i64, i64, i64)) -> Option<i64> {
    let is_near =
        (0..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_near {
        return None;
    }
    let (from_march, shifted_year) = ((month + 9) % 12, year - i64::from(month <= 2));
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    (civil_date(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::format_instant;

    #[test]
    fn moments_are_written_as_dates() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_257_678, "2026-11-21T10:41:18Z"),
            (i64::MAX / 4, "2305843009213693951"),
        ];
        for (seconds, text) in cases {
            assert_eq!(format_instant(seconds), text);
        }
    }
}
