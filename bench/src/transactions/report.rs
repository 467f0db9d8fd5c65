//! The report as a page, as data and as panels of a plot.

use super::super::plot::{Bar, Panel};
use super::row::{Row, Rows};
use super::{PEERS, commands, files, inserts, waiting};
use marram_lab::failure::Result;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The whole page in Markdown.
pub(super) fn page(header: &[(String, String)], rows: &Rows) -> String {
    let mut page = String::from("# What transactions cost\n\n");
    for (name, value) in header {
        add(&mut page, format_args!("- {name}: {value}\n"));
    }
    page.push_str(
        "\nThe run with the middle median. What is timed is durable at its end; bytes and flushes \
         are the kernel's count of the loop device, for each round. `fsync and rename each`: a \
         temporary file, `fsync`, `rename`, and at the end one `fsync` of the folder. A crash in \
         the middle of that leaves some of the files new, of a transaction all or none.\n",
    );
    for case in rows.cases() {
        table(&mut page, rows, case);
    }
    targets(&mut page, rows);
    page
}

fn add(page: &mut String, words: std::fmt::Arguments<'_>) {
    page.write_fmt(words).expect("a string takes all that is written");
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn known(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

fn table(page: &mut String, rows: &Rows, case: &str) {
    add(page, format_args!("\n## {case}\n\n"));
    page.push_str("| subject | median ms | 99% ms | flushes each | bytes each |\n");
    page.push_str("| --- | ---: | ---: | ---: | ---: |\n");
    for subject in rows.subjects(case) {
        let Some(row) = rows.middle(case, subject) else { continue };
        let (median, slow) = (milliseconds(row.median), milliseconds(row.slow));
        let (flushes, bytes) = (known(row.flushes, 2), known(row.written_bytes, 0));
        add(page, format_args!("| {subject} | {median:.2} | {slow:.2} | {flushes} | {bytes} |\n"));
    }
}

/// A goal, what was reached, and whether that is enough.
struct Verdict {
    goal: String,
    reached: f64,
    is_met: bool,
}

impl Verdict {
    fn at_most(goal: impl Into<String>, reached: Option<f64>, limit: f64) -> Option<Self> {
        let reached = reached?;
        Some(Self { goal: goal.into(), reached, is_met: reached <= limit })
    }

    fn at_least(goal: impl Into<String>, reached: Option<f64>, limit: f64) -> Option<Self> {
        let reached = reached?;
        Some(Self { goal: goal.into(), reached, is_met: reached >= limit })
    }
}

const TRANSACTION: &str = "marram, one transaction";

fn verdicts(rows: &Rows) -> Vec<Verdict> {
    let of_peers = files::COUNTS.into_iter().flat_map(|count| beside_peers(rows, count));
    let of_waiting = rows.cases().into_iter().filter(|case| case.contains("by others while"));
    let waiting = of_waiting.flat_map(|case| waiting_verdicts(rows, case));
    let singles = [small(rows), inserted(rows), nothing(rows), unpacked(rows)];
    of_peers.chain(singles.into_iter().flatten()).chain(waiting).collect()
}

/// Seconds and flushes against the best of the peers.
fn beside_peers(rows: &Rows, count: usize) -> Vec<Verdict> {
    let case = files::replaced(count);
    let peers = || {
        let names = PEERS.map(|kind| format!("{}, fsync and rename each", kind.name()));
        names.into_iter().filter_map(|name| rows.middle(&case, &name).cloned())
    };
    let ours = rows.middle(&case, TRANSACTION);
    let seconds = peers()
        .map(|row| row.median)
        .min()
        .zip(ours)
        .map(|(best, ours)| ours.median.as_secs_f64() / best.as_secs_f64());
    let flushes = peers().filter_map(|row| row.flushes).reduce(f64::min);
    let fewer = flushes.zip(ours.and_then(|row| row.flushes)).map(|(best, ours)| best / ours);
    let faster = (count > 1).then(|| {
        Verdict::at_most(format!("{case} as one: ahead of the fastest peer in time"), seconds, 1.0)
    });
    let goal = |times: f64| {
        let goal = format!("{case} as one: flushes of the best peer to ours at least {times}");
        Verdict::at_least(goal, fewer, times)
    };
    let fewer = match count {
        10 => goal(10.0),
        100 => goal(100.0),
        _ => None,
    };
    faster.flatten().into_iter().chain(fewer).collect()
}

/// Flushes and time of small transactions.
fn small(rows: &Rows) -> Vec<Verdict> {
    let flushes = |at_once| rows.middle(&files::together(at_once), TRANSACTION)?.flushes;
    let time = |subject| Some(rows.middle(&files::together(1), subject)?.median.as_secs_f64());
    let ratio = time(TRANSACTION)
        .zip(time("marram, one append of 4 KiB, fdatasync"))
        .map(|(ours, append)| ours / append);
    let limits = [(1, 1.0), (8, 0.3), (32, 0.1)];
    let flushed = limits.into_iter().filter_map(|(at_once, limit)| {
        let goal = format!("{}: flushes each at most {limit}", files::together(at_once));
        Verdict::at_most(goal, flushes(at_once), limit)
    });
    let timed =
        Verdict::at_most("the same, one at a time: to an append with fdatasync", ratio, 1.2);
    flushed.chain(timed).collect()
}

fn inserted(rows: &Rows) -> Vec<Verdict> {
    let time = |subject: &str| Some(rows.middle(inserts::CASE, subject)?.median.as_secs_f64());
    let peers = PEERS.map(|kind| time(&format!("{}, write-ahead log", kind.name())));
    let best = peers.into_iter().flatten().reduce(f64::min);
    let ratio = time("marram, tx run, journal off").zip(best).map(|(ours, best)| ours / best);
    let goal = format!("{}: ahead of the fastest peer's write-ahead log", inserts::CASE);
    Verdict::at_most(goal, ratio, 1.0).into_iter().collect()
}

fn nothing(rows: &Rows) -> Vec<Verdict> {
    let took = rows.middle(commands::NOTHING, commands::AS_ONE).map(|row| milliseconds(row.median));
    Verdict::at_most("`tx run -- true` in ms, root: at most 15", took, 15.0).into_iter().collect()
}

fn unpacked(rows: &Rows) -> Vec<Verdict> {
    let time = |subject| Some(rows.middle(commands::UNPACK, subject)?.median.as_secs_f64());
    let ratio = time(commands::AS_ONE).zip(time(commands::PLAIN)).map(|(one, plain)| one / plain);
    let goal = "the Linux tree unpacked by `tx run`: to the same without, at most 1.10";
    Verdict::at_most(goal, ratio, 1.1).into_iter().collect()
}

fn waiting_verdicts(rows: &Rows, case: &str) -> Vec<Verdict> {
    let slow = |subject| rows.middle(case, subject).map(|row| milliseconds(row.slow));
    let of_all = format!("{case}: 99% in ms, at most 10");
    let longest = format!("{case}: the longest of all commits in ms, at most 10");
    let verdicts = [
        Verdict::at_most(of_all, slow(waiting::BESIDE), 10.0),
        Verdict::at_most(longest, slow(waiting::LONGEST), 10.0),
    ];
    verdicts.into_iter().flatten().collect()
}

fn targets(page: &mut String, rows: &Rows) {
    page.push_str("\n## Goals\n\n| goal | reached | |\n| --- | ---: | --- |\n");
    for verdict in verdicts(rows) {
        let word = if verdict.is_met { "met" } else { "MISSED" };
        add(page, format_args!("| {} | {:.2} | {word} |\n", verdict.goal, verdict.reached));
    }
}

/// A panel a case, a bar a subject.
pub(super) fn panels(rows: &Rows) -> Vec<Panel> {
    let panel = |case: &str| {
        let bar = |subject: &str| {
            let took = rows.middle(case, subject).map(|row| milliseconds(row.median));
            Bar {
                name: short(subject),
                is_ours: subject.contains("transaction") || subject.contains("tx run"),
                value: took.map(|took| (took, format!("{took:.2} ms"))),
            }
        };
        let bars = rows.subjects(case).into_iter().map(bar).collect();
        Panel { title: format!("{case} (less is better)"), bars }
    };
    rows.cases().into_iter().map(panel).collect()
}

/// The name that fits before a bar.
fn short(subject: &str) -> &'static str {
    const NAMES: [(&str, &str); 10] = [
        ("one transaction", "transaction"),
        ("tx run", "tx run"),
        ("marram, beside none", "beside none"),
        ("beside commits", "beside"),
        ("longest beside", "longest"),
        ("commits themselves", "commit"),
        ("ext4", "ext4"),
        ("xfs", "xfs"),
        ("btrfs", "btrfs"),
        ("append", "append"),
    ];
    NAMES.iter().find(|(part, _)| subject.contains(part)).map_or("marram", |(_, name)| name)
}

/// All numbers, for other programs.
pub(super) fn json(header: &[(String, String)], rows: &Rows) -> Result<String> {
    let run = |row: &Row| {
        json!({
            "median_ms": milliseconds(row.median),
            "percentile_99_ms": milliseconds(row.slow),
            "flushes": row.flushes,
            "written_bytes": row.written_bytes,
        })
    };
    let subjects = |case: &str| -> Value {
        let runs = |subject: &str| rows.runs(case, subject).map(run).collect::<Vec<Value>>();
        let subjects = rows.subjects(case).into_iter();
        Value::Object(subjects.map(|name| (name.to_owned(), runs(name).into())).collect())
    };
    let cases: Map<String, Value> =
        rows.cases().into_iter().map(|case| (case.to_owned(), subjects(case))).collect();
    let run: Map<String, Value> =
        header.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let report = json!({ "version": 1, "run": run, "cases": cases });
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, subject: &str, milliseconds: u64, flushes: f64) -> Row {
        let times = vec![Duration::from_millis(milliseconds)];
        let row = Row::of(case, subject).timed(times).expect("one round");
        Row { flushes: Some(flushes), ..row }
    }

    #[test]
    fn a_goal_is_held_against_the_best_peer() {
        let mut rows = Rows::default();
        let case = files::replaced(10);
        rows.add(row(&case, TRANSACTION, 4, 2.0));
        rows.add(row(&case, "ext4, fsync and rename each", 40, 19.0));
        rows.add(row(&case, "xfs, fsync and rename each", 3, 22.0));
        let page = page(&[], &rows);
        assert!(page.contains("in time | 1.33 | MISSED |"), "{page}");
        assert!(page.contains("at least 10 | 9.50 | MISSED |"), "{page}");
        assert!(page.contains("| marram, one transaction | 4.00 | 4.00 | 2.00 | - |"), "{page}");
    }
}
