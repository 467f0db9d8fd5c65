//! `marram merge`: what a fork has changed goes into what it was forked from, all or nothing; and
//! `marram update`: what that has changed goes into the fork.

mod interactive;

use super::differences::{Detail, Directories, Totals, lines};
use crate::arguments::{BranchArguments, MergeArguments, UpdateArguments};
use crate::commands::answers::{unexpected, write_back};
use crate::control::protocol::{Answer, ConflictChoice, MergeRequest, MergeSummary, Operation};
use crate::error::{Error, Result};
use crate::output::Output;
use crate::target::Target;
use serde::Serialize;

/// Exit status of a merge that was refused for its conflicts.
pub(super) const CONFLICTS: u8 = 4;
/// Exit status of one that would be refused for want of space, or came too late.
const REFUSED: u8 = 1;

/// What is printed of a merge.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    summary: &'a MergeSummary,
    /// How much went, or would go, from one side into the other.
    totals: Totals,
}

pub(super) fn run(arguments: &MergeArguments, output: &Output) -> Result<u8> {
    bring_across(&arguments.branch, (false, arguments.drop), output)
}

/// Brings what the parent has changed into the fork.
pub(super) fn update(arguments: &UpdateArguments, output: &Output) -> Result<u8> {
    bring_across(&arguments.branch, (true, false), output)
}

fn bring_across(
    arguments: &BranchArguments,
    (update, drop): (bool, bool),
    output: &Output,
) -> Result<u8> {
    let target = Target::find(&arguments.target)?;
    let fork = match (&arguments.fork, &target.mounted) {
        (Some(name), _) => name.clone(),
        (None, Some(mounted)) if mounted.snapshot.is_some() => {
            let path = arguments.target.display();
            return Err(Error::usage(format!("{path} is in the snapshot {mounted}"))
                .hint("a fork is merged as it is now: name a path in it, or --fork NAME"));
        }
        (None, Some(mounted)) => mounted.dataset.to_string(),
        (None, None) => {
            return Err(Error::usage(format!("{} is a pool", arguments.target.display()))
                .hint("say which fork: --fork NAME"));
        }
    };
    write_back(&target, &arguments.target)?;
    let choice = match (arguments.ours, arguments.theirs) {
        (true, _) => ConflictChoice::Ours,
        (_, true) => ConflictChoice::Theirs,
        _ => ConflictChoice::Refuse,
    };
    let mut request = MergeRequest {
        fork,
        preview: arguments.preview || arguments.interactive,
        update,
        choice,
        ranges: arguments.ranges,
        text: arguments.text,
        drop: drop && !arguments.interactive,
        decisions: Vec::new(),
        marks: arguments.interactive,
        state: None,
    };
    let merge = |request: &MergeRequest| match target.perform(&Operation::Merge(request.clone()))? {
        Answer::Merged(summary) => Ok(summary),
        other => Err(unexpected(&other)),
    };
    if arguments.interactive {
        let (mut input, mut prompt) = (std::io::stdin().lock(), std::io::stderr());
        interactive::decide(&mut request, &merge, &mut input, &mut prompt)?;
        (request.preview, request.drop) = (false, drop);
    }
    let summary = merge(&request)?;
    let report = Report { summary: &summary, totals: Totals::of(&summary.differences) };
    output.print(&report, || text(&report, &place(&target, &summary), arguments.preview));
    Ok(match () {
        () if summary.is_outdated => REFUSED,
        () if !summary.conflicts.is_empty() => CONFLICTS,
        () if summary.obstacle.is_some() => REFUSED,
        () => 0,
    })
}

/// Brings all that a fork has changed into its parent and drops the fork, or changes nothing.
///
/// # Errors
/// Whatever refuses it or fails; the summary lists conflicts.
pub(super) fn merge_and_drop(target: &Target, fork: &str) -> Result<Box<MergeSummary>> {
    let request = MergeRequest {
        fork: fork.to_owned(),
        preview: false,
        update: false,
        choice: ConflictChoice::Refuse,
        ranges: false,
        text: false,
        drop: true,
        decisions: Vec::new(),
        marks: false,
        state: None,
    };
    match target.perform(&Operation::Merge(request))? {
        Answer::Merged(summary) => Ok(summary),
        other => Err(unexpected(&other)),
    }
}

/// Where the directory is that the fork is of.
fn place(target: &Target, summary: &MergeSummary) -> String {
    match &summary.directory {
        Some(directory) => target.place_of(&summary.parent, &directory.bytes()),
        None => summary.parent.clone(),
    }
}

fn text(report: &Report<'_>, place: &str, preview: bool) -> String {
    let summary = report.summary;
    let mut text = lines(&summary.differences, Detail::Lines, Directories::Whole);
    if summary.differences_left_out > 0 {
        text.push_str(&format!("and {} more differences\n", summary.differences_left_out));
    }
    for row in &summary.decided {
        text.push_str(&format!("decided: {}\n", row.line()));
    }
    for row in &summary.conflicts {
        text.push_str(&format!("conflict: {}\n", row.line()));
    }
    let (from, _) = ends(summary, place);
    text.push_str(&match &summary.obstacle {
        Some(obstacle) => {
            format!("{from} would be refused: {obstacle}\n")
        }
        None => outcome(report, place, preview),
    });
    text
}

/// What the changes are of, and what they go into.
fn ends<'s>(summary: &'s MergeSummary, place: &'s str) -> (&'s str, &'s str) {
    if summary.update { (place, &summary.fork) } else { (&summary.fork, place) }
}

fn outcome(report: &Report<'_>, place: &str, preview: bool) -> String {
    let Report { summary, totals } = report;
    let (from, into) = ends(summary, place);
    let is_gone = if summary.dropped { "; the fork is gone" } else { "" };
    match (summary.conflicts.len(), summary.differences.is_empty()) {
        _ if summary.is_outdated => {
            format!("{from} or {into} has changed meanwhile: nothing was changed; merge again\n")
        }
        (0, true) => format!("{from} has nothing that {into} does not have{is_gone}\n"),
        (0, false) if preview => format!("{from} would go into {into}: {totals}\n"),
        (0, false) => format!("{from} went into {into}: {totals}{is_gone}\n"),
        (count, _) => format!(
            "{from} and {into} have both changed the same, {count} {}: nothing was changed\n\
             take one side with --ours or --theirs, or put them together with --text or --ranges\n",
            if count == 1 { "conflict" } else { "conflicts" }
        ),
    }
}
