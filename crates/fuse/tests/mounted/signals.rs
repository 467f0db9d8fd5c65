//! A program that has been killed gets out of a request that takes long.

use crate::fixture::{Mounted, can_mount};
use crate::proxy::Proxy;
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// How long the requests take.
const SLOW: Duration = Duration::from_secs(6);
/// In what time a killed program has to be gone.
const GONE: Duration = Duration::from_secs(4);
/// Longer than anything takes that waits for nothing.
const PATIENCE: Duration = Duration::from_secs(20);

fn slow_mount() -> Option<(Arc<Proxy>, Mounted)> {
    if !can_mount() {
        return None;
    }
    let proxy = Proxy::new();
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let name = Name::new(b"slow").unwrap();
    let made = proxy.create(Caller { uid: 0, gid: 0 }, Ino::ROOT, name, node).unwrap();
    proxy.forget(made.ino, 1);
    let mounted = Mounted::with(proxy.clone(), |_| ());
    Some((proxy, mounted))
}

/// Starts a program, kills it while it waits, and tells how long it took to go.
fn killed(program: &mut Command) -> Duration {
    let mut child = program.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "it waits");
    let begin = Instant::now();
    child.kill().unwrap();
    child.wait().unwrap();
    begin.elapsed()
}

#[test]
fn a_killed_program_does_not_wait_for_a_slow_sync_which_is_done_all_the_same() {
    let Some((proxy, mounted)) = slow_mount() else { return };
    fs::write(mounted.path("f"), b"x").unwrap();
    proxy.sync_ms.store(u64::try_from(SLOW.as_millis()).unwrap(), SeqCst);
    let took = killed(Command::new("sync").arg(mounted.path("f")));
    assert!(took < GONE, "{took:?}");
    proxy.sync_ms.store(0, SeqCst);
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"x");
    let syncs = mounted.events.clone();
    mounted.end();
    assert_eq!(proxy.syncs.load(SeqCst), 1);
    assert!(syncs.lock().unwrap().is_empty(), "an answer that comes too late is no event");
}

#[test]
fn an_inode_that_a_killed_program_asked_for_is_not_kept_for_it() {
    let Some((proxy, mounted)) = slow_mount() else { return };
    let before = proxy.space().unwrap().inodes_used;
    proxy.sync_ms.store(u64::try_from(SLOW.as_millis()).unwrap(), SeqCst);
    let took = killed(Command::new("stat").arg(mounted.path("slow")));
    assert!(took < GONE, "{took:?}");
    std::thread::sleep(SLOW - GONE + Duration::from_secs(3));
    proxy.sync_ms.store(0, SeqCst);
    fs::remove_file(mounted.path("slow")).unwrap();
    let begin = Instant::now();
    while proxy.space().unwrap().inodes_used == before {
        assert!(begin.elapsed() < GONE, "the inode is still held");
        std::thread::sleep(Duration::from_millis(20));
    }
    mounted.end();
}

/// Starts a program that changes names, and kills it while it waits for that.
fn killed_at_the_gate(proxy: &Proxy, program: &mut Command) {
    proxy.gate.close();
    let mut child = program.spawn().unwrap();
    proxy.gate.wait_for_somebody();
    child.kill().unwrap();
    wait_for("the program to go", || child.try_wait().unwrap().is_some());
}

fn wait_for(what: &str, is_there: impl FnMut() -> bool) {
    let mut is_there = is_there;
    let begin = Instant::now();
    while !is_there() {
        assert!(begin.elapsed() < PATIENCE, "waiting for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn names_that_are_made_after_their_program_was_killed_are_seen() {
    let Some((proxy, mounted)) = slow_mount() else { return };
    let root = mounted.root();
    fs::remove_file(mounted.path("slow")).unwrap();
    fs::write(mounted.path("f"), b"x").unwrap();
    assert_eq!(names(&root), ["f"]);
    killed_at_the_gate(&proxy, Command::new("mkdir").arg(mounted.path("d")));
    assert!(fs::metadata(mounted.path("d")).is_err(), "it is not there, and the kernel knows that");
    proxy.gate.open();
    wait_for("the directory", || fs::metadata(mounted.path("d")).is_ok());
    wait_for("its entry", || names(&root) == ["d", "f"]);
    assert_eq!(fs::metadata(&root).unwrap().nlink(), 3);

    killed_at_the_gate(&proxy, Command::new("ln").args([mounted.path("f"), mounted.path("g")]));
    assert!(fs::metadata(mounted.path("g")).is_err());
    proxy.gate.open();
    wait_for("the second name", || fs::metadata(mounted.path("g")).is_ok());
    wait_for("its count", || fs::metadata(mounted.path("f")).unwrap().nlink() == 2);
    assert!(mounted.events.lock().unwrap().is_empty(), "all as it should be");
    mounted.end();
}

#[test]
fn names_that_move_and_go_after_their_program_was_killed_are_seen() {
    let Some((proxy, mounted)) = slow_mount() else { return };
    let before = proxy.space().unwrap().inodes_used;
    fs::write(mounted.path("a"), b"x").unwrap();
    killed_at_the_gate(&proxy, Command::new("mv").args([mounted.path("a"), mounted.path("b")]));
    assert!(fs::metadata(mounted.path("a")).is_ok() && fs::metadata(mounted.path("b")).is_err());
    proxy.gate.open();
    wait_for("the new name", || fs::metadata(mounted.path("b")).is_ok());
    wait_for("the old one to go", || fs::metadata(mounted.path("a")).is_err());

    killed_at_the_gate(&proxy, Command::new("rm").arg(mounted.path("b")));
    assert!(fs::metadata(mounted.path("b")).is_ok());
    proxy.gate.open();
    wait_for("the name to go", || fs::metadata(mounted.path("b")).is_err());
    wait_for("the inode to go", || proxy.space().unwrap().inodes_used == before);
    mounted.end();
}

#[test]
fn what_a_killed_program_writes_late_is_seen_by_all() {
    let Some((proxy, mounted)) = slow_mount() else { return };
    let path = mounted.path("f");
    fs::write(&path, b"x").unwrap();
    proxy.write_gate.close();
    let append = format!("printf more >> {}", path.display());
    let mut child = Command::new("sh").args(["-c", &append]).spawn().unwrap();
    proxy.write_gate.wait_for_somebody();
    child.kill().unwrap();
    wait_for("the program to go", || child.try_wait().unwrap().is_some());
    assert_eq!(fs::metadata(&path).unwrap().len(), 1);
    proxy.write_gate.open();
    wait_for("the length", || fs::metadata(&path).unwrap().len() == 5);
    assert_eq!(fs::read(&path).unwrap(), b"xmore");
    mounted.end();
}

#[test]
fn a_killed_program_goes_also_if_the_kernel_has_to_wait_for_it_before_it_can_be_told() {
    let Some((proxy, mounted)) = slow_mount() else { return };
    killed_at_the_gate(&proxy, Command::new("mkdir").arg(mounted.path("first")));
    // The second holds the lock that a notification about the first's directory needs.
    proxy.answer_gate.close();
    let mut second = Command::new("mkdir").arg(mounted.path("second")).spawn().unwrap();
    proxy.answer_gate.wait_for_somebody();
    proxy.gate.open();
    std::thread::sleep(Duration::from_secs(2));
    let waits = second.try_wait().unwrap().is_none();
    second.kill().unwrap();
    let begin = Instant::now();
    while second.try_wait().unwrap().is_none() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = begin.elapsed();
    proxy.answer_gate.open();
    second.wait().unwrap();
    assert!(waits && took < PATIENCE, "{took:?}");
    wait_for("the first's directory", || fs::metadata(mounted.path("first")).is_ok());
    mounted.end();
}
