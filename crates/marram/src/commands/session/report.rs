//! What is said of a command in a fork: on standard error for people, since standard output is the
//! command's, and as one JSON document for programs.

use super::Session;
use super::decision::{Decided, Decision};
use crate::commands::differences::{Detail, Directories, lines};
use crate::control::protocol::{ConflictRow, DifferenceRow};
use crate::error::{Error, Result};
use crate::names::{quoted, shell_word};
use crate::output::{Output, print_error, say};
use crate::private_view::{End, Survivor};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most lines about differences or conflicts in the text for people.
const LINES_MAX: usize = 20;
/// Most differences in the document for programs; `marram diff` has all.
const ROWS_MAX: usize = 1000;

/// All that is known at the end.
pub(super) struct Report<'a> {
    pub(super) session: &'a Session<'a>,
    pub(super) end: End,
    pub(super) survivors: &'a [Survivor],
    pub(super) changes: &'a Result<Vec<DifferenceRow>>,
    pub(super) decided: &'a Decided,
}

/// The same for programs.
#[derive(Serialize)]
struct Document<'a> {
    fork: &'a str,
    parent: &'a str,
    pool: &'a Path,
    /// Where the command saw it.
    directory: &'a Path,
    /// Where it lies.
    fork_directory: &'a Path,
    command: CommandRow,
    summary: Option<Summary>,
    differences: &'a [DifferenceRow],
    differences_left_out: usize,
    /// Processes that the command has left running.
    processes: &'a [Survivor],
    decision: Decision,
    conflicts: &'a [ConflictRow],
    /// What was wanted and could not be done.
    problem: Option<&'a Error>,
}

#[derive(Serialize)]
struct CommandRow {
    words: Vec<String>,
    /// None if a signal ended it.
    exit_status: Option<u8>,
    signal: Option<i32>,
}

/// Differences, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Summary {
    created: usize,
    removed: usize,
    renamed: usize,
    changed: usize,
}

impl Summary {
    fn of(rows: &[DifferenceRow]) -> Summary {
        let mut summary = Summary::default();
        for row in rows {
            let count = match row.change.as_str() {
                "created" | "linked" => &mut summary.created,
                "removed" | "unlinked" => &mut summary.removed,
                "renamed" => &mut summary.renamed,
                _ => &mut summary.changed,
            };
            *count += 1;
        }
        summary
    }

    fn line(self) -> String {
        let Summary { created, removed, renamed, changed } = self;
        let counts =
            [(created, "new"), (changed, "changed"), (removed, "removed"), (renamed, "moved")];
        let told = counts.iter().filter(|(count, _)| *count > 0);
        let told: Vec<String> = told.map(|(count, what)| format!("{count} {what}")).collect();
        match told.is_empty() {
            true => "nothing was changed".to_owned(),
            false => told.join(", "),
        }
    }
}

/// What differs, as text: its first lines or all, and then how much it is.
pub(super) fn changes_text(changes: &Result<Vec<DifferenceRow>>, all: bool) -> String {
    let rows = match changes {
        Ok(rows) => rows,
        Err(error) => return format!("what was changed is not known: {error}\n"),
    };
    let text = lines(rows, Detail::Lines, Directories::Whole);
    let shown = if all { usize::MAX } else { LINES_MAX };
    let mut told: String = text.lines().take(shown).map(|line| format!("{line}\n")).collect();
    let left = text.lines().count().saturating_sub(shown);
    if left > 0 {
        told.push_str(&format!("and {left} more\n"));
    }
    format!("{told}{}\n", Summary::of(rows).line())
}

impl Report<'_> {
    pub(super) fn print(&self, output: &Output) {
        if output.json {
            output.print(&self.document(), String::new);
            return;
        }
        say(self.told().trim_end());
        if let Some(problem) = &self.decided.problem {
            print_error(output.command, problem);
        }
    }

    fn document(&self) -> Document<'_> {
        let workspace = self.session.workspace;
        let rows = self.changes.as_deref().unwrap_or_default();
        let told = rows.len().min(ROWS_MAX);
        let words = self.session.words.iter().map(|word| word.to_string_lossy().into_owned());
        let (exit_status, signal) = match self.end {
            End::Exited(status) => (Some(status), None),
            End::Killed(signal) => (None, Some(signal)),
        };
        Document {
            fork: &workspace.fork,
            parent: &workspace.parent,
            pool: &workspace.target.pool,
            directory: &workspace.view.place,
            fork_directory: &workspace.view.shown,
            command: CommandRow { words: words.collect(), exit_status, signal },
            summary: self.changes.as_ref().ok().map(|rows| Summary::of(rows)),
            differences: &rows[..told],
            differences_left_out: rows.len() - told,
            processes: self.survivors,
            decision: self.decided.decision,
            conflicts: &self.decided.conflicts,
            problem: self.decided.problem.as_ref().or(self.changes.as_ref().err()),
        }
    }

    fn told(&self) -> String {
        let mut text = changes_text(self.changes, false);
        if self.decided.problem.is_none() {
            for survivor in self.survivors {
                let Survivor { pid, command } = survivor;
                text.push_str(&format!("still running: process {pid}: {command}\n"));
            }
        }
        for row in self.decided.conflicts.iter().take(LINES_MAX) {
            text.push_str(&format!("conflict: {}\n", row.line()));
        }
        let left = self.decided.conflicts.len().saturating_sub(LINES_MAX);
        if left > 0 {
            text.push_str(&format!("and {left} more conflicts\n"));
        }
        text.push_str(&self.outcome());
        text
    }

    fn outcome(&self) -> String {
        let workspace = self.session.workspace;
        let (fork, place) = (&workspace.fork, workspace.view.place.as_os_str().as_bytes());
        let mount = shell_word(&workspace.view.mount);
        match self.decided.decision {
            Decision::Merged => format!(
                "{fork} went into {}; `marram log {mount}` lists it for an undo\n",
                quoted(place)
            ),
            Decision::Dropped if self.is_unchanged() => format!("{fork} was dropped\n"),
            Decision::Dropped => {
                format!("{fork} was dropped; `marram undo {mount}` brings it back for a while\n")
            }
            Decision::Kept => format!("{fork} is kept; go on with\n{}", self.next_steps(&mount)),
        }
    }

    fn is_unchanged(&self) -> bool {
        self.changes.as_ref().is_ok_and(Vec::is_empty)
    }

    fn next_steps(&self, mount: &str) -> String {
        let fork = &self.session.workspace.fork;
        let shown = shell_word(&self.session.workspace.view.shown);
        let choice = if self.decided.conflicts.is_empty() { "--drop" } else { "--interactive" };
        format!(
            "  marram diff {shown}\n  marram enter {fork}\n  marram merge {mount} --fork {fork} \
             {choice}\n  marram destroy fork {mount} {fork} --yes\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn a_summary_counts_what_there_is() {
        assert_eq!(Summary::default().line(), "nothing was changed");
        let summary = Summary { created: 2, changed: 1, ..Summary::default() };
        assert_eq!(summary.line(), "2 new, 1 changed");
    }
}
