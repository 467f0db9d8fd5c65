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
use crate::names::quoted;
use crate::output::Output;
use crate::private_view::{
    Begun, Caught, Covered, End, Inherited, Leftovers, Refusal, Running, View, begin,
};
use crate::target::Target;
use decision::{Decided, decide};
use report::Report;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
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
    /// Runs the command; the exit status of it all. Signals were caught before the fork was made.
    pub(super) fn conduct(&self, output: &Output, caught: Caught) -> Result<u8, Refusal> {
        let begun = self.run_command(output, caught);
        let (mut running, end) = begun.inspect_err(|_| self.take_fork_back())?;
        let survivors = running.settle(self.leftovers());
        let loss = self.loss(&mut running);
        let changes = changes_of_fork(&self.workspace.view.shown);
        let decided = decide(self, &mut running, end, (&survivors, &changes, loss));
        self.inherited.move_to_ends();
        let status = status_of(end, &decided, changes.as_ref().err());
        Report { session: self, end, survivors: &survivors, changes: &changes, decided: &decided }
            .print(output);
        Ok(status)
    }

    /// Why some of what the command wrote by the path of the view may not be in the fork, if so:
    /// the kernel has taken the view away with what was there, or the command has.
    fn loss(&self, running: &mut Running) -> Option<Error> {
        let view = &self.workspace.view;
        let place = quoted(view.place.as_os_str().as_bytes());
        let is_replaced = Covered::at(&view.place).is_ok_and(|now| now != view.covered);
        let what = match running.has_lost_view() {
            _ if is_replaced => {
                format!("another directory has come to {place} while the command ran")
            }
            Ok(true) => format!("the fork was taken away from {place} while the command ran"),
            Ok(false) => return None,
            Err(error) => return Some(error),
        };
        Some(Error::failed(what).hint(
            "what the command wrote by that path afterwards is there, and not in the fork: look at \
             both before you merge",
        ))
    }

    fn run_command(&self, output: &Output, mut caught: Caught) -> Result<(Running, End), Refusal> {
        let workspace = self.workspace;
        if let Some(signal) = caught.interruption() {
            let error = Error::failed("interrupted before the command was begun");
            return Err(Refusal { error, status: End::Killed(signal).status() });
        }
        keep_open([workspace.view.shown.clone(), workspace.view.place.clone()]);
        let begun = Begun {
            view: &workspace.view,
            inherited: self.inherited,
            words: self.words,
            variables: &[("MARRAM_FORK", &workspace.fork)],
            output_to_error: output.json,
        };
        let mut running = begin(begun, caught)?;
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

/// Asks the daemon now and then for something of what is seen and of what it is seen in the place
/// of, which may be in a fork too, for as long as this process lives: what has been at rest for
/// long the kernel is made to forget, and with it the path of a working directory.
fn keep_open(places: [PathBuf; 2]) {
    let ask = move || loop {
        std::thread::sleep(KEEP_OPEN_TICK);
        for place in &places {
            // The kernel never answers that by itself.
            let _any_answer = rustix::fs::getxattr(place, "user.marram", &mut [0_u8; 0]);
        }
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
