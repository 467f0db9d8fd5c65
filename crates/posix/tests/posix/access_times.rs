//! When reading moves the access time.

use crate::{Bench, USER};
use marram_posix::AccessTimes;
use marram_vfs::{FileSystem, SetAttributes, SetTime, Timestamp};

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
