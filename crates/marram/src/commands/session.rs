//! A command in a fork: begun, waited for, looked at, and then what becomes of the fork.
//!
//! The invariant: a fork ends only because somebody wants it to. Whatever fails on the way leaves
//! it as it is, and says where.

mod decision;
mod report;

use super::diff::changes_of_fork;
use crate::arguments::SessionArguments;
use crate::control::protocol::Operation;
use crate::error::Error;
use crate::output::Output;
use crate::private_view::{
    Begun, Covered, End, Inherited, Leftovers, Refusal, Running, View, begin,
};
use crate::target::Target;
use decision::{Decided, decide};
use report::Report;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How often the daemon is asked for a fork that is in use.
const KEEP_OPEN_TICK: Duration = Duration::from_secs(60);

/// A fork that is seen in the place of what it is a fork of.
pub(super) struct Workspace {
    pub(super) target: Target,
    /// The fork.
    pub(super) fork: String,
    /// The dataset or fork that it is one of.
    pub(super) parent: String,
    /// Where it lies, and where it is seen.
    pub(super) view: View,
}

/// One command in a fork.
pub(super) struct Session<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) inherited: &'a Inherited,
    /// The command.
    pub(super) words: &'a [OsString],
    /// What the user wants to become of the fork.
    pub(super) wishes: SessionArguments,
    /// The fork was made for this command.
    pub(super) is_new: bool,
    /// The user gave the fork its name.
    pub(super) is_named: bool,
}

/// The exit status of a session; says why it could not be.
pub(super) fn exit_status(outcome: Result<u8, Refusal>, output: &Output) -> u8 {
    outcome.unwrap_or_else(|refusal| {
        output.print_error(&refusal.error);
        refusal.status
    })
}

impl Session<'_> {
    /// Runs the command; the exit status of it all.
    pub(super) fn conduct(&self, output: &Output) -> Result<u8, Refusal> {
        let (mut running, end) = self.run_command(output).inspect_err(|_| self.take_fork_back())?;
        let survivors = running.settle(self.leftovers());
        let changes = changes_of_fork(&self.workspace.view.shown);
        let decided = decide(self, &mut running, end, &survivors, &changes);
        self.inherited.move_to_ends();
        let status = status_of(end, &decided, changes.as_ref().err());
        Report { session: self, end, survivors: &survivors, changes: &changes, decided: &decided }
            .print(output);
        Ok(status)
    }

    /// Whether another directory has come to the place of the view meanwhile. The kernel has taken
    /// the view away with what was there, and what the command wrote by that path from then on is
    /// not in the fork.
    fn is_replaced(&self) -> bool {
        let view = &self.workspace.view;
        Covered::at(&view.place).is_ok_and(|now| now != view.covered)
    }

    fn run_command(&self, output: &Output) -> Result<(Running, End), Refusal> {
        let workspace = self.workspace;
        keep_open(workspace.view.shown.clone());
        let mut running = begin(Begun {
            view: &workspace.view,
            inherited: self.inherited,
            words: self.words,
            variables: &[("MARRAM_FORK", &workspace.fork)],
            output_to_error: output.json,
        })?;
        let end = running.wait()?;
        Ok((running, end))
    }

    fn leftovers(&self) -> Leftovers {
        match (self.wishes.wait, self.wishes.kill) {
            (true, _) => Leftovers::Wait,
            (_, true) => Leftovers::Kill,
            _ => Leftovers::Tell,
        }
    }

    /// Takes a fork away that was made for a command which was not begun.
    fn take_fork_back(&self) {
        if self.is_new {
            let source = self.workspace.fork.clone();
            let destroy = Operation::Destroy { sources: vec![source], dry_run: false };
            let _stays_unchanged_at_worst = self.workspace.target.perform(&destroy);
        }
    }
}

/// Asks the daemon for something of the fork now and then, for as long as this process lives: what
/// has been at rest for long the kernel is made to forget, and with it the path of a working
/// directory.
fn keep_open(shown: PathBuf) {
    let ask = move || loop {
        std::thread::sleep(KEEP_OPEN_TICK);
        // The kernel never answers that by itself.
        let _any_answer = rustix::fs::getxattr(&shown, "user.marram", &mut [0_u8; 0]);
    };
    // Without it all goes on as long as the command does something in the fork.
    let _at_rest = std::thread::Builder::new().name("keep open".to_owned()).spawn(ask);
}

/// A command that failed says so; after one that did not, our part counts.
fn status_of(end: End, decided: &Decided, unknown: Option<&Error>) -> u8 {
    match end.status() {
        0 if decided.problem.is_some() || unknown.is_some() => Refusal::OURS,
        0 if !decided.conflicts.is_empty() => super::merge::CONFLICTS,
        status => status,
    }
}
