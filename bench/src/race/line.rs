//! What is measured, and its numbers.

use super::usage::Cost;
use marram_lab::subject::Kind;
use std::collections::BTreeMap;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    MebibytesPerSecond,
    PerSecond,
    Mebibytes,
    MicrosecondsEach,
}

impl Unit {
    /// Whether a larger number is better.
    pub(super) fn more_is_better(self) -> bool {
        matches!(self, Unit::MebibytesPerSecond | Unit::PerSecond)
    }

    /// A number without its unit, with as many digits as say something.
    pub(super) fn figure(value: f64) -> String {
        match value.abs() {
            size if size >= 100.0 => format!("{value:.0}"),
            size if size >= 10.0 => format!("{value:.1}"),
            size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
            _ => format!("{value:.4}"),
        }
    }

    /// The word behind a number.
    pub(super) fn word(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::MebibytesPerSecond => "MiB/s",
            Unit::PerSecond => "a second",
            Unit::Mebibytes => "MiB",
            Unit::MicrosecondsEach => "us each",
        }
    }

    /// How many times worse `ours` is than `theirs`; below 1 it is better.
    pub(super) fn times_worse(self, ours: f64, theirs: f64) -> f64 {
        if self.more_is_better() { theirs / ours } else { ours / theirs }
    }
}

/// What is durable when the clock of a line stops: the same for every subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// `syncfs` of the whole file system is inside the measured time.
    Syncfs,
    /// Each operation has been synced by the program itself.
    EachSynced,
    /// The program syncs what it wrote at its end, inside the measured time.
    FileSynced,
    /// Nothing: the program leaves its writes where they are, as it does by itself.
    Nothing,
    /// What the program itself synced on its way, and no more.
    ByProgram,
    /// Nothing is written.
    Reading,
}

impl Ending {
    /// In words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Ending::Syncfs => "all of it: `syncfs` is inside the measured time",
            Ending::EachSynced => "each operation when it is acknowledged",
            Ending::FileSynced => "what was written: one `fsync` of each file inside the time",
            Ending::Nothing => "nothing yet: the program does not sync",
            Ending::ByProgram => "what the program itself synced on its way, and no more",
            Ending::Reading => "nothing is written",
        }
    }
}

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The name in the JSON report: its group, a dot, and its own.
    pub(super) key: String,
    /// What is done, in words.
    pub(super) title: String,
    /// What the number counts.
    pub(super) unit: Unit,
    /// What is durable at its end.
    pub(super) ending: Ending,
}

impl Line {
    /// A line that counts seconds.
    pub(super) fn seconds(key: &str, title: impl Into<String>, ending: Ending) -> Self {
        Self::new(key, title, Unit::Seconds, ending)
    }

    /// A line.
    pub(super) fn new(key: &str, title: impl Into<String>, unit: Unit, ending: Ending) -> Self {
        Self { key: key.to_owned(), title: title.into(), unit, ending }
    }
}

/// What one run of a line measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    /// The number of the line, in its unit.
    pub(super) value: f64,
    /// How long it took, whatever its number counts.
    pub(super) wall_seconds: f64,
    /// What it cost beside.
    pub(super) cost: Cost,
}

/// The middle of several numbers, and how far they reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) median: f64,
    pub(super) most: f64,
}

/// Median and spread, if there are any numbers.
pub(super) fn spread(values: impl Iterator<Item = f64>) -> Option<Spread> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    };
    Some(Spread { least, median, most })
}

/// All numbers, by subject and line.
#[derive(Default)]
pub(super) struct Samples {
    lines: Vec<Line>,
    outcomes: BTreeMap<(&'static str, String), Vec<Outcome>>,
    /// What did not come to its end: which subject, and why.
    pub(super) failures: Vec<String>,
}

impl Samples {
    /// Adds one run.
    pub(super) fn add(&mut self, kind: Kind, line: Line, outcome: Outcome) {
        let key = line.key.clone();
        if !self.lines.iter().any(|known| known.key == key) {
            self.lines.push(line);
        }
        self.outcomes.entry((kind.name(), key)).or_default().push(outcome);
    }

    /// The lines, in the order in which they were first measured.
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The line of this key.
    pub(super) fn line(&self, key: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.key == key)
    }

    /// All runs of a line, in the order of the repetitions.
    pub(super) fn all(&self, kind: Kind, key: &str) -> &[Outcome] {
        self.outcomes.get(&(kind.name(), key.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Median and spread of a line's number.
    pub(super) fn spread(&self, kind: Kind, key: &str) -> Option<Spread> {
        spread(self.all(kind, key).iter().map(|outcome| outcome.value))
    }

    /// The median of something else of a line, where it is known of each run.
    pub(super) fn median(
        &self,
        kind: Kind,
        key: &str,
        of: impl Fn(&Outcome) -> Option<f64>,
    ) -> Option<f64> {
        let values: Option<Vec<f64>> = self.all(kind, key).iter().map(of).collect();
        spread(values?.into_iter()).map(|spread| spread.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let found = spread([4.0, 1.0, 3.0, 2.0].into_iter());
        assert_eq!(found, Some(Spread { least: 1.0, median: 2.5, most: 4.0 }));
        assert_eq!(spread(std::iter::empty()), None);
    }

    #[test]
    fn worse_is_more_seconds_or_fewer_operations() {
        assert!((Unit::Seconds.times_worse(6.0, 3.0) - 2.0).abs() < 1e-9);
        assert!((Unit::PerSecond.times_worse(6.0, 3.0) - 0.5).abs() < 1e-9);
    }
}
