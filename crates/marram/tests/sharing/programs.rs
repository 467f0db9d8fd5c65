//! Programs that nobody here wrote work on one thing from two hosts at once, by locks and names.

use crate::workbench::{Outcome, outcome};
use crate::{PATIENCE, Pair, Place};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

on_each_home!(
    sqlite_with_a_rollback_journal_loses_no_transaction_of_two_hosts,
    git_commits_of_two_hosts_are_all_in_one_history,
);

const COUNT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sharing/sqlite.py");

/// Prints the answer to a query, or makes what several statements say.
const QUERY: &str = "
import sqlite3, sys
database, text = sqlite3.connect('counted.db', timeout=60), sys.argv[1]
print((database.executescript if ';' in text else database.execute)(text).fetchall())
";

fn run(words: &[&str], folder: &Path) -> Outcome {
    outcome(Command::new(words[0]).args(&words[1..]).current_dir(folder))
}

fn pair(place: Place, program: &str) -> Option<Pair> {
    if Command::new(program).arg("--version").output().is_err() {
        eprintln!("SKIPPED: {program} is needed");
        return None;
    }
    Pair::mounted(place)
}

fn sqlite_with_a_rollback_journal_loses_no_transaction_of_two_hosts(place: Place) {
    let Some(pair) = pair(place, "python3") else { return };
    let mounts = pair.mounts();
    let query = |at: usize, text: &str| -> String {
        run(&["python3", "-c", QUERY, text], &mounts[at]).good().out.trim().to_owned()
    };
    query(
        0,
        "CREATE TABLE counted (number); INSERT INTO counted VALUES (0); CREATE TABLE log (n);",
    );
    thread::scope(|scope| {
        for program in 0..4 {
            let folder = &mounts[program % 2];
            scope.spawn(move || run(&["python3", COUNT, "counted.db", "10"], folder).good());
        }
    });
    for at in [0, 1] {
        assert_eq!(query(at, "SELECT number FROM counted"), "[(40,)]");
        assert_eq!(query(at, "SELECT count(DISTINCT n), max(n) FROM log"), "[(40, 40)]");
        assert_eq!(query(at, "PRAGMA integrity_check"), "[('ok',)]");
    }
    pair.finish();
}

fn git_commits_of_two_hosts_are_all_in_one_history(place: Place) {
    let Some(pair) = pair(place, "git") else { return };
    let mounts = pair.mounts();
    run(&["git", "init", "-q", "work"], &mounts[0]).good();
    let folders = mounts.map(|mount| mount.join("work"));
    let user = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*"];
    let commit = |folder: &Path, name: &str| {
        std::fs::write(folder.join(name), name).unwrap();
        let began = Instant::now();
        let git = |words: &[&str]| run(&[&["git"][..], &user[..], words].concat(), folder);
        // Another one may be at it: git says so, and is asked again.
        while git(&["add", name]).status != 0 || git(&["commit", "-qm", name, name]).status != 0 {
            assert!(began.elapsed() < PATIENCE, "{name}: {:?}", git(&["status"]));
        }
    };
    commit(&folders[0], "first");
    thread::scope(|scope| {
        for (which, folder) in folders.iter().enumerate() {
            scope.spawn(move || (0..5).for_each(|it| commit(folder, &format!("{which}-{it}"))));
        }
    });
    for folder in &folders {
        let git =
            |words: &[&str]| run(&[&["git"][..], &user[..], words].concat(), folder).good().out;
        assert_eq!(git(&["rev-list", "--count", "HEAD"]).trim(), "11");
        assert_eq!(git(&["status", "--porcelain"]), "");
        git(&["fsck", "--strict"]);
    }
    pair.finish();
}
