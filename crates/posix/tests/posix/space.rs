//! A full store, and a kept state.

use crate::{Bench, PLAIN, USER, name, pattern};
use marram_posix::{Posix, PosixOptions};
use marram_store::{DatasetName, Store};
use marram_vfs::{
    Error, FileSystem, Ino, Kind, NewNode, SetAttributes, SetTime, Timestamp, WriteOptions,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_full_store_refuses_and_can_be_emptied() {
    let bench = Bench::new();
    bench.store.set_limit(2 << 20);
    let mut files = Vec::new();
    let full = loop {
        let text = format!("f{}", files.len());
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        match bench.files.create(USER, Ino::ROOT, name(&text), node) {
            Ok(made) => files.push((text, made.ino)),
            Err(error) => break error,
        }
        let ino = files.last().unwrap().1;
        let before = bench.attributes(ino);
        if let Err(error) = bench.files.write(ino, 0, &pattern(1, 100_000), PLAIN) {
            assert_eq!(bench.attributes(ino), before, "a refused write changes nothing");
            break error;
        }
    };
    assert_eq!(full, Error::NoSpace);
    for (text, ino) in files {
        bench.files.unlink(Ino::ROOT, name(&text)).unwrap();
        bench.files.forget(ino, 1);
    }
    bench.reclaim(100);
    assert_eq!(bench.files.space().unwrap().inodes_used, 1);
    let ino = bench.file("again");
    bench.write(ino, 0, &pattern(1, 1_000_000));
}

#[test]
fn what_a_cache_has_accepted_still_fits_a_full_store() {
    let bench = Bench::new();
    bench.store.set_limit(2 << 20);
    let ino = bench.file("f");
    let write = |at: u64, options| bench.files.write(ino, at << 16, &[7; 4096], options);
    let full = (0..).find(|at| write(*at, PLAIN) == Err(Error::NoSpace)).unwrap();
    let accepted = WriteOptions { accepted: true, ..PLAIN };
    for at in full..full + 50 {
        write(at, accepted).expect("space was kept back for what was accepted");
    }
    assert_eq!(write(full + 50, PLAIN), Err(Error::NoSpace));
    let now = Timestamp { seconds: 7, nanoseconds: 7 };
    let times = SetAttributes { modified: Some(SetTime::At(now)), ..SetAttributes::default() };
    assert_eq!(bench.files.set_attributes(USER, ino, &times), Err(Error::NoSpace));
    let of_the_cache = SetAttributes { changed: Some(now), ..times };
    bench.files.set_attributes(USER, ino, &of_the_cache).expect("its data has been accepted");
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    bench.files.set_attributes(USER, ino, &cut).expect("cutting works all the same");
    bench.reclaim(100);
    write(0, PLAIN).unwrap();
}

#[test]
fn a_snapshot_is_read_only_and_whole() {
    let bench = Bench::new();
    let ino = bench.file("f");
    let open = bench.file("open");
    bench.files.unlink(Ino::ROOT, name("open")).unwrap();
    bench.write(ino, 0, b"before");
    bench.store.snapshot(&DatasetName::root(), "s").unwrap();
    bench.write(ino, 0, b"after!");
    let view = bench.store.open(&"root@s".parse().unwrap()).unwrap();
    let kept = Posix::new(view, PosixOptions::default()).unwrap();
    let mut out = Vec::new();
    kept.read(ino, 0, 10, &mut out).unwrap();
    assert_eq!(out, b"before");
    assert_eq!(kept.attributes(open), Err(Error::Stale), "nobody has it open there");
    assert_eq!(kept.write(ino, 0, b"x", PLAIN), Err(Error::ReadOnly));
    assert_eq!(kept.unlink(Ino::ROOT, name("f")), Err(Error::ReadOnly));
    assert_eq!(kept.reclaim_step(10), Ok(false));
    kept.sync_all().unwrap();
    assert_eq!(bench.read(ino, 0, 10), b"after!");
}

/// Fills what is left of a small store with the content of one file.
fn fill(bench: &Bench, ino: Ino) {
    bench.store.set_limit(2 << 20);
    let write = |at: u64| bench.files.write(ino, at << 16, &pattern(at as u8, 60_000), PLAIN);
    assert_eq!((0..).find_map(|at| write(at).err()), Some(Error::NoSpace));
}

fn with_patience(patience: Duration) -> Bench {
    let mut bench = Bench::new();
    let options = PosixOptions { patience, ..PosixOptions::default() };
    bench.files = Posix::new(Arc::clone(&bench.view), options).unwrap();
    bench
}

#[test]
fn who_finds_no_space_waits_for_what_was_just_removed() {
    let bench = with_patience(Duration::from_secs(60));
    let (large, other) = (bench.file("large"), bench.file("other"));
    fill(&bench, large);
    bench.files.unlink(Ino::ROOT, name("large")).unwrap();
    let again = pattern(7, 1_000_000);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| bench.files.write(other, 0, &again, PLAIN));
        // The kernel lets go of an inode a little after its last name is gone.
        bench.files.forget(large, 1);
        writer.join().unwrap()
    });
    written.expect("the space of what was removed before");
    assert_eq!(bench.read(other, 0, 1_000_000), again);
}

#[test]
fn what_stays_open_is_not_waited_for_long() {
    let bench = with_patience(Duration::from_millis(20));
    let (large, other) = (bench.file("large"), bench.file("other"));
    fill(&bench, large);
    bench.files.unlink(Ino::ROOT, name("large")).unwrap();
    let refused = bench.files.write(other, 0, &pattern(7, 1_000_000), PLAIN);
    assert_eq!(refused, Err(Error::NoSpace));
    assert_eq!(bench.attributes(large).links, 0, "its content is there as long as it is open");
}

#[test]
fn what_has_been_let_go_of_is_not_waited_for() {
    let patience = Duration::from_secs(120);
    let bench = with_patience(patience);
    let (large, small, other) = (bench.file("large"), bench.file("small"), bench.file("other"));
    fill(&bench, large);
    bench.files.unlink(Ino::ROOT, name("small")).unwrap();
    bench.files.forget(small, 1);
    let asked = Instant::now();
    let refused = bench.files.write(other, 0, &pattern(7, 1_000_000), PLAIN);
    assert_eq!(refused, Err(Error::NoSpace));
    assert!(asked.elapsed() < patience / 2, "there was nothing to wait for");
}

#[test]
fn a_sync_of_everything_frees_what_was_removed() {
    let bench = Bench::new();
    let large = bench.file("large");
    fill(&bench, large);
    bench.files.unlink(Ino::ROOT, name("large")).unwrap();
    bench.files.forget(large, 1);
    bench.files.sync_all().unwrap();
    assert_eq!(bench.files.space().unwrap().inodes_used, 1);
}
