//! Renames: what moves, what is refused, what the link counts and times are afterwards.

use crate::{Bench, USER, name};
use marram_vfs::{Error, FileSystem, Ino, Kind, RenameMode};

fn rename(
    bench: &Bench,
    from: (Ino, &str),
    to: (Ino, &str),
    mode: RenameMode,
) -> Result<(), Error> {
    bench.files.rename(USER, from.0, name(from.1), to.0, name(to.1), mode)
}

fn exists(bench: &Bench, parent: Ino, text: &str) -> bool {
    bench.files.lookup(parent, name(text)).is_ok()
}

#[test]
fn a_directory_takes_its_link_along() {
    let bench = Bench::new();
    let (a, b) = (bench.directory(Ino::ROOT, "a"), bench.directory(Ino::ROOT, "b"));
    let inner = bench.directory(a, "inner");
    let before = bench.attributes(inner);
    rename(&bench, (a, "inner"), (b, "moved"), RenameMode::Replace).unwrap();
    assert_eq!((bench.attributes(a).links, bench.attributes(b).links), (2, 3));
    assert_eq!((bench.attributes(a).size, bench.attributes(b).size), (0, 1));
    assert_eq!(bench.files.parent(inner).unwrap().ino, b);
    assert!(bench.attributes(inner).changed > before.changed);
    assert_eq!(bench.attributes(inner).modified, before.modified);
    assert_eq!(bench.attributes(a).modified, bench.attributes(b).modified);
    assert!(!exists(&bench, a, "inner"));
}

#[test]
fn a_directory_does_not_go_into_itself() {
    let bench = Bench::new();
    let a = bench.directory(Ino::ROOT, "a");
    let b = bench.directory(a, "b");
    let c = bench.directory(b, "c");
    let into = |to| rename(&bench, (Ino::ROOT, "a"), (to, "x"), RenameMode::Replace);
    for to in [a, b, c] {
        assert!(matches!(into(to), Err(Error::InvalidArgument(_))));
    }
    let exchange = rename(&bench, (Ino::ROOT, "a"), (b, "c"), RenameMode::Exchange);
    assert!(matches!(exchange, Err(Error::InvalidArgument(_))));
    let over = rename(&bench, (b, "c"), (Ino::ROOT, "a"), RenameMode::Replace);
    assert_eq!(over, Err(Error::NotEmpty));
}

#[test]
fn replacing_follows_the_kinds() {
    let bench = Bench::new();
    let (f, d) = (bench.file("f"), bench.directory(Ino::ROOT, "d"));
    let full = bench.directory(Ino::ROOT, "full");
    bench.directory(full, "x");
    let root = Ino::ROOT;
    let replace = |from, to| rename(&bench, (root, from), (root, to), RenameMode::Replace);
    assert_eq!(replace("f", "d"), Err(Error::IsDirectory));
    assert_eq!(replace("d", "f"), Err(Error::NotDirectory));
    assert_eq!(replace("d", "full"), Err(Error::NotEmpty));
    assert_eq!(replace("none", "f"), Err(Error::NotFound));
    replace("full", "d").unwrap();
    assert_eq!(bench.attributes(d).links, 0);
    assert_eq!(bench.attributes(root).links, 3);
    let g = bench.file("g");
    replace("f", "g").unwrap();
    assert_eq!(bench.files.lookup(root, name("g")).unwrap().ino, f);
    assert_eq!(bench.attributes(g).links, 0);
}

#[test]
fn two_names_of_one_file_stay() {
    let bench = Bench::new();
    let ino = bench.file("f");
    bench.files.link(ino, Ino::ROOT, name("g")).unwrap();
    let before = bench.attributes(ino);
    rename(&bench, (Ino::ROOT, "f"), (Ino::ROOT, "g"), RenameMode::Replace).unwrap();
    assert_eq!(bench.attributes(ino), before);
    assert!(exists(&bench, Ino::ROOT, "f") && exists(&bench, Ino::ROOT, "g"));
}

#[test]
fn other_modes_refuse_exchange_or_leave_a_whiteout() {
    let bench = Bench::new();
    let (f, root) = (bench.file("f"), Ino::ROOT);
    let a = bench.directory(root, "a");
    let inner = bench.directory(a, "inner");
    let taken = rename(&bench, (root, "f"), (a, "inner"), RenameMode::NoReplace);
    assert_eq!(taken, Err(Error::Exists));
    let missing = rename(&bench, (root, "f"), (a, "none"), RenameMode::Exchange);
    assert_eq!(missing, Err(Error::NotFound));
    rename(&bench, (root, "f"), (a, "inner"), RenameMode::Exchange).unwrap();
    assert_eq!(bench.files.lookup(a, name("inner")).unwrap().ino, f);
    assert_eq!(bench.files.lookup(root, name("f")).unwrap().ino, inner);
    assert_eq!((bench.attributes(root).links, bench.attributes(a).links), (4, 2));
    rename(&bench, (a, "inner"), (root, "out"), RenameMode::Whiteout).unwrap();
    let whiteout = bench.files.lookup(a, name("inner")).unwrap();
    assert_eq!((whiteout.kind, whiteout.device), (Kind::CharDevice, 0));
    assert_eq!(bench.files.lookup(root, name("out")).unwrap().ino, f);
    assert_eq!(bench.files.space().unwrap().inodes_used, 5);
}
