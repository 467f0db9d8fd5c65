//! A hundred SQLite inserts: atomic by a transaction of the file system, or by SQLite's own log.

use super::row::{Row, Rows};
use super::{fresh_folder, measure_again};
use marram_lab::failure::Result;
use marram_lab::process::{command, require, run};
use marram_lab::subject::{Kind, Marram, Subject};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The case.
pub(super) const CASE: &str = "100 SQLite inserts as one";

const INSERTS: usize = 100;
const DURATION: Duration = Duration::from_secs(1);

/// In a transaction of the file system; SQLite has no journal and does not sync.
pub(super) fn ours(marram: &Marram, rows: &mut Rows) -> Result<()> {
    let folder = database(marram.root(), "sqlite-off", "delete")?;
    let script = script("off", "OFF")?;
    let mut insert = marram.command(&["tx", "run", "--", "sqlite3", "-bail", "item.db"]);
    insert.arg(read(script.path())).current_dir(folder);
    let row = Row::of(CASE, "marram, tx run, journal off");
    rows.add(timed_command(marram, row, insert)?);
    Ok(())
}

/// With SQLite's write-ahead log.
pub(super) fn peer(kind: Kind, subject: &dyn Subject, rows: &mut Rows) -> Result<()> {
    let folder = database(subject.root(), "sqlite-wal", "wal")?;
    let script = script("wal", "FULL")?;
    let mut insert = command(&["sqlite3", "-bail", "item.db"]);
    insert.arg(read(script.path())).current_dir(folder);
    let row = Row::of(CASE, format!("{}, write-ahead log", kind.name()));
    rows.add(timed_command(subject, row, insert)?);
    Ok(())
}

/// An empty table in a database of its own.
fn database(root: &Path, name: &str, mode: &str) -> Result<std::path::PathBuf> {
    require(&[("sqlite3", "sqlite3")])?;
    let folder = fresh_folder(root, name)?;
    let table = format!(
        "PRAGMA journal_mode={mode}; CREATE TABLE item(id INTEGER PRIMARY KEY, body BLOB);"
    );
    run(command(&["sqlite3", "item.db", &table]).current_dir(&folder))?;
    Ok(folder)
}

fn script(mode: &str, sync: &str) -> Result<tempfile::NamedTempFile> {
    let mut words = format!("PRAGMA journal_mode={mode}; PRAGMA synchronous={sync};\nBEGIN;\n");
    for _ in 0..INSERTS {
        words.push_str("INSERT INTO item(body) VALUES(randomblob(100));\n");
    }
    writeln!(words, "COMMIT;").expect("a string takes all that is written");
    let script = tempfile::NamedTempFile::new()?;
    std::fs::write(script.path(), words)?;
    Ok(script)
}

fn read(script: &Path) -> String {
    format!(".read {}", script.display())
}

fn timed_command(subject: &dyn Subject, row: Row, mut insert: Command) -> Result<Row> {
    measure_again(subject, row, DURATION, || {
        let began = Instant::now();
        run(&mut insert)?;
        Ok(began.elapsed())
    })
}
