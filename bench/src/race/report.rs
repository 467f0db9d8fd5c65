//! The report as a page, as data and as panels of a plot.

use super::super::plot::{Bar, Panel};
use super::line::{Line, Outcome, Samples, Unit, spread};
use super::targets;
use marram_lab::failure::Result;
use marram_lab::subject::Kind;
use serde_json::{Map, Value, json};
use std::fmt::Write;

const MIB: f64 = 1_048_576.0;

/// How the columns of a line are to be read.
const LEGEND: &str = "\
Medians over the repetitions, with least and most. Beside each: processor seconds of the programs \
and of the daemon, and of everything on the machine (a file system of the kernel works in the \
kernel's threads, which are in no other column); the daemon's peak of memory in this line; what \
reached the device until the line's end. `cold` is after a fresh mount with the machine's caches \
dropped; devices are direct, so the host keeps no copy. tmpfs is never cold. What a line says of \
durability holds for every subject but tmpfs. After each group each file system was unmounted and \
verified by its own checker.\n";

/// All that was measured.
pub(super) struct Report<'run> {
    pub(super) header: Vec<(String, String)>,
    pub(super) kinds: &'run [Kind],
    pub(super) samples: &'run Samples,
}

fn add(page: &mut String, words: std::fmt::Arguments<'_>) {
    page.write_fmt(words).expect("a string takes all that is written");
}

impl Report<'_> {
    /// The whole page in Markdown.
    pub(super) fn page(&self) -> String {
        let mut page = String::from("# The race: Marram and its peers\n\n");
        for (name, value) in &self.header {
            add(&mut page, format_args!("- {name}: {value}\n"));
        }
        self.failures(&mut page);
        self.targets(&mut page);
        self.ratios(&mut page);
        page.push_str("\n## The subjects\n\n| subject | what it promises |\n| --- | --- |\n");
        for kind in self.kinds {
            add(&mut page, format_args!("| {} | {} |\n", kind.name(), kind.durability()));
        }
        add(&mut page, format_args!("\n## The lines\n\n{LEGEND}"));
        for line in self.samples.lines() {
            self.table(&mut page, line);
        }
        page
    }

    fn failures(&self, page: &mut String) {
        if self.samples.failures.is_empty() {
            return;
        }
        page.push_str("\n## Failures\n\n");
        for failure in &self.samples.failures {
            let first = failure.lines().next().unwrap_or_default();
            add(page, format_args!("- {first}\n"));
        }
    }

    fn targets(&self, page: &mut String) {
        let verdicts = targets::verdicts(self.samples);
        if verdicts.is_empty() {
            return;
        }
        page.push_str("\n## Targets\n\n| target | subject | figure | |\n");
        page.push_str("| --- | --- | ---: | --- |\n");
        for verdict in verdicts {
            let word = if verdict.is_met() { "met" } else { "MISSED" };
            let (ours, figure) = (verdict.ours.name(), Unit::figure(verdict.figure));
            let (target, unit) = (&verdict.target, verdict.unit);
            add(page, format_args!("| {target} | {ours} | {figure}{unit} | {word} |\n"));
        }
    }

    /// How many times worse the usual one of ours is than each peer, the worst on top.
    fn ratios(&self, page: &mut String) {
        let of_ours = |kind: &&Kind| kind.is_marram();
        let Some(usual) = self.kinds.iter().find(of_ours).copied() else { return };
        let peers: Vec<Kind> =
            self.kinds.iter().copied().filter(|kind| !kind.is_marram()).collect();
        let mut rows: Vec<(f64, String)> = Vec::new();
        for line in self.samples.lines() {
            let Some(ours) = self.samples.spread(usual, &line.key) else { continue };
            let ratio = |kind: &Kind| {
                let theirs = self.samples.spread(*kind, &line.key)?;
                Some(line.unit.times_worse(ours.median, theirs.median))
            };
            let ratios: Vec<Option<f64>> = peers.iter().map(ratio).collect();
            let real = peers.iter().zip(&ratios).filter(|(kind, _)| !kind.is_ceiling());
            let worst = real.filter_map(|(_, ratio)| *ratio).fold(0.0, f64::max);
            let shown = |ratio: &Option<f64>| ratio.map_or("-".into(), Unit::figure);
            let cells: Vec<String> = ratios.iter().map(shown).collect();
            rows.push((worst, format!("| {} | {} |\n", line.key, cells.join(" | "))));
        }
        if rows.is_empty() || peers.is_empty() {
            return;
        }
        rows.sort_by(|one, other| other.0.total_cmp(&one.0));
        let names: Vec<&str> = peers.iter().map(|kind| kind.name()).collect();
        let usual = usual.name();
        add(
            page,
            format_args!("\n## How many times worse {usual} is than each (below 1 is better)\n\n"),
        );
        add(page, format_args!("| | {} |\n| --- |", names.join(" | ")));
        add(page, format_args!("{}\n", " ---: |".repeat(peers.len())));
        rows.iter().for_each(|(_, row)| page.push_str(row));
    }

    fn table(&self, page: &mut String, line: &Line) {
        let (key, title, word) = (&line.key, &line.title, line.unit.word());
        let better = if line.unit.more_is_better() { "more" } else { "less" };
        add(page, format_args!("\n### {key}: {title}\n\n"));
        let ending = line.ending.words();
        add(page, format_args!("{better} is better; durable at the end: {ending}.\n\n"));
        add(page, format_args!("| subject | {word} | wall s | CPU s, programs | daemon "));
        page.push_str("| machine | peak MiB | MiB written | flushes |\n");
        add(page, format_args!("| --- |{}\n", " ---: |".repeat(8)));
        for kind in self.kinds {
            if let Some(found) = self.samples.spread(*kind, key) {
                let least_and_most = if self.samples.all(*kind, key).len() > 1 {
                    let (least, most) = (Unit::figure(found.least), Unit::figure(found.most));
                    format!(" ({least} to {most})")
                } else {
                    String::new()
                };
                let (name, median) = (kind.name(), Unit::figure(found.median));
                add(page, format_args!("| {name} | {median}{least_and_most} |"));
                add(page, format_args!(" {} |\n", self.costs(*kind, key).join(" | ")));
            }
        }
    }

    fn costs(&self, kind: Kind, key: &str) -> [String; 7] {
        let median = |of: fn(&Outcome) -> Option<f64>| {
            self.samples.median(kind, key, of).map_or("-".into(), Unit::figure)
        };
        [
            median(|outcome| Some(outcome.wall_seconds)),
            median(|outcome| Some(outcome.cost.program_seconds)),
            median(|outcome| outcome.cost.daemon_seconds),
            median(|outcome| Some(outcome.cost.machine_seconds)),
            median(|outcome| outcome.cost.daemon_peak_bytes.map(|bytes| bytes as f64 / MIB)),
            median(|outcome| outcome.cost.written_bytes.map(|bytes| bytes as f64 / MIB)),
            median(|outcome| outcome.cost.flushes.map(|count| count as f64)),
        ]
    }

    /// A panel a line, a bar a subject.
    pub(super) fn panels(&self) -> Vec<Panel> {
        let panel = |line: &Line| {
            let bar = |kind: &Kind| {
                let values = self.samples.all(*kind, &line.key).iter();
                let median = spread(values.map(|outcome| outcome.value))?.median;
                let shown = format!("{} {}", Unit::figure(median), line.unit.word());
                let is_ours = kind.is_marram();
                Some(Bar { name: kind.name(), is_ours, value: Some((median, shown)) })
            };
            let better = if line.unit.more_is_better() { "more" } else { "less" };
            let title = format!("{} ({better} is better)", line.key);
            Panel { title, bars: self.kinds.iter().filter_map(bar).collect() }
        };
        self.samples.lines().iter().map(panel).collect()
    }

    /// All numbers, for other programs.
    pub(super) fn json(&self) -> Result<String> {
        let lines = self.samples.lines().iter().map(|line| {
            let runs = self.kinds.iter().filter_map(|kind| {
                let all = self.samples.all(*kind, &line.key);
                let runs: Vec<Value> = all.iter().map(outcome).collect();
                (!runs.is_empty()).then(|| (kind.name().to_owned(), Value::Array(runs)))
            });
            let told = json!({
                "title": line.title,
                "unit": line.unit.word(),
                "more_is_better": line.unit.more_is_better(),
                "durable_at_the_end": line.ending.words(),
                "subjects": runs.collect::<Map<String, Value>>(),
            });
            (line.key.clone(), told)
        });
        let run: Map<String, Value> =
            self.header.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let report = json!({
            "version": 2,
            "run": run,
            "failures": self.samples.failures,
            "lines": lines.collect::<Map<String, Value>>(),
        });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }
}

fn outcome(outcome: &Outcome) -> Value {
    let cost = &outcome.cost;
    json!({
        "value": outcome.value,
        "wall_seconds": outcome.wall_seconds,
        "program_cpu_seconds": cost.program_seconds,
        "daemon_cpu_seconds": cost.daemon_seconds,
        "machine_cpu_seconds": cost.machine_seconds,
        "daemon_peak_bytes": cost.daemon_peak_bytes,
        "written_bytes": cost.written_bytes,
        "flushes": cost.flushes,
    })
}

#[cfg(test)]
mod tests {
    use super::super::line::Ending;
    use super::super::usage::Cost;
    use super::*;

    fn samples() -> Samples {
        let mut samples = Samples::default();
        let mut add = |kind, value, flushes| {
            let cost = Cost { flushes: Some(flushes), ..Cost::default() };
            let line = Line::seconds("tree.remove", "rm -rf", Ending::Syncfs);
            samples.add(kind, line, Outcome { value, wall_seconds: value, cost });
        };
        add(Kind::Marram, 8.0, 3);
        add(Kind::Marram, 6.0, 3);
        add(Kind::Btrfs, 3.5, 12);
        samples.failures.push("tree on xfs, repetition 1: no such\nmore".into());
        samples
    }

    #[test]
    fn a_loss_is_told_as_a_loss_and_a_failure_as_a_failure() {
        let samples = samples();
        let kinds = [Kind::Marram, Kind::Btrfs, Kind::Xfs];
        let report = Report { header: Vec::new(), kinds: &kinds, samples: &samples };
        let page = report.page();
        assert!(page.contains("| tree.remove | 2.00 | - |"), "{page}");
        assert!(page.contains("| 2.00 | MISSED |"), "{page}");
        assert!(page.contains("- tree on xfs, repetition 1: no such\n"), "{page}");
        assert!(page.contains("| marram | 7.00 (6.00 to 8.00) | 7.00 |"), "{page}");
        assert!(
            page.contains("| btrfs | 3.50 | 3.50 | 0.00 | - | 0.00 | - | - | 12.0 |"),
            "{page}"
        );
    }

    #[test]
    fn the_data_has_every_run_and_no_subject_that_did_not_race() {
        let samples = samples();
        let kinds = [Kind::Marram, Kind::Btrfs, Kind::Xfs];
        let report = Report { header: Vec::new(), kinds: &kinds, samples: &samples };
        let json: Value = serde_json::from_str(&report.json().expect("numbers")).expect("JSON");
        let subjects = &json["lines"]["tree.remove"]["subjects"];
        assert_eq!(subjects["marram"][1]["value"], 6.0);
        assert_eq!(subjects["btrfs"][0]["flushes"], 12);
        assert!(subjects["xfs"].is_null());
    }
}
