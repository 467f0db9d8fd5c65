//! The house rules, checked by a machine: a rule that no machine checks is a wish.
//!
//! Each rule is a function from a source file (or the whole project) to findings, in a module of
//! its own, with a test that shows it a violation. `xtask/tidy.exceptions` is the one list of
//! places that may break a rule of measure; an entry that is no longer needed is itself a finding,
//! so that the list only shrinks.

mod ambient;
mod attributes;
mod circles;
mod engines;
mod exceptions;
mod golden;
mod impls;
mod layers;
mod measure;
mod modules;
mod names;
mod people;
mod plan;
mod rooms;
mod sentences;
mod source;
mod untangling;
mod words;

use crate::failure::{Result, fail};
use crate::project;
use plan::{Plan, arrows};
use rooms::Order;
use source::Source;
use std::collections::BTreeSet;
use std::path::Path;

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The rule's name, as the list of exceptions spells it.
    rule: &'static str,
    /// The file, or `file::function`.
    place: String,
    /// The line, from 1; 0 where the whole file is meant.
    line: usize,
    /// What was measured, for rules of measure.
    measure: Option<usize>,
    /// What is wrong and what to do.
    message: String,
}

impl Finding {
    fn new(rule: &'static str, source: &Source, line: usize, message: impl Into<String>) -> Self {
        let place = source.path.clone();
        Self { rule, place, line, measure: None, message: message.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}: {}: {}", self.place, self.line, self.rule, self.message)
    }
}

/// The rules of one Rust file.
const FILE_RULES: [fn(&Source) -> Vec<Finding>; 9] = [
    measure::file_length,
    measure::function_length,
    measure::line_width,
    words::forbidden_words,
    names::banned_names,
    ambient::ambient_world,
    attributes::attributes,
    layers::used_paths,
    engines::named,
];

/// What is asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Record the digests of the format's golden files, after a change that is meant.
    #[arg(long)]
    record_golden: bool,
    /// Lower the exceptions that are higher than what is measured.
    #[arg(long)]
    lower: bool,
    /// Show a crate's arrows against the order of its rooms, and its circles; check nothing.
    #[arg(long, value_name = "CRATE")]
    rooms: Option<String>,
}

/// Does what is asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let root = project::root();
    if let Some(name) = &arguments.rooms {
        return show_rooms(&root, name);
    }
    if arguments.record_golden {
        golden::record(&root)?;
    }
    if arguments.lower {
        exceptions::lower(&root, &measured(&root)?)?;
    }
    check()
}

/// Checks the whole project; prints every finding; fails if there is one.
pub(crate) fn check() -> Result<()> {
    let findings = findings()?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => fail(format!("the house rules are broken in {count} places")),
    }
}

fn findings() -> Result<Vec<Finding>> {
    let root = project::root();
    exceptions::apply(&root, measured(&root)?)
}

/// All findings, also those that are excepted.
fn measured(root: &Path) -> Result<Vec<Finding>> {
    let sources = source::rust_files(root)?;
    let mut findings: Vec<Finding> =
        sources.iter().flat_map(|source| FILE_RULES.iter().flat_map(|rule| rule(source))).collect();
    findings.extend(sources.iter().filter_map(people::in_comments));
    findings.extend(modules::unreached_files(&sources));
    findings.extend(layers::manifests(root)?);
    findings.extend(words::other_files(root)?);
    findings.extend(golden::golden_files(root)?);
    findings.extend(sentences::pages(root)?);
    findings.extend(people::in_documents(root)?);
    findings.extend(of_crates(&sources, &rooms::orders(root)?));
    Ok(findings)
}

/// The rules of whole crates: impls of all, rooms and circles of those with an order.
fn of_crates(sources: &[Source], orders: &[Order]) -> Vec<Finding> {
    let names: BTreeSet<&str> = sources.iter().map(Source::crate_name).collect();
    let ordered = orders.iter().map(|order| order.name.as_str());
    let names: BTreeSet<&str> = names.into_iter().chain(ordered).collect();
    let mut findings = Vec::new();
    for name in names {
        let plan = Plan::new(name, sources);
        findings.extend(impls::foreign_impls(&plan));
        if let Some(order) = orders.iter().find(|order| order.name == name) {
            let arrows = arrows(&plan);
            findings.extend(rooms::unlisted(&plan, order));
            findings.extend(rooms::imports_against(&plan, &arrows, order));
            findings.extend(circles::large_circles(&plan, &arrows));
        }
    }
    findings
}

fn show_rooms(root: &Path, name: &str) -> Result<()> {
    let sources = source::rust_files(root)?;
    let orders = rooms::orders(root)?;
    let Some(order) = orders.iter().find(|order| order.name == name) else {
        return fail(format!("no order of rooms is written down for `{name}`"));
    };
    let plan = Plan::new(name, &sources);
    untangling::show(&plan, &arrows(&plan), order);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_project_keeps_its_rules() {
        super::check().expect("run `cargo xtask tidy` and mend what it names");
    }
}
