//! Each way in which the two sides do not go together, and what can be chosen.

use super::family::{Family, Tree, USER};
use marram_history::{Choice, ConflictKind};
use marram_vfs::{FileSystem, Ino, Name as FileName, WriteOptions};

use ConflictKind::{Attribute, Content, Loop, Name, Removed};

type Change = fn(&Tree);
/// Its name, what the fork does, what the parent does, and what comes of it.
type Case = (&'static str, Change, Change, &'static [(ConflictKind, &'static str)]);

fn prepare(tree: &Tree) {
    for directory in ["/d", "/e", "/e/f"] {
        tree.directory(directory);
    }
    for file in ["/a", "/b", "/d/x", "/d/y", "/e/f/z"] {
        tree.file(file, b"old");
    }
}

const CASES: &[Case] = &[
    ("content", |f| _ = f.file("/a", b"1"), |p| _ = p.file("/a", b"2"), &[(Content, "/a")]),
    ("saved and changed", |f| f.save("/a", b"1"), |p| _ = p.file("/a", b"2"), &[(Content, "/a")]),
    ("changed and saved", |f| _ = f.file("/a", b"1"), |p| p.save("/a", b"2"), &[(Content, "/a")]),
    ("saved by both", |f| f.save("/a", b"1"), |p| p.save("/a", b"2"), &[(Content, "/a")]),
    ("mode", |f| f.mode("/a", 0o600), |p| p.mode("/a", 0o640), &[(Attribute, "/a")]),
    (
        "attribute",
        |f| f.xattr("/a", "user.a", b"1"),
        |p| p.xattr("/a", "user.a", b"2"),
        &[(Attribute, "/a")],
    ),
    ("added by both", |f| _ = f.file("/n", b"1"), |p| _ = p.file("/n", b"2"), &[(Name, "/n")]),
    ("added as others", |f| _ = f.directory("/n"), |p| _ = p.file("/n", b"2"), &[(Name, "/n")]),
    (
        "modes of directories",
        |f| _ = f.directory("/n"),
        |p| {
            p.directory("/n");
            p.mode("/n", 0o700);
        },
        &[(Attribute, "/n")],
    ),
    ("removed and changed", |f| f.unlink("/a"), |p| _ = p.file("/a", b"2"), &[(Removed, "/a")]),
    ("changed and removed", |f| _ = f.file("/a", b"1"), |p| p.unlink("/a"), &[(Removed, "/a")]),
    ("removed and replaced", |f| f.unlink("/a"), |p| p.rename("/b", "/a"), &[(Removed, "/a")]),
    ("moved by both", |f| f.rename("/a", "/f"), |p| p.rename("/a", "/p"), &[(Name, "/a")]),
    ("removed and moved", |f| f.unlink("/a"), |p| p.rename("/a", "/p"), &[(Name, "/a")]),
    ("moved and removed", |f| f.rename("/a", "/f"), |p| p.unlink("/a"), &[(Removed, "/f")]),
    ("moved onto a name", |f| f.rename("/a", "/n"), |p| _ = p.file("/n", b"2"), &[(Name, "/n")]),
    (
        "a directory with something new",
        |f| {
            f.unlink("/d/x");
            f.unlink("/d/y");
            f.remove_directory("/d");
        },
        |p| _ = p.file("/d/new", b"2"),
        &[(Removed, "/d/new")],
    ),
    (
        "something new in a directory that went",
        |f| _ = f.file("/d/new", b"1"),
        |p| {
            p.unlink("/d/x");
            p.unlink("/d/y");
            p.remove_directory("/d");
        },
        &[(Removed, "/d/new")],
    ),
    ("into each other", |f| f.rename("/d", "/e/d"), |p| p.rename("/e", "/d/e"), &[(Loop, "/e/d")]),
    (
        "many",
        |f| {
            f.file("/a", b"1");
            f.mode("/b", 0o600);
            f.file("/fine", b"f");
        },
        |p| {
            p.file("/a", b"2");
            p.mode("/b", 0o640);
        },
        &[(Content, "/a"), (Attribute, "/b")],
    ),
];

#[test]
fn each_is_found_and_nothing_else() {
    for (what, fork, parent, wanted) in CASES {
        let family = Family::new(prepare);
        fork(&family.fork);
        parent(&family.parent);
        let found = family.conflicts();
        let found: Vec<_> = found.iter().map(|(kind, path)| (*kind, path.as_str())).collect();
        assert_eq!(found, *wanted, "{what}");
    }
}

#[test]
fn ours_leaves_the_parent_as_it_is_there() {
    for (what, fork, parent, wanted) in CASES.iter().filter(|case| case.3.len() == 1) {
        let family = Family::new(prepare);
        fork(&family.fork);
        parent(&family.parent);
        family.fork.file("/e/beside", b"goes in");
        let mut before = family.parent.content();
        let report = family.merge_choosing(Choice::Ours);
        assert!(report.applied, "{what}: {:?}", report.conflicts);
        assert_eq!(report.decided.len(), wanted.len(), "{what}");
        let beside = ["/e/beside", "/d/e/beside"];
        let mut after = family.parent.content();
        let came: Vec<_> = beside.iter().filter_map(|path| after.remove(*path)).collect();
        assert_eq!(came.len(), 1, "{what}");
        if *what == "a directory with something new" {
            for path in ["/d/x", "/d/y"] {
                before.remove(path);
            }
        }
        assert_eq!(after, before, "{what}");
        family.check_usage();
    }
}

#[test]
fn theirs_takes_the_forks_state_where_that_takes_nothing_else_along() {
    let never = [
        "added as others",
        "changed and removed",
        "removed and replaced",
        "moved and removed",
        "a directory with something new",
        "something new in a directory that went",
        "into each other",
    ];
    for (what, fork, parent, _) in CASES {
        let family = Family::new(prepare);
        fork(&family.fork);
        parent(&family.parent);
        let before = family.parent.content();
        let report = family.merge_choosing(Choice::Theirs);
        // A directory of the fork may take the place of a file.
        let refused = never.contains(what) && *what != "added as others";
        assert_eq!(report.applied, !refused, "{what}: {:?}", report.conflicts);
        let wanted = if refused { before } else { family.fork.content() };
        assert_eq!(family.parent.content(), wanted, "{what}");
        family.check_usage();
    }
}

#[test]
fn capabilities_do_not_come_to_content_that_they_were_not_given_to() {
    let family = Family::new(prepare);
    family.fork.file("/a", b"1");
    let a = family.parent.find("/a").unwrap().ino;
    let value = [1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    family.parent.xattr("/a", "security.capability", &value);
    assert_eq!(family.conflicts(), [(Attribute, "/a".to_owned())]);
    assert!(family.merge_choosing(Choice::Theirs).applied);
    assert!(family.parent.0.xattr(a, b"security.capability").is_err());
}

#[test]
fn a_file_that_had_no_name_when_the_fork_began_saves_another_as_any_new_one_does() {
    let mut nameless = Vec::new();
    let family = Family::new(|tree| {
        prepare(tree);
        for _ in 0..2 {
            nameless.push(tree.0.create_anonymous(USER, Ino::ROOT, 0o644).unwrap().ino);
        }
    });
    family.fork.save("/a", b"of the fork");
    family.fork.file("/b", b"of the fork");
    let files = &family.parent.0;
    for (ino, path) in nameless.into_iter().zip(["/a", "/b"]) {
        files.write(ino, 0, b"of the parent", WriteOptions::default()).unwrap();
        let saved = FileName::new(b"saved").unwrap();
        files.link(ino, Ino::ROOT, saved).unwrap();
        files.forget(ino, 2);
        family.parent.rename("/saved", path);
    }
    let both = [(Content, "/a".to_owned()), (Content, "/b".to_owned())];
    assert_eq!(family.conflicts(), both);
}
