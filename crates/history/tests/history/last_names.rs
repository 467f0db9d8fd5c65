//! A file of several names, of which each side takes some away.

use super::family::{Family, Tree, source};
use marram_history::{Choice, ConflictKind, MergeOptions, MergeReport, MergeSides};
use marram_store::{DatasetName, Store};
use marram_vfs::FileSystem;

use ConflictKind::{Content, Name, Removed};

type Change = fn(&Tree);
/// What the fork does, what the parent does, and the conflicts that come of it.
type Case = (&'static str, Change, Change, &'static [(ConflictKind, &'static str)]);

/// A file with the names `/one`, `/two` and `/d/three`.
fn prepare(tree: &Tree) {
    tree.directory("/d");
    tree.directory("/e");
    tree.file("/one", b"old");
    tree.file("/other", b"other");
    tree.link("/one", "/two");
    tree.link("/one", "/d/three");
}

fn remove(tree: &Tree, paths: &[&str]) {
    paths.iter().for_each(|path| tree.unlink(path));
}

const CONFLICTS: &[Case] = &[
    (
        "content, by the fork",
        |f| {
            f.write("/one", 0, b"new");
            remove(f, &["/one"]);
        },
        |p| remove(p, &["/two", "/d/three"]),
        &[(Removed, "/one")],
    ),
    (
        "an attribute, by the fork that removed two",
        |f| {
            f.xattr("/one", "user.a", b"1");
            remove(f, &["/one", "/d/three"]);
        },
        |p| remove(p, &["/two"]),
        &[(Removed, "/d/three"), (Removed, "/one")],
    ),
    (
        "content, by the parent",
        |f| remove(f, &["/one", "/two"]),
        |p| {
            p.write("/one", 0, b"new");
            remove(p, &["/d/three"]);
        },
        &[(Removed, "/one"), (Removed, "/two")],
    ),
    (
        "the mode, by the parent",
        |f| remove(f, &["/d/three"]),
        |p| {
            p.mode("/one", 0o600);
            remove(p, &["/one", "/two"]);
        },
        &[(Removed, "/d/three")],
    ),
    (
        "by both to the same",
        |f| {
            f.write("/one", 0, b"new");
            remove(f, &["/one"]);
        },
        |p| {
            p.write("/one", 0, b"new");
            remove(p, &["/two", "/d/three"]);
        },
        &[(Removed, "/one")],
    ),
    (
        "by both",
        |f| {
            f.write("/one", 0, b"new");
            remove(f, &["/one", "/two"]);
        },
        |p| {
            p.write("/one", 0, b"NEW");
            remove(p, &["/d/three"]);
        },
        &[(Content, "/d/three"), (Removed, "/one"), (Removed, "/two")],
    ),
    (
        "the fork gave the name to another file",
        |f| {
            f.write("/one", 0, b"new");
            f.rename("/other", "/one");
        },
        |p| remove(p, &["/two", "/d/three"]),
        &[(Removed, "/one")],
    ),
    (
        "the fork saved another file over the name",
        |f| {
            f.write("/two", 0, b"new");
            f.save("/one", b"saved");
        },
        |p| remove(p, &["/two", "/d/three"]),
        &[(Removed, "/one")],
    ),
    (
        "the fork removed the directory",
        |f| {
            f.write("/one", 0, b"new");
            remove(f, &["/d/three"]);
            f.remove_directory("/d");
        },
        |p| remove(p, &["/one", "/two"]),
        &[(Removed, "/d/three")],
    ),
    (
        "the directory of the name was moved by the parent",
        |f| {
            f.write("/one", 0, b"new");
            remove(f, &["/d/three"]);
        },
        |p| {
            remove(p, &["/one", "/two"]);
            p.rename("/d", "/e/d");
        },
        &[(Removed, "/d/three")],
    ),
    (
        "the new name is the parent's too",
        |f| {
            f.write("/one", 0, b"new");
            f.link("/one", "/new");
            remove(f, &["/one"]);
        },
        |p| {
            remove(p, &["/two", "/d/three"]);
            p.file("/new", b"of the parent");
        },
        &[(Name, "/new")],
    ),
];

fn family(fork: Change, parent: Change) -> Family {
    let family = Family::new(prepare);
    fork(&family.fork);
    parent(&family.parent);
    family
}

#[test]
fn what_was_changed_does_not_go_without_a_conflict() {
    for (what, fork, parent, wanted) in CONFLICTS {
        let family = family(*fork, *parent);
        let found = family.conflicts();
        let mut found: Vec<_> = found.iter().map(|(kind, path)| (*kind, path.as_str())).collect();
        let mut wanted = wanted.to_vec();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{what}");
    }
}

#[test]
fn what_nobody_changed_is_plainly_gone() {
    let family = family(
        |f| remove(f, &["/one", "/d/three"]),
        |p| {
            remove(p, &["/two"]);
            p.file("/beside", b"b");
        },
    );
    family.merge();
    let left: Vec<String> = family.parent.content().into_keys().collect();
    assert_eq!(left, ["/beside", "/d", "/e", "/other"]);
    family.check_usage();
}

#[test]
fn a_name_that_is_left_or_new_keeps_the_change() {
    let cases: [(Change, Change, &str); 4] = [
        (|f| remove(f, &["/one"]), |p| remove(p, &["/d/three"]), "/two"),
        (|f| f.rename("/one", "/new"), |_| (), "/new"),
        (|f| remove(f, &["/one", "/two"]), |p| p.link("/one", "/e/new"), "/e/new"),
        (|f| remove(f, &["/one"]), |p| p.rename("/two", "/e/new"), "/e/new"),
    ];
    for (fork, parent, left) in cases {
        let family = Family::new(prepare);
        family.fork.write("/one", 0, b"new");
        fork(&family.fork);
        parent(&family.parent);
        family.merge();
        assert_eq!(family.parent.read(left), b"new", "{left}");
        family.check_usage();
    }
}

#[test]
fn ours_keeps_the_name_and_the_change_goes_in() {
    let family = family(CONFLICTS[1].1, CONFLICTS[1].2);
    let report = family.merge_choosing(Choice::Ours);
    assert!(report.applied, "{:?}", report.conflicts);
    assert_eq!(report.decided.len(), 2);
    let one = family.parent.find("/one").unwrap();
    assert_eq!(one.ino, family.parent.find("/d/three").unwrap().ino);
    assert_eq!(one.links, 2);
    assert_eq!(family.parent.0.xattr(one.ino, b"user.a").unwrap(), b"1");
    assert!(family.parent.find("/two").is_err());
    family.check_usage();
}

#[test]
fn ours_keeps_what_the_parent_changed() {
    let family = family(CONFLICTS[2].1, CONFLICTS[2].2);
    let before = family.parent.content();
    assert!(family.merge_choosing(Choice::Ours).applied);
    assert_eq!(family.parent.content(), before);
}

#[test]
fn theirs_takes_away_what_only_the_parent_changed() {
    let family = family(CONFLICTS[2].1, CONFLICTS[2].2);
    assert!(family.merge_choosing(Choice::Theirs).applied);
    let left: Vec<String> = family.parent.content().into_keys().collect();
    assert_eq!(left, ["/d", "/e", "/other"]);
    family.check_usage();
}

#[test]
fn theirs_does_not_lose_what_the_fork_changed() {
    for (what, fork, parent, _) in [&CONFLICTS[0], &CONFLICTS[1], &CONFLICTS[6], &CONFLICTS[8]] {
        let family = family(*fork, *parent);
        let before = family.parent.content();
        let report = family.merge_choosing(Choice::Theirs);
        assert!(!report.applied, "{what}");
        assert_eq!(family.parent.content(), before, "{what}");
    }
}

#[test]
fn ours_keeps_a_directory_with_the_name_in_it_and_what_took_the_name_stays_out() {
    let kept = family(CONFLICTS[8].1, CONFLICTS[8].2);
    assert!(kept.merge_choosing(Choice::Ours).applied);
    assert_eq!(kept.parent.read("/d/three"), b"new");
    let moved = family(CONFLICTS[6].1, CONFLICTS[6].2);
    assert!(moved.merge_choosing(Choice::Ours).applied);
    assert_eq!(moved.parent.read("/one"), b"new");
    assert_eq!(moved.parent.read("/other"), b"other");
}

/// Takes a merge back: by a merge from the state after it to the state before it.
fn merge_and_undo(meanwhile: Change) -> (Family, MergeReport) {
    let family = Family::new(prepare);
    family.fork.write("/one", 0, b"new");
    family.fork.link("/one", "/new");
    let dataset = DatasetName::root();
    family.store.snapshot(&dataset, "before").unwrap();
    family.merge();
    family.store.snapshot(&dataset, "after").unwrap();
    meanwhile(&family.parent);
    let (base, fork) = (source("root@after"), source("root@before"));
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: family.root };
    let report =
        marram_history::merge(&*family.parent.0, &family.store, sides, &MergeOptions::default())
            .unwrap();
    (family, report)
}

#[test]
fn a_merge_is_not_taken_back_where_a_file_would_lose_its_last_name() {
    let (family, report) = merge_and_undo(|p| remove(p, &["/one", "/two", "/d/three"]));
    assert!(!report.applied);
    let told: Vec<_> = report.conflicts.iter().map(|it| (it.kind, &it.path[..])).collect();
    assert_eq!(told, [(Removed, &b"/new"[..])]);
    assert_eq!(family.parent.read("/new"), b"new");
    let (family, report) = merge_and_undo(|p| {
        remove(p, &["/one", "/two"]);
        p.rename("/d/three", "/e/three");
    });
    assert!(report.applied, "a name of the parent's keeps the file: {:?}", report.conflicts);
    assert_eq!(family.parent.read("/e/three"), b"old");
}
