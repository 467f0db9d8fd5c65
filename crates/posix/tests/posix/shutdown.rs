//! A stop as by a power cut.

use crate::{Bench, PLAIN, USER, name};
use marram_posix::{Posix, PosixOptions};
use marram_store::{DatasetName, Store};
use marram_vfs::{Error, FileSystem, Ino, SetAttributes, Shutdown, Stopping, SyncScope};

fn is_io<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Io(_)))
}

#[test]
fn nothing_works_after_it_but_finding_the_root() {
    for how in [Shutdown::Now, Shutdown::Flush] {
        let bench = Bench::new();
        let ino = bench.file("f");
        bench.files.shutdown(how).unwrap();
        let files = &bench.files;
        assert!(files.is_shut_down());
        assert!(is_io(files.lookup(Ino::ROOT, name("f"))) && is_io(files.attributes(ino)));
        assert!(is_io(files.read(ino, 0, 1, &mut Vec::new())));
        assert!(is_io(files.write(ino, 0, b"x", PLAIN)));
        assert!(is_io(files.unlink(Ino::ROOT, name("f"))));
        assert!(is_io(files.set_attributes(USER, Ino::ROOT, &SetAttributes::default())));
        assert!(is_io(files.read_directory(Ino::ROOT, 0, false, &mut |_| true)));
        assert!(is_io(files.sync(ino, SyncScope::All)) && is_io(files.sync_all()));
        assert!(is_io(files.shutdown(how)));
        files.attributes(Ino::ROOT).unwrap();
        files.forget(ino, 1);
        files.forget_all();
        assert_eq!(files.reclaim_step(100), Ok(false));
    }
}

#[test]
fn others_on_the_same_store_can_read_and_are_told_at_each_sync() {
    let bench = Bench::new();
    bench.store.create(&"other".parse::<DatasetName>().unwrap(), &Default::default()).unwrap();
    let view = bench.store.open(&"other".parse().unwrap()).unwrap();
    let other = Posix::new(view, PosixOptions::default()).unwrap();
    bench.files.shutdown(Shutdown::Now).unwrap();
    other.attributes(Ino::ROOT).unwrap();
    assert_eq!(other.create_anonymous(USER, Ino::ROOT, 0o600), Err(Error::ReadOnly));
    for _ in 0..2 {
        assert!(is_io(other.sync(Ino::ROOT, SyncScope::Data)) && is_io(other.sync_all()));
    }
}
