//! What was measured, as a page, as data, and as curves.

use super::super::contender::Way;
use super::super::curves::{Curve, Plot};
use super::commands::Commands;
use super::forks::{InUse, Side};
use super::keeping::Kept;
use super::spread::Spread;
use super::turns::{Rounds, Work};
use marram_lab::failure::Result;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// How many times more work may take beside so many snapshots.
const BESIDE: u64 = 1_000;
const RATIO_MAX: f64 = 1.05;
/// What a fork may take until it is written to.
const UNWRITTEN_KIBIBYTES_MAX: f64 = 64.0;

/// One way, beside none and beside more and more of its snapshots.
pub(super) struct Contest {
    pub(super) way: Way,
    /// The snapshots of the one that has the most.
    pub(super) kept: Kept,
    /// What each of so many takes, in bytes.
    pub(super) bytes_each: Vec<(u64, u64)>,
    pub(super) rounds: Rounds,
}

/// All that was measured.
pub(super) struct Report {
    header: Vec<(String, String)>,
    patience: Duration,
    pub(super) contests: Vec<Contest>,
    pub(super) commands: Commands,
    pub(super) forks: Option<InUse>,
    pub(super) failures: Vec<String>,
}

/// A number that has a limit.
struct Verdict {
    what: String,
    shown: String,
    value: f64,
    limit: f64,
}

const LEGEND: &str = "\
Every file system is on a preallocated image, over a loop device with direct I/O, with the same \
1,000 files of 4 KiB and one of 64 MiB. Before each snapshot one file is written anew. For each \
number of snapshots there is one file system; they take turns in short rounds of the same seeded \
work, so what the machine does otherwise meets all of them. The median of the rounds is reported, \
and in brackets where the middle half of them lies; ratios are between turns of the same round. \
Two file systems have no snapshots: how far their ratio is from 1 is chance. \
zfs-fuse can live but once on a machine: a dataset takes turns with a clone of it that has no \
snapshots. Small writes are somewhere in the file of 64 MiB, which all snapshots hold, and a \
commit is of one of them: `syncfs` after a file was removed, and with zfs-fuse a property that is \
set. 16 MiB are a new file.\n";

impl Report {
    /// Nothing yet.
    pub(super) fn new(header: Vec<(String, String)>, patience: Duration) -> Self {
        let (contests, failures) = (Vec::new(), Vec::new());
        Self { header, patience, contests, commands: Commands::new(), forks: None, failures }
    }

    /// The report in Markdown.
    pub(super) fn page(&self) -> String {
        let mut page = String::from("# Work beside many snapshots, and in many forks\n\n");
        for (name, value) in &self.header {
            add(&mut page, format_args!("- {name}: {value}\n"));
        }
        if !self.failures.is_empty() {
            page.push_str("\n## Failures\n\n");
        }
        for failure in &self.failures {
            add(&mut page, format_args!("- {}\n", failure.lines().next().unwrap_or_default()));
        }
        add(&mut page, format_args!("\n{LEGEND}"));
        self.verdict_table(&mut page);
        for contest in &self.contests {
            contest.table(&mut page);
        }
        self.costs(&mut page);
        self.command_table(&mut page);
        if let Some(forks) = &self.forks {
            fork_table(&mut page, forks);
        }
        page
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let ours = self.contests.iter().filter(|contest| contest.way == Way::Marram);
        let mut all: Vec<Verdict> = ours.flat_map(Contest::verdicts).collect();
        all.extend(self.forks.as_ref().map(|forks| {
            let value = kibibytes(forks.many.bytes_unwritten);
            let what = format!("KiB of each of {} forks, not written to", forks.many.forks);
            let shown = format!("{value:.1}");
            Verdict { what, shown, value, limit: UNWRITTEN_KIBIBYTES_MAX }
        }));
        all
    }

    fn verdict_table(&self, page: &mut String) {
        page.push_str("\n| target | measured | at most | |\n| --- | ---: | ---: | --- |\n");
        for Verdict { what, shown, value, limit } in self.verdicts() {
            let word = if value <= limit { "met" } else { "MISSED" };
            add(page, format_args!("| {what} | {shown} | {limit} | {word} |\n"));
        }
    }

    /// What one snapshot takes.
    fn costs(&self, page: &mut String) {
        let seconds = self.patience.as_secs();
        add(
            page,
            format_args!(
                "\n## One snapshot\n\nMilliseconds of the command, medians of the 200 before it; \
                 in brackets those of the engine alone. KiB with what was changed before it. \
                 Snapshots are taken for at most {seconds} s.\n\n\
                 | way | the snapshot | ms | KiB each | asked for |\n\
                 | --- | ---: | ---: | ---: | ---: |\n"
            ),
        );
        for Contest { way, kept, bytes_each, .. } in &self.contests {
            for count in kept.milestones() {
                let Some((command, engine)) = kept.cost(count) else { continue };
                let engine = engine.map_or(String::new(), |one| format!(" ({:.2})", ms(one)));
                add(page, format_args!("| {} | {count} | {:.2}{engine}", way.name(), ms(command)));
                let each = bytes_each.iter().find(|(all, _)| *all == count);
                let each = each.map(|(_, bytes)| format!("{:.1}", kibibytes(*bytes)));
                let (each, wanted) = (each.unwrap_or("-".to_owned()), kept.wanted);
                add(page, format_args!(" | {each} | {wanted} |\n"));
            }
        }
    }

    fn command_table(&self, page: &mut String) {
        let counts: BTreeSet<u64> = self.commands.keys().map(|(_, count)| *count).collect();
        let whats: BTreeSet<&str> = self.commands.keys().map(|(what, _)| *what).collect();
        if counts.is_empty() {
            return;
        }
        page.push_str("\n## Looking at them, and destroying them, ms\n\n| snapshots |");
        counts.iter().for_each(|count| add(page, format_args!(" {count} |")));
        add(page, format_args!("\n| --- |{}\n", " ---: |".repeat(counts.len())));
        for what in whats {
            add(page, format_args!("| {what} |"));
            for count in &counts {
                match self.commands.get(&(what, *count)) {
                    Some(took) => add(page, format_args!(" {:.2} |", ms(*took))),
                    None => page.push_str(" - |"),
                }
            }
            page.push('\n');
        }
    }

    /// Each work, and one snapshot, over the number of snapshots. None is drawn at 1.
    pub(super) fn plots(&self) -> Vec<Plot> {
        let plot = |title: &str, points: &dyn Fn(&Contest) -> Vec<(f64, f64)>| {
            let curve = |contest: &Contest| Curve {
                name: contest.way.name(),
                is_ours: contest.way == Way::Marram,
                points: points(contest),
            };
            let title = format!("{title} by snapshots");
            Plot { title, curves: self.contests.iter().map(curve).collect() }
        };
        let works = Work::ALL
            .map(|work| plot(&format!("{}, ms", work.title()), &|contest| contest.points(work)));
        let snapshot = plot("one snapshot, ms", &|Contest { kept, .. }| {
            let point = |count: u64| Some((count as f64, ms(kept.cost(count)?.0)));
            kept.milestones().into_iter().filter_map(point).collect()
        });
        let bytes = plot("one snapshot, KiB", &|Contest { bytes_each, .. }| {
            let point = |(count, bytes): &(u64, u64)| (*count as f64, kibibytes(*bytes));
            bytes_each.iter().map(point).collect()
        });
        works.into_iter().chain([snapshot, bytes]).collect()
    }

    /// All numbers, for other programs.
    pub(super) fn json(&self) -> Result<String> {
        let run: Map<String, Value> =
            self.header.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let commands = self.commands.iter().map(
            |((what, count), took)| json!({ "what": what, "snapshots": count, "ms": ms(*took) }),
        );
        let all = json!({
            "run": run,
            "contests": self.contests.iter().map(Contest::json).collect::<Vec<_>>(),
            "commands": commands.collect::<Vec<_>>(),
            "forks": self.forks.as_ref().map(forks_json),
            "failures": self.failures,
        });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }
}

impl Contest {
    /// Every cell that there is: what, beside how many, at which seat.
    fn cells(&self) -> impl Iterator<Item = (Work, u64, usize)> + '_ {
        let seats = || self.rounds.counts().iter().copied().enumerate();
        let of = move |work: Work| seats().map(move |(seat, count)| (work, count, seat));
        Work::ALL.into_iter().flat_map(of)
    }

    fn points(&self, wanted: Work) -> Vec<(f64, f64)> {
        let point = |(work, count, seat): (Work, u64, usize)| {
            Some((count.max(1) as f64, self.rounds.times(work, seat)?.median))
        };
        let is_drawn = |(work, count, seat): &(Work, u64, usize)| {
            *work == wanted && (*count > 0 || *seat == 0)
        };
        self.cells().filter(is_drawn).filter_map(point).collect()
    }

    fn verdicts(&self) -> impl Iterator<Item = Verdict> + '_ {
        let verdict = |(work, count, seat): (Work, u64, usize)| {
            let ratios = self.rounds.ratios(work, seat)?;
            let what = format!("{}, beside {count} snapshots", work.title());
            let (shown, value) = (ratios.shown(3), ratios.median);
            Some(Verdict { what, shown, value, limit: RATIO_MAX })
        };
        self.cells().filter(|(_, count, _)| *count == BESIDE).filter_map(verdict)
    }

    fn table(&self, page: &mut String) {
        let (name, rounds) = (self.way.name(), self.rounds.len());
        add(page, format_args!("\n## {name}, {rounds} rounds\n\n"));
        page.push_str("| work | snapshots | ms | times beside none |\n");
        page.push_str("| --- | ---: | ---: | ---: |\n");
        for (work, count, seat) in self.cells() {
            let shown = |spread: Option<Spread>| spread.map_or("-".to_owned(), |it| it.shown(3));
            let times = shown(self.rounds.times(work, seat));
            let ratios = if seat == 0 { None } else { self.rounds.ratios(work, seat) };
            let (work, ratios) = (work.title(), shown(ratios));
            add(page, format_args!("| {work} | {count} | {times} | {ratios} |\n"));
        }
    }

    fn json(&self) -> Value {
        let cell = |(work, count, seat): (Work, u64, usize)| {
            json!({
                "work": work.title(),
                "snapshots": count,
                "ms": self.rounds.times(work, seat).map(Spread::json),
                "times_beside_none": self.rounds.ratios(work, seat).map(Spread::json),
            })
        };
        let cost = |count: u64| {
            let (command, engine) = self.kept.cost(count)?;
            Some(json!({ "snapshots": count, "ms": ms(command), "engine_ms": engine.map(ms) }))
        };
        json!({
            "way": self.way.name(),
            "rounds": self.rounds.len(),
            "work": self.cells().map(cell).collect::<Vec<_>>(),
            "one_snapshot": self.kept.milestones().into_iter().map(cost).collect::<Vec<_>>(),
            "snapshots_wanted": self.kept.wanted,
            "bytes_each": self.bytes_each,
        })
    }
}

const FORK_LEGEND: &str = "\
In each fork the same program reads 16 files of the tree, changes 4, writes 8 of its own of 4 to \
32 KiB, syncs one, renames and reads them back, and removes half. The same pieces of work all go \
to one fork of another pool; they take turns. The kernel keeps names and pages of each fork for \
itself: what is warm in the only one is cold in each of many.\n";

/// A row of a table: its title, and how a side is printed.
type ForkRow = (&'static str, fn(&Side) -> String);

const FORK_ROWS: [ForkRow; 9] = [
    ("made by the command, ms", |one| format!("{:.2}", ms(one.made))),
    ("made in the engine, ms", |one| format!("{:.2}", ms(one.made_engine))),
    ("KiB each until written to", |one| format!("{:.1}", kibibytes(one.bytes_unwritten))),
    ("work in a fork, first, ms", |one| shown(one.work[0])),
    ("work in a fork, again, ms", |one| shown(one.work[1])),
    ("KiB of all the work", |one| format!("{:.0}", kibibytes(one.bytes_of_work))),
    ("most memory before the work, MiB", |one| format!("{:.0}", mebibytes(one.peak_bytes[0]))),
    ("most memory of the daemon, MiB", |one| format!("{:.0}", mebibytes(one.peak_bytes[1]))),
    ("one destroyed by the command, ms", |one| format!("{:.2}", ms(one.destroyed))),
];

fn fork_table(page: &mut String, forks: &InUse) {
    let InUse { alone, many, ratios } = forks;
    add(page, format_args!("\n## Forks in use\n\n{FORK_LEGEND}\n"));
    add(page, format_args!("| | {} fork | {} forks |\n", alone.forks, many.forks));
    page.push_str("| --- | ---: | ---: |\n");
    for (what, cell) in FORK_ROWS {
        add(page, format_args!("| {what} | {} | {} |\n", cell(alone), cell(many)));
    }
    let [first, again] = ratios.map(shown);
    add(page, format_args!("| the work, times beside one fork, first | 1 | {first} |\n"));
    add(page, format_args!("| the work, times beside one fork, again | 1 | {again} |\n"));
}

fn forks_json(forks: &InUse) -> Value {
    let one = |it: &Side| {
        json!({
            "forks": it.forks,
            "made_ms": ms(it.made),
            "made_engine_ms": ms(it.made_engine),
            "bytes_unwritten": it.bytes_unwritten,
            "bytes_of_work": it.bytes_of_work,
            "work_ms": it.work.map(|spread| spread.map(Spread::json)),
            "peak_bytes": it.peak_bytes,
            "destroyed_ms": ms(it.destroyed),
        })
    };
    let ratios = forks.ratios.map(|spread| spread.map(Spread::json));
    json!({ "alone": one(&forks.alone), "many": one(&forks.many), "times_beside_one": ratios })
}

fn shown(spread: Option<Spread>) -> String {
    spread.map_or("-".to_owned(), |spread| spread.shown(2))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn kibibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

fn mebibytes(bytes: u64) -> f64 {
    kibibytes(bytes) / 1024.0
}

fn add(page: &mut String, words: std::fmt::Arguments<'_>) {
    page.write_fmt(words).expect("a string takes all that is written");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(beside: f64, unwritten_bytes: u64) -> Report {
        let mut report = Report::new(Vec::new(), Duration::from_secs(75));
        let rounds = Rounds::of(&[0, BESIDE], |work, seat| match (work, seat) {
            (Work::Synced, 1) => vec![beside; 3],
            _ => vec![1.0; 3],
        });
        let (way, kept, bytes_each) = (Way::Marram, Kept::default(), vec![(BESIDE, 2048)]);
        report.contests.push(Contest { way, kept, bytes_each, rounds });
        let many = Side { forks: 7, bytes_unwritten: unwritten_bytes, ..Side::default() };
        report.forks = Some(InUse { alone: Side::default(), many, ratios: [None, None] });
        report
    }

    #[test]
    fn a_target_is_met_or_missed_and_said_so() {
        let met = |report: &Report| -> Vec<bool> {
            report.verdicts().iter().map(|verdict| verdict.value <= verdict.limit).collect()
        };
        assert_eq!(met(&report(1.049, 64 << 10)), [true, true, true, true]);
        let missed = report(1.051, 65 << 10);
        assert_eq!(met(&missed), [false, true, true, false]);
        let page = missed.page();
        assert!(page.contains("| 1.051 (1.051 to 1.051) | 1.05 | MISSED |"), "{page}");
        assert!(page.contains("KiB of each of 7 forks, not written to | 65.0 | 64 | MISSED |"));
    }

    #[test]
    fn curves_begin_beside_none() {
        let plots = report(1.02, 0).plots();
        assert_eq!(plots[0].curves[0].points, [(1.0, 1.0), (1000.0, 1.02)]);
        assert!(report(1.0, 0).json().expect("numbers").contains("times_beside_none"));
    }
}
