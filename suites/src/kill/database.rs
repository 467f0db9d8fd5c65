//! SQLite inserts, each a transaction of its own, in the rollback and the WAL mode.
//!
//! In WAL mode a commit is durable when SQLite says so. In rollback mode it is the removal of the
//! journal, whose folder SQLite syncs at most (`synchronous=EXTRA`) when it can open it, and when
//! it cannot, as after the death of a daemon, it calls the commit done all the same. So there a row
//! counts only after we have synced the folder ourselves.

use super::{Load, Place, names, sync_folder};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{OwnedChild, command, require, text};
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;

/// More rows than a machine inserts before the kill.
const ROWS_MAX: u64 = 30_000;

/// The body of a row holds its number, so that a row of another number is seen.
const BODY: &str = "substr(hex(zeroblob(1500)), 1, 20 + id % 2900) || id";

/// One insert after another.
pub(super) struct Inserts {
    mode: &'static str,
}

impl Inserts {
    /// In this `journal_mode`: `delete` or `wal`.
    pub(super) fn new(mode: &'static str) -> Result<Self> {
        require(&[("sqlite3", "sqlite3"), ("stdbuf", "coreutils")])?;
        Ok(Self { mode })
    }

    fn script(&self) -> String {
        let mut script = format!(
            "PRAGMA journal_mode={}; PRAGMA synchronous=FULL;\n\
             CREATE TABLE item(id INTEGER PRIMARY KEY, body TEXT);\n\
             CREATE INDEX by_body ON item(body);\n",
            self.mode
        );
        for id in 1..=ROWS_MAX {
            let body = BODY.replace("id", &id.to_string());
            writeln!(script, "INSERT INTO item VALUES({id}, {body}); SELECT {id};")
                .expect("a string takes all that is written");
        }
        script
    }
}

impl Load for Inserts {
    fn name(&self) -> &'static str {
        if self.mode == "wal" { "sqlite-wal" } else { "sqlite-delete" }
    }

    fn work(&self, place: &Place, _is_over: &AtomicBool) -> Result<()> {
        let script = place.journal.path().with_extension("sql");
        std::fs::write(&script, self.script())?;
        // A line goes out when its commit is done, not when a buffer is full.
        let mut shell = command(&["stdbuf", "-oL", "sqlite3", "-bail"]);
        shell.arg(database(place)).stdin(std::fs::File::open(&script)?);
        let mut shell = OwnedChild::start(shell.stdout(Stdio::piped()).stderr(Stdio::null()))?;
        let output = shell.take_output().expect("its output is piped to here");
        for line in BufReader::new(output).lines() {
            let line = line?;
            if self.mode != "wal" {
                sync_folder(&place.folder)?;
            }
            place.journal.note(&line)?;
        }
        let status = shell.wait(super::LOAD_LIMIT)?;
        std::fs::remove_file(script)?;
        if status.success() { Ok(()) } else { fail(format!("sqlite3 ended with {status}")) }
    }

    fn judge(&self, place: &Place) -> Result<String> {
        // The first line names the journal mode.
        let lines = place.journal.lines()?;
        let acknowledged = lines.len().saturating_sub(1) as u64;
        if !database(place).exists() {
            return begun(place, acknowledged, "no database");
        }
        let said = sql(&database(place), "PRAGMA integrity_check;")?;
        if said != "ok" {
            return fail(format!("integrity_check: {said}"));
        }
        let tables = sql(&database(place), "SELECT count(*) FROM sqlite_master;")?;
        if tables != "2" {
            return begun(place, acknowledged, "no table");
        }
        let survived = expect_rows(&database(place))?;
        if survived < acknowledged {
            return fail(format!("{survived} rows survived of {acknowledged} acknowledged"));
        }
        Ok(format!("{survived} rows, {acknowledged} acknowledged"))
    }
}

/// What is missing may be missing as long as nothing was acknowledged.
fn begun(place: &Place, acknowledged: u64, missing: &str) -> Result<String> {
    if acknowledged == 0 {
        return Ok(missing.to_owned());
    }
    let there = names(&place.folder)?;
    fail(format!("{missing}, but {acknowledged} rows were acknowledged; there are {there:?}"))
}

fn database(place: &Place) -> std::path::PathBuf {
    place.folder.join("item.db")
}

/// How many rows there are; fails when they are not the first so many, each with its own body.
fn expect_rows(database: &Path) -> Result<u64> {
    let question =
        format!("SELECT count(*), ifnull(max(id), 0), ifnull(sum(body <> {BODY}), 0) FROM item;");
    let said = sql(database, &question)?;
    let numbers: Vec<u64> = said.split('|').filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [count, last, 0] if count == last => Ok(count),
        _ => fail(format!("rows, last number, wrong bodies: {said}")),
    }
}

fn sql(database: &Path, statement: &str) -> Result<String> {
    text(command(&["sqlite3", "-bail"]).arg(database).arg(statement)).context(|| "after the kill")
}

#[cfg(test)]
mod tests {
    use super::*;
    use marram_lab::process::run;

    #[test]
    fn a_row_that_is_missing_or_not_its_own_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = folder.path().join("item.db");
        let script: Vec<String> =
            Inserts { mode: "wal" }.script().lines().take(13).map(str::to_owned).collect();
        let change = |words: &str| {
            run(command(&["sqlite3", "-bail"]).arg(&database).arg(words)).expect("changed");
        };
        change(&script.join("\n"));
        assert_eq!(expect_rows(&database).expect("ten rows"), 10);
        change("UPDATE item SET body = 'x' WHERE id = 4;");
        expect_rows(&database).expect_err("another body");
        change("DELETE FROM item WHERE id = 4;");
        expect_rows(&database).expect_err("a row in the middle is missing");
    }
}
