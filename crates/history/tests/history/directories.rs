//! Rollback of one directory: what each rule says, one by one.

use super::family::{Family, Tree, open, source};
use marram_history::{ChangeSet, DirectoryRollback};
use marram_posix::{Limit, OwnerClass, OwnerId, Posix};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Store};
use marram_vfs::{Error, FileSystem, Ino, InodeFlags, Marked, Marks, Name, Result, SetMarks};

/// A family whose parent has the snapshot `s`.
pub(super) fn kept(prepare: impl FnOnce(&Tree)) -> Family {
    kept_in(MemoryStore::new(), prepare)
}

fn kept_in(store: MemoryStore, prepare: impl FnOnce(&Tree)) -> Family {
    let family = Family::of(store, "/", prepare);
    family.store.snapshot(&DatasetName::root(), "s").unwrap();
    family
}

pub(super) fn roll_back(family: &Family, directory: Ino) -> Result<Option<ChangeSet>> {
    let (dataset, to) = (DatasetName::root(), source("root@s"));
    let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep: None };
    marram_history::roll_back_directory(&*family.parent.0, &family.store, rollback)
}

/// Lets `/d` go back, and expects that something changes.
fn back(family: &Family) -> ChangeSet {
    let directory = family.parent.find("/d").unwrap().ino;
    let change_set = roll_back(family, directory).unwrap().expect("something changes");
    family.check_usage();
    change_set
}

fn ino(tree: &Tree, path: &str) -> Ino {
    tree.find(path).unwrap().ino
}

fn past(family: &Family) -> Tree {
    open(&family.store, "root@s", Ino::ROOT, &family.clock)
}

/// Every path below `/d` with what is there.
fn below(tree: &Tree) -> Vec<(String, String)> {
    let all = tree.content().into_iter();
    all.filter(|(path, _)| path.starts_with("/d/")).collect()
}

#[test]
fn what_is_below_goes_back_and_what_is_outside_stays() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.directory("/d/sub");
        tree.file("/d/a", &[1; 200_000]);
        tree.file("/d/sub/b", b"b");
        tree.file("/d/removed", b"removed");
        tree.xattr("/d/a", "user.a", b"old");
        tree.file("/o", b"outside");
    });
    let tree = &family.parent;
    let numbers = ["/d/a", "/d/sub/b", "/d/removed"].map(|path| ino(tree, path));
    tree.write("/d/a", 150_000, &[2; 300_000]);
    tree.xattr("/d/a", "user.a", b"new");
    tree.mode("/d/a", 0o600);
    tree.mode("/d", 0o700);
    tree.rename("/d/sub/b", "/d/c");
    tree.unlink("/d/removed");
    tree.remove_directory("/d/sub");
    tree.directory("/d/new");
    tree.file("/d/new/n", b"n");
    tree.file("/o", b"changed outside");
    tree.file("/p", b"new outside");
    let change_set = back(&family);
    assert_eq!(below(tree), below(&past(&family)));
    assert_eq!(tree.find("/d").unwrap().permissions, 0o755);
    assert_eq!(tree.read("/o"), b"changed outside");
    assert_eq!(tree.read("/p"), b"new outside");
    assert_eq!(numbers, ["/d/a", "/d/sub/b", "/d/removed"].map(|path| ino(tree, path)));
    for path in ["/d", "/d/a", "/d/sub", "/d/removed"] {
        let (now, was) = (tree.find(path).unwrap(), past(&family).find(path).unwrap());
        assert_eq!((now.modified, now.created), (was.modified, was.created), "{path}");
    }
    assert!(tree.find("/d/a").unwrap().changed > past(&family).find("/d/a").unwrap().changed);
    assert!(change_set.has(numbers[0]) && change_set.has(ino(tree, "/d")));
    assert!(!change_set.has(ino(tree, "/o")));
    assert!(change_set.names.contains(&(ino(tree, "/d"), b"new".to_vec())));
    assert_eq!(roll_back(&family, ino(tree, "/d")), Ok(None), "there is nothing left to do");
}

#[test]
fn a_file_that_is_shared_with_outside_stays_shared_only_as_it_was() {
    let family = kept(|tree| {
        tree.directory("/d");
        for name in ["same", "changed", "lost", "removed"] {
            tree.file(&format!("/d/{name}"), name.as_bytes());
            if name != "lost" {
                tree.link(&format!("/d/{name}"), &format!("/{name}"));
            }
        }
        tree.link("/d/changed", "/d/again");
    });
    let tree = &family.parent;
    tree.file("/changed", b"changed outside");
    tree.link("/d/lost", "/lost");
    tree.unlink("/d/lost");
    tree.unlink("/d/removed");
    let outside = ["/same", "/changed", "/lost", "/removed"].map(|path| ino(tree, path));
    back(&family);
    for name in ["same", "changed", "lost", "removed"] {
        assert_eq!(tree.read(&format!("/d/{name}")), name.as_bytes());
    }
    assert_eq!(tree.read("/changed"), b"changed outside");
    assert_eq!(outside, ["/same", "/changed", "/lost", "/removed"].map(|path| ino(tree, path)));
    assert_eq!(ino(tree, "/d/same"), outside[0]);
    assert_eq!(ino(tree, "/d/removed"), outside[3]);
    assert_ne!(ino(tree, "/d/changed"), outside[1]);
    assert_eq!(ino(tree, "/d/again"), ino(tree, "/d/changed"), "a link below is one again");
    assert_ne!(ino(tree, "/d/lost"), outside[2], "it was never shared with outside");
    tree.file("/lost", b"otherwise");
    assert_eq!(tree.read("/d/lost"), b"lost");
    assert_eq!(roll_back(&family, ino(tree, "/d")), Ok(None), "copies are not made anew");
    tree.file("/d/changed", b"changed inside");
    back(&family);
    assert_eq!(tree.read("/d/again"), b"changed");
}

#[test]
fn what_moved_out_stays_there_too_and_what_moved_in_goes() {
    let family = kept(|tree| {
        for path in ["/d", "/d/out", "/d/out/deep", "/in"] {
            tree.directory(path);
        }
        tree.file("/d/out/a", &[1; 300_000]);
        tree.link("/d/out/a", "/d/a");
        tree.file("/d/out/deep/b", b"b");
        tree.file("/in/i", b"i");
        tree.file("/in/kept", b"kept");
        tree.file("/d/back", b"back");
    });
    let tree = &family.parent;
    tree.rename("/d/out/deep", "/d/deep");
    tree.rename("/d/out", "/out");
    tree.rename("/in", "/d/in");
    tree.rename("/d/back", "/d/in/back");
    let outside = [ino(tree, "/out"), ino(tree, "/out/a")];
    let inside = [ino(tree, "/d/deep"), ino(tree, "/d/in/back")];
    back(&family);
    assert_eq!(tree.read("/out/a"), [1; 300_000]);
    assert_eq!(outside, [ino(tree, "/out"), ino(tree, "/out/a")]);
    assert_eq!(inside, [ino(tree, "/d/out/deep"), ino(tree, "/d/back")]);
    assert_ne!(ino(tree, "/d/out"), outside[0]);
    assert_eq!(ino(tree, "/d/out/a"), ino(tree, "/d/a"));
    assert_ne!(ino(tree, "/d/a"), outside[1]);
    assert_eq!(below(tree), below(&past(&family)));
    assert!(tree.find("/in").is_err() && tree.find("/d/in").is_err());
    tree.write("/out/a", 0, &[9; 10]);
    assert_eq!(tree.read("/d/a"), [1; 300_000]);
}

#[test]
fn it_is_found_by_its_inode_also_below_what_was_in_it() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.directory("/d/a");
        tree.file("/d/a/f", b"f");
    });
    let tree = &family.parent;
    let (directory, above) = (ino(tree, "/d"), ino(tree, "/d/a"));
    tree.rename("/d/a", "/a");
    tree.rename("/d", "/a/renamed");
    roll_back(&family, directory).unwrap().expect("something changes");
    family.check_usage();
    assert_eq!(ino(tree, "/a/renamed"), directory);
    assert_eq!(tree.read("/a/renamed/a/f"), b"f");
    assert_eq!(ino(tree, "/a"), above);
    assert_eq!(tree.read("/a/f"), b"f");
}

#[test]
fn who_has_a_removed_file_open_keeps_it() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.file("/d/a", b"as it was");
    });
    let tree = &family.parent;
    let directory = ino(tree, "/d");
    let opened = tree.0.lookup(directory, Name::new(b"a").unwrap()).unwrap().ino;
    tree.file("/d/a", b"open");
    tree.unlink("/d/a");
    roll_back(&family, directory).unwrap().expect("something changes");
    assert_ne!(ino(tree, "/d/a"), opened);
    assert_eq!(tree.read("/d/a"), b"as it was");
    let mut content = Vec::new();
    tree.0.read(opened, 0, 10, &mut content).unwrap();
    assert_eq!(content, b"open");
    assert_eq!(tree.0.attributes(opened).unwrap().links, 0);
    tree.0.forget(opened, 1);
    family.check_usage();
}

#[test]
fn frozen_files_go_back_too() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.file("/d/a", b"a");
    });
    let tree = &family.parent;
    tree.file("/d/a", b"changed");
    let immutable = SetMarks { flags: Some(InodeFlags::IMMUTABLE), project: Some(7) };
    tree.0.set_marks(ino(tree, "/d/a"), immutable).unwrap();
    back(&family);
    assert_eq!(tree.read("/d/a"), b"a");
    assert_eq!(tree.0.marks(ino(tree, "/d/a")).unwrap(), Marks::default());
}

#[test]
fn a_name_in_another_spelling_gets_its_own_again() {
    let store = MemoryStore::new();
    store.set_property(&DatasetName::root(), "casefold", Some("on")).unwrap();
    let family = kept_in(store, |tree| {
        tree.directory("/d");
        tree.file("/d/Readme", b"r");
        tree.file("/d/other", b"o");
    });
    let tree = &family.parent;
    tree.rename("/d/Readme", "/d/README");
    tree.unlink("/d/other");
    tree.file("/d/OTHER", b"other");
    back(&family);
    assert_eq!(below(tree), below(&past(&family)));
}

#[test]
fn what_cannot_go_back_changes_nothing() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.file("/d/a", &[1; 100_000]);
    });
    let tree = &family.parent;
    tree.directory("/new");
    tree.unlink("/d/a");
    tree.file("/other", &[2; 100_000]);
    let owner = OwnerId { class: OwnerClass::User, id: 1000 };
    let limit = Limit { bytes: 150_000, inodes: i64::MAX };
    tree.0.set_limit(owner, limit).unwrap();
    let before = tree.content();
    let refused = |path: &str, error: Error| {
        assert_eq!(roll_back(&family, ino(tree, path)), Err(error));
        assert_eq!(tree.content(), before);
    };
    refused("/d", Error::QuotaExceeded);
    refused("/new", Error::NotFound);
    refused("/other", Error::NotDirectory);
    tree.0.set_limit(owner, Limit::NONE).unwrap();
    family.store.set_limit(1);
    refused("/d", Error::NoSpace);
    family.store.set_limit(1 << 40);
    back(&family);
    assert_eq!(tree.read("/d/a"), [1; 100_000]);
}

#[test]
fn the_state_before_is_kept_if_that_is_wanted() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.file("/d/a", b"a");
    });
    let tree = &family.parent;
    let keep = || {
        let (dataset, to) = (DatasetName::root(), source("root@s"));
        let directory = ino(tree, "/d");
        let keep = Some("before");
        let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep };
        let files: &Posix = &tree.0;
        marram_history::roll_back_directory(files, &family.store, rollback).unwrap().is_some()
    };
    let names = || family.store.list().unwrap().len();
    let count = names();
    assert!(!keep(), "nothing differs");
    assert_eq!(names(), count);
    tree.file("/d/a", b"changed");
    assert!(keep());
    assert_eq!(names(), count + 1, "nothing but that is left behind");
    assert_eq!(tree.read("/d/a"), b"a");
    let before = open(&family.store, "root@before", Ino::ROOT, &family.clock);
    assert_eq!(before.read("/d/a"), b"changed");
}

/// Removes a directory with all that is in it.
fn remove_all(tree: &Tree, path: &str) {
    let below = |(at, _): &(String, String)| at.starts_with(&format!("{path}/"));
    let mut paths: Vec<String> =
        tree.content().into_iter().filter(below).map(|(at, _)| at).collect();
    paths.sort_by_key(|at| std::cmp::Reverse(at.len()));
    for at in paths {
        match tree.find(&at).unwrap().kind {
            marram_vfs::Kind::Directory => tree.remove_directory(&at),
            _ => tree.unlink(&at),
        }
    }
    tree.remove_directory(path);
}

fn with_two_levels(tree: &Tree) {
    tree.directory("/d");
    tree.directory("/d/sub");
    tree.file("/d/a", &[1; 200_000]);
    tree.file("/d/sub/b", b"b");
    tree.file("/o", b"outside");
}

#[test]
fn one_that_was_removed_and_made_again_is_found_by_its_path() {
    let family = kept(with_two_levels);
    let tree = &family.parent;
    let numbers = ["/d", "/d/a", "/d/sub/b"].map(|path| ino(tree, path));
    remove_all(tree, "/d");
    tree.directory("/d");
    tree.file("/d/a", b"another");
    tree.directory("/d/other");
    tree.file("/d/other/n", b"n");
    let made = ino(tree, "/d");
    assert_ne!(made, numbers[0]);
    let above = tree.find("/").unwrap();
    let change_set = back(&family);
    assert_eq!(below(tree), below(&past(&family)));
    assert_eq!(numbers, ["/d", "/d/a", "/d/sub/b"].map(|path| ino(tree, path)));
    assert_eq!(tree.read("/o"), b"outside");
    assert!(tree.0.attributes(made).is_err(), "what was in its place is gone");
    assert!(change_set.names.contains(&(Ino::ROOT, b"d".to_vec())));
    let now = tree.find("/").unwrap();
    assert_eq!((now.links, now.size), (above.links, above.size));
    assert!(now.modified > above.modified, "a name in it leads elsewhere");
    assert_eq!(tree.find("/d").unwrap().created, past(&family).find("/d").unwrap().created);
    assert_eq!(roll_back(&family, ino(tree, "/d")), Ok(None), "there is nothing left to do");
}

#[test]
fn one_in_the_place_of_another_that_was_moved_becomes_a_copy_of_that() {
    let family = kept(with_two_levels);
    let tree = &family.parent;
    tree.rename("/d", "/moved");
    tree.directory("/d");
    tree.file("/d/n", b"n");
    tree.write("/moved/a", 0, &[7; 10]);
    let before: Vec<_> =
        tree.content().into_iter().filter(|(path, _)| path.starts_with("/moved")).collect();
    back(&family);
    assert_eq!(below(tree), below(&past(&family)));
    assert_ne!(ino(tree, "/d"), ino(tree, "/moved"));
    let after = tree.content().into_iter().filter(|(path, _)| path.starts_with("/moved"));
    assert_eq!(before, after.collect::<Vec<_>>());
}

#[test]
fn one_that_was_put_into_what_took_its_place_comes_out_again() {
    let family = kept(with_two_levels);
    let tree = &family.parent;
    let was = ino(tree, "/d");
    tree.rename("/d", "/x");
    tree.directory("/d");
    tree.file("/d/n", b"n");
    tree.rename("/x", "/d/x");
    tree.rename("/d/x/sub", "/d/sub");
    tree.unlink("/d/x/a");
    back(&family);
    assert_eq!(below(tree), below(&past(&family)));
    assert_eq!(ino(tree, "/d"), was);
    assert_eq!(roll_back(&family, was), Ok(None), "there is nothing left to do");
}

#[test]
fn its_path_is_that_of_now_and_must_lead_to_a_directory() {
    let family = kept(|tree| {
        tree.directory("/above");
        tree.directory("/above/d");
        tree.file("/above/d/f", b"f");
        tree.file("/above/file", b"file");
    });
    let tree = &family.parent;
    remove_all(tree, "/above/d");
    tree.unlink("/above/file");
    tree.directory("/above/d");
    tree.directory("/above/file");
    tree.rename("/above", "/renamed");
    let before = tree.content();
    for path in ["/renamed/d", "/renamed/file"] {
        assert_eq!(roll_back(&family, ino(tree, path)), Err(Error::NotFound), "{path}");
    }
    assert_eq!(tree.content(), before);
    tree.rename("/renamed", "/above");
    let refused = roll_back(&family, ino(tree, "/above/file"));
    assert_eq!(refused, Err(Error::NotFound), "a file was there");
    roll_back(&family, ino(tree, "/above/d")).unwrap().expect("something changes");
    assert_eq!(tree.read("/above/d/f"), b"f");
    family.check_usage();
}
