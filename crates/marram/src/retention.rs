//! Which automatic snapshots stay, by the rule of grandfather, father and son.
//!
//! Time is cut into hours, days, weeks (from Monday), months and years, all in UTC. Of each kind
//! the last so many spans **that have a snapshot** keep one, so that a machine that was off loses
//! nothing by it. The one that a span keeps is its **newest**: the state at its end. What a span
//! that is over has kept stays its newest, so the rule takes nothing today that it would have had
//! to keep for tomorrow, and applied twice it takes nothing the second time.
//!
//! Automatic snapshots are known by their names, `auto-2026-11-21T23-57-00Z`, and no others are
//! ever touched. The time is that of the name: it stays the same where a snapshot is sent to.
//!
//! Those that the daemon takes by the property `snapshots` have names apart from these,
//! `auto:2026-11-21T23:57:00Z`, and a rule apart: see [`marram_store::Source::is_automatic`].

use crate::error::{Error, Result};
use crate::timestamps::{SECONDS_A_DAY, civil_date, day_of_date};
use marram_store::AUTOMATIC_PREFIX;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// With this the name of an automatic snapshot begins.
const PREFIX: &str = "auto-";
/// Most snapshots that a rule may keep of one kind.
const COUNT_MAX: usize = 100_000;
const SECONDS_AN_HOUR: i64 = 3600;

/// Spans of time of which each keeps one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Span {
    /// Each snapshot is a span of its own.
    Each,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Span {
    const ALL: [(Span, &str); 6] = [
        (Span::Each, ""),
        (Span::Hour, "h"),
        (Span::Day, "d"),
        (Span::Week, "w"),
        (Span::Month, "m"),
        (Span::Year, "y"),
    ];

    /// A number that all moments of one span have, and later ones a greater.
    fn of(self, seconds: i64) -> i64 {
        let days = seconds.div_euclid(SECONDS_A_DAY);
        let (year, month, _) = civil_date(seconds);
        match self {
            Span::Each => seconds,
            Span::Hour => seconds.div_euclid(SECONDS_AN_HOUR),
            Span::Day => days,
            // 1970 began on a Thursday.
            Span::Week => (days + 3).div_euclid(7),
            Span::Month => year * 12 + month,
            Span::Year => year,
        }
    }
}

/// How many spans of each kind keep a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule(Vec<(Span, usize)>);

impl Rule {
    /// Those of the moments, in seconds since 1970, whose snapshots stay.
    pub(crate) fn kept(&self, moments: &BTreeSet<i64>) -> BTreeSet<i64> {
        let mut kept = BTreeSet::new();
        for (span, count) in &self.0 {
            let (mut left, mut last) = (*count, None);
            for moment in moments.iter().rev() {
                let of = span.of(*moment);
                if left > 0 && last != Some(of) {
                    kept.insert(*moment);
                    last = Some(of);
                    left -= 1;
                }
            }
        }
        kept
    }
}

impl FromStr for Rule {
    type Err = Error;

    /// Reads `24h,7d,4w,12m,3y`; a number alone is so many of the newest.
    fn from_str(text: &str) -> Result<Rule> {
        let mut rule: Vec<(Span, usize)> = Vec::new();
        for part in text.split(',') {
            let wrong = |why: &str| {
                Error::usage(format!("--keep {text}: {part:?} {why}")).hint(
                    "write how many of each: 24h,7d,4w,12m,3y are hours, days, weeks, months and \
                     years, and a number alone is so many of the newest",
                )
            };
            let digits = part.trim_end_matches(|letter: char| !letter.is_ascii_digit());
            let known = Span::ALL.iter().find(|(_, unit)| *unit == &part[digits.len()..]);
            let span = known.ok_or_else(|| wrong("is no number of hours, days or the like"))?.0;
            let count = digits.parse::<usize>().ok().filter(|count| *count <= COUNT_MAX);
            let count = count.ok_or_else(|| wrong("is no number from 0 to 100000"))?;
            if rule.iter().any(|(known, _)| *known == span) {
                return Err(wrong("says again what another part says"));
            }
            rule.push((span, count));
        }
        if rule.iter().all(|(_, count)| *count == 0) {
            return Err(Error::usage(format!("--keep {text} would keep nothing")));
        }
        rule.sort();
        Ok(Rule(rule))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = |span: Span| Span::ALL.iter().find(|(other, _)| *other == span);
        let parts = self
            .0
            .iter()
            .map(|(span, count)| format!("{count}{}", unit(*span).map_or("", |(_, unit)| unit)));
        out.write_str(&parts.collect::<Vec<_>>().join(","))
    }
}

/// The name of the automatic snapshot of a moment.
pub(crate) fn automatic_name(seconds: i64) -> String {
    let (year, month, day) = civil_date(seconds);
    let second = seconds.rem_euclid(SECONDS_A_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{PREFIX}{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}Z")
}

/// The moment of an automatic snapshot; `None` of any other name.
pub(crate) fn automatic_moment(name: &str) -> Option<i64> {
    let (date, time) = name.strip_prefix(PREFIX)?.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str| -> Option<[i64; 3]> {
        let parts: Vec<i64> =
            text.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        parts.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date)?, numbers(time)?);
    let is_near = [hour, minute, second].iter().all(|part| (0..60).contains(part));
    let days = day_of_date((year, month, day)).filter(|_| is_near)?;
    let seconds = days * SECONDS_A_DAY + hour * 3600 + minute * 60 + second;
    // What is written differently, or is no time of day, is somebody else's name.
    (automatic_name(seconds) == name).then_some(seconds)
}

/// The name of a snapshot that the daemon takes at a moment.
pub(crate) fn scheduled_name(seconds: i64) -> String {
    let (year, month, day) = civil_date(seconds);
    let second = seconds.rem_euclid(SECONDS_A_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let date = format!("{AUTOMATIC_PREFIX}{year:04}-{month:02}-{day:02}");
    format!("{date}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The moment of such a snapshot; `None` of any other name.
pub(crate) fn scheduled_moment(name: &str) -> Option<i64> {
    let (date, time) = name.strip_prefix(AUTOMATIC_PREFIX)?.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, between: char| -> Option<[i64; 3]> {
        let parts: Option<Vec<i64>> = text.split(between).map(|part| part.parse().ok()).collect();
        parts?.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
    let is_near = [hour, minute, second].iter().all(|part| (0..60).contains(part));
    let days = day_of_date((year, month, day)).filter(|_| is_near)?;
    let seconds = days * SECONDS_A_DAY + hour * 3600 + minute * 60 + second;
    (scheduled_name(seconds) == name).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::{Rule, automatic_moment, automatic_name, scheduled_moment, scheduled_name};
    use marram_store::is_automatic_name;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;
    /// 2026-11-21T23:57:00Z, a Saturday.
    const NOW: i64 = 1_795_305_420;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    fn names(moments: &BTreeSet<i64>) -> Vec<String> {
        moments.iter().map(|moment| automatic_name(*moment)["auto-".len()..].to_owned()).collect()
    }

    #[test]
    fn each_span_keeps_its_newest() {
        // One an hour for forty days.
        let moments: BTreeSet<i64> = (0..40 * 24).map(|hours| NOW - hours * HOUR).collect();
        assert_eq!(
            names(&rule("3h,3d,2w,2m,9y").kept(&moments)),
            [
                "2026-10-31T23-57-00Z",
                "2026-11-15T23-57-00Z",
                "2026-11-19T23-57-00Z",
                "2026-11-20T23-57-00Z",
                "2026-11-21T21-57-00Z",
                "2026-11-21T22-57-00Z",
                "2026-11-21T23-57-00Z",
            ]
        );
    }

    #[test]
    fn spans_without_a_snapshot_do_not_count() {
        let moments = BTreeSet::from([NOW - 900 * DAY, NOW - 500 * DAY, NOW]);
        assert_eq!(rule("3d").kept(&moments), moments);
        assert_eq!(rule("2d").kept(&moments), BTreeSet::from([NOW - 500 * DAY, NOW]));
        assert_eq!(rule("1").kept(&moments), BTreeSet::from([NOW]));
    }

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in ["24h,7d,4w,12m,3y", "10", "5,1h"] {
            assert_eq!(rule(text).to_string(), text);
        }
        for text in ["", "h", "7", "1h,2h", "0h", "0h,0d", "-1d", "7 d", "9s", "1000000h", "1h,"] {
            assert_eq!(text.parse::<Rule>().is_ok(), text == "7", "{text}");
        }
    }

    #[test]
    fn only_names_of_ours_are_automatic() {
        assert_eq!(automatic_name(NOW), "auto-2026-11-21T23-57-00Z");
        let others = [
            "before",
            "auto-",
            "auto-2026-11-21",
            "auto-2026-11-21T23:57:00Z",
            "auto-2026-11-21T24-00-00Z",
            "auto-2026-02-30T10-00-00Z",
            "auto-2026-13-01T10-00-00Z",
            "auto-26-11-21T23-57-00Z",
            "auto-2026-11-21T23-57-00Z.old",
            "auto-+2026-11-21T23-57-00Z",
            "auto-2026-11-21T23-57-99999999999999999Z",
            "auto-99999999999999999-11-21T23-57-00Z",
        ];
        for name in others {
            assert_eq!(automatic_moment(name), None, "{name}");
        }
    }

    #[test]
    fn scheduled_names_are_read_as_they_are_written() {
        assert_eq!(scheduled_name(NOW + 59), "auto:2026-11-21T23:57:59Z");
        for seconds in [0, NOW, NOW + 59, 249_999_999_999] {
            let name = scheduled_name(seconds);
            assert_eq!(scheduled_moment(&name), Some(seconds));
            assert!(is_automatic_name(&name), "{name}");
        }
        for name in
            ["auto:", "auto:mine", "auto:1T2Z", "auto:2026-11-21T23:57Z", "auto:a-b-cT1:2:3Z"]
        {
            assert_eq!(scheduled_moment(name), None, "{name}");
            assert!(!is_automatic_name(name), "{name}");
        }
        for name in ["auto:2026-11-21T24:00:00Z", "auto:2026-02-30T10:00:00Z"] {
            assert_eq!(scheduled_moment(name), None, "{name}");
        }
    }

    fn rules() -> impl Strategy<Value = Rule> {
        let count = || 0..30_usize;
        (count(), count(), count(), count(), count(), 1..5_usize).prop_map(
            |(each, hours, days, weeks, months, years)| {
                rule(&format!("{each},{hours}h,{days}d,{weeks}w,{months}m,{years}y"))
            },
        )
    }

    fn moments() -> impl Strategy<Value = BTreeSet<i64>> {
        prop::collection::btree_set(NOW - 1500 * DAY..NOW, 1..400)
    }

    proptest! {
        #[test]
        fn names_lead_back_to_their_moments(moment in 0..250_000_000_000_i64) {
            prop_assert_eq!(automatic_moment(&automatic_name(moment)), Some(moment));
        }

        #[test]
        fn the_newest_stays_and_nothing_is_made_up(rule in rules(), moments in moments()) {
            let kept = rule.kept(&moments);
            prop_assert!(kept.is_subset(&moments));
            prop_assert!(kept.contains(moments.last().unwrap()));
        }

        #[test]
        fn twice_is_once(rule in rules(), moments in moments()) {
            let kept = rule.kept(&moments);
            prop_assert_eq!(rule.kept(&kept), kept);
        }

        #[test]
        fn thinning_each_time_keeps_what_thinning_at_the_end_would(
            rule in rules(),
            moments in moments(),
        ) {
            let mut there = BTreeSet::new();
            for moment in &moments {
                there.insert(*moment);
                there = rule.kept(&there);
            }
            prop_assert_eq!(there, rule.kept(&moments));
        }
    }
}
