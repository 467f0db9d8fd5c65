//! `cargo xtask bench --workloads patches`: what each way to have fewer patches saves under soft
//! updates, as table 2.10 of the thesis, beside it, and held against its gains.
//!
//! The program is an example of the crate `ext2`. Its counts are the same in every run; only its
//! seconds are the machine's. A gain that is missed is printed as a loss.

use super::plot::{Bar, Panel};
use super::{Arguments, machine, plot, write_files};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::text;
use marram_lab::project;
use std::fmt::Write;

const MIB: f64 = 1_048_576.0;
/// What a mount takes, beside what it is compared with.
const OURS: &str = "ours";
const NAIVE: &str = "none";
/// The unit of a mount, in bytes.
const SECTOR_BYTES: u64 = 512;
/// The thesis: patches and bytes kept without and with both of its ways (table 2.10).
const THESIS: [(&str, [f64; 4]); 3] = [
    ("untar", [619_740.0, 459.41, 68_887.0, 0.39]),
    ("delete", [299_089.0, 1.43, 1_800.0, 0.0]),
    ("PostMark", [4_590_571.0, 3_175.28, 675_308.0, 0.11]),
];
/// Gains that the thesis claims, in parts of all: patches, those of a deletion, bytes kept.
const PATCHES_GAIN: f64 = 0.85;
const DELETE_GAIN: f64 = 0.99;
const KEPT_GAIN: f64 = 0.99;
/// The most memory of the graph, in parts of that of the blocks.
const GRAPH_MAX: f64 = 0.18;

/// Builds and runs it, and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let mut program = project::example("marram-ext2", "patches", "release");
    if arguments.quick {
        program.arg("--quick");
    }
    let study = Study::read(&text(&mut program)?)?;
    let mut header = machine()?;
    let scale = if arguments.quick { "quick: a twentieth of the files" } else { "whole" };
    header.push(("scale".to_owned(), scale.to_owned()));
    header.push(("command".to_owned(), "cargo xtask bench --workloads patches".to_owned()));
    let page = study.page(&header);
    println!("{page}");
    if arguments.dry {
        return Ok(());
    }
    let (json, plots) = (study.json(&header)?, plot::draw(&study.panels()));
    write_files(&arguments.name_or("patches"), &page, &json, &plots)
}

/// A run of a workload in one way.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    workload: String,
    way: String,
    has_ready_lists: bool,
    unit_bytes: u64,
    changes: u64,
    hard: u64,
    soft: u64,
    kept_bytes: u64,
    graph_bytes: u64,
    dirty_bytes: u64,
    rollbacks: u64,
    flushes: u64,
    written_bytes: u64,
    twice_bytes: u64,
    seconds: f64,
}

#[derive(Debug, PartialEq)]
struct Study {
    runs: Vec<Run>,
}

impl Run {
    fn read(line: &str) -> Result<Run> {
        let count = |word: &str| word.parse::<u64>().context(|| format!("no number: {word}"));
        let parts: Vec<&str> = line.split('\t').collect();
        let [workload, way, is_listed, numbers @ .., seconds] = &parts[..] else {
            return fail(format!("not understood: {line}"));
        };
        let numbers: Vec<u64> = numbers.iter().map(|word| count(word)).collect::<Result<_>>()?;
        let Ok(numbers) = <[u64; 11]>::try_from(numbers) else {
            return fail(format!("not understood: {line}"));
        };
        let [unit_bytes, changes, hard, soft, kept_bytes, graph_bytes, rest @ ..] = numbers;
        let [dirty_bytes, rollbacks, flushes, written_bytes, twice_bytes] = rest;
        Ok(Run {
            workload: (*workload).to_owned(),
            way: (*way).to_owned(),
            has_ready_lists: *is_listed == "true",
            unit_bytes,
            changes,
            hard,
            soft,
            kept_bytes,
            graph_bytes,
            dirty_bytes,
            rollbacks,
            flushes,
            written_bytes,
            twice_bytes,
            seconds: seconds.parse().context(|| format!("no number: {seconds}"))?,
        })
    }

    fn patches(&self) -> u64 {
        self.hard + self.soft
    }

    /// Patches for each block of 4 KiB that was written: requests are cut in many ways.
    fn patches_a_block(&self) -> f64 {
        self.patches() as f64 * 4096.0 / self.written_bytes.max(1) as f64
    }

    fn graph_part(&self) -> f64 {
        self.graph_bytes as f64 / self.dirty_bytes.max(1) as f64
    }

    fn shown(&self, naive: &Run) -> String {
        let less = |ours: u64, theirs: u64| format!("{:.1} %", gain(ours, theirs) * 100.0);
        format!(
            "| {} | {} | {} | {} | {} | {:.2} | {} | {:.2} | {} | {:.1} % | {} | {} | {:.1} \
             | {:.1} | {:.2} |",
            self.way,
            self.unit_bytes,
            if self.has_ready_lists { "yes" } else { "no" },
            self.patches(),
            less(self.patches(), naive.patches()),
            self.patches_a_block(),
            self.soft,
            self.kept_bytes as f64 / MIB,
            less(self.kept_bytes, naive.kept_bytes),
            self.graph_part() * 100.0,
            self.rollbacks,
            self.flushes,
            self.written_bytes as f64 / MIB,
            self.twice_bytes as f64 / MIB,
            self.seconds,
        )
    }
}

/// How much less one is than the other, as a part of that.
fn gain(ours: u64, theirs: u64) -> f64 {
    1.0 - ours as f64 / theirs.max(1) as f64
}

/// A goal with what came out.
struct Verdict {
    goal: String,
    figure: f64,
    is_met: bool,
}

impl Verdict {
    fn word(&self) -> &'static str {
        if self.is_met { "met" } else { "LOST" }
    }
}

impl Study {
    fn read(said: &str) -> Result<Study> {
        let runs: Vec<Run> = said.lines().map(Run::read).collect::<Result<_>>()?;
        let study = Study { runs };
        for workload in study.workloads() {
            study.find(workload, NAIVE, SECTOR_BYTES)?;
            study.find(workload, OURS, SECTOR_BYTES)?;
        }
        if study.runs.is_empty() { fail("the study has no figures") } else { Ok(study) }
    }

    fn workloads(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.workload.as_str()) {
                names.push(&run.workload);
            }
        }
        names
    }

    fn of<'s>(&'s self, workload: &'s str) -> impl Iterator<Item = &'s Run> {
        self.runs.iter().filter(move |run| run.workload == workload)
    }

    fn find<'s>(&'s self, workload: &str, way: &str, unit_bytes: u64) -> Result<&'s Run> {
        let is_it = |run: &&Run| {
            let is_usual = run.unit_bytes == unit_bytes && run.has_ready_lists;
            run.workload == workload && run.way == way && is_usual
        };
        match self.runs.iter().find(is_it) {
            Some(run) => Ok(run),
            None => fail(format!("the study has no {way} of {workload}")),
        }
    }

    /// The run without any way to have fewer patches that another one is compared with.
    fn naive<'s>(&'s self, run: &'s Run) -> &'s Run {
        self.find(&run.workload, NAIVE, run.unit_bytes).unwrap_or(run)
    }

    /// The gains of what a mount takes, held against those of the thesis.
    fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for workload in self.workloads() {
            let (Ok(naive), Ok(ours)) =
                (self.find(workload, NAIVE, SECTOR_BYTES), self.find(workload, OURS, SECTOR_BYTES))
            else {
                continue;
            };
            let least = if workload == "delete" { DELETE_GAIN } else { PATCHES_GAIN };
            let gains = [
                ("fewer patches", gain(ours.patches(), naive.patches()), least),
                ("fewer bytes kept", gain(ours.kept_bytes, naive.kept_bytes), KEPT_GAIN),
            ];
            verdicts.extend(gains.map(|(what, figure, least)| Verdict {
                goal: format!("{workload}: {what}, at least {:.0} %", least * 100.0),
                figure: figure * 100.0,
                is_met: figure >= least,
            }));
            let graph = ours.graph_part();
            verdicts.push(Verdict {
                goal: format!(
                    "{workload}: graph, at most {:.0} % of the blocks",
                    GRAPH_MAX * 100.0
                ),
                figure: graph * 100.0,
                is_met: graph <= GRAPH_MAX,
            });
        }
        verdicts
    }

    fn page(&self, header: &[(String, String)]) -> String {
        let mut page = String::from("# Patches of four workloads under soft updates\n\n");
        let mut put = |line: &str| writeln!(page, "{line}").expect("a string takes all");
        for (name, value) in header {
            put(&format!("- {name}: {value}"));
        }
        put("\nIn the library, on a device in memory; counts are the same in every run. `none`, \
             `hard`, `overlap` and `both` are the thesis's (sections 2.2.1 to 2.2.3), `ours` is \
             what a mount takes. A unit is what the medium writes whole: a mount takes 512 bytes, \
             the thesis 4096.\n\n## Goals\n");
        put("| goal | figure of `ours`, units of 512 bytes | |\n| --- | ---: | --- |");
        for verdict in self.verdicts() {
            put(&format!("| {} | {:.1} % | {} |", verdict.goal, verdict.figure, verdict.word()));
        }
        put("\n## Beside the thesis\n");
        put("Patches and MiB kept, without any way and with the best one; the thesis's workloads \
             are its own (table 2.10).\n");
        put("| workload | thesis: none | both | less | here: none | both | ours | ours, less |");
        put("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
        for (workload, [patches, kept, best, best_kept]) in THESIS {
            let all = [NAIVE, "both", OURS].map(|way| self.find(workload, way, SECTOR_BYTES));
            let [Ok(naive), Ok(both), Ok(ours)] = all else { continue };
            let shown =
                |run: &Run| format!("{}; {:.2}", run.patches(), run.kept_bytes as f64 / MIB);
            put(&format!(
                "| {workload} | {patches}; {kept} | {best}; {best_kept} | {:.1} % | {} | {} | {} \
                 | {:.1} % |",
                (1.0 - best / patches) * 100.0,
                shown(naive),
                shown(both),
                shown(ours),
                gain(ours.patches(), naive.patches()) * 100.0,
            ));
        }
        for workload in self.workloads() {
            put(&format!("\n## {workload}\n"));
            put("Less is against `none` with the same unit.\n");
            put(
                "| way | unit | ready lists | patches | less | a block | soft | MiB kept | less | \
                 graph, of blocks | rollbacks | flushes | MiB written | twice | s |",
            );
            put(&format!("| --- |{}", " ---: |".repeat(14)));
            for run in self.of(workload) {
                put(&run.shown(self.naive(run)));
            }
        }
        page
    }

    fn json(&self, header: &[(String, String)]) -> Result<String> {
        use serde_json::{Map, Value, json};
        let header: Map<String, Value> =
            header.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let run = |run: &Run| {
            json!({
                "workload": run.workload, "way": run.way, "ready_lists": run.has_ready_lists,
                "unit_bytes": run.unit_bytes, "changes": run.changes, "hard": run.hard,
                "soft": run.soft, "kept_bytes": run.kept_bytes, "graph_bytes": run.graph_bytes,
                "dirty_bytes": run.dirty_bytes, "rollbacks": run.rollbacks,
                "flushes": run.flushes, "written_bytes": run.written_bytes,
                "twice_bytes": run.twice_bytes, "seconds": run.seconds,
            })
        };
        let all = json!({ "run": header, "runs": self.runs.iter().map(run).collect::<Vec<_>>() });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }

    /// A panel a workload for patches, and one for what is kept to take them back.
    fn panels(&self) -> Vec<Panel> {
        const WAYS: [&str; 5] = [NAIVE, "hard", "overlap", "both", OURS];
        let panel = |workload: &str, title: String, of: &dyn Fn(&Run) -> (f64, String)| {
            let bars = WAYS.iter().filter_map(|way| {
                let run = self.find(workload, way, SECTOR_BYTES).ok()?;
                Some(Bar { name: way, is_ours: *way == OURS, value: Some(of(run)) })
            });
            Panel { title, bars: bars.collect() }
        };
        let mut panels = Vec::new();
        for workload in self.workloads() {
            panels.push(panel(workload, format!("{workload}: patches"), &|run| {
                (run.patches() as f64, run.patches().to_string())
            }));
            panels.push(panel(workload, format!("{workload}: MiB kept"), &|run| {
                let kept = run.kept_bytes as f64 / MIB;
                (kept, format!("{kept:.2}"))
            }));
        }
        panels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(way: &str, patches: u64, kept: u64) -> String {
        let numbers = format!("512\t9000\t{patches}\t0\t{kept}\t10\t100\t3\t4\t409600\t0");
        format!("delete\t{way}\ttrue\t{numbers}\t1.500\n")
    }

    #[test]
    fn gains_that_are_missed_are_told_as_losses() {
        let said = line(NAIVE, 1000, 1000) + &line(OURS, 9, 500);
        let study = Study::read(&said).expect("all parts are there");
        let page = study.page(&[]);
        for shown in [
            "| delete: fewer patches, at least 99 % | 99.1 % | met |",
            "| delete: fewer bytes kept, at least 99 % | 50.0 % | LOST |",
            "| delete: graph, at most 18 % of the blocks | 10.0 % | met |",
        ] {
            assert!(page.lines().any(|line| line == shown), "{shown}\n{page}");
        }
        assert_eq!(study.panels().len(), 2);
    }

    #[test]
    fn a_study_that_tells_less_has_failed() {
        assert!(Study::read("").is_err());
        assert!(Study::read(&line(OURS, 9, 500)).is_err());
        assert!(Study::read(&line(NAIVE, 9, 500).replace("512\t", "")).is_err());
        assert!(Study::read(&line(NAIVE, 9, 500).replace("1.500", "fast")).is_err());
    }
}
