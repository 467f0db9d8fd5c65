//! Programs that nobody here wrote work on one thing from two hosts at once, by locks and names.

use crate::locks::python;
use crate::workbench::Outcome;
use crate::{PATIENCE, Pair, Place};
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

/// The folders of the two mounts.
const FOLDERS: [&str; 2] = ["here", "there"];

/// Runs a program on one of the two hosts, where paths lead to what it has mounted.
fn run(pair: &Pair, host: usize, folder: &str, words: &[&str]) -> Outcome {
    // By its whole path: where the other one begins is not in its own tree.
    let folder = pair.bench.path(folder).to_string_lossy().into_owned();
    let words = [&["env", "-C", &folder][..], words].concat();
    match host {
        0 => pair.bench.host(&words),
        _ => pair.in_other(&words),
    }
}

fn pair(place: Place, program: &str) -> Option<Pair> {
    if Command::new(program).arg("--version").output().is_err() {
        eprintln!("SKIPPED: {program} is needed");
        return None;
    }
    Pair::mounted(place)
}

fn sqlite_with_a_rollback_journal_loses_no_transaction_of_two_hosts(place: Place) {
    let Some((python, pair)) = python().zip(pair(place, "python3")) else { return };
    let query = |host: usize, text: &str| -> String {
        let words = [python, "-c", QUERY, text];
        run(&pair, host, FOLDERS[host], &words).good().out.trim().to_owned()
    };
    query(
        0,
        "CREATE TABLE counted (number); INSERT INTO counted VALUES (0); CREATE TABLE log (n);",
    );
    thread::scope(|scope| {
        for program in 0..4 {
            let (pair, host) = (&pair, program % 2);
            let words = [python, COUNT, "counted.db", "10"];
            scope.spawn(move || run(pair, host, FOLDERS[host], &words).good());
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
    let user = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*"];
    run(&pair, 0, "here", &["git", "init", "-q", "work"]).good();
    let git = |host: usize, words: &[&str]| {
        let folder = format!("{}/work", FOLDERS[host]);
        run(&pair, host, &folder, &[&["git"][..], &user[..], words].concat())
    };
    let commit = |host: usize, name: &str| {
        run(&pair, host, &format!("{}/work", FOLDERS[host]), &["touch", name]).good();
        let began = Instant::now();
        // Another one may be at it: git says so, and is asked again.
        while git(host, &["add", name]).status != 0
            || git(host, &["commit", "-qm", name, name]).status != 0
        {
            assert!(began.elapsed() < PATIENCE, "{name}: {:?}", git(host, &["status"]));
        }
    };
    commit(0, "first");
    thread::scope(|scope| {
        for host in 0..2 {
            let commit = &commit;
            scope.spawn(move || (0..5).for_each(|it| commit(host, &format!("{host}-{it}"))));
        }
    });
    for host in 0..2 {
        let count = git(host, &["rev-list", "--count", "HEAD"]).good().out;
        assert_eq!(count.trim(), "11");
        assert_eq!(git(host, &["status", "--porcelain"]).good().out, "");
        git(host, &["fsck", "--strict"]).good();
    }
    pair.finish();
}
