//! When reading moves the access time.

use crate::{Bench, PLAIN, USER, name};
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::View;
use marram_vfs::{
    Clock, Error, FileSystem, Ino, Kind, NewNode, QuietReads, SetAttributes, SetTime, SyncScope,
    Timestamp,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

#[test]
fn relative_times_move_once_after_a_change_and_once_a_day() {
    let bench = Bench::with(AccessTimes::Relative, 131_072);
    let ino = bench.file("f");
    bench.write(ino, 0, b"content");
    let accessed = || bench.attributes(ino).accessed;
    let before = accessed();
    bench.read(ino, 0, 10);
    let first = accessed();
    assert!(first > before);
    bench.read(ino, 0, 10);
    assert_eq!(accessed(), first);
    let set = SetAttributes {
        accessed: Some(SetTime::At(Timestamp { seconds: 999_913_599, nanoseconds: 0 })),
        modified: Some(SetTime::At(Timestamp::default())),
        changed: Some(Timestamp::default()),
        ..SetAttributes::default()
    };
    bench.files.set_attributes(USER, ino, &set).unwrap();
    bench.read(ino, 0, 10);
    assert!(accessed() > first, "a day has gone");
}

#[test]
fn who_reads_unnoticed_moves_no_time() {
    let bench = Bench::with(AccessTimes::Strict, 131_072);
    let ino = bench.file("f");
    bench.write(ino, 0, b"content");
    let before = bench.attributes(ino).accessed;
    let mut read = Vec::new();
    bench.files.read_unnoticed(ino, 3, 10, &mut read).unwrap();
    assert_eq!((read.as_slice(), bench.attributes(ino).accessed), (&b"tent"[..], before));
    bench.read(ino, 0, 10);
    assert!(bench.attributes(ino).accessed > before);
}

#[test]
fn strict_times_always_move_and_never_means_never() {
    for (mode, moves) in [(AccessTimes::Strict, true), (AccessTimes::Never, false)] {
        let bench = Bench::with(mode, 131_072);
        let ino = bench.file("f");
        let d = bench.directory(marram_vfs::Ino::ROOT, "d");
        bench.write(ino, 0, b"content");
        bench.read(ino, 0, 10);
        let before = (bench.attributes(ino).accessed, bench.attributes(d).accessed);
        bench.read(ino, 0, 10);
        bench.files.read_directory(d, 0, false, &mut |_| true).unwrap();
        let after = (bench.attributes(ino).accessed, bench.attributes(d).accessed);
        assert_eq!((after.0 > before.0, after.1 > before.1), (moves, moves));
    }
}

fn lazy(view: &Arc<dyn View>, clock: &Arc<SettableClock>) -> Posix {
    let options = PosixOptions {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        access_times: AccessTimes::Strict,
        lazy_times: true,
        directory_access_times: false,
        ..PosixOptions::default()
    };
    Posix::new(Arc::clone(view), options).unwrap()
}

/// A clock that stands still until it is set.
struct SettableClock(AtomicI64);

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.0.load(Ordering::Relaxed), nanoseconds: 0 }
    }
}

/// A file system with lazy times that stands at second 100, and in it a file made at second 50.
struct Lazy {
    bench: Bench,
    clock: Arc<SettableClock>,
    files: Posix,
    ino: Ino,
}

impl Lazy {
    fn new() -> Lazy {
        let bench = Bench::new();
        let clock = Arc::new(SettableClock(AtomicI64::new(50)));
        let files = lazy(&bench.view, &clock);
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let ino = files.create(USER, Ino::ROOT, name("f"), node).unwrap().ino;
        files.write(ino, 0, b"content", PLAIN).unwrap();
        clock.0.store(100, Ordering::Relaxed);
        Lazy { bench, clock, files, ino }
    }

    fn read(&self) {
        self.files.read(self.ino, 0, 9, &mut Vec::new()).unwrap();
    }

    fn shown(&self) -> i64 {
        self.files.attributes(self.ino).unwrap().accessed.seconds
    }

    /// What a crash at this moment would leave.
    fn written(&self) -> i64 {
        lazy(&self.bench.view, &self.clock).attributes(self.ino).unwrap().accessed.seconds
    }
}

/// What happens while a time waits.
type Event = fn(&Lazy);

#[test]
fn lazy_times_are_told_at_once_and_written_with_something_else() {
    let changes: [(&str, Event, i64); 6] = [
        ("nothing", |_| (), 50),
        ("a change", |lazy| lazy.files.write(lazy.ino, 0, b"x", PLAIN).unwrap(), 100),
        ("a sync of the file", |lazy| lazy.files.sync(lazy.ino, SyncScope::All).unwrap(), 100),
        ("a sync of the root", |lazy| lazy.files.sync(Ino::ROOT, SyncScope::All).unwrap(), 50),
        ("a sync of all", |lazy| lazy.files.sync_all().unwrap(), 100),
        ("a second", |lazy| assert!(!lazy.files.reclaim_step(10).unwrap()), 50),
    ];
    for (what, change, written) in changes {
        let lazy = Lazy::new();
        lazy.read();
        assert_eq!((lazy.shown(), lazy.written()), (100, 50), "{what}");
        change(&lazy);
        assert_eq!((lazy.shown(), lazy.written()), (100, written), "{what}");
    }
}

#[test]
fn lazy_times_wait_for_a_day_at_most() {
    let lazy = Lazy::new();
    lazy.read();
    lazy.clock.0.store(100 + 86_399, Ordering::Relaxed);
    lazy.files.reclaim_step(10).unwrap();
    assert_eq!(lazy.written(), 50);
    lazy.clock.0.store(100 + 86_400, Ordering::Relaxed);
    lazy.files.reclaim_step(10).unwrap();
    assert_eq!((lazy.shown(), lazy.written()), (100, 100));
}

#[test]
fn a_time_that_is_set_is_not_undone_by_one_that_waits() {
    let lazy = Lazy::new();
    lazy.read();
    let at = SetTime::At(Timestamp { seconds: 7, nanoseconds: 0 });
    let set = SetAttributes { accessed: Some(at), ..SetAttributes::default() };
    lazy.files.set_attributes(USER, lazy.ino, &set).unwrap();
    lazy.files.sync_all().unwrap();
    assert_eq!((lazy.shown(), lazy.written()), (7, 7));
    lazy.read();
    lazy.files.unlink(Ino::ROOT, name("f")).unwrap();
    lazy.files.forget(lazy.ino, 1);
    lazy.bench.reclaim(10);
    while lazy.files.reclaim_step(10).unwrap() {}
    lazy.files.sync_all().unwrap();
    assert_eq!(lazy.files.attributes(lazy.ino), Err(Error::Stale));
}

#[test]
fn directories_can_be_left_out() {
    let lazy = Lazy::new();
    let accessed = || lazy.files.attributes(Ino::ROOT).unwrap().accessed.seconds;
    let before = accessed();
    lazy.files.read_directory(Ino::ROOT, 0, false, &mut |_| true).unwrap();
    assert_eq!(accessed(), before);
}

#[test]
fn times_of_all_ages_are_kept_to_the_nanosecond() {
    let mut bench = Bench::new();
    let ino = bench.file("f");
    // 1653, 1901, the last second before 1970, 2038, 2446, and as far as 64 bits go.
    for seconds in [-10_000_000_000, -2_147_483_649, -1, 2_147_483_648, 15_032_385_536, i64::MAX] {
        let at = Timestamp { seconds, nanoseconds: 999_999_999 };
        let time = Some(SetTime::At(at));
        let set = SetAttributes { accessed: time, modified: time, ..SetAttributes::default() };
        bench.files.set_attributes(USER, ino, &set).unwrap();
        bench.crash();
        let found = bench.attributes(ino);
        assert_eq!((found.accessed, found.modified), (at, at));
    }
}
