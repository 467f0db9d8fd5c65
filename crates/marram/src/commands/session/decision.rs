//! What becomes of a fork when the command in it has ended.

use super::Session;
use super::report::changes_text;
use crate::commands::answers::write_back;
use crate::commands::merge::merge_and_drop;
use crate::control::protocol::{ConflictRow, DifferenceRow, Operation};
use crate::error::{Error, Result};
use crate::output::say;
use crate::private_view::{End, Running, Survivor, is_in_foreground};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::isatty;
use serde::Serialize;
use std::io::{BufRead, Write};

/// How long to wait for an answer before looking for signals again.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What has become of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decision {
    /// It is there.
    Kept,
    /// What it changed is in the parent, and it is no more.
    Merged,
    /// It is no more.
    Dropped,
}

/// A decision, and what stood in the way of another.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// Why it was kept though it was to be merged.
    pub(super) conflicts: Vec<ConflictRow>,
    /// Why it was kept though it was to go.
    pub(super) problem: Option<Error>,
}

impl From<Decision> for Decided {
    fn from(decision: Decision) -> Decided {
        Decided { decision, conflicts: Vec::new(), problem: None }
    }
}

impl From<Error> for Decided {
    fn from(error: Error) -> Decided {
        Decided { problem: Some(error), ..Decided::from(Decision::Kept) }
    }
}

/// What a fork was wanted to become.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Merge,
    Drop,
    Keep,
    Ask,
}

/// What is found when a command has ended: what it has left running, what it has changed, and
/// whether some of that may be elsewhere.
pub(super) type Found<'f> = (&'f [Survivor], &'f Result<Vec<DifferenceRow>>, Option<Error>);

/// Decides, and does it.
pub(super) fn decide(
    session: &Session<'_>,
    running: &mut Running,
    end: End,
    (survivors, changes, loss): Found<'_>,
) -> Decided {
    let wish = match wish_of(session) {
        Wish::Merge if end.status() != 0 => Wish::Keep,
        Wish::Ask if loss.is_some() => Wish::Keep,
        Wish::Ask if is_empty(session, survivors, changes) => Wish::Drop,
        Wish::Ask => ask(session, running, changes),
        wish => wish,
    };
    match (wish, loss) {
        (Wish::Drop, loss) => match drop(session) {
            Ok(decision) => Decided { problem: loss, ..decision.into() },
            Err(error) => error.into(),
        },
        (_, Some(loss)) => loss.into(),
        (wish, None) => merge_or_keep(session, wish, survivors),
    }
}

fn merge_or_keep(session: &Session<'_>, wish: Wish, survivors: &[Survivor]) -> Decided {
    match wish {
        Wish::Merge if !survivors.is_empty() => still_running(survivors).into(),
        Wish::Merge => merge(session),
        Wish::Drop | Wish::Keep | Wish::Ask => Decision::Kept.into(),
    }
}

fn wish_of(session: &Session<'_>) -> Wish {
    let wishes = session.wishes;
    let is_at_terminal = || isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stderr());
    match () {
        () if wishes.merge => Wish::Merge,
        () if wishes.drop => Wish::Drop,
        () if wishes.keep => Wish::Keep,
        () if wishes.ask || (is_at_terminal() && is_in_foreground()) => Wish::Ask,
        () => Wish::Keep,
    }
}

/// Whether a fork is as it was made, and was made for this command without a word about it.
fn is_empty(
    session: &Session<'_>,
    survivors: &[Survivor],
    changes: &Result<Vec<DifferenceRow>>,
) -> bool {
    let is_unchanged = changes.as_ref().is_ok_and(Vec::is_empty);
    session.is_new && !session.is_named && is_unchanged && survivors.is_empty()
}

fn still_running(survivors: &[Survivor]) -> Error {
    let told = survivors.iter().map(|it| format!("process {}: {}", it.pid, it.command));
    Error::in_use("the command has left processes running, which go on writing to the fork")
        .details(told)
        .hint("merge it when they have ended; --wait waits for them, --kill ends them")
}

fn merge(session: &Session<'_>) -> Decided {
    let workspace = session.workspace;
    let merged = write_back(&workspace.target, &workspace.view.shown)
        .and_then(|()| merge_and_drop(&workspace.target, &workspace.fork));
    match merged {
        Ok(summary) if summary.applied => Decision::Merged.into(),
        Ok(summary) => match summary.conflicts.is_empty() {
            true => Error::failed(
                summary
                    .obstacle
                    .unwrap_or_else(|| format!("{} has changed meanwhile", workspace.parent)),
            )
            .hint("merge it again")
            .into(),
            false => Decided { conflicts: summary.conflicts, ..Decision::Kept.into() },
        },
        Err(error) => error.into(),
    }
}

fn drop(session: &Session<'_>) -> Result<Decision> {
    let sources = vec![session.workspace.fork.clone()];
    session.workspace.target.perform(&Operation::Hide { sources })?;
    Ok(Decision::Dropped)
}

/// Asks at the terminal. No answer keeps the fork.
fn ask(session: &Session<'_>, running: &mut Running, changes: &Result<Vec<DifferenceRow>>) -> Wish {
    say(changes_text(changes, false).trim_end());
    // What interrupted the command is no answer.
    let _of_the_command = running.is_interrupted();
    let fork = &session.workspace.fork;
    loop {
        let question = format!("{fork}: [m]erge, [k]eep, [d]rop, [s]how all changes? ");
        let mut prompt = std::io::stderr();
        let _unheard = prompt.write_all(question.as_bytes()).and_then(|()| prompt.flush());
        match answer(running).as_deref() {
            Some("m" | "merge") => return Wish::Merge,
            Some("d" | "drop") => return Wish::Drop,
            Some("k" | "keep" | "") => return Wish::Keep,
            Some("s" | "show") => say(changes_text(changes, true).trim_end()),
            Some(_) => (),
            None => {
                say("");
                return Wish::Keep;
            }
        }
    }
}

/// A line of standard input; none at its end, and none if a signal comes first.
fn answer(running: &mut Running) -> Option<String> {
    let mut input = std::io::stdin().lock();
    loop {
        let stdin = rustix::stdio::stdin();
        let ready = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&TICK));
        match ready {
            _ if running.is_interrupted() => return None,
            Ok(0) | Err(rustix::io::Errno::INTR) => (),
            Ok(_) => break,
            Err(_) => return None,
        }
    }
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim().to_owned()),
    }
}
