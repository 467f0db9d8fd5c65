//! SQLite inserts, each a transaction of its own that changes three trees in the file.
//!
//! The shell gets the next statement only when it has answered to the one before, so that what it
//! answered has a place in the trace. In rollback mode a commit is the removal of the journal,
//! which SQLite makes durable only with `synchronous=EXTRA`; in WAL mode `FULL` is enough.

use super::{Program, Stage, outcome, said};
use crate::pool::{Result, words};
use crate::tree::Tree;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Fewest rows of a run, and how many more a seed can ask for.
const ROWS_MIN: u64 = 8;
const ROWS_MORE: u64 = 9;

/// The body of a row holds its number, so that a row of another number is seen.
const BODY: &str = "substr(hex(zeroblob(3000)), 1, 20 + id * 1511 % 5900) || id";

/// The first step: all of it in one transaction.
const SCHEMA: &str = "BEGIN; \
    CREATE TABLE item(id INTEGER PRIMARY KEY, body TEXT); \
    CREATE INDEX by_body ON item(body); \
    CREATE TABLE total(count INTEGER); \
    INSERT INTO total VALUES(0); \
    CREATE TRIGGER counted AFTER INSERT ON item BEGIN UPDATE total SET count = count + 1; END; \
    COMMIT;";

const QUESTION: &str = "SELECT count(*), ifnull(max(id), 0), ifnull(sum(body <> {BODY}), 0), \
    (SELECT count FROM total) FROM item;";

/// One insert after another.
pub(super) struct Inserts {
    /// The `journal_mode`: `delete` or `wal`.
    pub(super) mode: &'static str,
}

impl Program for Inserts {
    fn name(&self) -> &'static str {
        if self.mode == "wal" { "sqlite-wal" } else { "sqlite-rollback" }
    }

    fn perform(&self, stage: &Stage<'_>) -> Result<()> {
        let mut shell = Shell::start(&stage.folder.join("item.db"))?;
        let level = if self.mode == "wal" { "FULL" } else { "EXTRA" };
        // Short enough for checkpoints in the middle of the run.
        shell.ask(&format!(
            "PRAGMA journal_mode={}; PRAGMA synchronous={level}; PRAGMA wal_autocheckpoint=9;",
            self.mode
        ))?;
        shell.ask(SCHEMA)?;
        stage.end_step();
        stage.promise();
        for id in 1..=ROWS_MIN + stage.seed % ROWS_MORE {
            let body = BODY.replace("id", &id.to_string());
            shell.ask(&format!("INSERT INTO item VALUES({id}, {body});"))?;
            stage.end_step();
            stage.promise();
        }
        shell.end()
    }

    fn inspect(&self, tree: &Tree, folder: &Path, _seed: u64) -> Result<u64> {
        if tree.file("item.db").is_none() {
            return Ok(0);
        }
        tree.write(folder).map_err(words)?;
        let mut shell = Command::new("sqlite3");
        let question = QUESTION.replace("{BODY}", BODY);
        let tables = "SELECT count(*) FROM sqlite_master;";
        shell.arg("-bail").arg(folder.join("item.db"));
        let output = outcome(shell.arg(format!("PRAGMA integrity_check; {tables} {question}")))?;
        let said = said(&output);
        let lines: Vec<&str> = said.lines().collect();
        match lines[..] {
            // The schema is one transaction: without it there is no table to ask for.
            ["ok", "0", ..] => Ok(0),
            ["ok", "4", row] => rows(row).map(|rows| 1 + rows),
            _ => Err(format!("sqlite3 says: {said}")),
        }
    }
}

/// How many rows there are, if they are the first so many, each with its own body, and counted.
fn rows(answer: &str) -> Result<u64> {
    let numbers: Vec<u64> = answer.split('|').filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [count, last, 0, counted] if count == last && count == counted => Ok(count),
        _ => Err(format!("rows, last number, wrong bodies, rows that were counted: {answer}")),
    }
}

/// `sqlite3`, as one talks to it. Dropping it ends it.
struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn start(database: &Path) -> Result<Shell> {
        let mut command = Command::new("sqlite3");
        command.arg("-bail").arg("-batch").arg(database);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("sqlite3: {error}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("its output is piped to here");
        Ok(Shell { child, input, output: BufReader::new(output) })
    }

    /// Returns when the statements are done.
    fn ask(&mut self, statements: &str) -> Result<()> {
        let input = self.input.as_mut().expect("it is closed by the end only");
        writeln!(input, "{statements} SELECT 'done';").map_err(words)?;
        let mut line = String::new();
        while line.trim_end() != "done" {
            line.clear();
            if self.output.read_line(&mut line).map_err(words)? == 0 {
                return Err(format!("sqlite3 has failed at: {statements}"));
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        self.input = None;
        let status = self.child.wait().map_err(words)?;
        if status.success() { Ok(()) } else { Err(format!("sqlite3 ended with {status}")) }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.input = None;
        let _it_has_ended = self.child.kill();
        let _nobody_asks = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn rows_that_no_moment_had_are_refused() {
        assert_eq!(rows("0|0|0|0"), Ok(0));
        assert_eq!(rows("7|7|0|7"), Ok(7));
        for answer in ["6|7|0|6", "7|7|1|7", "7|7|0|6", "7|7|0", ""] {
            rows(answer).expect_err(answer);
        }
    }
}
