//! What work costs while something grows, as a page, as data, as curves, and held against the
//! target: with the logarithm of the size at most.

use super::curves::{self, Curve, Plot};
use marram_lab::failure::Result;
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

/// Everything, in its order.
pub(super) struct Stages {
    title: &'static str,
    /// What grows, in the plural.
    things: &'static str,
    /// What the target is for.
    flat: &'static [&'static str],
    all: Vec<Stage>,
    bounds: Vec<Bound>,
}

/// A number that has a limit of its own, whatever grows.
struct Bound {
    what: &'static str,
    value: f64,
    limit: f64,
}

/// What it cost at one moment.
struct Stage {
    title: String,
    /// How many there were, if that is what sets the moment apart.
    count: Option<u64>,
    rows: Vec<Row>,
}

/// What was done, and what it took, in milliseconds or what else.
struct Row {
    what: String,
    value: f64,
    unit: &'static str,
}

impl Stage {
    fn value(&self, what: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.what == what).map(|row| row.value)
    }
}

impl Stages {
    /// No moment yet.
    pub(super) fn new(
        title: &'static str,
        things: &'static str,
        flat: &'static [&'static str],
    ) -> Self {
        Self { title, things, flat, all: Vec::new(), bounds: Vec::new() }
    }

    /// From now on there are so many.
    pub(super) fn begin_at(&mut self, count: u64) {
        self.begin(format!("{count} {}", self.things));
        if let Some(stage) = self.all.last_mut() {
            stage.count = Some(count);
        }
    }

    /// From now on it is another moment.
    pub(super) fn begin(&mut self, title: String) {
        println!("\n{title}");
        self.all.push(Stage { title, count: None, rows: Vec::new() });
    }

    /// What something took at this moment.
    pub(super) fn tell(&mut self, what: &str, took: Duration) {
        self.note(what, took.as_secs_f64() * 1e3, "ms");
    }

    /// Another number of this moment.
    pub(super) fn note(&mut self, what: &str, value: f64, unit: &'static str) {
        println!("  {what}: {value:.3} {unit}");
        if let Some(stage) = self.all.last_mut() {
            stage.rows.push(Row { what: what.to_owned(), value, unit });
        }
    }

    /// The most that was seen of something, and the most that it may be.
    pub(super) fn bound(&mut self, what: &'static str, value: f64, limit: f64) {
        self.bounds.push(Bound { what, value, limit });
    }

    /// How many times more each costs beside the most than beside the fewest, and how many times
    /// it may: the ratio of the logarithms. Beside none and one there is no logarithm.
    fn growth(&self) -> Vec<(&'static str, f64, f64)> {
        let counted = || self.all.iter().filter(|stage| stage.count.is_some_and(|count| count > 1));
        let (Some(few), Some(many)) = (counted().next(), counted().next_back()) else {
            return Vec::new();
        };
        let logarithm = |stage: &Stage| (stage.count.unwrap_or(1) as f64).ln();
        let limit = logarithm(many) / logarithm(few);
        let grown =
            |what: &&'static str| Some((*what, many.value(what)? / few.value(what)?, limit));
        self.flat.iter().filter_map(grown).collect()
    }

    /// The report in Markdown.
    pub(super) fn page(&self, header: &[(String, String)]) -> String {
        let mut page = format!("# {}\n\n", self.title);
        for (name, value) in header {
            add(&mut page, format_args!("- {name}: {value}\n"));
        }
        let things = self.things;
        add(
            &mut page,
            format_args!("\n| from the fewest {things} to the most | times | at most |"),
        );
        page.push_str(" |\n| --- | ---: | ---: | --- |\n");
        for (what, grown, limit) in self.growth() {
            let word = if grown <= limit { "met" } else { "MISSED" };
            add(&mut page, format_args!("| {what} | {grown:.2} | {limit:.2} | {word} |\n"));
        }
        for Bound { what, value, limit } in &self.bounds {
            let word = if value <= limit { "met" } else { "MISSED" };
            add(&mut page, format_args!("| {what} | {value:.0} | {limit:.0} | {word} |\n"));
        }
        for stage in &self.all {
            let title = &stage.title;
            add(&mut page, format_args!("\n## {title}\n\n| | | |\n| --- | ---: | --- |\n"));
            for Row { what, value, unit } in &stage.rows {
                add(&mut page, format_args!("| {what} | {value:.3} | {unit} |\n"));
            }
        }
        page
    }

    /// The same for programs.
    pub(super) fn json(&self, header: &[(String, String)]) -> Result<String> {
        let header: serde_json::Map<String, serde_json::Value> =
            header.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let row =
            |Row { what, value, unit }: &Row| json!({ "what": what, "value": value, "unit": unit });
        let stage = |stage: &Stage| {
            let rows: Vec<_> = stage.rows.iter().map(row).collect();
            json!({ "stage": stage.title, "count": stage.count, "rows": rows })
        };
        let stages: Vec<_> = self.all.iter().map(stage).collect();
        Ok(serde_json::to_string_pretty(&json!({ "run": header, "stages": stages }))? + "\n")
    }

    /// A curve for each of what the target is for.
    pub(super) fn plots(&self) -> String {
        let plot = |what: &&'static str| {
            let point = |stage: &Stage| {
                let count = stage.count.filter(|count| *count > 0)?;
                Some((count as f64, stage.value(what)?))
            };
            let points = self.all.iter().filter_map(point).collect();
            let curves = vec![Curve { name: "marram", is_ours: true, points }];
            Plot { title: format!("{what}, by {}", self.things), curves }
        };
        curves::draw(&self.flat.iter().map(plot).collect::<Vec<_>>())
    }
}

fn add(page: &mut String, words: std::fmt::Arguments<'_>) {
    page.write_fmt(words).expect("a string takes all that is written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_may_grow_as_the_logarithm_does() {
        let mut stages = Stages::new("Growth", "snapshots", &["commit", "lookup"]);
        for (count, commit, lookup) in [(0, 1, 1), (1000, 300, 100), (10_000, 390, 150)] {
            stages.begin_at(count);
            stages.tell("commit", Duration::from_micros(commit));
            stages.tell("lookup", Duration::from_micros(lookup));
        }
        stages.begin("all destroyed".to_owned());
        stages.bound("memory, MiB", 664.4, 600.0);
        let page = stages.page(&[]);
        assert!(page.contains("| commit | 1.30 | 1.33 | met |"), "{page}");
        assert!(page.contains("| lookup | 1.50 | 1.33 | MISSED |"), "{page}");
        assert!(page.contains("| memory, MiB | 664 | 600 | MISSED |"), "{page}");
        assert!(page.contains("## all destroyed"), "{page}");
        assert_eq!(stages.plots().matches("<polyline").count(), 2);
        assert!(stages.json(&[]).expect("numbers").contains("\"count\": 10000"));
    }
}
