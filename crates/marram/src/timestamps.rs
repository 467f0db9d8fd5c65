//! Moments as text: for people as local date and time with the zone's offset, for programs and in
//! names as date and time in UTC.
//!
//! The zone is that of `TZ` or `/etc/localtime`; where the machine has none it is UTC.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
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
    match Timestamp::from_second(seconds) {
        Ok(moment) if seconds >= YEAR_0 => moment.to_string(),
        _ => seconds.to_string(),
    }
}

/// The first second of the year 0.
const YEAR_0: i64 = -62_167_219_200;

/// The same with nanoseconds, `2026-11-21T10:41:18.000000001Z`.
pub(crate) fn format_exact(seconds: i64, nanoseconds: u32) -> String {
    let moment = i32::try_from(nanoseconds).ok();
    let moment = moment.and_then(|nanoseconds| Timestamp::new(seconds, nanoseconds).ok());
    match moment.filter(|_| seconds >= YEAR_0) {
        Some(moment) => format!("{moment:.9}"),
        None => format!("{seconds}.{nanoseconds:09}"),
    }
}

/// A moment as people here write it: `2026-11-21 11:41:18 +0100`.
pub(crate) fn local_seconds(seconds: i64) -> String {
    match Timestamp::from_second(seconds) {
        Ok(moment) if seconds >= YEAR_0 => local(moment, TimeZone::system()),
        _ => seconds.to_string(),
    }
}

/// The same of what [`format_exact`] wrote; what is no such moment stays as it is.
pub(crate) fn local_instant(text: &str) -> String {
    match text.parse::<Timestamp>() {
        Ok(moment) => local(moment, TimeZone::system()),
        Err(_) => text.to_owned(),
    }
}

fn local(moment: Timestamp, zone: TimeZone) -> String {
    moment.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S %z").to_string()
}

/// The date in UTC of a moment; of one that no calendar has, the nearest.
pub(crate) fn civil_date(seconds: i64) -> (i64, i64, i64) {
    let nearest = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    let moment = Timestamp::from_second(seconds).unwrap_or(nearest);
    let date = moment.to_zoned(TimeZone::UTC).date();
    (date.year().into(), date.month().into(), date.day().into())
}

/// The day of a date counted from 1970-01-01; `None` for no date of the years 0 to 9999.
pub(crate) fn day_of_date((year, month, day): (i64, i64, i64)) -> Option<i64> {
    let year = i16::try_from(year).ok().filter(|year| *year >= 0)?;
    let date = Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let moment = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some(moment.as_second().div_euclid(SECONDS_A_DAY))
}

#[cfg(test)]
mod tests {
    use super::{Timestamp, civil_date, day_of_date, format_exact, format_instant, local};
    use jiff::tz::{Offset, TimeZone};

    #[test]
    fn moments_are_written_as_dates() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_257_678, "2026-11-21T10:41:18Z"),
            (i64::MAX / 4, "2305843009213693951"),
            (-99_999_999_999, "-99999999999"),
        ];
        for (seconds, text) in cases {
            assert_eq!(format_instant(seconds), text);
        }
        assert_eq!(format_exact(0, 1), "1970-01-01T00:00:00.000000001Z");
        assert_eq!(format_exact(i64::MAX, 1), "9223372036854775807.000000001");
    }

    #[test]
    fn people_read_local_times_with_their_zone() {
        let moment = Timestamp::from_second(1_795_257_678).unwrap();
        let east = TimeZone::fixed(Offset::from_seconds(5 * 3600 + 1800).unwrap());
        assert_eq!(local(moment, east), "2026-11-21 16:11:18 +0530");
        assert_eq!(local(moment, TimeZone::UTC), "2026-11-21 10:41:18 +0000");
    }

    #[test]
    fn dates_and_days_lead_to_each_other() {
        for day in [0, -1, 11_016, 20_778, 2_932_894] {
            assert_eq!(day_of_date(civil_date(day * 86_400)), Some(day));
        }
        for none in [(2026, 2, 29), (2026, 13, 1), (10_000, 1, 1), (-1, 1, 1), (2026, 1, 300)] {
            assert_eq!(day_of_date(none), None);
        }
    }
}
