//! What is measured, and the numbers.

use crate::subject::Kind;
use std::collections::BTreeMap;

/// A measure; its order is that of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Measure {
    Unpack,
    ReadWarm,
    ReadCold,
    GitStatus,
    Remove,
    SequentialWrite,
    SequentialRead,
    RandomWrite,
    RandomRead,
    SpaceUsed,
    PeakMemory,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Seconds,
    MebibytesPerSecond,
    OperationsPerSecond,
    Mebibytes,
}

impl Measure {
    /// All of them.
    pub(super) const ALL: [Measure; 11] = [
        Measure::Unpack,
        Measure::ReadWarm,
        Measure::ReadCold,
        Measure::GitStatus,
        Measure::Remove,
        Measure::SequentialWrite,
        Measure::SequentialRead,
        Measure::RandomWrite,
        Measure::RandomRead,
        Measure::SpaceUsed,
        Measure::PeakMemory,
    ];

    /// What is done, in words.
    pub(super) fn title(self) -> &'static str {
        match self {
            Measure::Unpack => "tar unpacks the tree, syncfs",
            Measure::ReadWarm => "find -type f | xargs cat, warm",
            Measure::ReadCold => "the same after a remount",
            Measure::GitStatus => "git status",
            Measure::Remove => "rm -rf, syncfs",
            Measure::SequentialWrite => "write 1 MiB blocks in order, fsync",
            Measure::SequentialRead => "read 1 MiB blocks in order",
            Measure::RandomWrite => "write 4 KiB blocks at random, fsync",
            Measure::RandomRead => "read 4 KiB blocks at random",
            Measure::SpaceUsed => "space used by the tree",
            Measure::PeakMemory => "peak memory of the daemon",
        }
    }

    /// The name in the JSON report.
    pub(super) fn key(self) -> &'static str {
        match self {
            Measure::Unpack => "unpack_seconds",
            Measure::ReadWarm => "read_warm_seconds",
            Measure::ReadCold => "read_cold_seconds",
            Measure::GitStatus => "git_status_seconds",
            Measure::Remove => "remove_seconds",
            Measure::SequentialWrite => "sequential_write_mib_per_second",
            Measure::SequentialRead => "sequential_read_mib_per_second",
            Measure::RandomWrite => "random_write_operations_per_second",
            Measure::RandomRead => "random_read_operations_per_second",
            Measure::SpaceUsed => "space_used_mib",
            Measure::PeakMemory => "peak_memory_mib",
        }
    }

    fn unit(self) -> Unit {
        match self {
            Measure::Unpack
            | Measure::ReadWarm
            | Measure::ReadCold
            | Measure::GitStatus
            | Measure::Remove => Unit::Seconds,
            Measure::SequentialWrite | Measure::SequentialRead => Unit::MebibytesPerSecond,
            Measure::RandomWrite | Measure::RandomRead => Unit::OperationsPerSecond,
            Measure::SpaceUsed | Measure::PeakMemory => Unit::Mebibytes,
        }
    }

    /// Whether a larger number is better.
    pub(super) fn more_is_better(self) -> bool {
        matches!(self.unit(), Unit::MebibytesPerSecond | Unit::OperationsPerSecond)
    }

    /// A number with its unit.
    pub(super) fn shown(self, value: f64) -> String {
        match self.unit() {
            Unit::Seconds => format!("{value:.2} s"),
            Unit::MebibytesPerSecond => format!("{value:.0} MiB/s"),
            Unit::OperationsPerSecond => format!("{value:.0}/s"),
            Unit::Mebibytes => format!("{value:.0} MiB"),
        }
    }

    /// How many times worse `ours` is than `theirs`; below 1 it is better.
    pub(super) fn times_worse(self, ours: f64, theirs: f64) -> f64 {
        if self.more_is_better() { theirs / ours } else { ours / theirs }
    }
}

/// Numbers by subject and measure.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<(&'static str, Measure), Vec<f64>>);

/// The middle of several numbers, and how far they reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) median: f64,
    pub(super) most: f64,
}

impl Samples {
    /// Adds a number.
    pub(super) fn add(&mut self, kind: Kind, measure: Measure, value: f64) {
        self.0.entry((kind.name(), measure)).or_default().push(value);
    }

    /// All numbers of a subject, in the order of the repetitions.
    pub(super) fn values(&self, kind: Kind, measure: Measure) -> &[f64] {
        self.0.get(&(kind.name(), measure)).map_or(&[], Vec::as_slice)
    }

    /// Their median and spread, if there are any.
    pub(super) fn spread(&self, kind: Kind, measure: Measure) -> Option<Spread> {
        let mut values = self.values(kind, measure).to_vec();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Some(Spread { least, median, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let mut samples = Samples::default();
        for value in [4.0, 1.0, 3.0, 2.0] {
            samples.add(Kind::Ext4, Measure::Unpack, value);
        }
        let spread = samples.spread(Kind::Ext4, Measure::Unpack);
        assert_eq!(spread, Some(Spread { least: 1.0, median: 2.5, most: 4.0 }));
        assert_eq!(samples.spread(Kind::Xfs, Measure::Unpack), None);
    }

    #[test]
    fn worse_is_more_seconds_or_fewer_operations() {
        assert!((Measure::Unpack.times_worse(6.0, 3.0) - 2.0).abs() < 1e-9);
        assert!((Measure::RandomRead.times_worse(6.0, 3.0) - 0.5).abs() < 1e-9);
    }
}
