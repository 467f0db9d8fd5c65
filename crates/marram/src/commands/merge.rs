//! `marram merge`: what a fork has changed goes into what it was forked from, all or nothing; and
//! `marram update`: what that has changed goes into the fork.

mod decisions;
mod elsewhere;
mod git;
mod interactive;
mod tool;

use super::differences::{Detail, Directories, Totals, lines};
use crate::arguments::{BranchArguments, MergeArguments, UpdateArguments};
use crate::commands::answers::{unexpected, write_back};
use crate::commands::selection;
use crate::control::protocol::{
    Answer, ConflictChoice, ConflictRow, MergeRequest, MergeSummary, Operation,
};
use crate::error::{Error, Result};
use crate::names::{PathText, bytes};
use crate::output::{Output, say};
use crate::paths::resolved;
use crate::target::Target;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Exit status of a merge that was refused for its conflicts, or has left marks in the fork.
pub(super) const CONFLICTS: u8 = 4;
/// Exit status of one that would be refused for want of space, or came too late.
const REFUSED: u8 = 1;

/// What merges a request, or previews it.
type Merge<'a> = dyn Fn(&MergeRequest) -> Result<Box<MergeSummary>> + 'a;

/// What is printed of a merge.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    summary: &'a MergeSummary,
    /// How much went, or would go, from one side into the other.
    totals: Totals,
    /// Checkouts of git in whose own files there are conflicts.
    checkouts: Vec<git::Checkout>,
}

pub(super) fn run(arguments: &MergeArguments, output: &Output) -> Result<u8> {
    let into = arguments.into.as_deref();
    bring_across(&arguments.branch, (false, arguments.drop), into, output)
}

/// Brings what the parent has changed into the fork.
pub(super) fn update(arguments: &UpdateArguments, output: &Output) -> Result<u8> {
    bring_across(&arguments.branch, (true, false), None, output)
}

fn bring_across(
    arguments: &BranchArguments,
    (update, drop): (bool, bool),
    into: Option<&Path>,
    output: &Output,
) -> Result<u8> {
    let target = Target::find(&arguments.target)?;
    let fork = fork_of(arguments, &target)?;
    write_back(&target, &arguments.target)?;
    let mut request = MergeRequest {
        into: into.map(|directory| elsewhere::place(&target, directory)).transpose()?,
        preview: arguments.preview || arguments.interactive,
        update,
        ranges: arguments.ranges,
        text: arguments.text,
        drop: drop && !arguments.interactive,
        marks: arguments.interactive,
        ..MergeRequest::of(fork)
    };
    let merge = |request: &MergeRequest| match target.perform(&Operation::Merge(request.clone()))? {
        Answer::Merged(summary) => Ok(summary),
        other => Err(unexpected(&other)),
    };
    decide(arguments, (&target, into), &mut request, &merge)?;
    if let Some(command) = &arguments.tool {
        tool::decide(&mut request, command, &merge, output.json)?;
    }
    if arguments.interactive {
        let (mut input, mut prompt) = (std::io::stdin().lock(), std::io::stderr());
        interactive::decide(&mut request, &merge, &mut input, &mut prompt)?;
        (request.preview, request.drop) = (false, drop);
    }
    decisions::refuse_too_long(&request)?;
    let mut summary = merge(&request)?;
    if arguments.markers && !summary.conflicts.is_empty() {
        summary = merge(&with_marks(request))?;
    }
    for pattern in &summary.unmatched {
        say(&format!("marram: warning: --exclude {pattern:?} matches nothing that has changed"));
    }
    let report = Report {
        summary: &summary,
        totals: Totals::of(&summary.differences),
        checkouts: checkouts(&target, &summary),
    };
    output.print(&report, || text(&report, &place(&target, &summary), arguments));
    Ok(match () {
        () if summary.is_outdated => REFUSED,
        () if !summary.conflicts.is_empty() || marked(&summary) > 0 && arguments.markers => {
            CONFLICTS
        }
        () if summary.obstacle.is_some() => REFUSED,
        () => 0,
    })
}

/// The fork that is meant.
fn fork_of(arguments: &BranchArguments, target: &Target) -> Result<String> {
    match (&arguments.fork, &target.mounted) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(mounted)) if mounted.snapshot.is_some() => {
            let path = arguments.target.display();
            Err(Error::usage(format!("{path} is in the snapshot {mounted}"))
                .hint("a fork is merged as it is now: name a path in it, or --fork NAME"))
        }
        (None, Some(mounted)) => Ok(mounted.dataset.to_string()),
        (None, None) => Err(Error::usage(format!("{} is a pool", arguments.target.display()))
            .hint("say which fork: --fork NAME")),
    }
}

/// Adds to a request what the command line and a file decide.
fn decide(
    arguments: &BranchArguments,
    (target, into): (&Target, Option<&Path>),
    request: &mut MergeRequest,
    merge: &Merge<'_>,
) -> Result<()> {
    let (ours, theirs) = (arguments.ours.as_slice(), arguments.theirs.as_slice());
    let named = [ours, theirs, &arguments.selection.paths];
    let roots = match named.iter().all(|paths| paths.is_empty()) {
        true => Vec::new(),
        false => roots(target, &request.fork, into)?,
    };
    request.selection = selection::order(&arguments.selection, &roots)?;
    if let Some(file) = &arguments.decisions {
        decisions::add_file(request, file)?;
    }
    decisions::add_paths(request, (ours, theirs), &roots)?;
    decisions::refuse_unmatched(request, merge)
}

/// The directories that stand for the root of a fork: its own, the one that it is a fork of, and
/// the one that it is merged into.
fn roots(target: &Target, fork: &str, into: Option<&Path>) -> Result<Vec<PathBuf>> {
    let found = match target.perform(&Operation::ForkPlace { fork: fork.to_owned() })? {
        Answer::ForkPlace(found) => found,
        other => return Err(unexpected(&other)),
    };
    let path = found.path.as_deref().map(|path| bytes(path, found.path_bytes.as_ref()));
    let parent = path.and_then(|path| target.shown_at(&found.parent, &path));
    let into = into.map(resolved).transpose()?;
    Ok(target.shown_at(fork, b"/").into_iter().chain(parent).chain(into).collect())
}

/// The checkouts of git in which both have used git.
fn checkouts(target: &Target, summary: &MergeSummary) -> Vec<git::Checkout> {
    let directory = summary.directory.as_ref().map(PathText::bytes);
    let places = git::Places {
        target,
        fork: (&summary.fork, target.shown_at(&summary.fork, b"/")),
        parent: directory.and_then(|path| target.shown_at(&summary.parent, &path)),
        is_update: summary.update,
    };
    git::checkouts(&summary.conflicts, &places)
}

/// What leaves marks in the fork, of a merge or update that has met conflicts: the parent's changes
/// go into the fork.
fn with_marks(request: MergeRequest) -> MergeRequest {
    let mut paths = request.paths;
    if !request.update {
        for decided in &mut paths {
            decided.choice = decided.choice.of_the_other_way();
        }
    }
    let (update, drop, text, choice) = (true, false, true, ConflictChoice::Marked);
    MergeRequest { update, drop, text, choice, paths, ..request }
}

/// Brings all that a fork has changed into its parent and drops the fork, or changes nothing.
///
/// # Errors
/// Whatever refuses it or fails; the summary lists conflicts.
pub(super) fn merge_and_drop(target: &Target, fork: &str) -> Result<Box<MergeSummary>> {
    let request = MergeRequest { drop: true, ..MergeRequest::of(fork.to_owned()) };
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

fn text(report: &Report<'_>, place: &str, arguments: &BranchArguments) -> String {
    let summary = report.summary;
    let mut text = lines(&summary.differences, Detail::Lines, Directories::Whole);
    if summary.differences_left_out > 0 {
        text.push_str(&format!("and {} more differences\n", summary.differences_left_out));
    }
    for row in &summary.decided {
        let what = if is_marked(row) { "marked" } else { "decided" };
        text.push_str(&format!("{what}: {}\n", row.line()));
    }
    for row in summary.conflicts.iter().filter(|row| !git::is_gits(row)) {
        text.push_str(&format!("conflict: {}\n", row.line()));
    }
    text.extend(report.checkouts.iter().map(git::text));
    let (from, _) = ends(summary, place);
    text.push_str(&match &summary.obstacle {
        Some(obstacle) => {
            format!("{from} would be refused: {obstacle}\n")
        }
        None => outcome(report, place, arguments),
    });
    text
}

fn is_marked(row: &ConflictRow) -> bool {
    row.choice == Some(ConflictChoice::Marked)
}

/// How many files have got marks.
fn marked(summary: &MergeSummary) -> usize {
    summary.decided.iter().filter(|row| is_marked(row)).count()
}

/// What the changes are of, and what they go into.
fn ends<'s>(summary: &'s MergeSummary, place: &'s str) -> (&'s str, &'s str) {
    if summary.update { (place, &summary.fork) } else { (&summary.fork, place) }
}

fn outcome(report: &Report<'_>, place: &str, arguments: &BranchArguments) -> String {
    let Report { summary, totals, .. } = report;
    let (from, into) = ends(summary, place);
    let rest = match summary.not_selected {
        0 => String::new(),
        count => format!("; {count} other changes stay in {from}"),
    };
    let rest = if summary.dropped { "; the fork is gone" } else { &rest };
    match (summary.conflicts.len(), summary.differences.is_empty()) {
        _ if summary.is_outdated => {
            format!("{from} or {into} has changed meanwhile: nothing was changed; merge again\n")
        }
        (0, true) => format!("{from} has nothing that {into} does not have{rest}\n"),
        (0, false) if arguments.preview => format!("{from} would go into {into}: {totals}{rest}\n"),
        (0, false) => {
            format!("{from} went into {into}: {totals}{rest}\n{}", to_edit(summary, place))
        }
        (count, _) => format!(
            "{from} and {into} have both changed the same, {count} {}: nothing was changed\n{}\n",
            if count == 1 { "conflict" } else { "conflicts" },
            ways(summary, arguments)
        ),
    }
}

/// What to do with the marks that an update has left in the fork.
fn to_edit(summary: &MergeSummary, place: &str) -> String {
    let files = match marked(summary) {
        0 => return String::new(),
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let fork = &summary.fork;
    match summary.update {
        true => format!("marks are in {files} of {fork}: edit them there, then merge it\n"),
        false => format!("marks are in {files} of {place}: edit them there\n"),
    }
}

/// What there is left to do about conflicts: only contents can be put together, and not by what has
/// been tried.
fn ways(summary: &MergeSummary, arguments: &BranchArguments) -> &'static str {
    let is_content = summary.conflicts.iter().any(|conflict| conflict.kind == "content");
    match (is_content, arguments.text, arguments.ranges) {
        (true, false, false) => {
            "take one side with --ours or --theirs, everywhere or at a PATH, or put them together \
             with --text,\n--ranges, --interactive, --markers or --tool"
        }
        (true, false, true) => {
            "the same ranges were changed: take one side with --ours or --theirs, everywhere or at \
             a PATH, or put\nthe lines of texts together with --text, --markers or --tool"
        }
        (true, true, _) => {
            "the same lines were changed, or it is no text: take one side with --ours or --theirs, \
             everywhere or\nat a PATH, or decide about each with --interactive, --markers or --tool"
        }
        (false, ..) => {
            "take one side with --ours or --theirs, everywhere or at a PATH, or decide about each \
             with --interactive"
        }
    }
}
