//! The report as a page and as data.

use super::sample::{Measure, Samples};
use crate::failure::Result;
use crate::subject::Kind;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// A target of the first issue: a measure, a peer, how many times the peer's figure is allowed.
const TARGETS: [(Measure, Kind, f64); 3] = [
    (Measure::Unpack, Kind::Btrfs, 3.0),
    (Measure::Unpack, Kind::ZfsFuse, 1.0),
    (Measure::ReadWarm, Kind::Btrfs, 1.5),
];

/// The daemon's memory with the default cache.
const PEAK_MEMORY_MIB_MAX: f64 = 600.0;

/// The whole page in Markdown.
pub(super) fn page(header: &[(String, String)], kinds: &[Kind], samples: &Samples) -> String {
    let mut page = String::from("# Marram and its peers\n\n");
    for (name, value) in header {
        add(&mut page, format_args!("- {name}: {value}\n"));
    }
    page.push_str(
        "\nMedians, with least and most where there were repetitions. After a remount the file \
         system's own caches are empty, but the host's cache of the image is not.\n\n",
    );
    figures(&mut page, kinds, samples);
    page.push_str("\n## Durability\n\n| subject | after `sync` on the mount |\n| --- | --- |\n");
    for kind in kinds {
        add(&mut page, format_args!("| {} | {} |\n", kind.name(), kind.durability()));
    }
    if kinds.contains(&Kind::Marram) {
        ratios(&mut page, kinds, samples);
        targets(&mut page, samples);
    }
    page
}

fn add(page: &mut String, words: std::fmt::Arguments<'_>) {
    page.write_fmt(words).expect("a string takes all that is written");
}

fn figures(page: &mut String, kinds: &[Kind], samples: &Samples) {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    add(page, format_args!("| | {} |\n", names.join(" | ")));
    add(page, format_args!("| --- |{}\n", " ---: |".repeat(kinds.len())));
    for measure in Measure::ALL {
        let cells: Vec<String> = kinds.iter().map(|kind| cell(samples, *kind, measure)).collect();
        let title = measure.title().replace('|', "\\|");
        add(page, format_args!("| {title} | {} |\n", cells.join(" | ")));
    }
}

fn cell(samples: &Samples, kind: Kind, measure: Measure) -> String {
    match samples.spread(kind, measure) {
        None => "-".to_owned(),
        Some(spread) if samples.values(kind, measure).len() == 1 => measure.shown(spread.median),
        Some(spread) => {
            let digits = usize::from(spread.most < 100.0) * 2;
            let (least, most) = (spread.least, spread.most);
            format!("{} ({least:.digits$} to {most:.digits$})", measure.shown(spread.median))
        }
    }
}

/// Every comparison of ours with a peer: what is lost first, the worst on top.
fn ratios(page: &mut String, kinds: &[Kind], samples: &Samples) {
    let mut all = Vec::new();
    for measure in Measure::ALL {
        let ours = samples.spread(Kind::Marram, measure);
        for kind in kinds.iter().filter(|kind| **kind != Kind::Marram) {
            if let (Some(ours), Some(theirs)) = (ours, samples.spread(*kind, measure)) {
                all.push((measure.times_worse(ours.median, theirs.median), measure, *kind));
            }
        }
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (title, is_loss) in [("Losses", true), ("Wins", false)] {
        add(page, format_args!("\n## {title}\n\n"));
        for (ratio, measure, kind) in all.iter().filter(|(ratio, _, _)| (*ratio > 1.0) == is_loss) {
            let (word, times) = if is_loss { ("worse", *ratio) } else { ("better", 1.0 / ratio) };
            let (title, name) = (measure.title(), kind.name());
            add(page, format_args!("- {title}: {times:.2} times {word} than {name}\n"));
        }
    }
}

fn targets(page: &mut String, samples: &Samples) {
    page.push_str("\n## Targets\n\n| target | figure | |\n| --- | ---: | --- |\n");
    let verdict = |is_met: bool| if is_met { "met" } else { "MISSED" };
    for (measure, kind, limit) in TARGETS {
        let ours = samples.spread(Kind::Marram, measure);
        let theirs = samples.spread(kind, measure);
        let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
        let ratio = measure.times_worse(ours.median, theirs.median);
        let title = measure.title().replace('|', "\\|");
        let (name, verdict) = (kind.name(), verdict(ratio <= limit));
        let target = format!("{title}: within {limit} times {name}");
        add(page, format_args!("| {target} | {ratio:.2} | {verdict} |\n"));
    }
    if let Some(peak) = samples.spread(Kind::Marram, Measure::PeakMemory) {
        let verdict = verdict(peak.most < PEAK_MEMORY_MIB_MAX);
        let target = format!("peak memory below {PEAK_MEMORY_MIB_MAX} MiB");
        add(page, format_args!("| {target} | {:.0} MiB | {verdict} |\n", peak.most));
    }
}

/// All numbers, for other programs.
pub(super) fn json(kinds: &[Kind], samples: &Samples) -> Result<String> {
    let subjects = kinds.iter().map(|kind| {
        let values = Measure::ALL
            .iter()
            .map(|measure| (measure.key().to_owned(), json!(samples.values(*kind, *measure))));
        let mut subject: Map<String, Value> = values.collect();
        subject.insert("durability".to_owned(), json!(kind.durability()));
        (kind.name().to_owned(), Value::Object(subject))
    });
    let report = json!({ "version": 1, "subjects": subjects.collect::<Map<String, Value>>() });
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_printed_as_losses_and_missed_targets_as_missed() {
        let mut samples = Samples::default();
        samples.add(Kind::Marram, Measure::Unpack, 8.0);
        samples.add(Kind::Btrfs, Measure::Unpack, 2.0);
        samples.add(Kind::Marram, Measure::RandomRead, 300.0);
        samples.add(Kind::Btrfs, Measure::RandomRead, 100.0);
        let page = page(&[], &[Kind::Marram, Kind::Btrfs], &samples);
        assert!(page.contains("syncfs: 4.00 times worse than btrfs"), "{page}");
        assert!(page.contains("at random: 3.00 times better than btrfs"), "{page}");
        assert!(page.contains("| 4.00 | MISSED |"), "{page}");
    }
}
