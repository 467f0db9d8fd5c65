//! What commands print: tables for people, tab-separated lines for scripts, JSON for programs.
//!
//! Data goes to standard output, messages to standard error. Colours are used only on a terminal,
//! and never when `NO_COLOR` is set. Every `--json` answer is one object: `version` is the version
//! of this envelope, `command` what was run, and then `result` or `error`.

mod progress;
mod table;

pub(crate) use progress::Progress;
pub(crate) use table::{Align, Table};

use crate::error::{Error, Result};
use crate::names::printable;
use crate::sizes::format_size;
use crate::timestamps::local_seconds;
use rustix::termios::isatty;
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Version of the JSON envelope and of what stands in it.
pub(crate) const JSON_VERSION: u32 = 1;

/// The program's name, which stands for a command where none is named.
pub(crate) const PROGRAM: &str = "marram";

/// How a command prints.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// Which command.
    pub(crate) command: &'static str,
    /// One JSON object instead of text.
    pub(crate) json: bool,
    /// No text: JSON and errors are printed all the same.
    pub(crate) quiet: bool,
    /// Colours may be used on standard output.
    pub(crate) colour: bool,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    version: u32,
    command: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Error>,
}

impl Output {
    /// How `command` prints here.
    pub(crate) fn new(command: &'static str, json: bool, quiet: bool) -> Output {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Output { command, json, quiet, colour: wanted && !json && isatty(rustix::stdio::stdout()) }
    }

    /// Prints a result: as JSON, or as the text that `text` makes.
    pub(crate) fn print<T: Serialize>(&self, result: &T, text: impl FnOnce() -> String) {
        if self.json {
            self.print_envelope(Some(result), None);
        }
        if self.json || self.quiet {
            return;
        }
        let text = text();
        if !text.is_empty() {
            write_out(&text);
        }
    }

    /// Refuses a path that the answer would have to tell and JSON cannot, before anything is done.
    ///
    /// # Errors
    /// It is not UTF-8, and JSON was asked for.
    pub(crate) fn refuse_untold(&self, path: &Path) -> Result<()> {
        if !self.json || path.to_str().is_some() {
            return Ok(());
        }
        Err(Error::usage(format!("{} is not UTF-8, as JSON must be", path.display()))
            .hint("leave out --json, or name another folder"))
    }

    /// Prints an error: on standard error, and as JSON too where that was asked for.
    pub(crate) fn print_error(&self, error: &Error) {
        if self.json {
            self.print_envelope::<()>(None, Some(error));
        }
        print_error(self.command, error);
    }

    fn print_envelope<T: Serialize>(&self, result: Option<&T>, error: Option<&Error>) {
        let envelope = Envelope { version: JSON_VERSION, command: self.command, result, error };
        let text = serde_json::to_string_pretty(&envelope)
            .expect("reports have text keys and paths that came in as text");
        write_out(&format!("{text}\n"));
    }
}

/// Prints an error on standard error: what failed, and what to do next. No name in it makes
/// a line of its own or moves the cursor.
pub(crate) fn print_error(command: &str, error: &Error) {
    let of = if command == PROGRAM { String::new() } else { format!(" {command}") };
    let mut text = format!("{PROGRAM}{of}: {}\n", printable(error.message.clone()));
    for line in error.details.iter().chain(&error.hint) {
        text.push_str(&format!("  {}\n", printable(line.clone())));
    }
    // A closed standard error has no reader.
    let _told_or_nobody_there = std::io::stderr().write_all(text.as_bytes());
}

/// Prints a message on standard error, for people only.
pub(crate) fn say(text: &str) {
    let _told_or_nobody_there = writeln!(std::io::stderr(), "{text}");
}

/// Something could not be written to standard output, though somebody is to read it.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// Writes to standard output; a reader that has closed it early has seen enough. What has been done
/// stays done if it cannot be written, but an answer that is not whole has its exit status: see
/// [`is_lost`].
pub(crate) fn write_out(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        say(&format!("marram: cannot write to standard output: {error}"));
        IS_LOST.store(true, Ordering::Relaxed);
    }
}

/// Whether not all that was to be printed could be.
pub(crate) fn is_lost() -> bool {
    IS_LOST.load(Ordering::Relaxed)
}

/// A size: for people, or with `exact` in bytes.
pub(crate) fn size_text(bytes: u64, exact: bool) -> String {
    if exact { bytes.to_string() } else { format_size(bytes) }
}

/// A moment: as a local date and time with its zone, or with `exact` in seconds since 1970.
pub(crate) fn instant_text(seconds: i64, exact: bool) -> String {
    if exact { seconds.to_string() } else { local_seconds(seconds) }
}
