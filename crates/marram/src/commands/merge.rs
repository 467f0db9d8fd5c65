//! `marram merge`: what a fork has changed goes into what it was forked from, all or nothing.

mod interactive;

use super::differences::{Detail, Directories, lines};
use crate::arguments::MergeArguments;
use crate::commands::answers::{unexpected, write_back};
use crate::control::protocol::{Answer, ConflictChoice, MergeRequest, MergeSummary, Operation};
use crate::error::{Error, Result};
use crate::output::Output;
use crate::target::Target;

/// Exit status of a merge that was refused for its conflicts.
pub(super) const CONFLICTS: u8 = 4;
/// Exit status of one that would be refused for want of space, or came too late.
const REFUSED: u8 = 1;

pub(super) fn run(arguments: &MergeArguments, output: &Output) -> Result<u8> {
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
        choice,
        ranges: arguments.ranges,
        text: arguments.text,
        drop: arguments.drop && !arguments.interactive,
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
        (request.preview, request.drop) = (false, arguments.drop);
    }
    let summary = merge(&request)?;
    output.print(&summary, || text(&summary, arguments.preview));
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

fn text(summary: &MergeSummary, preview: bool) -> String {
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
    let fork = &summary.fork;
    text.push_str(&match &summary.obstacle {
        Some(obstacle) => {
            format!("{fork} would be refused: {obstacle}\n")
        }
        None => outcome(summary, preview),
    });
    text
}

fn outcome(summary: &MergeSummary, preview: bool) -> String {
    let MergeSummary { fork, parent, .. } = summary;
    match () {
        () if !summary.conflicts.is_empty() && !summary.is_outdated => format!(
            "{fork} and {parent} have both changed the same: nothing was changed\n\
             take one side with --ours or --theirs, or put them together with --text or --ranges\n"
        ),
        () if summary.is_outdated => {
            format!("{fork} or {parent} has changed meanwhile: nothing was changed; merge again\n")
        }
        () if preview => format!("{fork} would go into {parent}\n"),
        () if summary.dropped => format!("{fork} went into {parent}, and is no more\n"),
        () => format!("{fork} went into {parent}\n"),
    }
}
