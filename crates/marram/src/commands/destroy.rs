//! `marram destroy`: lists what would go and what comes back, asks, and then does it.
//!
//! The kind has to be said, since a forgotten `@name` must never turn a snapshot's end into a
//! dataset's. Without a terminal nothing is destroyed unless `--yes` says so.

use crate::arguments::{ConsentArguments, DestroyKind};
use crate::commands::answers::unexpected;
use crate::control::protocol::{Answer, DestructionReport, Operation};
use crate::error::{Error, Result};
use crate::output::{Output, instant_text, say, size_text};
use crate::target::{Target, with_snapshot};
use marram_store::Source;
use rustix::termios::isatty;
use serde::Serialize;
use std::io::BufRead;

pub(super) fn run(kind: &DestroyKind, output: &Output) -> Result<()> {
    match kind {
        DestroyKind::Snapshot { target, dataset, consent } => {
            let (path, snapshot) = with_snapshot(target)?;
            let target = Target::find(&path)?;
            let dataset = target.dataset(dataset.as_deref())?;
            let source = Source { dataset, snapshot: Some(snapshot) };
            destroy(&target, &source, *consent, output)
        }
        DestroyKind::Fork { target, name, consent } => {
            let target = Target::find(target)?;
            let source = fork_named(&target, name)?;
            destroy(&target, &source, *consent, output)
        }
        DestroyKind::Dataset { target, dataset, consent } => {
            let target = Target::find(target)?;
            if dataset.contains('@') {
                return Err(Error::usage(format!("{dataset} names a snapshot, not a dataset"))
                    .hint("use `marram destroy snapshot`"));
            }
            let source = Source { dataset: target.dataset(Some(dataset))?, snapshot: None };
            destroy(&target, &source, *consent, output)
        }
    }
}

/// The fork of that name: nothing that is none.
fn fork_named(target: &Target, name: &str) -> Result<Source> {
    let rows = match target.perform(&Operation::List)? {
        Answer::Datasets(rows) => rows,
        other => return Err(unexpected(&other)),
    };
    match rows.iter().find(|row| row.name == name) {
        Some(row) if row.kind == "fork" => Ok(Source::live(name.parse()?)),
        Some(row) => Err(Error::usage(format!("{name} is a {}, and no fork", row.kind))
            .hint(format!("use `marram destroy dataset TARGET --dataset {name}`"))),
        None => Err(Error::not_found(format!("no fork named {name}"))
            .hint("`marram forks TARGET` shows what there is")),
    }
}

fn destroy(
    target: &Target,
    source: &Source,
    consent: ConsentArguments,
    output: &Output,
) -> Result<()> {
    let would = perform(target, source, true)?;
    if consent.dry_run {
        output.print(&would, || list("would destroy", "would come back", &would));
        return Ok(());
    }
    if !consent.yes {
        ask(source, &would)?;
    }
    let done = match consent.now {
        true => Destroyed { report: perform(target, source, false)?, kept_until_seconds: None },
        false => hide(target, source)?,
    };
    output.print(&done, || {
        let text = list("destroyed", "come back", &done.report);
        match done.kept_until_seconds {
            None => text,
            Some(until) => {
                let until = instant_text(until, false);
                format!("{text}at {until}, or when it is needed; till then `marram undo` helps\n")
            }
        }
    });
    Ok(())
}

/// What went.
#[derive(Serialize)]
struct Destroyed {
    #[serde(flatten)]
    report: DestructionReport,
    /// Until when an undo can bring it back: seconds since 1970.
    kept_until_seconds: Option<i64>,
}

fn hide(target: &Target, source: &Source) -> Result<Destroyed> {
    match target.perform(&Operation::Hide { sources: vec![source.to_string()] })? {
        Answer::Hidden { report, kept_until_seconds } => {
            Ok(Destroyed { report, kept_until_seconds })
        }
        other => Err(unexpected(&other)),
    }
}

fn perform(target: &Target, source: &Source, dry_run: bool) -> Result<DestructionReport> {
    match target.perform(&Operation::Destroy { source: source.to_string(), dry_run })? {
        Answer::Destruction(report) => Ok(report),
        other => Err(unexpected(&other)),
    }
}

fn list(verb: &str, coming: &str, report: &DestructionReport) -> String {
    let mut text = String::new();
    for source in &report.sources {
        text.push_str(&format!("{verb} {source}\n"));
    }
    text.push_str(&format!("{} {coming}\n", size_text(report.freed_bytes, false)));
    text
}

/// Has the user type the name of what goes.
fn ask(source: &Source, would: &DestructionReport) -> Result<()> {
    if !isatty(rustix::stdio::stdin()) || !isatty(rustix::stdio::stderr()) {
        return Err(Error::usage(format!(
            "{source} is not destroyed without being asked for twice"
        ))
        .hint("add --yes to do it, or --dry-run to see what would go"));
    }
    say(list("this destroys", "come back", would).trim_end());
    say(&format!("type {source} to go on:"));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if read.is_ok() && line.trim() == source.to_string() {
        return Ok(());
    }
    Err(Error::failed("nothing was destroyed"))
}
