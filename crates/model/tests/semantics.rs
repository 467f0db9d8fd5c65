//! The rules of `FileSystem` that are easiest to get wrong, one test each. They are stated here
//! once for the model; engines are compared with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use marram_model::Model;
use marram_vfs::{
    Allocate, Caller, Error, FILE_BYTES_MAX, FileSystem, Ino, Kind, LINKS_MAX, Name, NewNode,
    Ranges, RenameMode, SeekTarget, SetAttributes, SteppedClock, SyncScope, WriteOptions,
};
use std::sync::Arc;

const USER: Caller = Caller { uid: 1000, gid: 1000 };
const PLAIN: WriteOptions =
    WriteOptions { clear_privileges: false, keep_times: false, accepted: false, memory: None };

fn empty() -> Model {
    Model::new(Arc::new(SteppedClock::default()))
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn file(files: &Model, parent: Ino, text: &str) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    files.create(USER, parent, name(text), node).unwrap().ino
}

fn directory(files: &Model, parent: Ino, text: &str) -> Ino {
    let node = NewNode::Directory { permissions: 0o755 };
    files.create(USER, parent, name(text), node).unwrap().ino
}

fn set_permissions(files: &Model, ino: Ino, permissions: u32) {
    let set = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
    files.set_attributes(USER, ino, &set).unwrap();
}

fn rename(files: &Model, from: (Ino, &str), to: (Ino, &str), mode: RenameMode) -> Option<Error> {
    files.rename(USER, from.0, name(from.1), to.0, name(to.1), mode).err()
}

fn links(files: &Model, ino: Ino) -> u32 {
    files.attributes(ino).unwrap().links
}

#[test]
fn a_file_without_a_name_lives_until_its_last_pin_is_gone() {
    let files = empty();
    let ino = file(&files, Ino::ROOT, "f");
    files.lookup(Ino::ROOT, name("f")).unwrap();
    files.write(ino, 0, b"still here", PLAIN).unwrap();
    files.unlink(Ino::ROOT, name("f")).unwrap();
    files.forget(ino, 1);
    let mut out = Vec::new();
    files.read(ino, 0, 100, &mut out).unwrap();
    assert_eq!((out.as_slice(), links(&files, ino)), (&b"still here"[..], 0));
    files.forget(ino, 7);
    assert_eq!(files.attributes(ino), Err(Error::Stale));
    assert!(file(&files, Ino::ROOT, "f") > ino, "numbers are never used again");
}

#[test]
fn an_anonymous_file_gets_its_first_name_by_a_link() {
    let files = empty();
    let ino = files.create_anonymous(USER, Ino::ROOT, 0o600).unwrap().ino;
    files.link(ino, Ino::ROOT, name("named")).unwrap();
    files.forget_all();
    assert_eq!(files.lookup(Ino::ROOT, name("named")).unwrap().links, 1);
}

#[test]
fn renames_follow_posix() {
    let files = empty();
    let (a, b) = (directory(&files, Ino::ROOT, "a"), directory(&files, Ino::ROOT, "b"));
    let (f, inner) = (file(&files, a, "f"), directory(&files, b, "inner"));
    let root = Ino::ROOT;
    let replace = RenameMode::Replace;
    let into_itself = rename(&files, (root, "b"), (inner, "x"), replace);
    assert_eq!(into_itself.unwrap().errno(), 22);
    assert_eq!(rename(&files, (b, "inner"), (root, "b"), replace), Some(Error::NotEmpty));
    assert_eq!(rename(&files, (a, "f"), (root, "b"), replace), Some(Error::IsDirectory));
    assert_eq!(rename(&files, (root, "b"), (a, "f"), replace), Some(Error::NotDirectory));
    assert_eq!(rename(&files, (a, "f"), (a, "f"), RenameMode::NoReplace), Some(Error::Exists));
    assert_eq!(rename(&files, (a, "f"), (b, "x"), RenameMode::Exchange), Some(Error::NotFound));

    assert_eq!(rename(&files, (a, "f"), (b, "inner"), RenameMode::Exchange), None);
    assert_eq!((links(&files, a), links(&files, b)), (3, 2));
    assert_eq!(files.parent(inner).unwrap().ino, a);
    assert_eq!(files.lookup(b, name("inner")).unwrap().ino, f);

    assert_eq!(rename(&files, (b, "inner"), (root, "moved"), RenameMode::Whiteout), None);
    let whiteout = files.lookup(b, name("inner")).unwrap();
    assert_eq!((whiteout.kind, whiteout.device, whiteout.links), (Kind::CharDevice, 0, 1));
}

#[test]
fn two_names_of_one_file_do_not_replace_each_other() {
    let files = empty();
    let ino = file(&files, Ino::ROOT, "one");
    files.link(ino, Ino::ROOT, name("two")).unwrap();
    let before = files.attributes(ino).unwrap();
    let root = Ino::ROOT;
    assert_eq!(rename(&files, (root, "one"), (root, "two"), RenameMode::Replace), None);
    assert_eq!(files.attributes(ino).unwrap(), before);
    assert!(files.lookup(root, name("one")).is_ok());
}

#[test]
fn setgid_directories_hand_on_their_group() {
    let files = empty();
    let shared = directory(&files, Ino::ROOT, "shared");
    let set = SetAttributes { gid: Some(7), permissions: Some(0o2775), ..SetAttributes::default() };
    files.set_attributes(USER, shared, &set).unwrap();
    let inner = files.attributes(directory(&files, shared, "d")).unwrap();
    assert_eq!((inner.gid, inner.permissions), (7, 0o2755));
    let inner = files.attributes(file(&files, shared, "f")).unwrap();
    assert_eq!((inner.gid, inner.permissions), (7, 0o644));
}

#[test]
fn privileges_are_cleared_where_they_are_privileges() {
    let files = empty();
    let ino = file(&files, Ino::ROOT, "f");
    for (before, after) in [(0o6755, 0o755), (0o6745, 0o2745), (0o1777, 0o1777)] {
        set_permissions(&files, ino, before);
        let options = WriteOptions { clear_privileges: true, ..PLAIN };
        files.write(ino, 0, b"x", options).unwrap();
        assert_eq!(files.attributes(ino).unwrap().permissions, after);
    }
}

#[test]
fn holes_are_exact_and_the_largest_file_takes_no_memory() {
    let files = empty();
    let ino = file(&files, Ino::ROOT, "f");
    files.write(ino, FILE_BYTES_MAX - 3, b"end", PLAIN).unwrap();
    assert_eq!(files.write(ino, FILE_BYTES_MAX - 2, b"end", PLAIN), Err(Error::FileTooLarge));
    assert_eq!(files.seek(ino, 0, SeekTarget::Data), Ok(FILE_BYTES_MAX - 3));
    files.write(ino, 100, b"0123456789", PLAIN).unwrap();
    files.allocate(ino, Allocate::PunchHole, 103, 2).unwrap();
    assert_eq!(files.seek(ino, 100, SeekTarget::Hole), Ok(103));
    assert_eq!(files.seek(ino, 103, SeekTarget::Data), Ok(105));
    let mut out = Vec::new();
    files.read(ino, 99, 12, &mut out).unwrap();
    assert_eq!(out, b"\x00012\x00\x0056789\x00");
    assert_eq!(files.seek(ino, FILE_BYTES_MAX, SeekTarget::Hole), Err(Error::NoSuchOffset));
}

#[test]
fn an_inode_has_no_more_names_than_the_limit() {
    let files = empty();
    let ino = file(&files, Ino::ROOT, "f");
    for number in 1..LINKS_MAX {
        files.link(ino, Ino::ROOT, name(&format!("{number}"))).unwrap();
    }
    assert_eq!(files.link(ino, Ino::ROOT, name("more")), Err(Error::TooManyLinks));
}

#[test]
fn a_walk_that_is_taken_up_again_sees_each_entry_once() {
    let files = empty();
    for number in 0..50 {
        file(&files, Ino::ROOT, &format!("f{number}"));
    }
    let (mut seen, mut after) = (Vec::new(), 0);
    while seen.len() < 49 {
        let before = seen.len();
        files
            .read_directory(Ino::ROOT, after, false, &mut |entry| {
                seen.push(entry.name.to_vec());
                after = entry.cookie;
                seen.len() < before + 3
            })
            .unwrap();
        let _gone_after_the_first = files.unlink(Ino::ROOT, name("f0"));
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 50);
}

#[test]
fn forks_and_snapshots_stay_as_they_were() {
    let files = empty();
    let ino = file(&files, Ino::ROOT, "f");
    let (fork, snapshot) = (files.fork(), files.snapshot());
    files.write(ino, 0, b"new", PLAIN).unwrap();
    fork.write(ino, 0, b"fork", PLAIN).unwrap();
    assert_eq!(snapshot.write(ino, 0, b"x", PLAIN), Err(Error::ReadOnly));
    let size = |files: &Model| files.attributes(ino).unwrap().size;
    assert_eq!((size(&files), size(&fork), size(&snapshot)), (3, 4, 0));
}

#[test]
fn what_holds_without_a_capability_is_no_surprise() {
    let model = empty();
    let files: &dyn FileSystem = &model;
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o666, device: 0 };
    let name = Name::new(b"masked").unwrap();
    let made = files.create_masked(USER, Ino::ROOT, name, node, 0o022).unwrap();
    assert_eq!(made.permissions, 0o644, "the umask is taken off");
    assert_eq!(files.sync_many(&[(made.ino, SyncScope::All), (Ino(999), SyncScope::All)]).len(), 2);
    assert_eq!(files.marks(made.ino), Err(Error::NotSupported));
    assert_eq!(files.label(), Err(Error::NotSupported));
    assert!(!files.folds_names());
}
