//! Merges on datasets in which names are the same when only their case differs.

use super::family::{Family, Tree};
use marram_history::{Choice, ConflictKind, MergeOptions};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Store};

fn folding(prepare: impl FnOnce(&Tree)) -> Family {
    let store = MemoryStore::new();
    store.set_property(&DatasetName::root(), "casefold", Some("on")).unwrap();
    Family::of(store, "/", prepare)
}

/// The paths, as they are spelt.
fn paths(tree: &Tree) -> Vec<String> {
    tree.content().into_keys().collect()
}

#[test]
fn a_new_spelling_comes_over_unless_both_spelt_it_anew() {
    let family = folding(|tree| {
        tree.file("/readme", b"r");
        tree.file("/notes", b"n");
    });
    family.fork.rename("/readme", "/README");
    family.fork.rename("/notes", "/Notes");
    family.parent.rename("/notes", "/NOTES");
    assert_eq!(family.conflicts(), [(ConflictKind::Name, "/Notes".to_owned())]);
    assert!(family.merge_choosing(Choice::Theirs).applied);
    assert_eq!(paths(&family.parent), ["/Notes", "/README"]);
    assert_eq!(family.parent.read("/notes"), b"n");
    family.check_usage();
}

#[test]
fn names_that_fold_to_one_are_one_name() {
    let family = folding(|_| ());
    family.fork.file("/Makefile", b"theirs");
    family.fork.directory("/Src");
    family.fork.file("/Src/a", b"a");
    family.parent.file("/makefile", b"ours");
    family.parent.directory("/SRC");
    family.parent.file("/SRC/b", b"b");
    assert_eq!(family.conflicts(), [(ConflictKind::Name, "/Makefile".to_owned())]);
    assert!(family.merge_choosing(Choice::Ours).applied);
    assert_eq!(paths(&family.parent), ["/SRC", "/SRC/a", "/SRC/b", "/makefile"]);
    assert_eq!(family.parent.read("/MAKEFILE"), b"ours");
    family.check_usage();
}

#[test]
fn changes_of_names_meet_whatever_they_are_called_by() {
    let family = folding(|tree| {
        tree.file("/saved", b"1\n2\n3\n");
        tree.file("/moved", b"m");
        tree.file("/gone", b"g");
        tree.directory("/dir");
    });
    family.fork.file("/new", b"1\n2\nthree\n");
    family.fork.rename("/new", "/SAVED");
    family.fork.rename("/MOVED", "/Dir/Moved");
    family.fork.unlink("/GONE");
    family.parent.file("/Saved", b"one\n2\n3\n");
    family.parent.file("/DIR/other", b"o");
    let report = family.merge_with(&MergeOptions { text: true, ..Default::default() }).unwrap();
    assert!(report.applied, "{:?}", report.conflicts);
    assert_eq!(family.parent.read("/saved"), b"one\n2\nthree\n");
    assert_eq!(family.parent.read("/dir/MOVED"), b"m");
    assert_eq!(paths(&family.parent).len(), 4);
    family.check_usage();
}

#[test]
fn a_name_that_the_parent_took_in_another_spelling_is_taken() {
    let family = folding(|tree| {
        tree.file("/a", b"a");
    });
    family.fork.rename("/a", "/Target");
    family.parent.file("/TARGET", b"other");
    assert_eq!(family.conflicts(), [(ConflictKind::Name, "/Target".to_owned())]);
    assert!(family.merge_choosing(Choice::Theirs).applied);
    assert_eq!(paths(&family.parent), ["/Target"]);
    assert_eq!(family.parent.read("/target"), b"a");
    family.check_usage();
}
