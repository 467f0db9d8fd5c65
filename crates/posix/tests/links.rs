//! An inode has at most so many names, and a directory so many subdirectories: one more is refused
//! and changes nothing, one less makes room.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{
    Caller, Error, FileSystem, Ino, Kind, LINKS_MAX, Name, NewNode, RenameMode, SteppedClock,
};
use std::sync::Arc;

const USER: Caller = Caller { uid: 1000, gid: 1000 };
const DIRECTORY: NewNode<'static> = NewNode::Directory { permissions: 0o755 };
const FILE: NewNode<'static> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

fn files() -> Posix {
    let root = Source { dataset: DatasetName::root(), snapshot: None };
    let options = PosixOptions {
        clock: Arc::new(SteppedClock::default()),
        access_times: AccessTimes::Never,
        ..PosixOptions::default()
    };
    Posix::new(MemoryStore::new().open(&root).unwrap(), options).unwrap()
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

#[test]
fn a_file_takes_so_many_names_and_no_more() {
    let files = files();
    let file = files.create(USER, Ino::ROOT, name("0"), FILE).unwrap().ino;
    for number in 1..LINKS_MAX {
        files.link(file, Ino::ROOT, name(&number.to_string())).unwrap();
    }
    let before = files.attributes(file).unwrap();
    assert_eq!(before.links, LINKS_MAX);
    assert_eq!(files.link(file, Ino::ROOT, name("more")), Err(Error::TooManyLinks));
    assert_eq!(files.attributes(file).unwrap(), before);
    assert_eq!(files.lookup(Ino::ROOT, name("more")), Err(Error::NotFound));
    files.unlink(Ino::ROOT, name("7")).unwrap();
    assert_eq!(files.link(file, Ino::ROOT, name("more")).unwrap().links, LINKS_MAX);
}

#[test]
fn a_directory_takes_so_many_subdirectories_and_any_number_of_files() {
    let files = files();
    let full = files.create(USER, Ino::ROOT, name("full"), DIRECTORY).unwrap().ino;
    // Its own name and its dot are two.
    for number in 2..LINKS_MAX {
        files.create(USER, full, name(&number.to_string()), DIRECTORY).unwrap();
    }
    assert_eq!(files.attributes(full).unwrap().links, LINKS_MAX);
    assert_eq!(files.create(USER, full, name("more"), DIRECTORY), Err(Error::TooManyLinks));
    files.create(USER, Ino::ROOT, name("other"), DIRECTORY).unwrap();
    let into = |to: &str| {
        files.rename(USER, Ino::ROOT, name("other"), full, name(to), RenameMode::Replace)
    };
    assert_eq!(into("moved"), Err(Error::TooManyLinks));
    files.create(USER, full, name("a file"), FILE).unwrap();
    // What takes the place of another makes none more.
    into("7").unwrap();
    files.remove_directory(full, name("8")).unwrap();
    files.create(USER, full, name("more"), DIRECTORY).unwrap();
    assert_eq!(files.attributes(full).unwrap().links, LINKS_MAX);
}
