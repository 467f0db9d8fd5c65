//! Datasets in which names are the same when only their case differs.

use crate::{Bench, USER, name};
use marram_format::record::name_offset;
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Key, Source, Store, View, kind};
use marram_vfs::{
    Error, FileSystem, Ino, InodeFlags, Kind, Marked, Name, NewNode, RenameMode, Result, SetMarks,
    SteppedClock,
};
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

/// An empty file system whose names are folded, and its view.
fn folding() -> (Posix, Arc<dyn View>) {
    let store = MemoryStore::new();
    store.set_property(&DatasetName::root(), "casefold", Some("on")).unwrap();
    let view = store.open(&Source { dataset: DatasetName::root(), snapshot: None }).unwrap();
    (open(&view), view)
}

fn open(view: &Arc<dyn View>) -> Posix {
    let options = PosixOptions {
        clock: Arc::new(SteppedClock::default()),
        access_times: AccessTimes::Never,
        ..PosixOptions::default()
    };
    Posix::new(Arc::clone(view), options).unwrap()
}

fn make(files: &Posix, text: &str) -> Result<Ino> {
    files.create(USER, ROOT, name(text), FILE).map(|made| made.ino)
}

fn find(files: &Posix, text: &str) -> Result<Ino> {
    files.lookup(ROOT, name(text)).map(|found| found.ino)
}

fn rename(files: &Posix, from: &str, to: &str, mode: RenameMode) -> Result<()> {
    files.rename(USER, ROOT, name(from), ROOT, name(to), mode)
}

/// All names of the root, in order.
fn listed(files: &Posix) -> Vec<String> {
    let mut names = Vec::new();
    let mut visit = |entry: marram_vfs::DirectoryEntry<'_>| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    };
    files.read_directory(ROOT, 0, false, &mut visit).unwrap();
    names.sort();
    names
}

#[test]
fn every_spelling_leads_to_the_name_as_it_was_given() {
    let (files, _) = folding();
    let ino = make(&files, "Stra\u{df}e.TXT").unwrap();
    for spelling in ["stra\u{df}e.txt", "STRASSE.TXT", "Strasse.txt", "Stra\u{df}e.TXT"] {
        assert_eq!(find(&files, spelling), Ok(ino), "{spelling}");
        assert_eq!(make(&files, spelling), Err(Error::Exists), "{spelling}");
        let node = NewNode::Directory { permissions: 0o755 };
        assert_eq!(files.create(USER, ROOT, name(spelling), node), Err(Error::Exists));
        assert_eq!(files.link(ino, ROOT, name(spelling)), Err(Error::Exists));
    }
    assert_eq!(find(&files, "strase.txt"), Err(Error::NotFound));
    assert_eq!(listed(&files), ["Stra\u{df}e.TXT"]);
    files.unlink(ROOT, name("STRASSE.txt")).unwrap();
    assert_eq!(listed(&files), [""; 0]);
    make(&files, "strasse.txt").unwrap();
    assert_eq!(listed(&files), ["strasse.txt"]);
}

#[test]
fn composed_and_decomposed_names_are_the_same() {
    let (files, _) = folding();
    let ino = make(&files, "r\u{e9}sum\u{e9}").unwrap();
    assert_eq!(find(&files, "RE\u{301}SUME\u{301}"), Ok(ino));
    assert_eq!(find(&files, "resume"), Err(Error::NotFound));
}

#[test]
fn a_rename_can_change_the_spelling_alone() {
    let (files, view) = folding();
    let ino = make(&files, "Readme").unwrap();
    let before = files.attributes(ROOT).unwrap();
    let cookie = |files: &Posix| {
        let mut cookie = 0;
        let mut visit = |entry: marram_vfs::DirectoryEntry<'_>| {
            cookie = entry.cookie;
            true
        };
        files.read_directory(ROOT, 0, false, &mut visit).unwrap();
        cookie
    };
    let place = cookie(&files);
    rename(&files, "readme", "README", RenameMode::Replace).unwrap();
    assert_eq!(listed(&files), ["README"]);
    rename(&files, "README", "ReadMe", RenameMode::NoReplace).unwrap();
    assert_eq!(listed(&files), ["ReadMe"]);
    let after = files.attributes(ROOT).unwrap();
    assert_eq!((after.size, after.links, place), (before.size, before.links, cookie(&files)));
    assert!(after.modified > before.modified);
    assert_eq!(find(&files, "README"), Ok(ino));
    assert_eq!(files.attributes(ino).unwrap().links, 1);
    assert_eq!(rename(&files, "ReadMe", "ReadMe", RenameMode::NoReplace), Err(Error::Exists));
    drop(files);
    assert_eq!(listed(&open(&view)), ["ReadMe"]);
}

#[test]
fn what_a_rename_replaces_gets_the_spelling_of_the_rename() {
    let (files, _) = folding();
    let (moved, other) = (make(&files, "new").unwrap(), make(&files, "Target").unwrap());
    assert_eq!(rename(&files, "new", "TARGET", RenameMode::NoReplace), Err(Error::Exists));
    rename(&files, "NEW", "tarGET", RenameMode::Replace).unwrap();
    assert_eq!(listed(&files), ["tarGET"]);
    assert_eq!(find(&files, "target"), Ok(moved));
    files.forget(other, 1);
    assert_eq!(files.attributes(other), Err(Error::Stale));
}

#[test]
fn names_that_are_no_text_differ_by_their_bytes() {
    let (files, _) = folding();
    let broken = |bytes| Name::new(bytes).unwrap();
    files.create(USER, ROOT, broken(b"\xffA"), FILE).unwrap();
    files.create(USER, ROOT, broken(b"\xffa"), FILE).unwrap();
    assert_eq!(files.create(USER, ROOT, broken(b"\xffA"), FILE), Err(Error::Exists));
    make(&files, "A\u{378}").unwrap();
    make(&files, "a\u{378}").unwrap();
    assert_eq!(files.attributes(ROOT).unwrap().size, 4);
}

#[test]
fn entries_lie_at_the_hash_of_the_folded_name() {
    let (files, view) = folding();
    make(&files, "\u{c9}T\u{c9}").unwrap();
    let counters = view.get(Key::new(0, kind::COUNTERS, 0)).unwrap().unwrap();
    let counters = marram_format::record::Counters::decode(&counters.value).unwrap();
    let offset = name_offset(counters.name_seed, "\u{e9}t\u{e9}".as_bytes());
    assert!(view.get(Key::new(1, kind::ENTRY, offset)).unwrap().is_some());
}

#[test]
fn directories_show_that_they_fold_and_cannot_be_made_not_to() {
    let (files, view) = folding();
    let ino = make(&files, "f").unwrap();
    let shown = |ino| files.marks(ino).unwrap().flags;
    assert_eq!(shown(ROOT), InodeFlags::FOLDED_NAMES);
    assert_eq!(shown(ino), InodeFlags::default());
    let set = |ino, flags| files.set_marks(ino, SetMarks { flags: Some(flags), project: None });
    let no_dump = InodeFlags::NO_DUMP;
    assert_eq!(set(ROOT, no_dump), Err(Error::NotSupported));
    assert_eq!(set(ino, InodeFlags::FOLDED_NAMES), Err(Error::NotSupported));
    set(ROOT, no_dump | InodeFlags::FOLDED_NAMES).unwrap();
    assert_eq!(shown(ROOT), no_dump | InodeFlags::FOLDED_NAMES);
    assert!(files.capabilities().folds_names && open(&view).capabilities().folds_names);
    let exact = Bench::new();
    assert!(!exact.files.capabilities().folds_names);
    let folded = SetMarks { flags: Some(InodeFlags::FOLDED_NAMES), project: None };
    assert_eq!(exact.files.set_marks(ROOT, folded), Err(Error::NotSupported));
}
