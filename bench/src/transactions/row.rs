//! What was measured: one line of the report for each case and subject.

use marram_lab::failure::{Result, fail};
use marram_lab::subject::Traffic;
use std::time::Duration;

/// One run of a case on a subject.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The table in which it stands.
    pub(super) case: String,
    /// On what and how.
    pub(super) subject: String,
    /// Half of the rounds took at most this.
    pub(super) median: Duration,
    /// 99 of 100 took at most this.
    pub(super) slow: Duration,
    /// Flushes of the device for each.
    pub(super) flushes: Option<f64>,
    /// Bytes that reached the device for each.
    pub(super) written_bytes: Option<f64>,
}

impl Row {
    /// A line without figures yet.
    pub(super) fn of(case: impl Into<String>, subject: impl Into<String>) -> Self {
        Self {
            case: case.into(),
            subject: subject.into(),
            median: Duration::ZERO,
            slow: Duration::ZERO,
            flushes: None,
            written_bytes: None,
        }
    }

    /// The line of these rounds, and of what reached the device in them.
    pub(super) fn measured(
        mut self,
        times: Vec<Duration>,
        before: Traffic,
        after: Traffic,
    ) -> Result<Self> {
        let rounds = times.len() as f64;
        self = self.timed(times)?;
        let each = |before: Option<u64>, after: Option<u64>| {
            Some(after?.saturating_sub(before?) as f64 / rounds)
        };
        self.flushes = each(before.flushes, after.flushes);
        self.written_bytes = each(before.written_bytes, after.written_bytes);
        println!("  {}, {}: {:?}", self.case, self.subject, self.median);
        Ok(self)
    }

    /// The line of rounds whose traffic is not theirs alone.
    pub(super) fn timed(mut self, mut times: Vec<Duration>) -> Result<Self> {
        times.sort();
        let at = |part: usize| times.get(times.len() * part / 100).copied();
        let (Some(median), Some(slow)) = (at(50), at(99)) else {
            return fail(format!("{}: nothing was done in the time", self.case));
        };
        (self.median, self.slow) = (median, slow);
        Ok(self)
    }
}

/// All lines, in the order in which they were first met.
#[derive(Default)]
pub(super) struct Rows(Vec<Row>);

impl Rows {
    pub(super) fn add(&mut self, row: Row) {
        self.0.push(row);
    }

    /// The cases, each once.
    pub(super) fn cases(&self) -> Vec<&str> {
        self.distinct(|row| Some(&row.case))
    }

    /// The subjects of a case, each once.
    pub(super) fn subjects(&self, case: &str) -> Vec<&str> {
        self.distinct(|row| (row.case == case).then_some(&row.subject))
    }

    fn distinct<'a>(&'a self, name: impl Fn(&'a Row) -> Option<&'a String>) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.0.iter().filter_map(name) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// The runs of a subject in a case.
    pub(super) fn runs(&self, case: &str, subject: &str) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(move |row| row.case == case && row.subject == subject)
    }

    /// The run with the middle median; of two in the middle, the slower.
    pub(super) fn middle(&self, case: &str, subject: &str) -> Option<&Row> {
        let mut runs: Vec<&Row> = self.runs(case, subject).collect();
        runs.sort_by_key(|row| row.median);
        runs.get(runs.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reached_the_device_is_told_for_each_round() {
        let before = Traffic { written_bytes: Some(1_000), flushes: Some(10) };
        let after = Traffic { written_bytes: Some(9_000), flushes: Some(14) };
        let times = (1..=4).map(Duration::from_millis).collect();
        let row = Row::of("ten", "ours").measured(times, before, after).expect("four rounds");
        assert_eq!((row.flushes, row.written_bytes), (Some(1.0), Some(2000.0)));
        assert_eq!(row.median, Duration::from_millis(3));
        let nothing = Row::of("ten", "ours").measured(Vec::new(), before, after);
        assert!(nothing.is_err());
    }

    #[test]
    fn the_middle_run_stands_for_a_case() {
        let mut rows = Rows::default();
        for milliseconds in [5, 1, 3] {
            let times = vec![Duration::from_millis(milliseconds)];
            rows.add(Row::of("ten", "ours").timed(times).expect("one round"));
        }
        let middle = rows.middle("ten", "ours").expect("three runs");
        assert_eq!(middle.median, Duration::from_millis(3));
        assert_eq!((rows.cases(), rows.subjects("ten")), (vec!["ten"], vec!["ours"]));
    }
}
