//! A fork whose directory is gone, and what is brought into another directory than the one that was
//! forked: a copy, in which files have other numbers, or an empty one.

use crate::family::{Family, Tree, content_of, open, source};
use marram_history::{
    Choice, Conflict, ConflictKind, Direction, IntoDirectory, MergeOptions, MergeReport,
    bring_across, merge_elsewhere,
};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Lineage, Store};
use marram_vfs::{Clock, Error, Ino, Result, SteppedClock};
use std::sync::Arc;

/// What there is before the fork, below a directory.
fn fill(tree: &Tree, below: &str) {
    tree.directory(below);
    tree.directory(&format!("{below}/lib"));
    for (name, content) in [("a", b"one"), ("b", b"two"), ("lib/c", b"six")] {
        tree.file(&format!("{below}/{name}"), content);
    }
    tree.link(&format!("{below}/b"), &format!("{below}/lib/also"));
}

/// A fork of `/src`, in which some of it is changed.
fn family() -> Family {
    let family = Family::of(MemoryStore::new(), "/src", |tree| fill(tree, "/src"));
    family.fork.write("/a", 0, b"of the fork");
    family.fork.directory("/new");
    family.fork.file("/new/d", b"new");
    family.fork.rename("/lib/c", "/moved");
    family
}

fn merge_into(family: &Family, directory: Ino, options: &MergeOptions<'_>) -> Result<MergeReport> {
    let (dataset, fork) = (DatasetName::root(), "fork".parse().unwrap());
    let into = IntoDirectory { dataset: &dataset, directory };
    merge_elsewhere(&*family.parent.0, &family.store, (&fork, into), options)
}

fn merge(family: &Family, path: &str, choose: &dyn Fn(&Conflict) -> Choice) -> MergeReport {
    let directory = family.parent.find(path).unwrap().ino;
    merge_into(family, directory, &MergeOptions { choose, ..MergeOptions::default() }).unwrap()
}

fn refuse(_: &Conflict) -> Choice {
    Choice::Refuse
}

fn remove_src(family: &Family) {
    let parent = &family.parent;
    ["a", "b", "lib/c", "lib/also"].iter().for_each(|name| parent.unlink(&format!("/src/{name}")));
    ["/src/lib", "/src"].iter().for_each(|path| parent.remove_directory(path));
}

#[test]
fn a_directory_that_is_gone_is_neither_merged_into_nor_taken_in() {
    let family = family();
    remove_src(&family);
    let before = family.fork.content();
    let fork = "fork".parse().unwrap();
    let options = MergeOptions::default();
    for (into, direction) in [(&family.parent, Direction::Merge), (&family.fork, Direction::Update)]
    {
        let refused = bring_across(&*into.0, &family.store, (&fork, direction), &options);
        assert_eq!(refused.unwrap_err(), Error::Stale, "{direction:?}");
    }
    assert_eq!(family.fork.content(), before);
    assert!(family.parent.content().is_empty());
}

#[test]
fn a_directory_that_was_renamed_is_found() {
    let family = family();
    family.parent.rename("/src", "/far");
    family.brings(Direction::Merge);
    assert_eq!(family.parent.read("/far/a"), b"of the fork");
}

#[test]
fn a_copy_gets_what_the_fork_has_changed_and_keeps_its_own() {
    let family = family();
    fill(&family.parent, "/copy");
    remove_src(&family);
    let parent = &family.parent;
    parent.file("/copy/own", b"own");
    parent.write("/copy/b", 0, b"of the copy");
    assert!(merge(&family, "/copy", &refuse).applied);
    let of = |path: &str| parent.read(&format!("/copy/{path}"));
    assert_eq!((of("a"), of("moved")), (b"of the fork".to_vec(), b"six".to_vec()));
    assert_eq!((of("new/d"), of("own")), (b"new".to_vec(), b"own".to_vec()));
    assert_eq!((of("b"), of("lib/also")), (b"of the copy".to_vec(), b"of the copy".to_vec()));
    assert_eq!(parent.find("/copy/lib/c").unwrap_err(), Error::NotFound);
    // What is there already is no change; what was moved has to be decided once more.
    let again = merge(&family, "/copy", &refuse);
    let kinds: Vec<_> = again.conflicts.iter().map(|it| (it.kind, &it.path[..])).collect();
    assert_eq!(kinds, [(ConflictKind::Removed, &b"/moved"[..])]);
    let again = merge(&family, "/copy", &|_| Choice::Ours);
    assert!(again.applied && again.differences.is_empty(), "{again:?}");
    // What both have changed since the fork began is a conflict, which can be decided.
    family.fork.write("/a", 0, b"OF THE FORK");
    let kinds: Vec<_> =
        merge(&family, "/copy", &refuse).conflicts.iter().map(|it| it.kind).collect();
    assert!(kinds.contains(&ConflictKind::Content), "{kinds:?}");
    let choose = |conflict: &Conflict| match conflict.kind {
        ConflictKind::Content => Choice::Theirs,
        _ => Choice::Ours,
    };
    assert!(merge(&family, "/copy", &choose).applied);
    assert_eq!(family.parent.read("/copy/a"), b"OF THE FORK");
}

#[test]
fn what_the_fork_removed_goes_from_a_copy_unless_it_was_changed_there() {
    let family = family();
    fill(&family.parent, "/copy");
    family.fork.unlink("/b");
    family.fork.unlink("/a");
    family.parent.write("/copy/a", 0, b"ONE");
    let told: Vec<_> = merge(&family, "/copy", &refuse).conflicts;
    assert_eq!(told.iter().map(|it| &it.path[..]).collect::<Vec<_>>(), [b"/a"]);
    assert!(merge(&family, "/copy", &|_| Choice::Ours).applied);
    assert_eq!(family.parent.read("/copy/a"), b"ONE");
    assert_eq!(family.parent.find("/copy/b").unwrap_err(), Error::NotFound);
    assert_eq!(family.parent.read("/copy/lib/also"), b"two", "its other name stays");
}

#[test]
fn an_empty_directory_gets_all_that_the_fork_has() {
    let family = family();
    remove_src(&family);
    family.parent.directory("/empty");
    family.parent.mode("/empty", 0o700);
    assert!(merge(&family, "/empty", &refuse).applied);
    let empty = family.parent.find("/empty").unwrap();
    assert_eq!(empty.permissions, 0o700, "it keeps its own attributes");
    assert_eq!(content_of(&*family.parent.0, empty.ino), family.fork.content());
    let ino = |path: &str| family.parent.find(path).unwrap().ino;
    assert_eq!(ino("/empty/b"), ino("/empty/lib/also"), "one file with two names");
}

#[test]
fn what_is_no_directory_takes_nothing() {
    let family = family();
    let before = family.parent.content();
    let options = MergeOptions::default();
    let file = family.parent.find("/src/a").unwrap().ino;
    assert_eq!(merge_into(&family, file, &options).unwrap_err(), Error::NotDirectory);
    assert_eq!(merge_into(&family, Ino(4_000), &options).unwrap_err(), Error::Stale);
    assert_eq!(family.parent.content(), before);
}

#[test]
fn a_file_under_the_number_of_one_that_was_rolled_back_is_another_one() {
    let store = MemoryStore::new();
    let clock: Arc<dyn Clock> = Arc::new(SteppedClock::default());
    open(&store, "root", Ino::ROOT, &clock).file("/a", b"a");
    store.snapshot(&DatasetName::root(), "before").unwrap();
    // Opened anew, a file system gives out numbers from where the counters are.
    let parent = open(&store, "root", Ino::ROOT, &clock);
    parent.file("/x", b"x of the origin");
    store.fork(&DatasetName::root(), &"fork".parse().unwrap(), 1).unwrap();
    let fork = open(&store, "fork", Ino::ROOT, &clock);
    drop(parent);
    store.rollback(&source("root@before"), "kept").unwrap();
    let parent = open(&store, "root", Ino::ROOT, &clock);
    parent.file("/x", b"x of later on");
    assert_eq!(parent.find("/x").unwrap().ino, fork.find("/x").unwrap().ino);
    let (base, root) = (source("root@fork:fork"), Ino::ROOT);
    let family = Family { store, clock, parent, fork, base, root };
    family.brings(Direction::Update);
    assert_eq!(family.fork.read("/x"), b"x of later on");
    family.brings(Direction::Merge);
    assert_eq!(family.parent.read("/x"), b"x of later on");
}
