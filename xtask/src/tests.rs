//! Runs all tests of a build, two programs at a time, of which at most one mounts.
//!
//! `cargo test` runs one test program after another, and most of them wait most of the time: for
//! databases, for the one test that takes longest. Tests on real mounts see the whole machine: its
//! mounts, its loop devices, what its kernel remembers. Their programs run one after another,
//! beside those that do not mount.

use crate::failure::{Context, Failure, Result, fail};
use crate::process::{command, ended, shown, text};
use crate::project;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Packages whose tests mount, or take mounts of others along into namespaces.
const MOUNTING: [&str; 3] = ["fuse", "lab", "marram"];
/// A program that takes longer than this is named with its time.
const LONG: Duration = Duration::from_secs(20);

/// A test program, or the examples in the documentation of all libraries.
struct Program {
    name: String,
    command: Command,
}

/// What has come of the programs that have ended.
#[derive(Default)]
struct Done {
    passed: usize,
    failed: Vec<String>,
}

/// Builds and runs all tests of the workspace with `profile`, `words` going to each program, and
/// `variables` to the build.
pub(crate) fn run(profile: &str, words: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let build = ["--locked", "--workspace", "--profile", profile];
    let with = |own: &[&str]| {
        let mut cargo = project::cargo(&[&["test", "--quiet"][..], &build, own].concat());
        cargo.envs(variables.iter().copied());
        cargo
    };
    let built = text(&mut with(&["--no-run", "--message-format", "json"]))?;
    let mut programs = VecDeque::new();
    for line in built.lines() {
        programs.extend(program(line, words)?);
    }
    if programs.is_empty() {
        return fail("no test program was built");
    }
    let examples = with(&["--doc"]);
    programs.push_back(Program { name: "documentation".to_owned(), command: examples });
    let is_mounting = |program: &Program| {
        MOUNTING.iter().any(|package| program.name.split(' ').next() == Some(*package))
    };
    let (mounting, mut others): (VecDeque<_>, VecDeque<_>) =
        programs.into_iter().partition(is_mounting);
    // The longest are not among the first by name, so none of them runs alone in the end.
    others.make_contiguous().sort_by(|one, other| other.name.cmp(&one.name));
    let (mounting, others) = (Mutex::new(mounting), Mutex::new(others));
    let done = Mutex::new(Done::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            work(&mounting, &done);
            work(&others, &done);
        });
        scope.spawn(|| work(&others, &done));
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("test: {} programs passed, {} failed", done.passed, done.failed.len());
    if done.failed.is_empty() { Ok(()) } else { fail(done.failed.join("\n")) }
}

/// The test program that a message of cargo's tells of.
fn program(message: &str, words: &[&str]) -> Result<Option<Program>> {
    let message: serde_json::Value =
        serde_json::from_str(message).context(|| format!("what cargo said: {message}"))?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let is_test = message["profile"]["test"].as_bool() == Some(true);
    let (Some(executable), true) = (text(&message["executable"]), is_test) else {
        return Ok(None);
    };
    let manifest = text(&message["manifest_path"]).map(PathBuf::from);
    let Some(folder) = manifest.as_deref().and_then(Path::parent) else {
        return fail(format!("{executable} has no package"));
    };
    let package = folder.file_name().unwrap_or_default().to_string_lossy();
    let target = text(&message["target"]["name"]).unwrap_or_default();
    let mut command = command(&[&executable]);
    command.args(words).current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    Ok(Some(Program { name: format!("{package} {target}"), command }))
}

/// Runs programs until none is left, and prints what each has said as a whole.
fn work(queue: &Mutex<VecDeque<Program>>, done: &Mutex<Done>) {
    let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while let Some(Program { name, mut command }) = take() {
        let began = Instant::now();
        let ended = ended(&mut command);
        let took = began.elapsed();
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        tell(&name, &ended, took);
        match ended {
            Ok(output) if output.status.success() => done.passed += 1,
            Ok(output) => done.failed.push(format!("{} ({})", shown(&command), output.status)),
            Err(error) => done.failed.push(format!("{name}: {error}")),
        }
    }
}

fn tell(name: &str, ended: &std::result::Result<Output, Failure>, took: Duration) {
    let time = if took >= LONG { format!(", {} s", took.as_secs()) } else { String::new() };
    println!("test {name}{time}");
    if let Ok(output) = ended {
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
}
