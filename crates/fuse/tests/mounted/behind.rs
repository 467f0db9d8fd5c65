//! What changes behind the kernel's back while it waits for an answer that was given before.

use crate::fixture::{Mounted, can_mount};
use crate::proxy::Proxy;
use marram_fuse::SessionHandle;
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode};
use rustix::fs::{Stat, stat};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

const ROOT: Caller = Caller { uid: 0, gid: 0 };

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// Makes a file that the kernel knows nothing of.
fn made(proxy: &Proxy, text: &str) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let ino = proxy.create(ROOT, Ino::ROOT, name(text), node).unwrap().ino;
    proxy.forget(ino, 1);
    ino
}

/// Looks at `f`, and has it changed while the answer is on its way; then waits until it is seen as
/// it is.
fn changed_meanwhile(
    mounted: &Mounted,
    proxy: &Proxy,
    change: impl FnOnce(&SessionHandle),
    is_seen: impl Fn(&Stat) -> bool,
) {
    // Not `fs::metadata`: that asks for the time of birth too, with a request of its own.
    let seen = || stat(mounted.path("f")).unwrap();
    proxy.answer_gate.close();
    std::thread::scope(|scope| {
        let early = scope.spawn(seen);
        proxy.answer_gate.wait_for_somebody();
        change(&mounted.session.as_ref().unwrap().handle());
        proxy.answer_gate.open();
        assert!(!is_seen(&early.join().unwrap()), "it was answered before");
    });
    let begin = Instant::now();
    while !is_seen(&seen()) {
        assert!(begin.elapsed() < PATIENCE, "it is seen as it was");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn watched() -> Option<(Arc<Proxy>, Mounted)> {
    can_mount().then(|| {
        let proxy = Proxy::new();
        let mounted = Mounted::with(proxy.clone(), |_| ());
        (proxy, mounted)
    })
}

#[test]
fn attributes_on_their_way_do_not_outlive_a_change() {
    let Some((proxy, mounted)) = watched() else { return };
    let ino = made(&proxy, "f");
    let grow = |handle: &SessionHandle| {
        proxy.write(ino, 0, b"ten bytes.", Default::default()).unwrap();
        handle.notify_inode(ino, &(0..u64::MAX));
    };
    changed_meanwhile(&mounted, &proxy, grow, |seen| seen.st_size == 10);
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"ten bytes.");
    mounted.end();
}

#[test]
fn a_file_that_was_made_behind_the_kernels_back_is_opened_or_exists() {
    let Some((proxy, mounted)) = watched() else { return };
    for text in ["f", "g", "h"] {
        assert!(fs::metadata(mounted.path(text)).is_err(), "the kernel knows that it is not there");
        let ino = made(&proxy, text);
        proxy.write(ino, 0, b"there", Default::default()).unwrap();
    }
    let create = || fs::OpenOptions::new().append(true).create(true).open(mounted.path("f"));
    create().expect("`O_CREAT` opens what is there");
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"there");
    let exists = fs::File::create_new(mounted.path("g")).unwrap_err();
    assert_eq!(exists.kind(), std::io::ErrorKind::AlreadyExists);
    let exists = fs::create_dir(mounted.path("h")).unwrap_err();
    assert_eq!(exists.kind(), std::io::ErrorKind::AlreadyExists);
    mounted.end();
}

#[test]
fn a_name_on_its_way_does_not_outlive_a_change() {
    let Some((proxy, mounted)) = watched() else { return };
    made(&proxy, "f");
    let other = made(&proxy, "g");
    fs::metadata(mounted.path("f")).unwrap();
    mounted.session.as_ref().unwrap().handle().notify_entry(Ino::ROOT, name("f"));
    let replace = |handle: &SessionHandle| {
        let mode = RenameMode::Replace;
        proxy.rename(ROOT, Ino::ROOT, name("g"), Ino::ROOT, name("f"), mode).unwrap();
        handle.notify_entry(Ino::ROOT, name("f"));
    };
    changed_meanwhile(&mounted, &proxy, replace, |seen| seen.st_ino == other.0);
    mounted.end();
}
