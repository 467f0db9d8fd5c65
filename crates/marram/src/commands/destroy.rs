//! `marram destroy`: lists what would go and what comes back, asks, and then does it.
//!
//! The kind has to be said, since a forgotten `@name` must never turn a snapshot's end into a
//! dataset's. Without a terminal nothing is destroyed unless `--yes` says so. Of several, all go or
//! none.

use crate::arguments::{ConsentArguments, DestroyArguments, DestroyKind};
use crate::commands::answers::unexpected;
use crate::control::protocol::{Answer, DestructionReport, Operation};
use crate::error::{Error, Result};
use crate::options::snapshot_name;
use crate::output::{Output, Progress, instant_text, say, size_text};
use crate::target::{Target, with_optional_snapshot};
use marram_store::DatasetName;
use rustix::termios::isatty;
use serde::Serialize;
use std::io::BufRead;

pub(super) fn run(kind: &DestroyKind, output: &Output) -> Result<()> {
    let (target, sources, consent) = match kind {
        DestroyKind::Snapshot(arguments) => snapshots(arguments)?,
        DestroyKind::Fork(arguments) => datasets(arguments, "fork")?,
        DestroyKind::Dataset(arguments) => datasets(arguments, "dataset")?,
    };
    destroy(&target, &sources, consent, output)
}

/// What is to go: where, under which names, and how sure the user is.
type Doomed = (Target, Vec<String>, ConsentArguments);

fn snapshots(arguments: &DestroyArguments) -> Result<Doomed> {
    let (path, first) = with_optional_snapshot(&arguments.target)?;
    let names: Vec<String> = first.into_iter().chain(arguments.names.iter().cloned()).collect();
    if names.is_empty() {
        return Err(Error::usage(format!("{} names no snapshot", arguments.target.display()))
            .hint("write TARGET@NAME, or TARGET and the names: `marram list TARGET` shows them"));
    }
    let target = Target::find(&path)?;
    let dataset = target.dataset(arguments.dataset.as_deref())?;
    let source = |name: &String| Ok(format!("{dataset}@{}", snapshot_name(name)?));
    let sources = names.iter().map(source).collect::<Result<_>>()?;
    Ok((target, sources, arguments.consent))
}

/// Datasets of a kind, and nothing that is of another.
fn datasets(arguments: &DestroyArguments, kind: &str) -> Result<Doomed> {
    let names: Vec<String> = arguments.names.iter().chain(&arguments.dataset).cloned().collect();
    if names.is_empty() {
        return Err(Error::usage(format!("no {kind} is named"))
            .hint(format!("write `marram destroy {kind} TARGET NAME`")));
    }
    let target = Target::find(&arguments.target)?;
    let rows = match target.perform(&Operation::List)? {
        Answer::Datasets(rows) => rows,
        other => return Err(unexpected(&other)),
    };
    for name in &names {
        let found = rows.iter().find(|row| row.name == *name).map(|row| row.kind.as_str());
        match found {
            Some("snapshot") => {
                return Err(Error::usage(format!("{name} names a snapshot, not a {kind}"))
                    .hint("use `marram destroy snapshot`"));
            }
            Some("fork") if kind != "fork" => return Err(of_another_kind(name, "fork", kind)),
            Some(found) if found != "fork" && kind == "fork" => {
                return Err(of_another_kind(name, "dataset", kind));
            }
            Some(_) => {}
            None => {
                // A name that is none says so itself.
                let _is_a_name: DatasetName = name.parse()?;
                return Err(Error::not_found(format!("no {kind} named {name}"))
                    .hint("`marram list TARGET` shows what there is"));
            }
        }
    }
    Ok((target, names, arguments.consent))
}

fn of_another_kind(name: &str, found: &str, wanted: &str) -> Error {
    Error::usage(format!("{name} is a {found}, and no {wanted}"))
        .hint(format!("use `marram destroy {found} TARGET {name}`"))
}

fn destroy(
    target: &Target,
    sources: &[String],
    consent: ConsentArguments,
    output: &Output,
) -> Result<()> {
    let progress = Progress::begin(output, "counting what would come back");
    let would = perform(target, sources, true)?;
    drop(progress);
    if consent.dry_run {
        output.print(&would, || list("would destroy", "would come back", &would));
        return Ok(());
    }
    // Of a range, what was found and shown goes: nothing that has come into it since.
    let goes = if sources.iter().any(|one| one.contains('@')) { &would.sources } else { sources };
    if !consent.yes {
        ask(goes, &would)?;
    }
    let progress = Progress::begin(output, format!("destroying {}", goes.join(", ")));
    let done = match consent.now {
        true => Destroyed { report: perform(target, goes, false)?, kept_until_seconds: None },
        false => hide(target, goes)?,
    };
    drop(progress);
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

fn hide(target: &Target, sources: &[String]) -> Result<Destroyed> {
    match target.perform(&Operation::Hide { sources: sources.to_vec() })? {
        Answer::Hidden { report, kept_until_seconds } => {
            Ok(Destroyed { report, kept_until_seconds })
        }
        other => Err(unexpected(&other)),
    }
}

fn perform(target: &Target, sources: &[String], dry_run: bool) -> Result<DestructionReport> {
    match target.perform(&Operation::Destroy { sources: sources.to_vec(), dry_run })? {
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

/// Has the user type the name of what goes; of several, their number.
fn ask(sources: &[String], would: &DestructionReport) -> Result<()> {
    let answer = match sources {
        [one] => one.clone(),
        several => format!("all {}", several.len()),
    };
    if !isatty(rustix::stdio::stdin()) || !isatty(rustix::stdio::stderr()) {
        return Err(Error::usage(format!(
            "{} is not destroyed without being asked for twice",
            sources.join(", ")
        ))
        .hint("add --yes to do it, or --dry-run to see what would go"));
    }
    say(list("this destroys", "come back", would).trim_end());
    say(&format!("type {answer} to go on:"));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if read.is_ok() && line.trim() == answer {
        return Ok(());
    }
    Err(Error::failed("nothing was destroyed"))
}
