//! How far a stream is, while it passes: a line that is written over on a terminal, and where it is
//! asked for lines for a log, or JSON lines for programs. All of it goes to standard error, since
//! standard output may be the stream's.
//!
//! A stream from a file is as long as the file. One from a pool says how much its snapshot refers
//! to, which is about as much as comes if it is a full one; of another nobody knows before its end.

use crate::engine::streams::referenced_bytes;
use crate::output::{Output, Progress, say, size_text};
use rustix::termios::isatty;
use serde::Serialize;
use std::io::{Read, Result, Write};
use std::time::{Duration, Instant};

/// How often a line of JSON comes.
const JSON_TICK: Duration = Duration::from_secs(1);
/// How often a line goes to what is no terminal.
const LINES_TICK: Duration = Duration::from_secs(10);
/// Bytes of a stream in which its first record ends: a record of a dataset is shorter.
const BEGIN_BYTES_MAX: usize = 16 << 10;

/// The form of the report.
enum Manner {
    Silent,
    /// Seen when it takes longer than a moment.
    Terminal(Progress),
    Lines,
    Json,
}

/// Counts what passes, and tells.
pub(super) struct Meter {
    manner: Manner,
    /// A last line says how much it was.
    is_wanted: bool,
    began: Instant,
    told: Instant,
    bytes: u64,
    total: Total,
}

/// How long the stream is.
enum Total {
    /// Not known yet; this is how it begins.
    Unread(Vec<u8>),
    Unknown,
    About(u64),
    Exactly(u64),
}

#[derive(Serialize)]
struct Told {
    bytes: u64,
    total_bytes: Option<u64>,
    total_is_exact: bool,
    seconds: f64,
    bytes_per_second: u64,
    ended: bool,
}

impl Meter {
    /// Counts a stream, of which `what` is done, and whose length may be known.
    pub(super) fn new(
        what: &str,
        is_wanted: bool,
        output: &Output,
        total_bytes: Option<u64>,
    ) -> Meter {
        let manner = match (is_wanted, output.json) {
            (true, true) => Manner::Json,
            (false, true) => Manner::Silent,
            (_, false) if isatty(rustix::stdio::stderr()) => {
                Manner::Terminal(Progress::begin(output, what))
            }
            (true, false) => Manner::Lines,
            (false, false) => Manner::Silent,
        };
        let total = total_bytes.map_or_else(|| Total::Unread(Vec::new()), Total::Exactly);
        let now = Instant::now();
        let meter = Meter { manner, is_wanted, began: now, told: now, bytes: 0, total };
        meter.expect_total();
        meter
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if matches!(self.manner, Manner::Silent) {
            return;
        }
        self.look_for_total(bytes);
        let tick = match &self.manner {
            Manner::Terminal(progress) => return progress.advance(bytes.len() as u64),
            Manner::Json => JSON_TICK,
            Manner::Lines | Manner::Silent => LINES_TICK,
        };
        if self.told.elapsed() >= tick {
            self.tell(false);
        }
    }

    fn look_for_total(&mut self, bytes: &[u8]) {
        let Total::Unread(first) = &mut self.total else { return };
        let left = BEGIN_BYTES_MAX - first.len();
        first.extend_from_slice(&bytes[..bytes.len().min(left)]);
        match referenced_bytes(first) {
            Some(Some(bytes)) => self.total = Total::About(bytes),
            Some(None) => self.total = Total::Unknown,
            None if first.len() == BEGIN_BYTES_MAX => self.total = Total::Unknown,
            None => (),
        }
        self.expect_total();
    }

    fn expect_total(&self) {
        if let (Manner::Terminal(progress), Total::Exactly(bytes) | Total::About(bytes)) =
            (&self.manner, &self.total)
        {
            progress.expect(*bytes);
        }
    }

    /// Tells for the last time.
    pub(super) fn end(mut self) {
        if let Manner::Terminal(_) = self.manner {
            self.manner = Manner::Lines;
        }
        if self.is_wanted {
            self.tell(true);
        }
    }

    fn tell(&mut self, ended: bool) {
        self.told = Instant::now();
        let seconds = self.began.elapsed().as_secs_f64();
        let bytes_per_second = (self.bytes as f64 / seconds.max(1e-3)) as u64;
        if matches!(self.manner, Manner::Json) {
            let (total_bytes, total_is_exact) = match self.total {
                Total::Exactly(bytes) => (Some(bytes), true),
                Total::About(bytes) => (Some(bytes), false),
                Total::Unread(_) | Total::Unknown => (None, false),
            };
            let bytes = self.bytes;
            let told =
                Told { bytes, total_bytes, total_is_exact, seconds, bytes_per_second, ended };
            say(&serde_json::to_string(&told).unwrap_or_default());
            return;
        }
        let mut line = size_text(self.bytes, false);
        match self.total {
            _ if ended => (),
            Total::Exactly(bytes) => line.push_str(&format!(" of {}", size_text(bytes, false))),
            Total::About(bytes) => line.push_str(&format!(" of about {}", size_text(bytes, false))),
            Total::Unread(_) | Total::Unknown => (),
        }
        line.push_str(&format!(", {}/s", size_text(bytes_per_second, false)));
        say(&line);
    }
}

/// A stream that is counted as it passes.
pub(super) struct Metered<'m, S> {
    stream: S,
    meter: &'m mut Meter,
}

impl<'m, S> Metered<'m, S> {
    /// Counts what passes through `stream`.
    pub(super) fn new(stream: S, meter: &'m mut Meter) -> Metered<'m, S> {
        Metered { stream, meter }
    }
}

impl<S: Write> Write for Metered<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let written = self.stream.write(bytes)?;
        self.meter.pass(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }
}

impl<S: Read> Read for Metered<'_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let read = self.stream.read(bytes)?;
        self.meter.pass(&bytes[..read]);
        Ok(read)
    }
}
