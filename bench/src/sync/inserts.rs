//! SQLite inserts one by one: each a transaction of its own, with `synchronous=FULL`.

use super::case::JournalMode;
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require};
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// More than any file system on a device does in the time. In memory it may be all.
const ROWS_MAX: usize = 100_000;

/// How long each insert took. They end with the time, or with the last row.
pub(in super::super) fn run(
    folder: &Path,
    mode: JournalMode,
    duration: Duration,
) -> Result<Vec<Duration>> {
    require(&[("sqlite3", "sqlite3"), ("stdbuf", "coreutils")])?;
    let script = tempfile::NamedTempFile::new()?;
    std::fs::write(script.path(), statements(mode))?;
    // A line goes out when its commit is done, not when a buffer is full.
    let mut shell = command(&["stdbuf", "-oL", "sqlite3", "-bail"]);
    shell.arg(folder.join("item.db")).stdin(std::fs::File::open(script.path())?);
    let mut shell = shell.stdout(Stdio::piped()).spawn().context(|| "sqlite3")?;
    let times = read_times(&mut shell, duration);
    shell.kill()?;
    shell.wait()?;
    times
}

fn statements(mode: JournalMode) -> String {
    let mode = match mode {
        JournalMode::Delete => "delete",
        JournalMode::Wal => "wal",
    };
    let mut statements = format!(
        "PRAGMA journal_mode={mode}; PRAGMA synchronous=FULL;\n\
         CREATE TABLE item(id INTEGER PRIMARY KEY, body BLOB);\nSELECT 'begin';\n"
    );
    for row in 1..=ROWS_MAX {
        writeln!(statements, "INSERT INTO item VALUES({row}, randomblob(100)); SELECT {row};")
            .expect("a string takes all that is written");
    }
    statements
}

fn read_times(shell: &mut Child, duration: Duration) -> Result<Vec<Duration>> {
    let output = shell.stdout.take().expect("its output is piped to here");
    let mut lines = BufReader::new(output).lines();
    loop {
        match lines.next().transpose()?.as_deref() {
            Some("begin") => break,
            Some(_) => {}
            None => return fail("sqlite3 ended before it began"),
        }
    }
    let mut times = Vec::new();
    let mut before = Instant::now();
    let end = before + duration;
    while before < end {
        match lines.next().transpose()? {
            Some(_) => {}
            None if times.len() == ROWS_MAX => break,
            None => return fail("sqlite3 ended before the time was over"),
        }
        let now = Instant::now();
        times.push(now - before);
        before = now;
    }
    Ok(times)
}
