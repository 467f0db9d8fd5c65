//! What is measured, and its numbers.

use marram_lab::failure::{Result, fail};
use marram_lab::subject::{Kind, Traffic};
use std::collections::BTreeMap;
use std::time::Duration;

/// One operation, from its write to its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pattern {
    /// 4 KiB at the end of a file of the thread's own, `fdatasync`.
    Append,
    /// 4 KiB at a random place of a file of the thread's own, `fdatasync`.
    Overwrite,
    /// The same in one file for all.
    OverwriteShared,
    /// A new file, `fsync`, renamed over the thread's own name, `fsync` of the thread's own folder.
    Replace,
    /// The same in one folder for all.
    ReplaceShared,
}

impl Pattern {
    fn title(self) -> &'static str {
        match self {
            Pattern::Append => "append 4 KiB, fdatasync",
            Pattern::Overwrite => "overwrite 4 KiB, fdatasync",
            Pattern::OverwriteShared => "overwrite 4 KiB of one shared file, fdatasync",
            Pattern::Replace => "replace a file of 4 KiB",
            Pattern::ReplaceShared => "replace a file of 4 KiB in one shared folder",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Pattern::Append => "append",
            Pattern::Overwrite => "overwrite",
            Pattern::OverwriteShared => "overwrite_shared",
            Pattern::Replace => "replace",
            Pattern::ReplaceShared => "replace_shared",
        }
    }

    /// How many threads are tried; one thread shares with nobody.
    fn threads(self) -> &'static [usize] {
        match self {
            Pattern::Append | Pattern::Overwrite | Pattern::Replace => &[1, 8, 32],
            Pattern::OverwriteShared | Pattern::ReplaceShared => &[8, 32],
        }
    }
}

/// SQLite's way of making a transaction atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum JournalMode {
    Delete,
    Wal,
}

/// A case; its order is that of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Case {
    Race(Pattern, usize),
    Insert(JournalMode),
}

impl Case {
    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = Case> {
        let patterns = [
            Pattern::Append,
            Pattern::Overwrite,
            Pattern::OverwriteShared,
            Pattern::Replace,
            Pattern::ReplaceShared,
        ];
        let races = patterns.into_iter().flat_map(|pattern| {
            pattern.threads().iter().map(move |threads| Case::Race(pattern, *threads))
        });
        races.chain([JournalMode::Delete, JournalMode::Wal].map(Case::Insert))
    }

    /// How many wait for acknowledgements at once.
    pub(super) fn threads(self) -> usize {
        match self {
            Case::Race(_, threads) => threads,
            Case::Insert(_) => 1,
        }
    }

    /// What is done, in words.
    pub(super) fn title(self) -> String {
        match self {
            Case::Insert(JournalMode::Delete) => "SQLite inserts, rollback journal".into(),
            Case::Insert(JournalMode::Wal) => "SQLite inserts, WAL".into(),
            Case::Race(pattern, 1) => format!("{}, 1 thread", pattern.title()),
            Case::Race(pattern, threads) => format!("{}, {threads} threads", pattern.title()),
        }
    }

    /// The name in the JSON report.
    pub(super) fn key(self) -> String {
        match self {
            Case::Insert(JournalMode::Delete) => "sqlite_delete".into(),
            Case::Insert(JournalMode::Wal) => "sqlite_wal".into(),
            Case::Race(pattern, threads) => format!("{}_{threads}", pattern.key()),
        }
    }
}

/// What one run of a case measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    /// Acknowledged operations a second.
    pub(super) rate: f64,
    /// Half of them took at most this.
    pub(super) median_us: f64,
    /// 99 of 100 took at most this.
    pub(super) slow_us: f64,
    /// Bytes that reached the device for each.
    pub(super) written_bytes: Option<f64>,
    /// Flushes of the device for each.
    pub(super) flushes: Option<f64>,
}

impl Outcome {
    /// From how long each operation took, and the traffic before and after.
    pub(super) fn new(
        mut times: Vec<Duration>,
        duration: Duration,
        before: Traffic,
        after: Traffic,
    ) -> Result<Self> {
        times.sort();
        let count = times.len();
        let (Some(median), Some(slow)) = (times.get(count / 2), times.get(count * 99 / 100)) else {
            return fail("not one operation was acknowledged");
        };
        let microseconds = |time: &Duration| time.as_secs_f64() * 1e6;
        let each = |before: Option<u64>, after: Option<u64>| {
            Some(after?.saturating_sub(before?) as f64 / count as f64)
        };
        Ok(Self {
            rate: count as f64 / duration.as_secs_f64(),
            median_us: microseconds(median),
            slow_us: microseconds(slow),
            written_bytes: each(before.written_bytes, after.written_bytes),
            flushes: each(before.flushes, after.flushes),
        })
    }

    /// In one line.
    pub(super) fn shown(&self) -> String {
        let or_unknown = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        format!(
            "{:.0}/s, {:.0} us, 99% {:.0} us, {} bytes and {} flushes each",
            self.rate,
            self.median_us,
            self.slow_us,
            or_unknown(self.written_bytes, 0),
            or_unknown(self.flushes, 2)
        )
    }
}

/// All numbers by subject and case.
#[derive(Default)]
pub(super) struct Outcomes(BTreeMap<(&'static str, Case), Vec<Outcome>>);

impl Outcomes {
    /// Adds one run.
    pub(super) fn add(&mut self, kind: Kind, case: Case, outcome: Outcome) {
        self.0.entry((kind.name(), case)).or_default().push(outcome);
    }

    /// All runs, in the order of the repetitions.
    pub(super) fn all(&self, kind: Kind, case: Case) -> &[Outcome] {
        self.0.get(&(kind.name(), case)).map_or(&[], Vec::as_slice)
    }

    /// The run with the middle rate; of two in the middle, the slower.
    pub(super) fn median(&self, kind: Kind, case: Case) -> Option<Outcome> {
        let mut all = self.all(kind, case).to_vec();
        all.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        all.get(all.len().saturating_sub(1) / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_told_for_each_operation() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        let before = Traffic { written_bytes: Some(1_000), flushes: Some(10) };
        let after = Traffic { written_bytes: Some(801_000), flushes: Some(60) };
        let outcome =
            Outcome::new(times, Duration::from_secs(2), before, after).expect("operations");
        assert_eq!(outcome.written_bytes, Some(8_000.0));
        assert_eq!(outcome.flushes, Some(0.5));
        assert!((outcome.rate - 50.0).abs() < 1e-9 && (outcome.slow_us - 100.0).abs() < 1e-6);
    }

    #[test]
    fn every_case_has_a_key_of_its_own() {
        let keys: std::collections::BTreeSet<String> = Case::all().map(Case::key).collect();
        assert_eq!(keys.len(), Case::all().count());
    }
}
