//! The report as a page, as data and as panels of a plot.

use super::super::plot::{Bar, Panel};
use super::case::{Case, Outcome, Outcomes};
use super::recovery::Recovery;
use marram_lab::failure::Result;
use marram_lab::subject::Kind;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// How many times slower than the fastest peer one thread may be.
const ONE_THREAD_RATIO_MAX: f64 = 1.3;

/// How long the mount after a crash may take.
const MOUNT_MAX: Duration = Duration::from_secs(1);

fn is_peer(kind: Kind) -> bool {
    !kind.is_marram() && kind != Kind::Passthrough
}

/// The whole page in Markdown.
pub(super) fn page(
    header: &[(String, String)],
    kinds: &[Kind],
    outcomes: &Outcomes,
    recoveries: &[Recovery],
) -> String {
    let mut page = String::from("# What is synced is durable: how fast, and what it costs\n\n");
    for (name, value) in header {
        add(&mut page, format_args!("- {name}: {value}\n"));
    }
    page.push_str(
        "\nThe run with the median rate; least and most where there were repetitions. Bytes and \
         flushes are what reached the device for each acknowledged operation: for a loop device \
         the kernel's count, for `marram` in a file the daemon's own. `marram` writes and flushes \
         its file directly; `marram-loop` is on a loop device, as the peers are. The kernel's \
         FUSE holds the lock of an inode as long as its `fsync` runs, so threads that sync one \
         shared file or folder come one after another, whatever the daemon does; in the other \
         cases each thread has a file or folder of its own. `passthrough` stores nothing itself: \
         it hands each call to ext4 below, and is here to show what FUSE costs; no target is \
         measured by it.\n",
    );
    for case in Case::all() {
        table(&mut page, kinds, outcomes, case);
    }
    mounts(&mut page, recoveries);
    targets(&mut page, kinds, outcomes, recoveries);
    page
}

fn add(page: &mut String, words: std::fmt::Arguments<'_>) {
    page.write_fmt(words).expect("a string takes all that is written");
}

fn table(page: &mut String, kinds: &[Kind], outcomes: &Outcomes, case: Case) {
    add(page, format_args!("\n## {}\n\n", case.title()));
    page.push_str("| subject | a second | median us | 99% us | bytes each | flushes each |\n");
    page.push_str("| --- | ---: | ---: | ---: | ---: | ---: |\n");
    for kind in kinds {
        let Some(outcome) = outcomes.median(*kind, case) else { continue };
        let name = kind.name();
        let (median_us, slow_us) = (outcome.median_us, outcome.slow_us);
        add(page, format_args!("| {name} | {} |", rates(outcome, outcomes.all(*kind, case))));
        add(page, format_args!(" {median_us:.0} | {slow_us:.0} |"));
        let bytes = known(outcome.written_bytes, 0);
        add(page, format_args!(" {bytes} | {} |\n", known(outcome.flushes, 2)));
    }
}

fn rates(median: Outcome, all: &[Outcome]) -> String {
    let rates = || all.iter().map(|outcome| outcome.rate);
    let (least, most) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
    let median = median.rate;
    if all.len() == 1 {
        format!("{median:.0}")
    } else {
        format!("{median:.0} ({least:.0} to {most:.0})")
    }
}

fn known(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

fn mounts(page: &mut String, recoveries: &[Recovery]) {
    page.push_str("\n## Mount after a crash\n\n");
    page.push_str(
        "| bytes in the pool | of | kills | syncs before one, at most | slowest mount |\n",
    );
    page.push_str("| ---: | ---: | ---: | ---: | ---: |\n");
    for recovery in recoveries {
        let (filled, size) = (recovery.filled_bytes, recovery.pool_bytes);
        let (kills, syncs) = (recovery.mounts.len(), recovery.syncs);
        let slowest = recovery.slowest().as_millis();
        add(page, format_args!("| {filled} | {size} | {kills} | {syncs} | {slowest} ms |\n"));
    }
}

/// A comparison of one of ours with the fastest peer.
struct Verdict {
    case: Case,
    ours: Kind,
    peer: Kind,
    /// How many times slower than the peer.
    ratio: f64,
    limit: f64,
}

impl Verdict {
    fn is_met(&self) -> bool {
        if self.case.threads() == 1 { self.ratio <= self.limit } else { self.ratio < self.limit }
    }
}

fn verdicts(kinds: &[Kind], outcomes: &Outcomes) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for case in Case::all() {
        let peers = kinds.iter().copied().filter(|kind| is_peer(*kind));
        let rated = peers.filter_map(|kind| Some((kind, outcomes.median(kind, case)?.rate)));
        let Some((peer, best)) = rated.max_by(|one, other| one.1.total_cmp(&other.1)) else {
            continue;
        };
        for ours in kinds.iter().copied().filter(|kind| kind.is_marram()) {
            let Some(outcome) = outcomes.median(ours, case) else { continue };
            let limit = if case.threads() == 1 { ONE_THREAD_RATIO_MAX } else { 1.0 };
            verdicts.push(Verdict { case, ours, peer, ratio: best / outcome.rate, limit });
        }
    }
    verdicts
}

fn targets(page: &mut String, kinds: &[Kind], outcomes: &Outcomes, recoveries: &[Recovery]) {
    page.push_str("\n## Targets\n\n| target | subject | times slower | |\n");
    page.push_str("| --- | --- | ---: | --- |\n");
    let word = |is_met: bool| if is_met { "met" } else { "MISSED" };
    for verdict in verdicts(kinds, outcomes) {
        let (title, peer) = (verdict.case.title(), verdict.peer.name());
        let target = match verdict.case.threads() {
            1 => format!("{title}: within {} times {peer}, the fastest peer", verdict.limit),
            _ => format!("{title}: ahead of {peer}, the fastest peer"),
        };
        let (ours, ratio) = (verdict.ours.name(), verdict.ratio);
        let verdict = word(verdict.is_met());
        add(page, format_args!("| {target} | {ours} | {ratio:.2} | {verdict} |\n"));
    }
    for recovery in recoveries {
        let target = format!("a pool with {} bytes mounts within 1 s", recovery.filled_bytes);
        let (slowest, is_met) = (recovery.slowest(), recovery.slowest() < MOUNT_MAX);
        let (slowest, verdict) = (slowest.as_millis(), word(is_met));
        add(page, format_args!("| {target} | marram | {slowest} ms | {verdict} |\n"));
    }
}

/// A panel a case, a bar a subject.
pub(in super::super) fn panels(kinds: &[Kind], outcomes: &Outcomes) -> Vec<Panel> {
    let panel = |case: Case| {
        let bar = |kind: &Kind| {
            let rate = outcomes.median(*kind, case).map(|outcome| outcome.rate);
            Bar {
                name: kind.name(),
                is_ours: kind.is_marram(),
                value: rate.map(|rate| (rate, format!("{rate:.0}/s"))),
            }
        };
        let title = format!("{} (more is better)", case.title());
        Panel { title, bars: kinds.iter().map(bar).collect() }
    };
    Case::all().map(panel).collect()
}

/// All numbers, for other programs.
pub(super) fn json(
    header: &[(String, String)],
    kinds: &[Kind],
    outcomes: &Outcomes,
    recoveries: &[Recovery],
) -> Result<String> {
    let run = |outcome: &Outcome| {
        json!({
            "operations_per_second": outcome.rate,
            "median_us": outcome.median_us,
            "percentile_99_us": outcome.slow_us,
            "written_bytes_per_operation": outcome.written_bytes,
            "flushes_per_operation": outcome.flushes,
        })
    };
    let subjects = kinds.iter().map(|kind| {
        let cases = Case::all().map(|case| {
            let runs: Vec<Value> = outcomes.all(*kind, case).iter().map(run).collect();
            (case.key(), Value::Array(runs))
        });
        (kind.name().to_owned(), Value::Object(cases.collect()))
    });
    let mounts: Vec<Value> = recoveries.iter().map(recovery).collect();
    let run: Map<String, Value> =
        header.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let report = json!({
        "version": 1,
        "run": run,
        "subjects": subjects.collect::<Map<String, Value>>(),
        "mounts_after_a_crash": mounts,
    });
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn recovery(recovery: &Recovery) -> Value {
    let mounts = recovery.mounts.iter().map(|mount| mount.as_secs_f64() * 1e3);
    json!({
        "pool_bytes": recovery.pool_bytes,
        "filled_bytes": recovery.filled_bytes,
        "syncs_before_a_kill_at_most": recovery.syncs,
        "mount_ms": mounts.collect::<Vec<f64>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::case::Pattern;
    use super::*;

    fn rate(rate: f64) -> Outcome {
        Outcome { rate, median_us: 1.0, slow_us: 2.0, written_bytes: Some(4096.0), flushes: None }
    }

    #[test]
    fn one_thread_may_be_a_little_slower_and_many_may_not() {
        let mut outcomes = Outcomes::default();
        for (threads, ours) in [(1, 80.0), (8, 99.0)] {
            let case = Case::Race(Pattern::Append, threads);
            outcomes.add(Kind::Marram, case, rate(ours));
            outcomes.add(Kind::Ext4, case, rate(50.0));
            outcomes.add(Kind::Xfs, case, rate(100.0));
        }
        let kinds = [Kind::Marram, Kind::Ext4, Kind::Xfs];
        let verdicts = verdicts(&kinds, &outcomes);
        let told: Vec<_> = verdicts.iter().map(|v| (v.peer, v.is_met())).collect();
        assert_eq!(told, [(Kind::Xfs, true), (Kind::Xfs, false)]);
        let page = page(&[], &kinds, &outcomes, &[]);
        assert!(page.contains("| marram | 1.25 | met |"), "{page}");
        assert!(page.contains("| marram | 1.01 | MISSED |"), "{page}");
    }
}
