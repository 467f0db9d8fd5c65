//! Hosts that share a home on a server: the server dies, a link is cut, a host loses its power or
//! comes back late. Nothing that was acknowledged is lost, and nobody does harm.

use crate::pair::{PATIENCE, Pair, Place};
use crate::tunnel::Flow;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn write_synced(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The forks that lost clients have left.
fn lost_forks(pair: &Pair) -> Vec<PathBuf> {
    let folder = pair.mounts()[0].join(".marram/forks");
    let found = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    found.filter(|path| path.to_string_lossy().contains("/lost-")).collect()
}

#[test]
fn a_server_that_is_killed_while_both_write_is_waited_for() {
    let Some(mut pair) = Pair::mounted(Place::Server) else { return };
    let (mounts, is_over) = (pair.mounts(), AtomicBool::new(false));
    let mut server = pair.server.take().unwrap();
    let write = |which: usize, mount: &Path| {
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            let text = format!("{which} has written {count}");
            write_synced(&mount.join(format!("{which}-{count}")), &text).unwrap();
            count += 1;
        }
        count
    };
    let write = &write;
    let counts: Vec<usize> = thread::scope(|scope| {
        let writers: Vec<_> = mounts
            .iter()
            .enumerate()
            .map(|(which, mount)| scope.spawn(move || write(which, mount)))
            .collect();
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(700));
            server.kill();
            thread::sleep(Duration::from_millis(300));
            server.run();
        }
        thread::sleep(Duration::from_millis(700));
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    pair.server = Some(server);
    assert!(counts.iter().all(|count| *count > 2), "{counts:?} files");
    for (which, count) in counts.iter().enumerate() {
        for number in 0..*count {
            for mount in &mounts {
                let text = fs::read_to_string(mount.join(format!("{which}-{number}"))).unwrap();
                assert_eq!(text, format!("{which} has written {number}"));
            }
        }
    }
    pair.finish();
}

#[test]
fn a_host_that_is_cut_off_is_expelled_and_does_no_harm_when_the_link_is_back() {
    let Some(pair) = Pair::mounted(Place::Server) else { return };
    let [here, there] = pair.mounts();
    write_synced(&there.join("a"), "before").unwrap();
    let tunnel = pair.tunnel.as_ref().unwrap();
    tunnel.let_through(Flow::Nothing);
    thread::scope(|scope| {
        let late = scope.spawn(|| write_synced(&there.join("late"), "late"));
        write_synced(&here.join("a"), "meanwhile").unwrap();
        pair.await_clients(1);
        tunnel.let_through(Flow::Open);
        assert!(late.join().unwrap().is_err(), "nobody has seen it");
    });
    assert!(!here.join("late").exists());
    assert_eq!(fs::read_to_string(here.join("a")).unwrap(), "meanwhile");
    let began = Instant::now();
    loop {
        match fs::read_to_string(there.join("a")) {
            Ok(found) => break assert_eq!(found, "meanwhile", "it shows nothing that is old"),
            Err(_) => assert!(began.elapsed() < PATIENCE, "it never goes on"),
        }
        thread::sleep(Duration::from_millis(50));
    }
    write_synced(&there.join("back"), "back").unwrap();
    assert_eq!(fs::read_to_string(here.join("back")).unwrap(), "back");
    pair.finish();
}

#[test]
fn a_host_that_loses_its_power_leaves_what_was_published_and_nothing_else() {
    let Some(mut pair) = Pair::new(Place::Server) else { return };
    for boot in ["the second boot", "the third boot"] {
        pair.there("mount URL there").good();
        write_synced(&pair.mounts()[1].join(boot), boot).unwrap();
        // One that is not is expelled later than the next one comes.
        pair.await_alone();
        signal(pair.daemon_there(), Signal::KILL);
        pair.in_other(&["umount", "-l", "there"]).good();
        pair.boot(boot);
    }
    pair.there("mount URL there").good();
    for boot in ["the second boot", "the third boot"] {
        assert_eq!(fs::read_to_string(pair.mounts()[1].join(boot)).unwrap(), boot);
    }
    let listed = pair.there("list URL").good().out;
    assert!(!listed.contains("lost-"), "{listed}");
    pair.there("unmount there").good();
    pair.check();
}

#[test]
fn what_a_host_had_waiting_becomes_a_fork_when_it_comes_back() {
    let Some(pair) = Pair::new(Place::Server) else { return };
    pair.there("mount URL there").good();
    let [here, there] = pair.mounts();
    write_synced(&there.join("a"), "published").unwrap();
    fs::write(there.join("a"), "waits").unwrap();
    let daemon = pair.daemon_there();
    fs::write(there.join("b"), "waits too").unwrap();
    signal(daemon, Signal::STOP);
    pair.run("mount URL here").good();
    fs::write(here.join("a"), "by the other").unwrap();
    let listed = pair.run("list URL").good().out;
    assert!(listed.contains("root@lost-"), "{listed}");
    signal(daemon, Signal::CONT);
    let began = Instant::now();
    // It was stopped a moment after its writes: perhaps the beginning of them was published.
    while lost_forks(&pair).is_empty() && !here.join("b").exists() {
        assert!(began.elapsed() < PATIENCE, "what waited is nowhere");
        thread::sleep(Duration::from_millis(100));
    }
    let place = lost_forks(&pair).pop().unwrap_or_else(|| here.clone());
    let read = || fs::read_to_string(place.join("b")).unwrap_or_default();
    while read() != "waits too" {
        assert!(began.elapsed() < PATIENCE, "{:?} in {}", read(), place.display());
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(fs::read_to_string(here.join("a")).unwrap(), "by the other");
    while fs::read_to_string(there.join("a")).ok().as_deref() != Some("by the other") {
        assert!(began.elapsed() < PATIENCE, "it never goes on");
        thread::sleep(Duration::from_millis(100));
    }
    let listed = pair.run("list URL").good().out;
    assert!(!listed.contains("root@lost-"), "what it came back for: {listed}");
    pair.finish();
}
