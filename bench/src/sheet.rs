//! A report of lines, each with a figure for each subject: as a page, as data, and as bars.
//!
//! Each figure says what is durable when its clock stops, since peers differ in that. A goal that
//! is not reached is printed as a loss.

use super::plot::{Bar, Panel};
use marram_lab::failure::Result;
use serde_json::{Value, json};
use std::fmt::Write;

/// Something that is measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// The name in the data.
    pub(super) key: String,
    /// What is done, in words.
    pub(super) title: String,
    /// What the number counts.
    pub(super) unit: &'static str,
    pub(super) more_is_better: bool,
}

impl Line {
    /// A rate, or whatever else is better when it is more.
    pub(super) fn rate(key: impl Into<String>, title: impl Into<String>) -> Self {
        let (key, title) = (key.into(), title.into());
        Self { key, title, unit: "a second", more_is_better: true }
    }

    /// A time, or whatever else is better when it is less.
    pub(super) fn cost(
        key: impl Into<String>,
        title: impl Into<String>,
        unit: &'static str,
    ) -> Self {
        Self { key: key.into(), title: title.into(), unit, more_is_better: false }
    }
}

/// What is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) is_ours: bool,
    /// What survives a power cut of client and server when the clock stops.
    pub(super) durable: &'static str,
}

#[derive(Debug)]
struct Figures {
    line: Line,
    of: Vec<(Subject, Vec<f64>)>,
}

#[derive(Debug)]
struct Goal {
    what: String,
    wanted: String,
    reached: String,
    is_met: bool,
}

/// The report.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    title: &'static str,
    pub(super) header: Vec<(String, String)>,
    /// What the reader has to know.
    pub(super) notes: Vec<String>,
    /// What did not come to its end.
    pub(super) failures: Vec<String>,
    lines: Vec<Figures>,
    goals: Vec<Goal>,
}

impl Sheet {
    /// An empty report.
    pub(super) fn titled(title: &'static str) -> Self {
        Self { title, ..Self::default() }
    }

    /// Adds a run.
    pub(super) fn add(&mut self, line: &Line, subject: Subject, value: f64) {
        println!("  {}: {}, {} {}", line.title, subject.name, shown(value), line.unit);
        let place = self.lines.iter().position(|known| known.line.key == line.key);
        let place = place.unwrap_or_else(|| {
            self.lines.push(Figures { line: line.clone(), of: Vec::new() });
            self.lines.len() - 1
        });
        let figures = &mut self.lines[place].of;
        match figures.iter_mut().find(|(known, _)| *known == subject) {
            Some((_, values)) => values.push(value),
            None => figures.push((subject, vec![value])),
        }
    }

    /// The median of what a subject did in a line.
    pub(super) fn median(&self, key: &str, subject: &str) -> Option<f64> {
        let figures = self.lines.iter().find(|figures| figures.line.key == key)?;
        let (_, values) = figures.of.iter().find(|(known, _)| known.name == subject)?;
        Some(middle(values))
    }

    /// A goal that a number should be at most; nothing where there is none.
    pub(super) fn at_most(
        &mut self,
        what: impl Into<String>,
        reached: Option<f64>,
        most: f64,
        unit: &str,
    ) {
        let Some(value) = reached else { return };
        let wanted = format!("at most {} {unit}", shown(most));
        let reached = format!("{} {unit}", shown(value));
        self.goals.push(Goal { what: what.into(), wanted, reached, is_met: value <= most });
    }

    /// A goal that a number should be at least.
    pub(super) fn at_least(
        &mut self,
        what: impl Into<String>,
        reached: Option<f64>,
        least: f64,
        unit: &str,
    ) {
        let Some(value) = reached else { return };
        let wanted = format!("at least {} {unit}", shown(least));
        let reached = format!("{} {unit}", shown(value));
        self.goals.push(Goal { what: what.into(), wanted, reached, is_met: value >= least });
    }

    /// The page in Markdown.
    pub(super) fn page(&self) -> String {
        let mut page = format!("# {}\n\n", self.title);
        let mut put = |line: &str| writeln!(page, "{line}").expect("a string takes all");
        for (name, value) in &self.header {
            put(&format!("- {name}: {value}"));
        }
        if !self.failures.is_empty() {
            put("\n## What did not come to its end\n");
        }
        for failure in &self.failures {
            put(&format!("- {}", failure.lines().collect::<Vec<_>>().join(" ")));
        }
        put("");
        self.notes.iter().for_each(|note| put(&format!("{note}\n")));
        put("## Goals\n\n| goal | wanted | reached | |\n| --- | ---: | ---: | --- |");
        for Goal { what, wanted, reached, is_met } in &self.goals {
            let verdict = if *is_met { "met" } else { "**LOST**" };
            put(&format!("| {what} | {wanted} | {reached} | {verdict} |"));
        }
        for figures in &self.lines {
            put(&format!("\n## {}\n", figures.line.title));
            figures.rows().iter().for_each(|row| put(row));
        }
        page
    }

    /// The data.
    pub(super) fn json(&self) -> Result<String> {
        let header: serde_json::Map<String, Value> =
            self.header.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let lines: Vec<Value> = self.lines.iter().map(Figures::json).collect();
        let goal = |goal: &Goal| {
            json!({ "goal": goal.what, "wanted": goal.wanted, "reached": goal.reached,
                "met": goal.is_met })
        };
        let goals: Vec<Value> = self.goals.iter().map(goal).collect();
        let whole = json!({ "run": header, "failures": self.failures, "goals": goals,
            "lines": lines });
        Ok(serde_json::to_string_pretty(&whole)? + "\n")
    }

    /// A panel a line.
    pub(super) fn panels(&self) -> Vec<Panel> {
        self.lines.iter().map(Figures::panel).collect()
    }
}

impl Figures {
    fn rows(&self) -> Vec<String> {
        let Line { unit, more_is_better, .. } = self.line;
        let better = if more_is_better { "More" } else { "Less" };
        let mut rows = vec![format!(
            "{better} is better. A ratio below 1 says that a subject is worse than that of ours.\n"
        )];
        let ours: Vec<&(Subject, Vec<f64>)> =
            self.of.iter().filter(|(subject, _)| subject.is_ours).collect();
        let names: String =
            ours.iter().map(|(subject, _)| format!(" {} to it |", subject.name)).collect();
        rows.push(format!("| subject | durable | {unit} | least to most |{names}"));
        rows.push(format!("| --- | --- | ---: | ---: |{}", " ---: |".repeat(ours.len())));
        for (subject, values) in &self.of {
            let value = middle(values);
            let ratios: String = ours
                .iter()
                .map(|(known, own)| match (known == subject, more_is_better) {
                    (true, _) => " |".to_owned(),
                    (false, true) => format!(" {} |", shown(value / middle(own))),
                    (false, false) => format!(" {} |", shown(middle(own) / value)),
                })
                .collect();
            let (least, most) = ends(values);
            let spread = match values.len() {
                1 => "-".to_owned(),
                _ => format!("{} to {}", shown(least), shown(most)),
            };
            let Subject { name, durable, .. } = subject;
            rows.push(format!("| {name} | {durable} | {} | {spread} |{ratios}", shown(value)));
        }
        rows
    }

    fn json(&self) -> Value {
        let Line { key, title, unit, more_is_better } = &self.line;
        let subject = |(subject, values): &(Subject, Vec<f64>)| {
            let value = json!({ "median": middle(values), "all": values,
                "durable": subject.durable, "ours": subject.is_ours });
            (subject.name.to_owned(), value)
        };
        let subjects: serde_json::Map<String, Value> = self.of.iter().map(subject).collect();
        json!({ "key": key, "title": title, "unit": unit, "more_is_better": more_is_better,
            "subjects": subjects })
    }

    fn panel(&self) -> Panel {
        let bar = |(subject, values): &(Subject, Vec<f64>)| Bar {
            name: subject.name,
            is_ours: subject.is_ours,
            value: Some((middle(values), format!("{} {}", shown(middle(values)), self.line.unit))),
        };
        Panel { title: self.line.title.clone(), bars: self.of.iter().map(bar).collect() }
    }
}

/// The median; of two the mean.
fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match (sorted.len(), sorted.len() % 2) {
        (0, _) => f64::NAN,
        (_, 0) => f64::midpoint(sorted[half - 1], sorted[half]),
        _ => sorted[half],
    }
}

fn ends(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// A number with as many digits as say something.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Subject = Subject { name: "marram", is_ours: true, durable: "each close" };
    const PEER: Subject = Subject { name: "sshfs", is_ours: false, durable: "nothing" };

    fn sheet() -> Sheet {
        let mut sheet = Sheet::titled("A race");
        let line = Line::rate("create", "files made");
        for value in [30.0, 10.0, 20.0] {
            sheet.add(&line, OURS, value);
        }
        sheet.add(&line, PEER, 40.0);
        let cost = Line::cost("fork", "a fork", "ms");
        sheet.add(&cost, OURS, 4.0);
        sheet
    }

    #[test]
    fn a_goal_that_is_not_reached_is_a_loss() {
        let mut sheet = sheet();
        let ratio = sheet.median("create", "marram").zip(sheet.median("create", "sshfs"));
        sheet.at_least("beside sshfs", ratio.map(|(ours, peer)| ours / peer), 1.0, "times");
        sheet.at_most("a fork", sheet.median("fork", "marram"), 5.0, "ms");
        sheet.at_most("what was not measured", sheet.median("fork", "sshfs"), 5.0, "ms");
        let page = sheet.page();
        assert!(page.contains("| beside sshfs | at least 1.00 times | 0.50 times | **LOST** |"));
        assert!(page.contains("| a fork | at most 5.00 ms | 4.00 ms | met |"));
        assert!(!page.contains("what was not measured"));
    }

    #[test]
    fn figures_are_medians_with_their_spread_and_durability() {
        let page = sheet().page();
        assert!(page.contains("| marram | each close | 20.0 | 10.0 to 30.0 | |"), "{page}");
        assert!(page.contains("| sshfs | nothing | 40.0 | - | 2.00 |"), "{page}");
        assert!(sheet().json().expect("data").contains("\"median\": 20.0"));
        assert_eq!(sheet().panels().len(), 2);
    }
}
