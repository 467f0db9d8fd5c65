//! The states that see a row: the lines of a moment, with the datasets and snapshots on them.
//!
//! A row of a line is seen by all whose period on that line lies between its birth and its death,
//! and by those on lines that began there and have no row of their own. Where no line further on
//! has one, whole runs of periods are counted by sums that were made before.

use super::rows::Lived;
use crate::catalogue::Catalogue;
use std::collections::{BTreeMap, BTreeSet};

/// What sees rows, the strongest first.
pub(super) const CLASSES: usize = 3;

/// A dataset or snapshot that holds rows.
#[derive(Clone, Copy)]
pub(super) struct State {
    /// The line that it is on.
    pub(super) line: u64,
    /// The last period of that line which it has.
    pub(super) period: u64,
    /// Its class: 0 a dataset, 1 a snapshot, 2 kept for an undo.
    pub(super) class: usize,
}

/// How many see something, by class, and which of them is the first in the order of history.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// By class.
    pub(super) counts: [u64; CLASSES],
    /// The first of them.
    pub(super) first: Option<usize>,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.first = self.first.or(other.first);
    }

    /// How many in all.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The strongest class of those that see it.
    pub(super) fn class(&self) -> Option<usize> {
        self.counts.iter().position(|count| *count > 0)
    }
}

/// A period of a line at which a state is, or other lines begin.
struct Point {
    period: u64,
    own: Seen,
    lines: Vec<u64>,
    /// All that see what is seen here, if no line that begins here has a row of its own.
    all: Seen,
}

/// A line with its points, by ascending periods.
#[derive(Default)]
struct Line {
    points: Vec<Point>,
    /// How many see what is seen at the points before each one.
    sums: Vec<[u64; CLASSES]>,
}

impl Line {
    /// All that see what is seen at a run of points.
    fn seen(&self, from: usize, to: usize) -> Seen {
        let mut counts = [0; CLASSES];
        for (class, count) in counts.iter_mut().enumerate() {
            *count = self.sums[to][class] - self.sums[from][class];
        }
        let first = self.points[from..to].iter().find_map(|point| point.all.first);
        Seen { counts, first }
    }
}

/// The lines of a moment.
pub(super) struct Lineage {
    lines: BTreeMap<u64, Line>,
    parents: BTreeMap<u64, u64>,
}

impl Lineage {
    pub(super) fn new(catalogue: &Catalogue, states: &[State]) -> Lineage {
        let mut points: BTreeMap<u64, BTreeMap<u64, Point>> = BTreeMap::new();
        let mut parents = BTreeMap::new();
        let new =
            |period| Point { period, own: Seen::default(), lines: vec![], all: Seen::default() };
        for (number, record) in catalogue.lines() {
            points.entry(number).or_default();
            if record.parent > 0 {
                parents.insert(number, record.parent);
                let on = points.entry(record.parent).or_default();
                let at = on.entry(record.parent_period);
                at.or_insert_with(|| new(record.parent_period)).lines.push(number);
            }
        }
        for (number, state) in states.iter().enumerate() {
            let at = points.entry(state.line).or_default().entry(state.period);
            let own = &mut at.or_insert_with(|| new(state.period)).own;
            own.counts[state.class] += 1;
            own.first = own.first.or(Some(number));
        }
        let mut lineage = Lineage { lines: BTreeMap::new(), parents };
        // A line is younger than the one that it began on, and has a greater number.
        for (number, points) in points.into_iter().rev() {
            let mut line = Line { points: Vec::new(), sums: vec![[0; CLASSES]] };
            for mut point in points.into_values() {
                point.all = point.own;
                for began in &point.lines {
                    point.all.add(lineage.whole(*began));
                }
                let mut sum = line.sums.last().copied().unwrap_or_default();
                for (sum, count) in sum.iter_mut().zip(point.all.counts) {
                    *sum += count;
                }
                line.sums.push(sum);
                line.points.push(point);
            }
            lineage.lines.insert(number, line);
        }
        lineage
    }

    /// All on a line and on those that began on it.
    fn whole(&self, line: u64) -> Seen {
        self.lines.get(&line).map_or(Seen::default(), |line| line.seen(0, line.points.len()))
    }

    /// The line on which all others began that a line goes on from.
    pub(super) fn root(&self, line: u64) -> u64 {
        let mut at = line;
        // A line begins after the one that it goes on from; what says otherwise is damaged.
        while let Some(parent) = self.parents.get(&at).filter(|parent| **parent < at) {
            at = *parent;
        }
        at
    }

    /// All lines.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.lines.keys().copied()
    }

    /// The states that see each of the rows that some lines of one root have under one key.
    pub(super) fn seen_by(&self, rows: &BTreeMap<u64, Vec<Lived>>) -> BTreeMap<u64, Vec<Seen>> {
        let of_line =
            |(line, rows): (&u64, &Vec<Lived>)| (*line, vec![Seen::default(); rows.len()]);
        let mut seen = rows.iter().map(of_line).collect();
        // The lines with a row, and those that these go on from.
        let mut busy = BTreeSet::new();
        let mut roots = BTreeSet::new();
        for line in rows.keys() {
            let mut at = *line;
            while busy.insert(at)
                && let Some(parent) = self.parents.get(&at)
            {
                at = *parent;
            }
            roots.insert(self.root(*line));
        }
        for root in roots {
            self.walk(root, None, (rows, &busy), &mut seen);
        }
        seen
    }

    /// Goes along a line on which a row of another one may be seen.
    fn walk(
        &self,
        number: u64,
        inherited: Option<(u64, usize)>,
        (rows, busy): (&BTreeMap<u64, Vec<Lived>>, &BTreeSet<u64>),
        seen: &mut BTreeMap<u64, Vec<Seen>>,
    ) {
        let Some(line) = self.lines.get(&number) else { return };
        let is_parted = line.points.iter().flat_map(|it| &it.lines).any(|it| busy.contains(it));
        let own = rows.get(&number).map_or(&[][..], Vec::as_slice);
        let at = |period: u64| line.points.partition_point(|point| point.period < period);
        // Runs of points at which one row is seen.
        let mut runs = Vec::new();
        let mut next = 0;
        for (index, row) in own.iter().enumerate() {
            let (from, to) = (at(row.birth).max(next), row.death.map_or(line.points.len(), at));
            runs.push((inherited, next, from));
            runs.push((Some((number, index)), from, to.max(from)));
            next = to.max(from);
        }
        runs.push((inherited, next, line.points.len()));
        for (row, from, to) in runs.into_iter().filter(|(_, from, to)| from < to) {
            if !is_parted {
                note(seen, row, line.seen(from, to));
                continue;
            }
            for point in &line.points[from..to] {
                note(seen, row, point.own);
                for began in &point.lines {
                    match busy.contains(began) {
                        true => self.walk(*began, row, (rows, busy), seen),
                        false => note(seen, row, self.whole(*began)),
                    }
                }
            }
        }
    }
}

fn note(seen: &mut BTreeMap<u64, Vec<Seen>>, row: Option<(u64, usize)>, by: Seen) {
    let Some((line, index)) = row else { return };
    if let Some(seen) = seen.get_mut(&line).and_then(|rows| rows.get_mut(index)) {
        seen.add(by);
    }
}
