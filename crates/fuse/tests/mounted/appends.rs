//! Appends to files whose end has moved behind the kernel's back.

use crate::fixture::{Mounted, can_mount};
use crate::proxy::Proxy;
use marram_vfs::{Caller, FileSystem, Ino, SetAttributes};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// A file of four bytes that a program has open for appending, and has read through the cache.
fn appended() -> Option<(Arc<Proxy>, Mounted, Ino, File)> {
    can_mount().then(|| {
        let proxy = Proxy::new();
        let mounted = Mounted::with(proxy.clone(), |_| ());
        let path = mounted.path("log");
        let mut log = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        log.write_all(b"one\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\n");
        let ino = Ino(fs::metadata(&path).unwrap().ino());
        (proxy, mounted, ino, log)
    })
}

/// Once the kernel has forgotten what it had in the wrong place.
fn is_seen_as(path: &Path, content: &[u8]) {
    let begin = Instant::now();
    while fs::read(path).unwrap() != content {
        assert!(begin.elapsed() < PATIENCE, "{:?} is seen", fs::read(path).unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn content(proxy: &Proxy, ino: Ino) -> Vec<u8> {
    let mut out = Vec::new();
    proxy.read(ino, 0, 1 << 20, &mut out).unwrap();
    out
}

#[test]
fn a_program_that_appends_leaves_what_was_appended_behind_its_back() {
    let Some((proxy, mounted, ino, mut log)) = appended() else { return };
    proxy.append(ino, b"two\n", Default::default()).unwrap();
    log.write_all(b"three\n").unwrap();
    assert_eq!(content(&proxy, ino), b"one\ntwo\nthree\n");
    is_seen_as(&mounted.path("log"), b"one\ntwo\nthree\n");
    log.write_all(b"four\n").unwrap();
    assert_eq!(content(&proxy, ino), b"one\ntwo\nthree\nfour\n");
    is_seen_as(&mounted.path("log"), b"one\ntwo\nthree\nfour\n");
    drop(log);
    mounted.end();
}

#[test]
fn a_program_that_appends_leaves_no_hole_where_a_file_was_cut_behind_its_back() {
    let Some((proxy, mounted, ino, mut log)) = appended() else { return };
    let cut = SetAttributes { size: Some(1), ..Default::default() };
    proxy.set_attributes(Caller { uid: 0, gid: 0 }, ino, &cut).unwrap();
    log.write_all(b"two\n").unwrap();
    assert_eq!(content(&proxy, ino), b"otwo\n");
    is_seen_as(&mounted.path("log"), b"otwo\n");
    drop(log);
    mounted.end();
}

#[test]
fn a_long_append_stays_in_one_piece_and_in_order() {
    let Some((proxy, mounted, ino, mut log)) = appended() else { return };
    proxy.append(ino, b"two\n", Default::default()).unwrap();
    let long: Vec<u8> = (0..5 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 4]).collect();
    log.write_all(&long).unwrap();
    let all = [&b"one\ntwo\n"[..], &long].concat();
    is_seen_as(&mounted.path("log"), &all);
    drop(log);
    mounted.end();
}

#[test]
fn a_long_direct_append_is_in_order() {
    let Some((_proxy, mounted, _ino, log)) = appended() else { return };
    drop(log);
    let long: Vec<u8> =
        (0..8_u32 << 20).map(|at| at.to_le_bytes()[2 * (at as usize % 2)]).collect();
    for round in 0..8 {
        let path = mounted.path(&format!("direct{round}"));
        let mut options = OpenOptions::new();
        options.append(true).create(true).custom_flags(libc::O_DIRECT);
        options.open(&path).unwrap().write_all(&long).unwrap();
        assert!(fs::read(&path).unwrap() == long, "round {round}");
    }
    mounted.end();
}
