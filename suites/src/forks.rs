//! Forks of a git checkout: worked in all at once, compared, merged, gone back from, dropped.

use super::{GIB, Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, require, run, text};
use marram_lab::subject::{Making, Marram, Subject};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Files in a directory of the checkout.
const FOLDER_FILES: u64 = 100;
/// Forks that are worked in at once.
const FORKS: usize = 5;
/// How often each command is timed.
const ROUNDS: usize = 7;
/// How long space may take to come back after the last fork is gone.
const SPACE_LIMIT: Duration = Duration::from_secs(60);
/// What may be in use beyond what was before: nodes of the trees that have been split.
const SPACE_TOLERANCE_BYTES: u64 = 4 << 20;

/// A small and a large checkout, each with everything that is done to it.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("git", "git"), ("rsync", "rsync")])?;
    // Access times would be changes of the live tree that snapshots and the base do not share.
    let mount_words = vec!["-o".to_owned(), "noatime".to_owned()];
    let making = Making { mount_words, ..Making::sized(4 * GIB) };
    let mut marram = Marram::make(&setting.folder.join("subject"), &making)?;
    for files in [1000, setting.scaled(20_000, 2000)] {
        let tree = marram.root().join(format!("tree-{files}"));
        make_checkout(&tree, files)?;
        times(&marram, &tree, files)?;
        work(&marram, &tree)?;
        run(&mut marram.command(&[
            "destroy",
            "snapshot",
            "--yes",
            "--now",
            &at(&marram, "start")?,
        ]))?;
    }
    marram.unmount()?;
    marram.check()
}

fn git(folder: &Path, words: &[&str]) -> Command {
    let mut git = command(&["git", "-c", "user.name=Marram", "-c", "user.email=marram@localhost"]);
    git.args(["-c", "gc.auto=0", "-c", "safe.directory=*"]).args(words).current_dir(folder);
    git
}

fn make_checkout(tree: &Path, files: u64) -> Result<()> {
    for number in 0..files {
        let folder = tree.join(format!("folder-{:03}", number / FOLDER_FILES));
        if number % FOLDER_FILES == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        let lines: String = (0..20).map(|line| format!("{number} line {line}\n")).collect();
        std::fs::write(folder.join(format!("file-{number}")), lines)?;
    }
    run(&mut git(tree, &["init", "--quiet"]))?;
    run(&mut git(tree, &["add", "--all"]))?;
    run(&mut git(tree, &["commit", "--quiet", "-m", "start"]))?;
    step(&format!("a checkout of {files} files"));
    Ok(())
}

/// The mount's root as a target, with a snapshot's name.
fn at(marram: &Marram, snapshot: &str) -> Result<String> {
    Ok(format!("{}@{snapshot}", plain(marram.root())?))
}

fn plain(path: &Path) -> Result<&str> {
    path.to_str().map_or_else(|| fail(format!("{} has no plain name", path.display())), Ok)
}

/// Runs a command that reports how long the engine took; returns its result, and both times.
fn timed(marram: &Marram, words: &[&str]) -> Result<(serde_json::Value, Duration, Duration)> {
    let began = Instant::now();
    let told = text(marram.command(&["--json"]).args(words))?;
    let took = began.elapsed();
    let mut told: serde_json::Value = serde_json::from_str(&told)?;
    let engine = told["result"]["engine_nanoseconds"].as_u64().unwrap_or(0);
    Ok((told["result"].take(), took, Duration::from_nanos(engine)))
}

/// Times of fork, snapshot and rollback, the middle of some rounds each.
fn times(marram: &Marram, tree: &Path, files: u64) -> Result<()> {
    let tree = plain(tree)?;
    let mut rows: [Vec<(Duration, Duration)>; 3] = Default::default();
    for round in 0..ROUNDS {
        let fork = format!("timed-{files}-{round}");
        let snapshot = at(marram, &fork)?;
        for (row, words) in rows.iter_mut().zip([
            &["fork", tree, &fork][..],
            &["snapshot", &snapshot],
            &["rollback", &snapshot],
        ]) {
            let (_, command, engine) = timed(marram, words)?;
            row.push((command, engine));
        }
        let root = plain(marram.root())?;
        run(&mut marram.command(&["destroy", "fork", root, &fork, "--yes", "--now"]))?;
    }
    for (name, mut row) in ["fork", "snapshot", "rollback"].into_iter().zip(rows) {
        row.sort();
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        let (command, engine) = row[row.len() / 2];
        let (command, engine) = (milliseconds(command), milliseconds(engine));
        step(&format!("{name} of {files} files: {command:.2} ms, engine {engine:.2} ms"));
    }
    Ok(())
}

fn work(marram: &Marram, tree: &Path) -> Result<()> {
    run(&mut marram.command(&["snapshot", &at(marram, "start")?]))?;
    let before = allocated(marram)?;
    let forks = fork_and_edit(marram, tree)?;
    compare(marram, &forks)?;
    merge(marram, tree, &forks[0])?;
    refuse_conflict(marram, tree, &forks[1])?;
    go_back(marram, tree)?;
    for number in 0..FORKS {
        let root = plain(marram.root())?;
        run(&mut marram.command(&["destroy", "fork", root, &fork_name(number), "--yes", "--now"]))?;
    }
    space_comes_back(marram, before)
}

fn fork_name(number: usize) -> String {
    format!("work-{number}")
}

/// The file that all forks change, and the one that each has changed alone.
fn edited(tree: &Path, number: usize) -> [PathBuf; 2] {
    let folder = tree.join("folder-000");
    [folder.join("file-0"), folder.join(format!("file-{}", number + 1))]
}

/// Several forks, and in each a program that edits and commits at the same time.
fn fork_and_edit(marram: &Marram, tree: &Path) -> Result<Vec<PathBuf>> {
    let name = plain(tree)?;
    let mut forks = Vec::new();
    for number in 0..FORKS {
        run(&mut marram.command(&["fork", name, &fork_name(number)]))?;
        forks.push(marram.root().join(".marram/forks").join(fork_name(number)));
    }
    let edit = |number: usize, fork: &Path| -> Result<()> {
        for file in edited(fork, number) {
            let mut text = std::fs::read_to_string(&file)?;
            text.push_str(&format!("changed in fork {number}\n"));
            std::fs::write(&file, text)?;
        }
        std::fs::write(fork.join("new"), format!("of fork {number}\n"))?;
        run(&mut git(fork, &["add", "--all"]))?;
        run(&mut git(fork, &["commit", "--quiet", "-m", "work"]))?;
        run(&mut git(fork, &["fsck", "--no-progress"]))
    };
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let edit = &edit;
        let at_work = forks.iter().enumerate();
        let threads: Vec<_> =
            at_work.map(|(number, fork)| scope.spawn(move || edit(number, fork))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|_| fail("a thread panicked"))
        };
        threads.into_iter().map(join).collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    expect(&git_status(tree)?, "", "the parent is as it was")?;
    step(&format!("{FORKS} forks, each with a commit made at the same time"));
    Ok(forks)
}

/// Without a new index, which would be a change of the parent beside that of a fork.
fn git_status(tree: &Path) -> Result<String> {
    text(git(tree, &["status", "--porcelain"]).env("GIT_OPTIONAL_LOCKS", "0"))
}

fn expect(found: &str, expected: &str, what: &str) -> Result<()> {
    if found == expected { Ok(()) } else { fail(format!("{what}: {found:?}, not {expected:?}")) }
}

/// What the forks report of themselves is what other programs find.
fn compare(marram: &Marram, forks: &[PathBuf]) -> Result<()> {
    for (number, fork) in forks.iter().enumerate() {
        let told = text(marram.command(&["diff"]).arg(fork))?;
        for line in [format!("M /folder-000/file-{}", number + 1), "A /new".to_owned()] {
            if told.lines().all(|told| told != line) {
                return fail(format!("the diff of fork {number} has no {line:?}: {told}"));
            }
        }
    }
    let snapshot = marram.root().join(".marram/snapshots/start");
    let words = ["rsync", "-a", "--dry-run", "--itemize-changes"];
    let copy = marram.root().join("copy");
    run(command(&["mkdir", "-p"]).arg(&copy))?;
    run(command(&["cp", "-a"]).arg(forks[0].join("folder-000")).arg(&copy))?;
    let from = forks[0].join("folder-000/");
    let differ = text(command(&words).arg(from).arg(copy.join("folder-000/")))?;
    expect(&differ, "", "a copy of a fork differs from it")?;
    run(command(&["rm", "-rf"]).arg(&copy))?;
    run(command(&["find"]).arg(&snapshot).args(["-xdev", "-type", "f"]))?;
    step("what differs is reported; rsync and find agree");
    Ok(())
}

/// A merge beside a program that has the tree open.
fn merge(marram: &Marram, tree: &Path, fork: &Path) -> Result<()> {
    let [shared, own] = edited(tree, 0);
    let mut open = std::fs::File::open(&own)?;
    let mut old = String::new();
    open.read_to_string(&mut old)?;
    let held = std::fs::read_to_string(&shared)?;
    let (_, took, engine) = timed(marram, &["merge", plain(fork)?])?;
    open.seek(SeekFrom::Start(0))?;
    let mut new = String::new();
    open.read_to_string(&mut new)?;
    expect(&new, &format!("{old}changed in fork 0\n"), "an open file after the merge")?;
    let shared = std::fs::read_to_string(&shared)?;
    expect(&shared, &format!("{held}changed in fork 0\n"), "another after the merge")?;
    expect(&std::fs::read_to_string(tree.join("new"))?, "of fork 0\n", "a new file")?;
    expect(&git_status(tree)?, "", "git in the merged tree")?;
    run(&mut git(tree, &["fsck", "--no-progress"]))?;
    step(&format!("merged and seen at once, in {took:.1?}, engine {engine:.1?}"));
    Ok(())
}

/// The second fork has changed the same: nothing happens.
fn refuse_conflict(marram: &Marram, tree: &Path, fork: &Path) -> Result<()> {
    let merge = marram.command(&["merge"]).arg(fork).output()?;
    let told = String::from_utf8_lossy(&merge.stdout).into_owned();
    let is_told = told.contains("conflict: content /folder-000/file-0");
    if merge.status.code() != Some(4) || !is_told {
        return fail(format!("a merge with conflicts: {} {told}", merge.status));
    }
    expect(&git_status(tree)?, "", "the tree after a merge that was refused")?;
    expect(&std::fs::read_to_string(tree.join("new"))?, "of fork 0\n", "its new file")?;
    step("a conflict is refused, and nothing has changed");
    Ok(())
}

fn go_back(marram: &Marram, tree: &Path) -> Result<()> {
    let mut open = std::fs::File::open(&edited(tree, 0)[1])?;
    let (told, took, engine) = timed(marram, &["rollback", &at(marram, "start")?])?;
    let mut text = String::new();
    open.read_to_string(&mut text)?;
    if text.contains("changed") || tree.join("new").exists() {
        return fail("what was rolled back is still seen");
    }
    expect(&git_status(tree)?, "", "git after the rollback")?;
    run(&mut git(tree, &["fsck", "--no-progress"]))?;
    step(&format!("rolled back while in use, in {took:.1?}, engine {engine:.1?}"));
    let kept = told["kept"].as_str().unwrap_or_default();
    let name = kept.split('@').nth(1).unwrap_or_default();
    run(&mut marram.command(&["destroy", "snapshot", "--yes", "--now", &at(marram, name)?]))
}

fn allocated(marram: &Marram) -> Result<u64> {
    run(marram.command(&["sync"]).arg(marram.root()))?;
    let told = text(marram.command(&["status", "--json"]).arg(marram.root()))?;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    Ok(told["result"][0]["allocated_bytes"].as_u64().unwrap_or(u64::MAX))
}

fn space_comes_back(marram: &Marram, before: u64) -> Result<()> {
    let began = Instant::now();
    loop {
        let now = allocated(marram)?;
        if now <= before + SPACE_TOLERANCE_BYTES {
            step("the forks are gone, and their space is back");
            return Ok(());
        }
        if began.elapsed() > SPACE_LIMIT {
            return fail(format!("{now} bytes are in use, {before} were before the forks"));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
