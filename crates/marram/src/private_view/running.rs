//! A command that runs in a view, as the process sees it that has begun it: signals are handed on,
//! and what the command leaves running is found.
//!
//! Ctrl-C at a terminal reaches the command from the terminal itself, and this process too, which
//! goes on: what becomes of the fork is decided in any case.

use super::sight::{Meeting, Sight};
use super::signals::Caught;
use super::survivors::{Below, Survivor, living};
use super::{Begun, Refusal};
use crate::error::{Error, Result};
use crate::process::own_pid;
use rustix::fs::{MemfdFlags, Mode, OFlags, openat, syncfs};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpgrp, kill_process, wait};
use rustix::termios::tcgetpgrp;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long what the command has left running may take to end before a report names it.
const GRACE: Duration = Duration::from_secs(2);
/// How long it may take to heed a request to end.
const KILL_GRACE: Duration = Duration::from_secs(5);
/// How often to look at least: signals, and what has been begun meanwhile.
const TICK: Duration = Duration::from_millis(100);
/// How often to look at most: what ends in great numbers is not looked at one by one.
const PAUSE: Duration = Duration::from_millis(10);

/// A command that has been begun, or could not be.
pub(crate) struct Running {
    pid: Pid,
    /// What kept the process from becoming the command; empty if nothing did.
    report: File,
    caught: Caught,
    /// The view as the command's mounts show it, if it was made and can be seen.
    sight: Option<Sight>,
    /// The directories of views that were brought, also when the mounts of the command are gone.
    directories: Vec<OwnedFd>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, with this exit status.
    Exited(u8),
    /// By this signal.
    Killed(i32),
}

impl End {
    /// The exit status that stands for it, as shells have it.
    pub(crate) fn status(self) -> u8 {
        match self {
            End::Exited(status) => status,
            End::Killed(signal) => u8::try_from(signal).map_or(u8::MAX, |it| it | 0x80),
        }
    }
}

/// What is done about processes that outlive the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftovers {
    /// A report names them, if they do not end at once.
    Tell,
    /// They are waited for.
    Wait,
    /// They are ended.
    Kill,
}

impl Running {
    pub(super) fn start(begun: Begun<'_>, mut caught: Caught) -> Result<Running> {
        let failed = |error: std::io::Error| Error::failed(format!("cannot begin: {error}"));
        let report = rustix::fs::memfd_create("marram-view", MemfdFlags::CLOEXEC);
        let report = File::from(report.map_err(|error| failed(error.into()))?);
        let meeting = Meeting::new().map_err(failed)?;
        // Without it, what loses its parent is not found any more; all else goes on.
        let _adopts = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = command(&begun, program, &report, &meeting);
        let child = command.spawn().map_err(failed)?;
        let pid = Pid::from_child(&child);
        let heed = || hand_on(pid, caught.pending());
        let is_brought = begun.view.brought.is_some();
        let seen = meeting.wait(pid, (&begun.view.first_places(), is_brought), heed);
        let (sight, directories) = seen.map_or((None, Vec::new()), |(sight, at)| (Some(sight), at));
        Ok(Running { pid, report, caught, sight, directories })
    }

    /// Returns when the command has ended.
    ///
    /// # Errors
    /// It was not begun, or is lost.
    pub(crate) fn wait(&mut self) -> std::result::Result<End, Refusal> {
        let end = loop {
            if let Some(status) = self.reap()? {
                break status;
            }
            hand_on(self.pid, self.caught.wait());
        };
        let mut text = Vec::new();
        let read = self.report.rewind().and_then(|()| self.report.read_to_end(&mut text));
        match read {
            Ok(0) => Ok(end_of(end)),
            _ => Err(serde_json::from_slice(&text).unwrap_or_else(|_| {
                Refusal::from(Error::failed("the command's process does not say why it failed"))
            })),
        }
    }

    /// Takes note of children that have ended; what the command ended with, if it has.
    fn reap(&self) -> Result<Option<WaitStatus>> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => return Ok(Some(status)),
                Ok(Some(_)) | Err(Errno::INTR) => (),
                Ok(None) => return Ok(None),
                Err(error) => {
                    return Err(Error::failed(format!("cannot wait for the command: {error}")));
                }
            }
        }
    }

    /// Waits for what the command has left running, or ends it; what still runs then. A signal
    /// means that there is no more waiting.
    pub(crate) fn settle(&mut self, how: Leftovers) -> Vec<Survivor> {
        let began = Instant::now();
        let (mut asked, mut at_once) = (BTreeSet::new(), false);
        while has_children() {
            let (waited, is_interrupted) = (began.elapsed(), self.is_interrupted());
            let is_over = match how {
                Leftovers::Tell => is_interrupted || waited > GRACE,
                Leftovers::Wait => is_interrupted,
                Leftovers::Kill => waited > KILL_GRACE * 2,
            };
            if is_over {
                return named(living());
            }
            let below = Below::now();
            if how == Leftovers::Kill {
                at_once |= is_interrupted || waited > KILL_GRACE;
                end(&below, &mut asked, at_once);
            }
            std::thread::sleep(PAUSE);
            below.wait_for_one(TICK);
        }
        Vec::new()
    }

    /// Whether a signal has come that means the end.
    pub(crate) fn is_interrupted(&mut self) -> bool {
        self.caught.interruption().is_some()
    }

    /// Has the kernel hand over what was written through mappings in views that were brought.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn write_back(&self) -> Result<()> {
        let failed = |error: Errno| {
            Error::failed(format!("what was written by mapped files cannot be had: {error}"))
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if self.directories.is_empty() {
            return Err(Error::failed("the view of the command is not seen from here"));
        }
        for directory in &self.directories {
            let opened = openat(directory, ".", flags, Mode::empty()).map_err(failed)?;
            syncfs(opened).map_err(failed)?;
        }
        Ok(())
    }

    /// Whether the view is gone that the command began in. It is looked at no more afterwards.
    ///
    /// # Errors
    /// That cannot be found out.
    pub(crate) fn has_lost_view(&mut self) -> Result<bool> {
        self.sight.take().map_or(Ok(false), |mut sight| sight.is_there().map(|is_there| !is_there))
    }
}

/// Hands signals on to the command.
fn hand_on(pid: Pid, signals: Vec<Signal>) {
    for signal in signals {
        let _it_has_ended = kill_process(pid, signal);
    }
}

/// This program once more, which makes the view and becomes the command.
fn command(
    begun: &Begun<'_>,
    program: std::path::PathBuf,
    report: &File,
    meeting: &Meeting,
) -> Command {
    let view = begun.view;
    let mut command = Command::new(program);
    command.arg0("marram").arg("view");
    command.arg("--shown").arg(&view.shown).arg("--place").arg(&view.place);
    command.arg("--mount").arg(&view.mount).arg("--covered").arg(view.covered.word());
    command.arg("--report").arg(format!("/proc/{}/fd/{}", own_pid(), report.as_raw_fd()));
    let [made, going] = meeting.paths();
    command.arg("--made").arg(made).arg("--going").arg(going);
    for binding in &view.also {
        command.arg("--also-shown").arg(&binding.shown).arg("--also-place").arg(&binding.place);
        command.arg("--also-covered").arg(binding.covered.word());
    }
    if let Some(brought) = &view.brought {
        for place in &brought.places {
            command.arg("--brought-place").arg(place);
        }
        command.arg("--brought-from").arg(&brought.namespace);
    }
    if let Some(workdir) = &begun.inherited.workdir {
        command.arg("--workdir").arg(workdir);
    }
    for file in &begun.inherited.reopened {
        command.arg("--reopen").arg(file.word());
    }
    if begun.output_to_error {
        command.arg("--output-to-error");
    }
    command.arg("--").args(begun.words).envs(begun.variables.iter().copied());
    command
}

/// Whether keys at the terminal reach this process.
pub(crate) fn is_in_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

/// Whether children are left that have not ended.
/// Those that are left, of which there is one at least: also if `/proc` shows none of them.
fn named(mut living: Vec<Survivor>) -> Vec<Survivor> {
    if living.is_empty() {
        living.push(Survivor { pid: 0, command: "a process that /proc does not show".to_owned() });
    }
    living
}

fn has_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => (),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Asks all that runs below this process to end, once, or ends it.
fn end(below: &Below, asked: &mut BTreeSet<i32>, at_once: bool) {
    let signal = if at_once { Signal::KILL } else { Signal::TERM };
    below.send(signal, |pid| asked.insert(pid) || at_once);
}

fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => End::Exited(u8::try_from(status).unwrap_or(u8::MAX)),
        (None, signal) => End::Killed(signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::End;

    #[test]
    fn a_signal_is_told_as_shells_tell_it() {
        assert_eq!(End::Exited(3).status(), 3);
        assert_eq!(End::Killed(15).status(), 143);
        assert_eq!(End::Killed(64).status(), 192);
    }
}
