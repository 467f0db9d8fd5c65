//! Two daemons with one cluster home open: names are exact, and what one has done the other sees at
//! once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hosts;
mod pair;
#[allow(dead_code, reason = "these tests use a part of the server")]
#[path = "../../cluster/tests/server.rs"]
mod server;
#[allow(dead_code, reason = "these tests use a part of the tunnel")]
#[path = "../../cluster/tests/tunnel.rs"]
mod tunnel;
#[allow(dead_code, reason = "these tests use a part of the bench")]
mod workbench;

use crate::pair::{PATIENCE, Pair, Place};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Each test on a home in a file, and on a server.
macro_rules! on_each_home {
    ($($test:ident),* $(,)?) => {
        mod in_a_file {
            $(#[test] fn $test() { super::$test(super::Place::File); })*
        }
        mod on_a_server {
            $(#[test] fn $test() { super::$test(super::Place::Server); })*
        }
    };
}

mod all_or_nothing;
mod locks;
mod programs;
mod resting;

on_each_home!(
    each_sees_what_the_other_has_done_at_once,
    what_the_first_has_written_behind_is_there_when_the_second_comes,
    exactly_one_wins_each_race_for_a_name,
    appends_of_both_are_all_there_and_none_lies_in_another,
    a_file_that_one_has_open_stays_readable_when_the_other_removes_it,
    snapshots_forks_and_merges_are_seen_by_both,
    a_merge_is_done_whole_while_the_other_writes,
    a_directory_goes_back_beside_the_other,
    one_of_them_takes_the_snapshot_that_is_due,
    one_that_is_killed_holds_nobody_up,
    one_that_is_stopped_is_expelled_and_does_no_harm_when_it_goes_on,
);

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

fn each_sees_what_the_other_has_done_at_once(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
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

fn one_of_them_takes_the_snapshot_that_is_due(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
    let [here, there] = pair.mounts();
    fs::write(here.join("a"), "one").unwrap();
    pair.run("set here snapshots=1w:3").good();
    let taken = |mount: &Path| {
        let mut taken = names(&mount.join(".marram/snapshots"));
        taken.retain(|name| name.starts_with("auto:"));
        taken
    };
    let began = Instant::now();
    while taken(&here).is_empty() || taken(&there).is_empty() {
        assert!(began.elapsed() < PATIENCE, "{}", pair.bench.log());
        thread::sleep(Duration::from_millis(100));
    }
    // Both look each two seconds.
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(taken(&here).len(), 1, "{:?}", taken(&here));
    assert_eq!(taken(&here), taken(&there));
    pair.finish();
}

fn what_the_first_has_written_behind_is_there_when_the_second_comes(place: Place) {
    let Some(pair) = Pair::new(place) else { return };
    pair.run("mount URL here").good();
    let [here, there] = pair.mounts();
    fs::write(here.join("kept"), "by the first").unwrap();
    fs::write(here.join("gone"), "soon").unwrap();
    assert!(here.join("gone").exists() && !here.join("new").exists(), "the kernel knows these");
    assert_eq!(read(&here.join("kept")), "by the first");
    pair.there("mount URL there").good();
    assert_eq!(read(&there.join("kept")), "by the first");
    fs::remove_file(there.join("gone")).unwrap();
    fs::write(there.join("new"), "by the second").unwrap();
    fs::write(there.join("kept"), "by the second").unwrap();
    assert!(!here.join("gone").exists());
    assert_eq!([read(&here.join("new")), read(&here.join("kept"))], ["by the second"; 2]);
    let listed = pair.run("clients URL --json").result();
    assert_eq!(listed["clients"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(listed["clients"][0]["is_alone"], false, "{listed}");
    pair.finish();
}

fn exactly_one_wins_each_race_for_a_name(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
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

fn appends_of_both_are_all_there_and_none_lies_in_another(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
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

fn a_file_that_one_has_open_stays_readable_when_the_other_removes_it(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
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

fn snapshots_forks_and_merges_are_seen_by_both(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
    let [here, there] = pair.mounts();
    fs::write(here.join("a"), "before").unwrap();
    pair.run("snapshot here@s").good();
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
    pair.run("update here/.marram/forks/try").good();
    assert_eq!(read(&there.join(".marram/forks/try/a")), "after");
    pair.run("merge here/.marram/forks/try").good();
    for mount in [&here, &there] {
        assert_eq!([read(&mount.join("a")), read(&mount.join("b"))], ["after", "in the fork"]);
    }
    pair.finish();
}

fn a_directory_goes_back_beside_the_other(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
    let [here, there] = pair.mounts();
    fs::create_dir(here.join("d")).unwrap();
    fs::write(there.join("d/a"), "before").unwrap();
    pair.run("snapshot here@s").good();
    fs::write(here.join("d/a"), "after").unwrap();
    fs::write(there.join("d/b"), "new").unwrap();
    fs::write(there.join("c"), "beside").unwrap();
    pair.run("rollback here/d@s").good();
    for mount in [&here, &there] {
        assert_eq!(
            (names(&mount.join("d")), read(&mount.join("d/a"))),
            (vec!["a".into()], "before".into())
        );
        assert_eq!(read(&mount.join("c")), "beside");
    }
    pair.finish();
}

fn a_merge_is_done_whole_while_the_other_writes(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
    let [here, there] = pair.mounts();
    fs::create_dir(here.join("d")).unwrap();
    pair.run("fork here try").good();
    let fork = here.join(".marram/forks/try");
    (0..20).for_each(|file| fs::write(fork.join(format!("d/{file}")), "merged").unwrap());
    fs::write(there.join("gone"), "open").unwrap();
    let mut open = File::open(there.join("gone")).unwrap();
    pair.run("update here/.marram/forks/try").good();
    fs::remove_file(fork.join("gone")).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for file in 0..10 {
                fs::write(there.join(format!("w{file}")), format!("{file}")).unwrap();
                let merged = fs::read_dir(there.join("d")).unwrap().count();
                assert!(merged == 0 || merged == 20, "{merged} of 20 files are merged");
                thread::sleep(Duration::from_millis(200));
            }
        });
        thread::sleep(Duration::from_millis(500));
        let merged = pair.run("merge here/.marram/forks/try");
        writer.join().unwrap();
        merged.good();
    });
    for mount in [&here, &there] {
        assert_eq!(fs::read_dir(mount.join("d")).unwrap().count(), 20);
        assert!(!mount.join("gone").exists());
        for file in 0..10 {
            assert_eq!(read(&mount.join(format!("w{file}"))), format!("{file}"));
        }
    }
    let mut content = String::new();
    std::io::Read::read_to_string(&mut open, &mut content).unwrap();
    assert_eq!(content, "open", "what the other has open stays, though the merge removes it");
    drop(open);
    pair.finish();
}

fn one_that_is_killed_holds_nobody_up(place: Place) {
    let Some(pair) = Pair::mounted(place) else { return };
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
    pair.await_clients(1);
    // It comes again, and both go on.
    pair.in_other(&["umount", "-l", "there"]).good();
    pair.there("mount URL there").good();
    assert_eq!(read(&pair.mounts()[1].join("after")), "alive");
    pair.finish();
}

fn one_that_is_stopped_is_expelled_and_does_no_harm_when_it_goes_on(place: Place) {
    let Some(pair) = Pair::new(place) else { return };
    pair.run("mount URL here").good();
    let [here, there] = pair.mounts();
    fs::write(here.join("a"), "synced").unwrap();
    File::open(here.join("a")).unwrap().sync_all().unwrap();
    let pid = Pid::from_raw(pair.bench.daemon_pid("here")).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    pair.there("mount URL there").good();
    assert_eq!(read(&there.join("a")), "synced");
    fs::write(there.join("a"), "by the second").unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    // It learns of it at once, and goes on as one that has come anew.
    let began = Instant::now();
    while fs::write(here.join("b"), "late")
        .and_then(|()| File::open(here.join("b"))?.sync_all())
        .is_err()
        || fs::read_to_string(there.join("b")).is_err()
    {
        assert!(began.elapsed() < PATIENCE, "it never goes on");
        thread::sleep(Duration::from_millis(50));
    }
    for mount in [&here, &there] {
        assert_eq!([read(&mount.join("a")), read(&mount.join("b"))], ["by the second", "late"]);
    }
    // The end of the other one takes nothing from it: what it syncs from then on is kept.
    pair.there("unmount there").good();
    fs::write(here.join("c"), "after that").unwrap();
    File::open(here.join("c")).unwrap().sync_all().unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    pair.bench.host(&["umount", "-l", "here"]).good();
    pair.run("mount URL here").good();
    assert_eq!(read(&here.join("c")), "after that");
    pair.run("unmount here").good();
    pair.check();
}
