//! The daemon's log: to standard error in the foreground, else to a file of bounded size.
//!
//! A log must not fill the disk of a machine that is in trouble already: past
//! [`FILE_BYTES_MAX`] the file is set aside under `.1`, in place of what was there.

use crate::error::{Error, Result};
use crate::names::printable;
use crate::timestamps::{format_instant, now_seconds};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest log file, in bytes; with the one set aside there is twice as much.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where the daemon says what nobody asked.
pub(crate) struct Log {
    sink: Mutex<Sink>,
    path: Option<PathBuf>,
}

enum Sink {
    StandardError,
    File { file: File, written_bytes: u64 },
}

impl Log {
    /// A log on standard error.
    pub(crate) fn to_standard_error() -> Log {
        Log { sink: Mutex::new(Sink::StandardError), path: None }
    }

    /// A log in the file at `path`, after what is there.
    ///
    /// # Errors
    /// When the file cannot be made or written.
    pub(crate) fn to_file(path: &Path) -> Result<Log> {
        let sink = open(path).map_err(|error| Error::system("write the log", path, error))?;
        Ok(Log { sink: Mutex::new(sink), path: Some(path.to_owned()) })
    }

    /// The log's file, if it is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The open file, for what writes to standard error of its own accord (a panic does).
    pub(crate) fn duplicate_file(&self) -> Option<File> {
        match &*self.sink.lock() {
            Sink::StandardError => None,
            Sink::File { file, .. } => file.try_clone().ok(),
        }
    }

    /// Writes one line, of which no name that it tells can make two. A log that cannot be written
    /// is no reason to stop serving.
    pub(crate) fn write(&self, message: &str) {
        let message = printable(message.replace('\n', " | "));
        let line = format!("{} {message}\n", format_instant(now_seconds()));
        let mut sink = self.sink.lock();
        self.rotate_if_full(&mut sink);
        let _unwritten_is_lost = match &mut *sink {
            Sink::StandardError => std::io::stderr().write_all(line.as_bytes()),
            Sink::File { file, written_bytes } => {
                *written_bytes += line.len() as u64;
                file.write_all(line.as_bytes())
            }
        };
    }

    fn rotate_if_full(&self, sink: &mut Sink) {
        let Some(path) = &self.path else {
            return;
        };
        let full =
            matches!(sink, Sink::File { written_bytes, .. } if *written_bytes >= FILE_BYTES_MAX);
        if !full {
            return;
        }
        let mut aside = path.clone().into_os_string();
        aside.push(".1");
        let renewed = std::fs::rename(path, aside).and_then(|()| open(path));
        if let Ok(fresh) = renewed {
            *sink = fresh;
        }
    }
}

fn open(path: &Path) -> std::io::Result<Sink> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let written_bytes = file.metadata()?.len();
    Ok(Sink::File { file, written_bytes })
}

#[cfg(test)]
mod tests {
    use super::{FILE_BYTES_MAX, Log};

    #[test]
    fn a_log_stays_bounded_and_goes_on_after_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        Log::to_file(&path).unwrap().write("first");
        let log = Log::to_file(&path).unwrap();
        log.write("second\nline");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("first") && text.contains("second | line"));
        let long = "x".repeat(1 << 20);
        for _ in 0..9 {
            log.write(&long);
        }
        let sizes = ["x.log", "x.log.1"]
            .map(|name| std::fs::metadata(folder.path().join(name)).unwrap().len());
        assert!(sizes.iter().all(|size| *size < FILE_BYTES_MAX + (2 << 20)), "{sizes:?}");
    }
}
