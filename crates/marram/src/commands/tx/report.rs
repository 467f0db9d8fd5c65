//! What is said of a command that was run as a transaction: on standard error for people, since
//! standard output is the command's, and as one JSON document for programs.

use crate::control::protocol::ConflictRow;
use crate::error::Error;
use crate::names::shell_word;
use crate::output::{Output, print_error, say};
use crate::private_view::{End, Refusal, Survivor};
use serde::Serialize;
use std::path::Path;

/// Exit status of a commit that was refused.
const REFUSED: u8 = 123;
/// Exit status of one of which it is not known whether it was done.
pub(super) const UNKNOWN: u8 = 122;
/// Most lines about conflicts in the text for people.
const LINES_MAX: usize = 20;

/// How a transaction ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// All of it is there.
    Committed,
    /// The command did not succeed, and nothing is there.
    Failed(End),
    /// Others have changed what it has read or written, and nothing is there.
    Refused(Vec<ConflictRow>),
    /// The command has left processes running, and nothing is there.
    Left(Vec<Survivor>),
    /// The daemon has gone while it committed, or does not know what has come of it.
    Unknown(Error),
}

/// An outcome, for people and programs.
pub(super) struct Report<'a> {
    pub(super) id: &'a str,
    pub(super) outcome: &'a Outcome,
    /// How often the command was run.
    pub(super) attempts: u32,
    /// A mount of the dataset.
    pub(super) mount: &'a Path,
}

#[derive(Serialize)]
struct Document<'a> {
    id: &'a str,
    /// `committed`, `failed`, `refused`, `processes` or `unknown`.
    outcome: &'a str,
    attempts: u32,
    exit_status: Option<u8>,
    signal: Option<i32>,
    conflicts: &'a [ConflictRow],
    processes: &'a [Survivor],
    problem: Option<&'a Error>,
}

impl Outcome {
    /// The exit status that tells it.
    pub(super) fn status(&self) -> u8 {
        match self {
            Outcome::Committed => 0,
            Outcome::Failed(end) => end.status(),
            Outcome::Refused(_) => REFUSED,
            Outcome::Left(_) => Refusal::OURS,
            Outcome::Unknown(_) => UNKNOWN,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Outcome::Committed => "committed",
            Outcome::Failed(_) => "failed",
            Outcome::Refused(_) => "refused",
            Outcome::Left(_) => "processes",
            Outcome::Unknown(_) => "unknown",
        }
    }
}

impl Report<'_> {
    pub(super) fn print(&self, output: &Output) {
        if output.json {
            return output.print(&self.document(), String::new);
        }
        let (id, mount) = (self.id, shell_word(self.mount));
        match self.outcome {
            Outcome::Committed | Outcome::Failed(_) => (),
            Outcome::Refused(conflicts) => print_error(output.command, &self.refusal(conflicts)),
            Outcome::Left(survivors) => print_error(output.command, &left(survivors)),
            Outcome::Unknown(error) => {
                print_error(output.command, error);
                say(&format!("  whether it was committed tells `marram tx show {mount} {id}`"));
            }
        }
    }

    fn refusal(&self, conflicts: &[ConflictRow]) -> Error {
        let lines = conflicts.iter().take(LINES_MAX).map(ConflictRow::line);
        let more = conflicts.len().saturating_sub(LINES_MAX);
        let more = (more > 0).then(|| format!("and {more} more"));
        let times = match self.attempts {
            1 => String::new(),
            times => format!(", for the {times}th time"),
        };
        Error::failed(format!(
            "the commit was refused{times}: others have changed what it has read or written"
        ))
        .details(lines.chain(more))
        .hint("nothing was changed; run it again, or let --retry N do that")
    }

    fn document(&self) -> Document<'_> {
        let (exit_status, signal) = match self.outcome {
            Outcome::Failed(End::Exited(status)) => (Some(*status), None),
            Outcome::Failed(End::Killed(signal)) => (None, Some(*signal)),
            _ => (Some(0), None),
        };
        let (mut conflicts, mut processes, mut problem) = (&[][..], &[][..], None);
        match self.outcome {
            Outcome::Committed | Outcome::Failed(_) => (),
            Outcome::Refused(found) => conflicts = found,
            Outcome::Left(found) => processes = found,
            Outcome::Unknown(error) => problem = Some(error),
        }
        let (id, outcome, attempts) = (self.id, self.outcome.name(), self.attempts);
        Document { id, outcome, attempts, exit_status, signal, conflicts, processes, problem }
    }
}

fn left(survivors: &[Survivor]) -> Error {
    let told = survivors.iter().map(|it| format!("process {}: {}", it.pid, it.command));
    Error::in_use("the command has left processes running, which go on in the transaction")
        .details(told)
        .hint("nothing was changed; --wait waits for them before the commit, --kill ends them")
}
