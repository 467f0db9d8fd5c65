//! The page, the plot and the numbers of a comparison of layouts.

use super::super::plot::{Bar, Panel};
use super::{Outcome, Seen, Stage};
use marram_lab::failure::Result;
use std::fmt::Write;

impl Stage {
    const ALL: [Stage; 4] = [Stage::Fresh, Stage::Aged, Stage::Together, Stage::WithoutSnapshots];

    fn title(self) -> &'static str {
        match self {
            Stage::Fresh => "just written",
            Stage::Aged => "after the year",
            Stage::Together => "brought together",
            Stage::WithoutSnapshots => "the same without snapshots",
        }
    }
}

/// A table for a person.
pub(super) fn page(header: &[(String, String)], outcomes: &[Outcome]) -> String {
    let mut page = String::from("# How files lie after a year of use\n\n");
    for (name, value) in header {
        line(&mut page, format_args!("- {name}: {value}"));
    }
    page.push_str(
        "\nEach subject lives through the same year (seeded): files are created, grow side by \
         side, are overwritten in places and replaced, and deleted to keep the content at one \
         size; each day ends with a sync, each week with a snapshot where there are any, of which \
         two are kept. `marram-nightly` has its files brought together every night. Tools: \
         `marram defragment`, `btrfs filesystem defragment -r`, `e4defrag`, `xfs_fsr`. Reads are \
         of all files, one after the other, after a fresh mount.\n\n",
    );
    line(
        &mut page,
        format_args!(
            "| subject | when | extents a file | extents in 100 MiB | read MB/s | in use | used \
             MiB | tool s |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
        ),
    );
    for outcome in outcomes {
        for (stage, seen) in &outcome.seen {
            line(
                &mut page,
                format_args!(
                    "| {} | {} | {:.2} | {:.0} | {:.0} | {:.1} % | {} | {} |",
                    outcome.line.name,
                    stage.title(),
                    seen.extents_a_file(),
                    seen.extents_of_100_mib(),
                    seen.read_megabytes_a_second(),
                    seen.used_percent(),
                    seen.used_bytes >> 20,
                    tool(seen)
                ),
            );
        }
    }
    page
}

/// The same for programs.
pub(super) fn json(header: &[(String, String)], outcomes: &[Outcome]) -> Result<String> {
    let rows: Vec<serde_json::Value> = outcomes
        .iter()
        .flat_map(|outcome| {
            outcome.seen.iter().map(|(stage, seen)| {
                serde_json::json!({
                    "subject": outcome.line.name,
                    "when": stage.title(),
                    "files": seen.files,
                    "extents": seen.extents,
                    "content_bytes": seen.content_bytes,
                    "used_bytes": seen.used_bytes,
                    "total_bytes": seen.total_bytes,
                    "read_seconds": seen.read_seconds,
                    "tool_seconds": seen.tool.map(|tool| tool.took.as_secs_f64()),
                    "tool_came_to_its_end": seen.tool.map(|tool| tool.is_to_the_end),
                })
            })
        })
        .collect();
    let header: serde_json::Map<String, serde_json::Value> =
        header.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    Ok(serde_json::to_string_pretty(&serde_json::json!({ "header": header, "rows": rows }))?)
}

/// A number of what was seen.
type Measure = fn(&Seen) -> f64;

/// A panel for each moment and measure.
pub(super) fn panels(outcomes: &[Outcome]) -> Vec<Panel> {
    let measures: [(&str, Measure); 2] = [
        ("extents in 100 MiB", Seen::extents_of_100_mib),
        ("read, MB/s", Seen::read_megabytes_a_second),
    ];
    let panel = |stage: Stage, (name, measure): (&str, Measure)| Panel {
        title: format!("{}: {name}", stage.title()),
        bars: outcomes.iter().map(|outcome| bar(outcome, stage, measure)).collect(),
    };
    Stage::ALL.iter().flat_map(|stage| measures.map(|measure| panel(*stage, measure))).collect()
}

fn bar(outcome: &Outcome, stage: Stage, measure: Measure) -> Bar {
    let seen = outcome.seen.iter().find(|(at, _)| *at == stage);
    Bar {
        name: outcome.line.name,
        is_ours: outcome.line.kind.is_marram(),
        value: seen.map(|(_, seen)| (measure(seen), format!("{:.0}", measure(seen)))),
    }
}

/// How long the tool took, and whether it did all.
fn tool(seen: &Seen) -> String {
    match seen.tool {
        None => "-".to_owned(),
        Some(tool) if tool.is_to_the_end => format!("{:.1}", tool.took.as_secs_f64()),
        Some(tool) => format!("{:.1}, failed in part", tool.took.as_secs_f64()),
    }
}

fn line(page: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(page, "{words}").expect("a string takes all that is written");
}
