//! Signals that mean the end, caught before anything is made that would be left behind.
//!
//! A signal that this process ignores stays ignored: the command ignores it too, as after nohup(1).

use crate::error::{Error, Result};
use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::io;

/// Signals that are handed on to the command.
const HANDED_ON: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Signals as they come, from when this is made.
#[derive(Debug)]
pub(crate) struct Caught(SignalsInfo<WithOrigin>);

impl Caught {
    /// Catches them from here on.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn begin() -> Result<Caught> {
        catch().map(Caught).map_err(|error| Error::failed(format!("cannot catch signals: {error}")))
    }

    /// The first that has come and means the end, if one has.
    pub(crate) fn interruption(&mut self) -> Option<i32> {
        self.0.pending().map(|origin| origin.signal).find(|signal| *signal != SIGCHLD)
    }

    /// Waits for signals; those of them that the command is to get.
    pub(super) fn wait(&mut self) -> Vec<Signal> {
        self.0.wait().filter_map(|origin| for_command(&origin)).collect()
    }

    /// Those that have come and that the command is to get.
    pub(super) fn pending(&mut self) -> Vec<Signal> {
        self.0.pending().filter_map(|origin| for_command(&origin)).collect()
    }
}

/// The signal that the command is to get. Keys at a terminal reach the command from there: the
/// kernel sends to all in the foreground, and a process to this one alone.
fn for_command(origin: &Origin) -> Option<Signal> {
    let is_key = matches!(origin.signal, SIGINT | SIGQUIT) && origin.cause == Cause::Kernel;
    let signal = Signal::from_named_raw(origin.signal);
    signal.filter(|signal| !is_key && *signal != Signal::CHILD)
}

fn catch() -> io::Result<SignalsInfo<WithOrigin>> {
    let ignored = ignored_signals();
    let is_caught = |signal: &i32| ignored & (1_u64 << (signal - 1)) == 0;
    let caught = HANDED_ON.into_iter().filter(is_caught).chain([SIGCHLD]);
    SignalsInfo::with_exfiltrator(caught, WithOrigin::default())
}

/// A bit for each signal that this process ignores.
fn ignored_signals() -> u64 {
    let told = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = told.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
