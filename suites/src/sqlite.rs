//! SQLite in both of its journal modes: fsync, locks, shared mappings and renames, judged by
//! `PRAGMA integrity_check`.

use super::{GIB, Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{OwnedChild, command, require, text};
use std::path::Path;
use std::time::Duration;

const WRITERS: u64 = 2;
const WRITER_LIMIT: Duration = Duration::from_secs(600);

/// Writers, a killed writer, and an integrity check before and after a remount, in both modes.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    require(&[("sqlite3", "sqlite3")])?;
    let rows = setting.scaled(20_000, 2_000);
    let mut subject = setting.subject(2 * GIB)?;
    let modes = ["wal", "delete"];
    for mode in modes {
        let database = subject.root().join(format!("{mode}.db"));
        fill(&database, mode, rows)?;
        write_in_parallel(&database, rows / 20)?;
        interrupt_a_writer(&database)?;
        expect_whole(&database, WRITERS * (rows / 20))?;
        step(&format!("journal_mode={mode}: whole"));
    }
    subject.remount()?;
    for mode in modes {
        expect_whole(&subject.root().join(format!("{mode}.db")), WRITERS * (rows / 20))?;
    }
    step("whole after a remount");
    subject.unmount()?;
    subject.check()
}

fn sql(database: &Path, statements: &str) -> Result<String> {
    text(command(&["sqlite3", "-bail", "-cmd", ".timeout 60000"]).arg(database).arg(statements))
}

fn fill(database: &Path, mode: &str, rows: u64) -> Result<()> {
    let said = sql(database, &format!("PRAGMA journal_mode={mode};"))?;
    if said != mode {
        return fail(format!("asked for journal_mode={mode}, got {said}"));
    }
    let statements = format!(
        "PRAGMA synchronous=FULL; PRAGMA mmap_size=268435456;
         CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT UNIQUE, body BLOB);
         CREATE TABLE mark(writer INTEGER, number INTEGER);
         CREATE INDEX by_size ON item(length(body));
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < {rows})
         INSERT INTO item SELECT i, 'item ' || i, randomblob(i % 3000) FROM n;
         UPDATE item SET body = randomblob(5000) WHERE id % 7 = 0;
         DELETE FROM item WHERE id % 11 = 0;
         VACUUM;"
    );
    sql(database, &statements).map(|_| ())
}

/// Each writer commits `count` small transactions of its own.
fn write_in_parallel(database: &Path, count: u64) -> Result<()> {
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let mut statements = String::from("PRAGMA synchronous=NORMAL;\n");
        for number in 0..count {
            statements.push_str(&format!("INSERT INTO mark VALUES({writer}, {number});\n"));
        }
        let script = database.with_extension(format!("{writer}.sql"));
        std::fs::write(&script, statements)?;
        let mut shell = command(&["sqlite3", "-bail", "-cmd", ".timeout 60000"]);
        shell.arg(database).arg(format!(".read {}", script.display()));
        writers.push(OwnedChild::start(shell.stdout(std::process::Stdio::null()))?);
    }
    for writer in &mut writers {
        let status = writer.wait(WRITER_LIMIT)?;
        if !status.success() {
            return fail(format!("a writer of {} failed ({status})", database.display()));
        }
    }
    Ok(())
}

/// A writer dies in the middle of a large transaction; the next opener rolls it back.
fn interrupt_a_writer(database: &Path) -> Result<()> {
    let statements = "PRAGMA cache_size=10; BEGIN IMMEDIATE; INSERT INTO mark VALUES(99, 99);
        UPDATE item SET body = randomblob(20000);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n;";
    let mut writer =
        OwnedChild::start(command(&["sqlite3", "-bail"]).arg(database).arg(statements))?;
    std::thread::sleep(Duration::from_millis(700));
    writer.kill()
}

fn expect_whole(database: &Path, marks: u64) -> Result<()> {
    let said = sql(database, "PRAGMA integrity_check; SELECT count(*) FROM mark;")?;
    let expected = format!("ok\n{marks}");
    if said == expected {
        return Ok(());
    }
    fail(format!("{}: wanted {expected:?}, got {said:?}", database.display()))
}
