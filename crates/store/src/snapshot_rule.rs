//! The rule of automatic snapshots: `15m:8,1h:24,1d:7`.
//!
//! Each part is a length of time and a number: of the last so many spans of that length **that
//! have a snapshot** the newest one stays. Spans begin at multiples of the length since 1970 in
//! UTC, weeks on Monday. The shortest length says how often one is taken.
//!
//! **Clocks jump.** Snapshots are thinned in the order in which they were made, and none counts as
//! later than the one made after it, or than now. So those with a time to come, from a clock that
//! was wrong, fall into one span and take the place of no others.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Most parts of a rule.
const LEVELS_MAX: usize = 8;
/// Most snapshots that one part keeps.
const COUNT_MAX: usize = 10_000;
/// Least and most seconds of a part: a minute, and ten years.
const SECONDS: std::ops::RangeInclusive<i64> = 60..=10 * 366 * 86_400;
/// Lengths with their seconds.
const UNITS: [(char, i64); 4] = [('m', 60), ('h', 3600), ('d', 86_400), ('w', 7 * 86_400)];
/// 1970 began on a Thursday, three days after a Monday.
const MONDAY_SECONDS: i64 = 3 * 86_400;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRule {
    /// By ascending length.
    levels: Vec<Level>,
}

/// So many spans of one length keep a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Level {
    seconds: i64,
    count: usize,
}

impl Level {
    /// A number that all moments of one span have.
    fn span(self, moment: i64) -> i64 {
        moment.saturating_add(MONDAY_SECONDS).div_euclid(self.seconds)
    }
}

impl SnapshotRule {
    fn shortest(&self) -> Level {
        *self.levels.first().expect("a rule has a part")
    }

    /// Whether a snapshot is due, if the newest automatic one is of that moment.
    pub fn is_due(&self, newest: Option<i64>, now: i64) -> bool {
        let span = |moment| self.shortest().span(moment);
        newest.is_none_or(|newest| span(newest) != span(now))
    }

    /// When the next one is due, in seconds since 1970: not before now.
    pub fn next_seconds(&self, newest: Option<i64>, now: i64) -> i64 {
        if self.is_due(newest, now) {
            return now;
        }
        let level = self.shortest();
        (level.span(now) + 1).saturating_mul(level.seconds).saturating_sub(MONDAY_SECONDS)
    }

    /// Which automatic snapshots stay, of these moments in the order in which they were made,
    /// newest first.
    pub fn kept(&self, moments: &[i64], now: i64) -> Vec<bool> {
        let mut latest = now;
        let moments: Vec<i64> = moments
            .iter()
            .map(|moment| {
                latest = latest.min(*moment);
                latest
            })
            .collect();
        let mut kept = vec![false; moments.len()];
        for level in &self.levels {
            let (mut left, mut last) = (level.count, None);
            for (moment, stays) in moments.iter().zip(&mut kept) {
                let span = level.span(*moment);
                if left > 0 && last != Some(span) {
                    (*stays, last) = (true, Some(span));
                    left -= 1;
                }
            }
        }
        kept
    }
}

impl FromStr for SnapshotRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<SnapshotRule> {
        let wrong = |part: &str, why: &str| {
            Error::Invalid(format!(
                "snapshots={text} makes no sense: {part:?} {why}; write how often and how many, as \
                 in 15m:8,1h:24,1d:7 with m, h, d and w for minutes, hours, days and weeks, or off"
            ))
        };
        let mut levels: Vec<Level> = Vec::new();
        for part in text.split(',') {
            let level = level(part).map_err(|why| wrong(part, why))?;
            if levels.iter().any(|known| known.seconds == level.seconds) {
                return Err(wrong(part, "says again what another part says"));
            }
            levels.push(level);
        }
        if levels.len() > LEVELS_MAX {
            return Err(wrong(text, "has more than 8 parts"));
        }
        levels.sort();
        Ok(SnapshotRule { levels })
    }
}

fn level(part: &str) -> std::result::Result<Level, &'static str> {
    let (length, count) = part.split_once(':').ok_or("has no number behind a colon")?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let unit = UNITS.iter().find(|(unit, _)| length.ends_with(*unit));
    let (_, unit) = unit.ok_or("has no unit")?;
    let number = &length[..length.len() - 1];
    let number = number.parse::<i64>().ok().filter(|_| digits(number)).ok_or("has no length")?;
    let seconds = number.checked_mul(*unit).filter(|seconds| SECONDS.contains(seconds));
    let seconds = seconds.ok_or("is shorter than a minute or longer than ten years")?;
    let kept = count.parse::<usize>().ok().filter(|_| digits(count));
    let kept = kept.filter(|kept| (1..=COUNT_MAX).contains(kept));
    Ok(Level { seconds, count: kept.ok_or("keeps no number from 1 to 10000")? })
}

impl fmt::Display for SnapshotRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |level: &Level| {
            let unit = UNITS.iter().rev().find(|(_, unit)| level.seconds % unit == 0);
            let (letter, unit) = unit.unwrap_or(&('m', 60));
            format!("{}{letter}:{}", level.seconds / unit, level.count)
        };
        out.write_str(&self.levels.iter().map(part).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::SnapshotRule;

    const MINUTE: i64 = 60;
    const HOUR: i64 = 3600;
    /// 2026-11-24T15:00:00Z, a Tuesday.
    const NOW: i64 = 1_795_532_400;

    fn rule(text: &str) -> SnapshotRule {
        text.parse().unwrap()
    }

    #[test]
    fn rules_are_read_and_written_and_nonsense_is_refused() {
        for (text, written) in [
            ("15m:8,1h:24,1d:7", "15m:8,1h:24,1d:7"),
            ("1d:1,60m:2", "1h:2,1d:1"),
            ("2w:3", "2w:3"),
        ] {
            assert_eq!(rule(text).to_string(), written);
        }
        for text in [
            "",
            "15m",
            "15m:",
            "15m:0",
            "m:3",
            "-5m:3",
            "+5m:3",
            "15m:+3",
            "15m:8,",
            "5s:3",
            "1m:99999",
            "15m:8,15m:4",
            "60m:1,1h:2",
            "100000w:1",
            "15 m:8",
            "1y:1",
            "99999999999999999999m:1",
            "1m:1,2m:1,3m:1,4m:1,5m:1,6m:1,7m:1,8m:1,9m:1",
            "15\u{fc}:1",
        ] {
            let error = text.parse::<SnapshotRule>().unwrap_err().to_string();
            assert!(error.contains("15m:8,1h:24,1d:7"), "{text}: {error}");
        }
    }

    #[test]
    fn one_is_due_in_each_span_and_also_after_a_jump_of_the_clock() {
        let rule = rule("15m:8,1h:24");
        assert!(rule.is_due(None, NOW));
        assert!(!rule.is_due(Some(NOW), NOW + 14 * MINUTE));
        assert_eq!(rule.next_seconds(Some(NOW), NOW + 5 * MINUTE), NOW + 15 * MINUTE);
        assert!(rule.is_due(Some(NOW), NOW + 15 * MINUTE));
        assert!(rule.is_due(Some(NOW + 999 * HOUR), NOW), "from a time to come");
        assert_eq!(rule.next_seconds(None, NOW), NOW);
    }

    #[test]
    fn the_newest_of_each_span_stays() {
        let rule = rule("15m:4,1h:3");
        let moments: Vec<i64> = (0..40).map(|quarter| NOW - quarter * 15 * MINUTE).collect();
        let kept = rule.kept(&moments, NOW);
        let stay: Vec<i64> =
            moments.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(at, _)| NOW - at).collect();
        let quarter = 15 * MINUTE;
        assert_eq!(stay, [0, quarter, 2 * quarter, 3 * quarter, 5 * quarter]);
        let left: Vec<i64> = stay.iter().map(|ago| NOW - ago).collect();
        assert_eq!(rule.kept(&left, NOW), vec![true; left.len()], "twice is once");
    }

    #[test]
    fn snapshots_of_a_wrong_clock_take_the_place_of_one() {
        let rule = rule("15m:3,1h:2");
        let future = NOW + 1000 * HOUR;
        let moments =
            [NOW, future, future - HOUR, future - 2 * HOUR, NOW - 15 * MINUTE, NOW - 30 * MINUTE];
        let kept = rule.kept(&moments, NOW);
        assert_eq!(kept, [true, false, false, false, true, true]);
    }
}
