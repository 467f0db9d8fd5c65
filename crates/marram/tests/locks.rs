//! Programs of two hosts exclude each other by locks.

use crate::{PATIENCE, Pair, Place, read};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

on_each_home!(
    a_lock_on_one_host_excludes_those_on_the_other,
    the_locks_of_a_host_that_dies_are_free,
);

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sharing/lock.py");
const FAMILIES: [&str; 3] = ["flock", "fcntl", "ofd"];
/// More programs than threads that serve a mount.
const WAITING: usize = 10;
/// Nothing is heard of a program that waits for so long.
const SILENCE: Duration = Duration::from_millis(300);

/// The interpreter itself: what stands for it in a path may take long to find it.
pub(crate) fn python() -> Option<&'static str> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let print = ["-c", "import sys; print(sys.executable)"];
        let found = Command::new("python3")
            .args(print)
            .output()
            .ok()
            .filter(|found| found.status.success());
        found.map(|found| String::from_utf8(found.stdout).unwrap().trim().to_owned())
    };
    let found = FOUND.get_or_init(find).as_deref();
    if found.is_none() {
        eprintln!("SKIPPED: programs that lock need python3");
    }
    found
}

fn pair(place: Place) -> Option<Pair> {
    python().and_then(|_| Pair::mounted(place))
}

/// A program that locks.
struct Locker {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Locker {
    fn start(words: &str, path: &Path) -> Locker {
        let mut words = words.split_whitespace();
        let mut command = Command::new(python().unwrap());
        command.args(["-I", "-S", PROGRAM]).args(words.by_ref().take(2)).arg(path).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Locker { child, out }
    }

    /// One that is about to wait for a lock.
    #[track_caller]
    fn wait(words: &str, path: &Path) -> Locker {
        let mut locker = Locker::start(&format!("{words} wait"), path);
        assert_eq!(locker.says(), "asks");
        locker
    }

    /// What it says next.
    #[track_caller]
    fn says(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// The same of one that has just been started.
    #[track_caller]
    fn said(words: &str, path: &Path) -> String {
        let mut locker = Locker::start(words, path);
        let said = locker.says();
        locker.end();
        said
    }

    /// Whether it waits.
    fn is_silent(&mut self) -> bool {
        thread::sleep(SILENCE);
        let flags = rustix::fs::fcntl_getfl(self.out.get_ref()).unwrap();
        let without = |flags| rustix::fs::fcntl_setfl(self.out.get_ref(), flags).unwrap();
        without(flags | rustix::fs::OFlags::NONBLOCK);
        let mut byte = [0];
        let read = self.out.get_mut().read(&mut byte);
        rustix::fs::fcntl_setfl(self.out.get_ref(), flags).unwrap();
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends its input, and waits for its end.
    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }

    /// Waits for its end, which must come soon.
    #[track_caller]
    fn ends(mut self) {
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A file that both mounts see.
fn file(pair: &Pair, name: &str) -> [PathBuf; 2] {
    let files = pair.mounts().map(|mount| mount.join(name));
    fs::write(&files[0], "0").unwrap();
    files
}

/// Tries until a lock is free: a lock of an open file ends a moment after the program.
#[track_caller]
fn is_soon_free(words: &str, path: &Path) {
    let began = Instant::now();
    while Locker::said(words, path) != "held" {
        assert!(began.elapsed() < PATIENCE, "{words}: it is never free");
    }
}

fn a_lock_on_one_host_excludes_those_on_the_other(place: Place) {
    let Some(pair) = pair(place) else { return };
    for family in FAMILIES {
        let [here, there] = file(&pair, family);
        let exclusive = format!("{family} exclusive");
        let shared = format!("{family} shared");
        for (by, other) in [(&here, &there), (&there, &here)] {
            let mut holder = Locker::start(&exclusive, by);
            assert_eq!(holder.says(), "held", "{family}");
            for path in [by, other] {
                assert_eq!(Locker::said(&exclusive, path), "busy", "{family}");
                assert_eq!(Locker::said(&shared, path), "busy", "{family}");
            }
            let mut waiting = [by, other].map(|it| Locker::wait(&shared, it));
            assert!(waiting.iter_mut().all(Locker::is_silent), "{family}");
            holder.end();
            for waiting in &mut waiting {
                assert_eq!(waiting.says(), "held", "{family}");
            }
            assert_eq!(Locker::said(&exclusive, other), "busy", "{family}");
            assert_eq!(Locker::said(&shared, other), "held", "{family}");
            waiting.into_iter().for_each(Locker::end);
            is_soon_free(&exclusive, other);
        }
    }
    pair.finish();
}

#[test]
fn what_one_has_locked_alone_stays_locked_when_another_comes() {
    let Some(pair) = python().and_then(|_| Pair::new(Place::File)) else { return };
    pair.run("mount URL here").good();
    let locks = FAMILIES.map(|family| {
        let [here, there] = file(&pair, family);
        let mut holder = Locker::start(&format!("{family} exclusive"), &here);
        assert_eq!(holder.says(), "held");
        assert_eq!(Locker::said(&format!("{family} shared"), &here), "busy");
        let mut waiting = Locker::wait(&format!("{family} exclusive"), &here);
        assert!(waiting.is_silent());
        (format!("{family} exclusive"), holder, waiting, there)
    });
    pair.there("mount URL there").good();
    for (words, holder, mut waiting, there) in locks {
        assert_eq!(Locker::said(&words, &there), "busy");
        holder.end();
        assert_eq!(waiting.says(), "held");
        assert_eq!(Locker::said(&words, &there), "busy");
        waiting.end();
        is_soon_free(&words, &there);
    }
    pair.finish();
}

#[test]
fn ranges_that_do_not_meet_are_locked_on_both_hosts() {
    let Some(pair) = pair(Place::File) else { return };
    for family in ["fcntl", "ofd"] {
        let [here, there] = file(&pair, family);
        let mut first = Locker::start(&format!("{family} exclusive 0 10"), &here);
        assert_eq!(first.says(), "held");
        let mut second = Locker::start(&format!("{family} exclusive 10 0"), &there);
        assert_eq!(second.says(), "held");
        assert_eq!(Locker::said(&format!("{family} exclusive 9 1"), &there), "busy");
        assert_eq!(Locker::said(&format!("{family} shared 1000000 1"), &here), "busy");
        assert_eq!(Locker::said("flock exclusive", &there), "held", "it does not meet them");
        first.end();
        is_soon_free(&format!("{family} exclusive 0 10"), &there);
        second.end();
    }
    pair.finish();
}

#[test]
fn a_program_that_waits_for_a_lock_is_interrupted() {
    pair(Place::File).into_iter().for_each(waits_are_interrupted);
}

#[test]
fn a_program_that_waits_for_a_lock_over_io_uring_is_interrupted() {
    let parameter = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if !parameter.is_ok_and(|value| value.trim() == "Y") {
        eprintln!("SKIPPED: the kernel does not offer io_uring for FUSE");
        return;
    }
    let Some(pair) = python().and_then(|_| Pair::new(Place::File)) else { return };
    pair.run("mount URL here -o transport=io_uring").good();
    pair.there("mount URL there -o transport=io_uring").good();
    waits_are_interrupted(pair);
}

fn waits_are_interrupted(pair: Pair) {
    for family in FAMILIES {
        let [here, there] = file(&pair, family);
        let mut holder = Locker::start(&format!("{family} exclusive"), &here);
        assert_eq!(holder.says(), "held");
        for path in [&here, &there] {
            let wait = || Locker::wait(&format!("{family} exclusive"), path);
            let mut alarmed = wait();
            assert!(alarmed.is_silent());
            alarmed.signal(Signal::ALARM);
            assert_eq!(alarmed.says(), "interrupted", "{family}");
            alarmed.end();
            for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
                let mut killed = wait();
                assert!(killed.is_silent());
                killed.signal(signal);
                killed.ends();
            }
        }
        let mut next = Locker::wait(&format!("{family} exclusive"), &there);
        assert!(next.is_silent());
        holder.end();
        assert_eq!(next.says(), "held", "{family}");
        next.end();
        is_soon_free(&format!("{family} exclusive"), &there);
    }
    pair.finish();
}

#[test]
fn programs_that_wait_hold_nobody_up() {
    let Some(pair) = pair(Place::File) else { return };
    let [here, there] = file(&pair, "file");
    let mut holder = Locker::start("fcntl exclusive", &there);
    assert_eq!(holder.says(), "held");
    let wait = |_| Locker::wait("fcntl exclusive", &here);
    let mut waiting: Vec<Locker> = (0..WAITING).map(wait).collect();
    assert!(waiting.iter_mut().all(Locker::is_silent));
    let began = Instant::now();
    fs::write(here.with_file_name("other"), "served").unwrap();
    assert_eq!(read(&there.with_file_name("other")), "served");
    assert!(began.elapsed() < PATIENCE / 3, "those that wait keep the threads that serve");
    holder.end();
    // In which order they come is not said: each lets go when it has been heard.
    waiting.iter_mut().for_each(|waiting| drop(waiting.child.stdin.take()));
    for mut waiting in waiting {
        assert_eq!(waiting.says(), "held");
        waiting.ends();
    }
    pair.finish();
}

#[test]
fn the_locks_of_a_program_that_is_killed_are_free() {
    let Some(pair) = pair(Place::File) else { return };
    for family in FAMILIES {
        let [here, there] = file(&pair, family);
        let mut holder = Locker::start(&format!("{family} exclusive"), &here);
        assert_eq!(holder.says(), "held");
        let mut waiting = Locker::wait(&format!("{family} exclusive"), &there);
        assert!(waiting.is_silent());
        holder.signal(Signal::KILL);
        assert_eq!(waiting.says(), "held", "{family}");
        waiting.end();
        holder.ends();
    }
    pair.finish();
}

fn the_locks_of_a_host_that_dies_are_free(place: Place) {
    let Some(pair) = pair(place) else { return };
    let locks = FAMILIES.map(|family| {
        let [here, there] = file(&pair, family);
        let mut holder = Locker::start(&format!("{family} exclusive"), &there);
        assert_eq!(holder.says(), "held");
        let mut waiting = Locker::wait(&format!("{family} exclusive"), &here);
        assert!(waiting.is_silent());
        (holder, waiting)
    });
    kill_process(Pid::from_raw(pair.daemon_there()).unwrap(), Signal::KILL).unwrap();
    for (holder, mut waiting) in locks {
        assert_eq!(waiting.says(), "held");
        waiting.end();
        holder.end();
    }
    pair.in_other(&["umount", "-l", "there"]).good();
    pair.there("mount URL there").good();
    let there = pair.mounts()[1].clone();
    for family in FAMILIES {
        is_soon_free(&format!("{family} exclusive"), &there.join(family));
    }
    pair.finish();
}

#[test]
fn a_host_that_is_stopped_loses_its_locks_and_does_no_harm_when_it_goes_on() {
    let Some(pair) = pair(Place::File) else { return };
    pair.bench.make_folder("pool");
    pair.run("create other.pool --size 64M").good();
    pair.run("mount other.pool pool").good();
    let [here, there] = file(&pair, "file");
    let mut holder = Locker::start("flock exclusive", &here);
    assert_eq!(holder.says(), "held");
    let daemon = Pid::from_raw(pair.bench.daemon_pid("here")).unwrap();
    kill_process(daemon, Signal::STOP).unwrap();
    let mut other = Locker::wait("flock exclusive", &there);
    let heard = other.says();
    // A daemon that does not even greet is no reason to leave out the others, and is named.
    let shown = pair.run("status");
    kill_process(daemon, Signal::CONT).unwrap();
    assert_eq!(heard, "held", "the one that is stopped is expelled");
    let place = |name: &str| pair.bench.path(name).display().to_string();
    let (pool, home) = (place("other.pool"), place("work.db"));
    assert_eq!(shown.status, 3, "{shown:?}");
    assert!(shown.out.contains(&pool), "{shown:?}");
    let named = format!("process {}, ", daemon.as_raw_pid());
    assert!(shown.err.contains(&named) && shown.err.contains("does not greet"), "{shown:?}");
    fs::write(&there, "by the other").unwrap();
    holder.child.stdin.take().unwrap().write_all(b"late").unwrap();
    assert_eq!(holder.says(), "refused", "it has lost the lock, and cannot write");
    assert!(fs::read(&here).is_err(), "nor does it show what is old");
    // A home that does not answer is no reason to leave out the others.
    let listed = pair.run("list");
    assert_eq!(listed.status, 3, "{listed:?}");
    assert!(listed.out.contains(&pool) && !listed.out.contains(&home), "{listed:?}");
    assert!(listed.err.contains(&home) && listed.err.contains("lost"), "{listed:?}");
    assert_eq!(read(&there), "by the other");
    holder.end();
    other.end();
    let began = Instant::now();
    while fs::read(&here).is_err() {
        assert!(began.elapsed() < PATIENCE, "it comes back when no lost lock is held");
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(read(&here), "by the other");
    is_soon_free("flock exclusive", &here);
    is_soon_free("flock exclusive", &there);
    pair.run("unmount pool").good();
    pair.finish();
}

#[test]
fn a_number_that_programs_of_both_hosts_count_up_loses_no_step() {
    let Some(pair) = pair(Place::File) else { return };
    const ROUNDS: u64 = 25;
    for family in FAMILIES {
        let files = file(&pair, family);
        let count = format!("{family} count {ROUNDS}");
        let programs: Vec<Locker> =
            [0, 1, 0, 1].iter().map(|at| Locker::start(&count, &files[*at])).collect();
        let programs_count = programs.len() as u64;
        programs.into_iter().for_each(Locker::ends);
        for file in &files {
            assert_eq!(read(file), (programs_count * ROUNDS).to_string(), "{family}");
        }
    }
    pair.finish();
}
