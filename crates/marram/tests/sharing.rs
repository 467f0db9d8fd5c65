//! Two daemons with one cluster home open, each in a mount namespace and with control sockets of
//! its own, as on two hosts: names are exact, and what one has done the other sees at once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "these tests use a part of the bench")]
mod workbench;

#[path = "sharing/locks.rs"]
mod locks;
#[path = "sharing/programs.rs"]
mod programs;

use crate::workbench::{Outcome, Workbench, can_mount, outcome};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Has a namespace let go of the mounts of other tests, and hides the sockets of their daemons.
const APART: &str = r#"
for at in $(grep 'fuse[a-z]*.marram' /proc/self/mounts | cut -d' ' -f2); do umount -il "$at"; done
mount -t tmpfs none /run
echo apart
exec sleep 300
"#;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A home `work.db` mounted at `here` by one daemon, and at `there` by another one.
struct Pair {
    other: Option<Child>,
    bench: Workbench,
}

impl Pair {
    fn new() -> Option<Pair> {
        if !can_mount() || outcome(Command::new("unshare").args(["--mount", "true"])).status != 0 {
            eprintln!("skipped: unshare is needed");
            return None;
        }
        let bench = Workbench::new();
        ["here", "there"].iter().for_each(|name| drop(bench.make_folder(name)));
        bench.run("create sqlite:work.db").good();
        let mut shell = bench.command_as(Path::new("unshare"));
        shell.args(["--mount", "--propagation", "private", "sh", "-euc", APART]);
        let mut other = shell.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(other.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "apart\n");
        Some(Pair { other: Some(other), bench })
    }

    /// The same with both mounts.
    fn mounted() -> Option<Pair> {
        let pair = Pair::new()?;
        pair.bench.run("mount sqlite:work.db here").good();
        pair.there("mount sqlite:work.db there").good();
        assert_ne!(pair.bench.daemon_pid("here"), pair.daemon_there());
        Some(pair)
    }

    /// Runs the program in the other namespace.
    fn there(&self, line: &str) -> Outcome {
        let state = format!("XDG_STATE_HOME={}", self.bench.path("state-there").display());
        let mut words = vec!["env", &state, env!("CARGO_BIN_EXE_marram")];
        words.extend(line.split_whitespace());
        self.in_other(&words)
    }

    /// Runs a program in the other namespace.
    fn in_other(&self, words: &[&str]) -> Outcome {
        let mut command = self.bench.command_as(Path::new("nsenter"));
        let pid = self.other.as_ref().unwrap().id().to_string();
        let folder = self.bench.path("").to_string_lossy().into_owned();
        command.args(["--target", &pid, "--mount", &format!("--wd={folder}")]);
        command.args(words);
        outcome(&mut command)
    }

    fn daemon_there(&self) -> i32 {
        let status = self.there("status there --json").result();
        i32::try_from(status[0]["daemon"]["pid"].as_i64().unwrap()).unwrap()
    }

    /// The two mounts, as this process reaches them.
    fn mounts(&self) -> [PathBuf; 2] {
        let pid = self.other.as_ref().unwrap().id();
        let there = format!("/proc/{pid}/root{}", self.bench.path("there").display());
        [self.bench.path("here"), PathBuf::from(there)]
    }

    /// Unmounts both, and checks the home.
    fn finish(mut self) {
        self.bench.run("unmount here").good();
        self.there("unmount there").good();
        self.end_other();
        let checked = self.bench.run("check sqlite:work.db --json").result();
        assert_eq!(checked["clean"], true, "{checked}");
    }

    fn end_other(&mut self) {
        if let Some(mut other) = self.other.take() {
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.other.is_some() {
            eprintln!("left over: {:?}", self.there("unmount --detach there").status);
            self.end_other();
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn names(path: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|it| name(it).into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn each_sees_what_the_other_has_done_at_once() {
    let Some(pair) = Pair::mounted() else { return };
    let [here, there] = pair.mounts();
    for (round, (by, other)) in [(&here, &there), (&there, &here)].into_iter().enumerate() {
        let (by, other) = (by.join(format!("d{round}")), other.join(format!("d{round}")));
        assert!(!other.exists(), "what is absent is looked for");
        fs::create_dir(&by).unwrap();
        assert_eq!(names(&other), [""; 0]);
        fs::write(by.join("a"), "one").unwrap();
        assert_eq!(read(&other.join("a")), "one");
        fs::write(by.join("a"), "another, longer").unwrap();
        assert_eq!(read(&other.join("a")), "another, longer");
        assert_eq!(fs::metadata(other.join("a")).unwrap().len(), 15);
        fs::rename(by.join("a"), by.join("b")).unwrap();
        assert!(!other.join("a").exists() && other.join("b").exists());
        fs::hard_link(by.join("b"), by.join("c")).unwrap();
        assert_eq!(names(&other), ["b", "c"]);
        OpenOptions::new().append(true).open(other.join("c")).unwrap().write_all(b"!").unwrap();
        assert_eq!(read(&by.join("b")), "another, longer!");
        fs::remove_file(by.join("b")).unwrap();
        assert_eq!(names(&other), ["c"]);
        fs::remove_file(other.join("c")).unwrap();
        fs::remove_dir(&other).unwrap();
        assert!(!by.exists());
    }
    pair.finish();
}

#[test]
fn what_the_first_has_written_behind_is_there_when_the_second_comes() {
    let Some(pair) = Pair::new() else { return };
    pair.bench.run("mount sqlite:work.db here").good();
    let [here, there] = pair.mounts();
    fs::write(here.join("kept"), "by the first").unwrap();
    fs::write(here.join("gone"), "soon").unwrap();
    assert!(here.join("gone").exists() && !here.join("new").exists(), "the kernel knows these");
    assert_eq!(read(&here.join("kept")), "by the first");
    pair.there("mount sqlite:work.db there").good();
    assert_eq!(read(&there.join("kept")), "by the first");
    fs::remove_file(there.join("gone")).unwrap();
    fs::write(there.join("new"), "by the second").unwrap();
    fs::write(there.join("kept"), "by the second").unwrap();
    assert!(!here.join("gone").exists());
    assert_eq!([read(&here.join("new")), read(&here.join("kept"))], ["by the second"; 2]);
    let listed = pair.bench.run("clients sqlite:work.db --json").result();
    assert_eq!(listed["clients"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(listed["clients"][0]["is_alone"], false, "{listed}");
    pair.finish();
}

#[test]
fn exactly_one_wins_each_race_for_a_name() {
    let Some(pair) = Pair::mounted() else { return };
    let mounts = pair.mounts();
    fs::write(mounts[0].join("source"), "x").unwrap();
    for round in 0..12 {
        type Make = fn(&Path, &Path) -> std::io::Result<()>;
        let makes: [(&str, Make); 3] = [
            ("file", |path, _| File::create_new(path).map(|_| ())),
            ("directory", |path, _| fs::create_dir(path)),
            ("link", |path, source| fs::hard_link(source, path)),
        ];
        for (what, make) in makes {
            let name = format!("{what}-{round}");
            let won: usize = thread::scope(|scope| {
                let race = |mount: &PathBuf| {
                    let (path, source) = (mount.join(&name), mount.join("source"));
                    scope.spawn(move || match make(&path, &source) {
                        Ok(()) => 1,
                        Err(error) if error.kind() == ErrorKind::AlreadyExists => 0,
                        Err(error) => panic!("{}: {error}", path.display()),
                    })
                };
                let threads: Vec<_> = mounts.iter().map(race).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(won, 1, "{name}");
        }
    }
    assert_eq!(names(&mounts[0]), names(&mounts[1]));
    pair.finish();
}

#[test]
fn appends_of_both_are_all_there_and_none_lies_in_another() {
    let Some(pair) = Pair::mounted() else { return };
    let mounts = pair.mounts();
    File::create(mounts[0].join("log")).unwrap();
    thread::scope(|scope| {
        for (which, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).open(mount.join("log")).unwrap();
                for line in 0..40 {
                    log.write_all(format!("{which} has written line {line}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    for mount in &mounts {
        let log = read(&mount.join("log"));
        let mut lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines.len(), 80, "{log}");
        for which in 0..2 {
            let begin = format!("{which} ");
            let own: Vec<&&str> = lines.iter().filter(|line| line.starts_with(&begin)).collect();
            assert_eq!(own.len(), 40);
            let in_order = |(line, text): (usize, &&&str)| text.ends_with(&format!(" line {line}"));
            assert!(own.iter().enumerate().all(in_order), "{log}");
        }
        lines.dedup();
        assert_eq!(lines.len(), 80);
    }
    pair.finish();
}

#[test]
fn a_file_that_one_has_open_stays_readable_when_the_other_removes_it() {
    let Some(pair) = Pair::mounted() else { return };
    let [here, there] = pair.mounts();
    fs::write(here.join("open"), vec![7; 300_000]).unwrap();
    let mut file = File::open(there.join("open")).unwrap();
    fs::remove_file(here.join("open")).unwrap();
    assert!(!there.join("open").exists());
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut content).unwrap();
    assert_eq!(content, vec![7; 300_000]);
    drop(file);
    pair.finish();
}

#[test]
fn snapshots_and_forks_are_seen_by_both_and_merges_wait_until_one_is_alone() {
    let Some(pair) = Pair::mounted() else { return };
    let [here, there] = pair.mounts();
    fs::write(here.join("a"), "before").unwrap();
    pair.bench.run("snapshot here@s").good();
    pair.there("fork there try").good();
    fs::write(there.join("a"), "after").unwrap();
    let began = Instant::now();
    while !here.join(".marram/forks/try/a").exists() || !there.join(".marram/snapshots/s").exists()
    {
        assert!(began.elapsed() < PATIENCE, "what the other has made is never shown");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(read(&there.join(".marram/snapshots/s/a")), "before");
    fs::write(here.join(".marram/forks/try/b"), "in the fork").unwrap();
    assert_eq!(read(&there.join(".marram/forks/try/b")), "in the fork");
    let beside = ["other daemons", "marram clients"];
    pair.bench.run("merge here/.marram/forks/try").refused(11, &beside);
    pair.there("unmount there").good();
    while pair.bench.run("merge here/.marram/forks/try").status == 11 {
        assert!(began.elapsed() < PATIENCE, "the last one is never alone");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!([read(&here.join("a")), read(&here.join("b"))], ["after", "in the fork"]);
    pair.there("mount sqlite:work.db there").good();
    assert_eq!(read(&there.join("b")), "in the fork");
    pair.finish();
}

#[test]
fn one_that_is_killed_holds_nobody_up() {
    let Some(pair) = Pair::mounted() else { return };
    let [here, there] = pair.mounts();
    for file in 0..10 {
        fs::write(there.join(format!("{file}")), format!("written {file}")).unwrap();
    }
    let pid = Pid::from_raw(pair.daemon_there()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let began = Instant::now();
    while test_kill_process(pid).is_ok() {
        assert!(began.elapsed() < PATIENCE, "the daemon does not die");
        thread::sleep(Duration::from_millis(10));
    }
    for file in 0..10 {
        assert_eq!(read(&here.join(format!("{file}"))), format!("written {file}"));
    }
    fs::write(here.join("after"), "alive").unwrap();
    while pair.bench.run("clients sqlite:work.db --json").result()["clients"]
        .as_array()
        .unwrap()
        .len()
        > 1
    {
        assert!(began.elapsed() < PATIENCE, "the dead one is never expelled");
        thread::sleep(Duration::from_millis(100));
    }
    // It comes again, and both go on.
    pair.in_other(&["umount", "-l", "there"]).good();
    pair.there("mount sqlite:work.db there").good();
    assert_eq!(read(&pair.mounts()[1].join("after")), "alive");
    pair.finish();
}

#[test]
fn one_that_is_stopped_is_expelled_and_does_no_harm_when_it_goes_on() {
    let Some(pair) = Pair::new() else { return };
    pair.bench.run("mount sqlite:work.db here").good();
    let [here, there] = pair.mounts();
    fs::write(here.join("a"), "synced").unwrap();
    File::open(here.join("a")).unwrap().sync_all().unwrap();
    let pid = Pid::from_raw(pair.bench.daemon_pid("here")).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    pair.there("mount sqlite:work.db there").good();
    assert_eq!(read(&there.join("a")), "synced");
    fs::write(there.join("a"), "by the second").unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    assert!(
        fs::write(here.join("b"), "late")
            .and_then(|()| File::open(here.join("b"))?.sync_all())
            .is_err()
    );
    assert_eq!(names(&there), ["a"]);
    assert_eq!(read(&there.join("a")), "by the second");
    pair.bench.run("unmount --detach here");
    pair.there("unmount there").good();
}
