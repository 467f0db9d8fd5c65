//! The house rules, checked by a machine: a rule that no machine checks is a wish.
//!
//! Each rule is a function from a source file (or the whole project) to findings, in a module of
//! its own, with a test that shows it a violation. `xtask/tidy.exceptions` is the one list of
//! places that may break a rule of measure; an entry that is no longer needed is itself a finding,
//! so that the list only shrinks.

mod ambient;
mod attributes;
mod exceptions;
mod golden;
mod layers;
mod measure;
mod modules;
mod names;
mod source;
mod words;

use crate::failure::{Result, fail};
use crate::project;
use source::Source;

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
const FILE_RULES: [fn(&Source) -> Vec<Finding>; 8] = [
    measure::file_length,
    measure::function_length,
    measure::line_width,
    words::forbidden_words,
    names::banned_names,
    ambient::ambient_world,
    attributes::attributes,
    layers::used_paths,
];

/// What is asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Record the digests of the format's golden files, after a change that is meant.
    #[arg(long)]
    record_golden: bool,
}

/// Does what is asked for.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.record_golden {
        golden::record(&project::root())?;
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
    let sources = source::rust_files(&root)?;
    let mut findings: Vec<Finding> =
        sources.iter().flat_map(|source| FILE_RULES.iter().flat_map(|rule| rule(source))).collect();
    findings.extend(modules::unreached_files(&sources));
    findings.extend(layers::manifests(&root)?);
    findings.extend(words::other_files(&root)?);
    findings.extend(golden::golden_files(&root)?);
    exceptions::apply(&root, findings)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_project_keeps_its_rules() {
        super::check().expect("run `cargo xtask tidy` and mend what it names");
    }
}
