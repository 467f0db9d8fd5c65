//! Transactions on the store in memory: each kind of read is noted, a commit that it matters to is
//! refused, and a set that leaves one kind out is found out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use marram_history::{Branch, ConflictKind, MergeOptions, MergeReport, MergeSides, merge};
use marram_posix::{Posix, PosixOptions};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Source, Store};
use marram_tx::{Aspect, ReadSet, Recording};
use marram_vfs::{
    AccessControl, AccessRules, Action, Caller, Error, FileSystem, Identity, Ino, Kind, Name,
    NewNode, Opening, RenameMode, SetAttributes, WriteOptions, XattrMode,
};
use std::sync::Arc;

const CALLER: Caller = Caller { uid: 10, gid: 20 };

struct Member;

impl Identity for Member {
    fn uid(&self) -> u32 {
        CALLER.uid
    }

    fn gid(&self) -> u32 {
        CALLER.gid
    }

    fn is_member(&self, gid: u32) -> bool {
        gid == CALLER.gid
    }
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn find(files: &dyn FileSystem, path: &str) -> Ino {
    let mut at = Ino::ROOT;
    for part in path.split('/') {
        let found = files.lookup(at, name(part)).unwrap().ino;
        files.forget(found, 1);
        at = found;
    }
    at
}

fn make(files: &dyn FileSystem, parent: Ino, text: &str) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    files.create(CALLER, parent, name(text), node).unwrap().ino
}

fn make_directory(files: &dyn FileSystem, parent: Ino, text: &str) -> Ino {
    let node = NewNode::Directory { permissions: 0o755 };
    files.create(CALLER, parent, name(text), node).unwrap().ino
}

fn write(files: &dyn FileSystem, ino: Ino, text: &str) {
    files.write(ino, 0, text.as_bytes(), WriteOptions::default()).unwrap();
}

fn set_mode(files: &dyn FileSystem, ino: Ino, permissions: u32) {
    let set = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
    files.set_attributes(CALLER, ino, &set).unwrap();
}

fn open(store: &MemoryStore, dataset: &DatasetName) -> Posix {
    let view = store.open(&Source::live(dataset.clone())).unwrap();
    Posix::new(view, PosixOptions { root_owner: CALLER, ..PosixOptions::default() }).unwrap()
}

/// A dataset with files, and transactions in it.
struct Bench {
    store: MemoryStore,
    parent: Posix,
}

/// A transaction that is open.
struct Open {
    fork: DatasetName,
    view: Recording,
}

impl Bench {
    fn new() -> Bench {
        let store = MemoryStore::new();
        let parent = open(&store, &DatasetName::root());
        let directory = make_directory(&parent, Ino::ROOT, "d");
        let file = make(&parent, directory, "file");
        write(&parent, file, "one");
        parent.link(file, directory, name("alias")).unwrap();
        make(&parent, directory, "empty");
        make_directory(&parent, directory, "sub");
        parent.set_xattr(file, b"user.a", b"1", XattrMode::Any).unwrap();
        let node = NewNode::Symlink { target: b"file" };
        parent.create(CALLER, directory, name("link"), node).unwrap();
        Bench { store, parent }
    }

    fn begin(&self, id: &str, reads: ReadSet) -> Open {
        let fork = DatasetName::of_transaction(id).unwrap();
        self.store.fork(&DatasetName::root(), &fork, Ino::ROOT.0).unwrap();
        let files: Arc<dyn FileSystem> = Arc::new(open(&self.store, &fork));
        Open { fork, view: Recording::new(files, Ino::ROOT, reads) }
    }

    fn commit(&self, open: Open) -> MergeReport {
        open.view.end();
        let reads = open.view.reads();
        let branch = Branch::of(&self.store, &open.fork).unwrap().unwrap();
        let sides = MergeSides {
            dataset: &DatasetName::root(),
            base: &branch.base,
            fork: &branch.fork,
            root: branch.root,
        };
        let overlaps = |touched: &_| reads.overlaps(touched);
        let options = MergeOptions { strict: Some(&overlaps), ..MergeOptions::default() };
        merge(&self.parent, &self.store, sides, &options).unwrap()
    }
}

/// A read in a transaction, and what others change afterwards.
struct Row {
    what: &'static str,
    aspect: Aspect,
    read: fn(&Recording),
    change: fn(&Posix),
}

fn read_all(view: &Recording, path: &str) {
    view.read(find(view, path), 0, 100, &mut Vec::new()).unwrap();
}

fn create_in_d(files: &Posix) {
    make(files, find(files, "d"), "made");
}

fn rewrite(files: &Posix) {
    write(files, find(files, "d/file"), "two");
}

fn set_attribute(files: &Posix) {
    files.set_xattr(find(files, "d/file"), b"user.a", b"2", XattrMode::Any).unwrap();
}

fn remove_link(files: &Posix) {
    files.unlink(find(files, "d"), name("link")).unwrap();
}

const ROWS: [Row; 12] = [
    Row {
        what: "a name",
        aspect: Aspect::Name,
        read: |view| {
            find(view, "d/file");
        },
        change: |files| {
            let (d, mode) = (find(files, "d"), RenameMode::Replace);
            files.rename(CALLER, d, name("file"), d, name("moved"), mode).unwrap();
        },
    },
    Row {
        what: "that a name is absent",
        aspect: Aspect::Name,
        read: |view| {
            let found = view.lookup(find(view, "d"), name("made"));
            assert_eq!(found.unwrap_err(), Error::NotFound);
        },
        change: create_in_d,
    },
    Row {
        what: "a listing",
        aspect: Aspect::Listing,
        read: |view| {
            view.read_directory(find(view, "d"), 0, false, &mut |_| true).unwrap();
        },
        change: create_in_d,
    },
    Row {
        what: "content",
        aspect: Aspect::Content,
        read: |view| read_all(view, "d/file"),
        change: rewrite,
    },
    Row {
        what: "content by another name",
        aspect: Aspect::Content,
        read: |view| read_all(view, "d/alias"),
        change: rewrite,
    },
    Row {
        what: "that a file is empty",
        aspect: Aspect::Content,
        read: |view| {
            let how = Opening { read: true, ..Opening::default() };
            let AccessRules::Own(control) = view.access_rules() else { panic!("the kernel's") };
            control.authorize_open(&Member, find(view, "d/empty"), how).unwrap();
        },
        change: |files| write(files, find(files, "d/empty"), "x"),
    },
    Row {
        what: "attributes of a file",
        aspect: Aspect::Attributes,
        read: |view| {
            view.attributes(find(view, "d/file")).unwrap();
        },
        change: rewrite,
    },
    Row {
        what: "attributes of a directory",
        aspect: Aspect::Attributes,
        read: |view| {
            view.attributes(find(view, "d")).unwrap();
        },
        change: create_in_d,
    },
    Row {
        what: "rights",
        aspect: Aspect::Rights,
        read: |view| {
            let ino = find(view, "d/file");
            let action = Action::Probe { ino, read: true, write: false, execute: false };
            view.authorize(&Member, action).unwrap();
        },
        change: |files| set_mode(files, find(files, "d/file"), 0o600),
    },
    Row {
        what: "the target of a link",
        aspect: Aspect::Content,
        read: |view| {
            // By a handle that names no directory.
            let ino = view.lookup(find(view, "d"), name("link")).unwrap().ino;
            assert_eq!(view.read_link(ino).unwrap(), b"file");
        },
        change: remove_link,
    },
    Row {
        what: "an extended attribute",
        aspect: Aspect::Xattr,
        read: |view| drop(view.xattr(find(view, "d/file"), b"user.a").unwrap()),
        change: set_attribute,
    },
    Row {
        what: "which extended attributes there are",
        aspect: Aspect::Xattrs,
        read: |view| drop(view.list_xattrs(find(view, "d/file")).unwrap()),
        change: set_attribute,
    },
];

/// Runs a row in a transaction that writes a file of its own besides.
fn run(row: &Row, reads: ReadSet) -> MergeReport {
    let bench = Bench::new();
    let open = bench.begin("1", reads);
    (row.read)(&open.view);
    make(&open.view, Ino::ROOT, "written");
    (row.change)(&bench.parent);
    let report = bench.commit(open);
    let is_there = bench.parent.lookup(Ino::ROOT, name("written")).is_ok();
    assert_eq!(is_there, report.applied, "{}: all or nothing", row.what);
    report
}

#[test]
fn a_commit_is_refused_if_what_was_read_has_changed() {
    for row in &ROWS {
        let report = run(row, ReadSet::default());
        assert!(!report.applied, "{} was not noted", row.what);
        let kinds = report.conflicts.iter().map(|conflict| conflict.kind);
        assert!(kinds.clone().all(|kind| kind == ConflictKind::Overtaken), "{}", row.what);
        let paths: Vec<_> = report.conflicts.iter().map(|it| it.path.as_slice()).collect();
        assert!(paths.iter().all(|path| path.starts_with(b"/d")), "{}: {paths:?}", row.what);
    }
}

/// A target is read only through its name, so a set without one of both has the other.
#[test]
fn a_set_that_leaves_one_kind_of_reads_out_is_found_out() {
    for row in ROWS.iter().filter(|row| row.what != "the target of a link") {
        let report = run(row, ReadSet::omitting(row.aspect));
        assert!(report.applied, "{} is noted twice: {:?}", row.what, report.conflicts);
    }
}

#[test]
fn what_nobody_changed_commits() {
    for row in &ROWS {
        let report = run(&Row { change: |_| (), ..*row }, ReadSet::default());
        assert!(report.applied, "{}: {:?}", row.what, report.conflicts);
    }
}

#[test]
fn two_that_make_names_in_one_directory_both_commit() {
    let bench = Bench::new();
    let open: Vec<Open> = ["1", "2"].map(|id| bench.begin(id, ReadSet::default())).into();
    for (Open { view, .. }, text) in open.iter().zip(["a", "b"]) {
        let parent = find(view, "d");
        for action in [Action::Search(parent), Action::Create { parent, directory: false }] {
            view.authorize(&Member, action).unwrap();
        }
        assert!(view.lookup(parent, name(text)).is_err());
        write(view, make(view, parent, text), text);
    }
    for one in open {
        let report = bench.commit(one);
        assert!(report.applied, "{:?}", report.conflicts);
    }
    for text in ["a", "b"] {
        let mut content = Vec::new();
        let ino = find(&bench.parent, &format!("d/{text}"));
        bench.parent.read(ino, 0, 10, &mut content).unwrap();
        assert_eq!(content, text.as_bytes());
    }
}

#[test]
fn what_both_have_changed_is_refused_also_if_it_is_the_same() {
    let changes: [fn(&dyn FileSystem); 4] = [
        |files| write(files, find(files, "d/file"), "same"),
        |files| set_mode(files, find(files, "d/file"), 0o600),
        |files| {
            make(files, find(files, "d"), "same");
        },
        |files| files.unlink(find(files, "d"), name("link")).unwrap(),
    ];
    for (number, change) in changes.iter().enumerate() {
        let bench = Bench::new();
        // Also without any note of what was read.
        let open = bench.begin("1", ReadSet::omitting(Aspect::Name));
        change(&open.view);
        change(&bench.parent);
        let report = bench.commit(open);
        assert!(!report.applied, "change {number}");
    }
}

#[test]
fn a_directory_that_goes_must_still_be_empty() {
    let bench = Bench::new();
    let open = bench.begin("1", ReadSet::default());
    open.view.remove_directory(find(&open.view, "d"), name("sub")).unwrap();
    make(&bench.parent, find(&bench.parent, "d/sub"), "kept");
    assert!(!bench.commit(open).applied);
    find(&bench.parent, "d/sub/kept");
}

#[test]
fn access_times_and_other_files_are_nothing_that_was_read() {
    let bench = Bench::new();
    let open = bench.begin("1", ReadSet::default());
    read_all(&open.view, "d/file");
    open.view.attributes(find(&open.view, "d/file")).unwrap();
    make(&open.view, Ino::ROOT, "written");
    bench.parent.read(find(&bench.parent, "d/file"), 0, 10, &mut Vec::new()).unwrap();
    write(&bench.parent, find(&bench.parent, "d/empty"), "x");
    let report = bench.commit(open);
    assert!(report.applied, "{:?}", report.conflicts);
}

#[test]
fn a_number_that_both_have_given_out_is_of_two_files() {
    let mut bench = Bench::new();
    // What it holds back of numbers is given up.
    bench.parent = open(&bench.store, &DatasetName::root());
    let open = bench.begin("1", ReadSet::default());
    let (mine, theirs) =
        (make(&open.view, Ino::ROOT, "mine"), make(&bench.parent, Ino::ROOT, "theirs"));
    assert_eq!(mine, theirs, "else this tests nothing");
    write(&open.view, mine, "mine");
    read_all(&open.view, "mine");
    write(&bench.parent, theirs, "theirs");
    let report = bench.commit(open);
    assert!(report.applied, "{:?}", report.conflicts);
}

#[test]
fn one_that_has_ended_answers_nothing_any_more() {
    let bench = Bench::new();
    let open = bench.begin("1", ReadSet::default());
    let ino = find(&open.view, "d/file");
    open.view.end();
    let stale = Error::Stale;
    assert_eq!(open.view.lookup(Ino::ROOT, name("d")).unwrap_err(), stale);
    assert_eq!(open.view.write(ino, 0, b"x", WriteOptions::default()).unwrap_err(), stale);
    assert_eq!(open.view.authorize(&Member, Action::Search(ino)).unwrap_err(), stale);
    open.view.forget_all();
}

#[test]
fn modes_bind_in_a_transaction_too() {
    let bench = Bench::new();
    let file = find(&bench.parent, "d/file");
    set_mode(&bench.parent, file, 0o400);
    let open = bench.begin("1", ReadSet::default());
    let how = Opening { write: true, ..Opening::default() };
    let refused = open.view.authorize_open(&Member, file, how);
    assert_eq!(refused.unwrap_err(), Error::AccessDenied);
    let mut set = SetAttributes { uid: Some(0), ..SetAttributes::default() };
    let refused = open.view.authorize_change(&Member, file, &mut set);
    assert_eq!(refused.unwrap_err(), Error::NotPermitted);
    let mut set = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    open.view.authorize_change(&Member, file, &mut set).unwrap();
}
