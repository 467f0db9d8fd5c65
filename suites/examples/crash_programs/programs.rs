//! The real programs: what each does on the mount, and how it tells what a crash has left of it.

mod database;
mod mail;
mod repository;

use crate::pool::{Result, words};
use crate::served::Served;
use crate::tree::Tree;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A program that goes on in steps, one after another.
pub(crate) trait Program: Sync {
    /// Its name, as states are called by it.
    fn name(&self) -> &'static str;

    /// Does its steps on the mount, and tells the stage of each.
    fn perform(&self, stage: &Stage<'_>) -> Result<()>;

    /// Lets the program look at a tree that a crash left, in `folder` if it needs a copy, which it
    /// makes. Returns how many steps are in it, wholly.
    ///
    /// An error is something that no crash may leave.
    fn inspect(&self, tree: &Tree, folder: &Path, seed: u64) -> Result<u64>;
}

/// All of them.
pub(crate) fn programs() -> Vec<Box<dyn Program>> {
    vec![
        Box::new(database::Inserts { mode: "delete" }),
        Box::new(database::Inserts { mode: "wal" }),
        Box::new(repository::Commits { fsync: true }),
        Box::new(repository::Commits { fsync: false }),
        Box::new(mail::Moves),
    ]
}

/// The program of this name.
pub(crate) fn program(name: &str) -> Result<Box<dyn Program>> {
    let all = programs();
    let names: Vec<&str> = all.iter().map(|program| program.name()).collect();
    let unknown = format!("no program is named {name}: there are {}", names.join(", "));
    all.into_iter().find(|program| program.name() == name).ok_or(unknown)
}

/// Where a program runs.
pub(crate) struct Stage<'s> {
    served: &'s Served,
    /// The root of the mount.
    pub(crate) folder: PathBuf,
    /// A folder elsewhere, for what the program reads.
    pub(crate) outside: &'s Path,
    /// Decides sizes and contents.
    pub(crate) seed: u64,
    ended: Cell<u64>,
}

impl<'s> Stage<'s> {
    /// The mount, before the first step.
    pub(crate) fn new(served: &'s Served, outside: &'s Path, seed: u64) -> Stage<'s> {
        Stage { folder: served.path().to_owned(), served, outside, seed, ended: Cell::new(0) }
    }

    /// A step has ended, and the next one has not begun.
    pub(crate) fn end_step(&self) {
        self.ended.set(self.ended.get() + 1);
        self.served.mark(ended_mark(self.ended.get()));
    }

    /// All steps that have ended were acknowledged as durable, and the next one has not begun.
    pub(crate) fn promise(&self) {
        self.served.mark(promised_mark(self.ended.get()));
    }
}

fn ended_mark(steps: u64) -> u64 {
    2 * steps
}

fn promised_mark(steps: u64) -> u64 {
    2 * steps + 1
}

/// How many steps may be there after a crash: at least, and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Acknowledged as durable.
    pub(crate) least: u64,
    /// Ended, and the one that had begun.
    pub(crate) most: u64,
}

impl Window {
    /// Before anything was done.
    pub(crate) const START: Window = Window { least: 0, most: 1 };

    /// The window behind a mark.
    pub(crate) fn after(self, mark: u64) -> Window {
        let steps = mark / 2;
        if mark == promised_mark(steps) {
            return Window { least: steps, ..self };
        }
        Window { most: steps + 1, ..self }
    }

    /// Whether so many steps may be there.
    pub(crate) fn judge(self, steps: u64) -> Result<()> {
        let Window { least, most } = self;
        if steps < least {
            return Err(format!("{least} steps were acknowledged as durable, {steps} are there"));
        }
        if steps > most {
            return Err(format!("{most} steps had begun at most, {steps} are there"));
        }
        Ok(())
    }
}

/// Runs to the end, whatever that is.
fn outcome(command: &mut Command) -> Result<Output> {
    let command = command.stdin(Stdio::null());
    command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))
}

/// Runs to a good end; returns what it printed.
fn run(command: &mut Command) -> Result<String> {
    let output = outcome(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    Err(format!("{command:?} ended with {}: {}", output.status, said(&output)))
}

/// What a program printed anywhere.
fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// `fsync` of a file or folder on the mount.
fn sync(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path).map_err(words)?;
    file.sync_all().map_err(|error| format!("fsync of {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{Window, ended_mark, promised_mark};

    #[test]
    fn what_was_promised_must_be_there_and_what_had_not_begun_must_not() {
        let window = [ended_mark(1), ended_mark(2), promised_mark(2), ended_mark(3)]
            .into_iter()
            .fold(Window::START, Window::after);
        assert_eq!(window, Window { least: 2, most: 4 });
        let allowed: Vec<u64> = (0..9).filter(|steps| window.judge(*steps).is_ok()).collect();
        assert_eq!(allowed, [2, 3, 4]);
    }
}
