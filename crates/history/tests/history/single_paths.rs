//! Versions of one file or directory, and the way back of one, also of what was removed.

use super::directories::kept;
use super::family::{Family, Tree, source};
use marram_history::{
    Aspect, ChangeSet, DirectoryRollback, Version, VersionChange, VersionsOf, roll_back_below,
    versions,
};
use marram_store::{DatasetName, Store};
use marram_vfs::{Error, Ino, Result};

fn names(path: &str) -> Vec<Vec<u8>> {
    path.split('/').filter(|name| !name.is_empty()).map(|name| name.as_bytes().to_vec()).collect()
}

fn back(family: &Family, directory: &str, path: &str) -> Result<Option<ChangeSet>> {
    let (dataset, to) = (DatasetName::root(), source("root@s"));
    let directory = family.parent.find(directory).unwrap().ino;
    let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep: None };
    let done = roll_back_below(&*family.parent.0, &family.store, rollback, &names(path));
    family.check_usage();
    done
}

fn ino(tree: &Tree, path: &str) -> Ino {
    tree.find(path).unwrap().ino
}

fn of(family: &Family, path: &str) -> Vec<Version> {
    let (dataset, names) = (DatasetName::root(), names(path));
    let of = VersionsOf { dataset: &dataset, directory: Ino::ROOT, names: &names, user: None };
    versions(&family.store, of).unwrap()
}

/// Each version as its snapshots and what happened.
fn told(family: &Family, path: &str) -> Vec<String> {
    let line = |version: &Version| {
        let sources = version.sources.iter().map(|source| match &source.snapshot {
            Some(name) => name.clone(),
            None => "now".to_owned(),
        });
        let sources: Vec<String> = sources.collect();
        let path = version
            .found
            .as_ref()
            .map_or("-".into(), |found| String::from_utf8_lossy(&found.path).into_owned());
        format!("{} {path} {:?}", sources.join(","), version.change)
    };
    of(family, path).iter().map(line).collect()
}

fn snapshot(family: &Family, name: &str) {
    family.store.snapshot(&DatasetName::root(), name).unwrap();
}

#[test]
fn a_file_goes_back_as_the_inode_that_it_is() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.file("/d/f", &[1; 200_000]);
        tree.file("/d/beside", b"beside");
    });
    let tree = &family.parent;
    let number = ino(tree, "/d/f");
    tree.write("/d/f", 100_000, &[2; 300_000]);
    tree.mode("/d/f", 0o600);
    tree.file("/d/beside", b"changed beside");
    let modified = tree.find("/d").unwrap().modified;
    assert!(back(&family, "/d", "f").unwrap().is_some());
    assert_eq!(tree.read("/d/f"), [1; 200_000]);
    assert_eq!((ino(tree, "/d/f"), tree.find("/d/f").unwrap().permissions), (number, 0o644));
    assert_eq!(tree.read("/d/beside"), b"changed beside");
    assert_eq!(tree.find("/d").unwrap().modified, modified);
    assert_eq!(back(&family, "/d", "f"), Ok(None), "there is nothing left to do");
}

#[test]
fn what_was_removed_comes_back_with_the_directories_on_the_way_and_nothing_else() {
    let family = kept(|tree| {
        for path in ["/d", "/d/sub", "/d/sub/deep", "/e"] {
            tree.directory(path);
        }
        tree.file("/d/sub/f", b"f");
        tree.file("/d/sub/deep/g", b"g");
        tree.file("/d/h", b"h");
        tree.mode("/d/sub", 0o750);
    });
    let tree = &family.parent;
    let numbers = [ino(tree, "/d/sub"), ino(tree, "/d/sub/f")];
    for path in ["/d/sub/f", "/d/sub/deep/g", "/d/h"] {
        tree.unlink(path);
    }
    for path in ["/d/sub/deep", "/d/sub", "/d"] {
        tree.remove_directory(path);
    }
    assert!(back(&family, "/", "d/sub/f").unwrap().is_some());
    assert_eq!(tree.read("/d/sub/f"), b"f");
    assert_eq!(numbers, [ino(tree, "/d/sub"), ino(tree, "/d/sub/f")]);
    assert_eq!(tree.find("/d/sub").unwrap().permissions, 0o750);
    assert!(tree.find("/d/h").is_err() && tree.find("/d/sub/deep").is_err());
    // The rest comes with the directory, and what is there stays what it is.
    assert!(back(&family, "/", "d").unwrap().is_some());
    assert_eq!(tree.read("/d/sub/deep/g"), b"g");
    assert_eq!(tree.read("/d/h"), b"h");
    assert_eq!(numbers[1], ino(tree, "/d/sub/f"));
    assert_eq!(back(&family, "/", "d"), Ok(None));
    assert_eq!(back(&family, "/", "e/never"), Err(Error::NotFound));
    assert_eq!(back(&family, "/", "never"), Err(Error::NotFound));
    assert_eq!(back(&family, "/", "d/h/x"), Err(Error::NotDirectory));
}

#[test]
fn a_whole_directory_that_was_removed_comes_back_by_its_name() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.directory("/d/sub");
        tree.file("/d/sub/f", b"f");
        tree.file("/d/moved", b"moved");
        tree.link("/d/moved", "/d/again");
    });
    let tree = &family.parent;
    tree.rename("/d/moved", "/moved");
    tree.unlink("/d/again");
    tree.unlink("/d/sub/f");
    tree.remove_directory("/d/sub");
    tree.remove_directory("/d");
    tree.file("/moved", b"otherwise");
    assert!(back(&family, "/", "d").unwrap().is_some());
    assert_eq!(tree.read("/d/sub/f"), b"f");
    assert_eq!(tree.read("/d/moved"), b"moved");
    assert_eq!(ino(tree, "/d/moved"), ino(tree, "/d/again"));
    assert_eq!(tree.read("/moved"), b"otherwise", "outside nothing changes");
}

#[test]
fn a_saved_file_is_known_by_its_path_and_a_renamed_one_by_its_inode() {
    let family = kept(|tree| {
        tree.file("/f", b"old");
        tree.file("/before", b"renamed");
        tree.directory("/kind");
    });
    let tree = &family.parent;
    let old = ino(tree, "/f");
    tree.file("/f~", b"saved");
    tree.rename("/f~", "/f");
    assert!(back(&family, "/", "f").unwrap().is_some());
    assert_eq!((tree.read("/f"), ino(tree, "/f")), (b"old".to_vec(), old));
    tree.rename("/before", "/after");
    tree.file("/after", b"changed");
    assert!(back(&family, "/", "after").unwrap().is_some());
    assert_eq!(tree.read("/after"), b"renamed");
    // What has left its name is copied back to it.
    assert!(back(&family, "/", "before").unwrap().is_some());
    assert_eq!((tree.read("/before"), tree.read("/after")), (b"renamed".into(), b"renamed".into()));
    assert_ne!(ino(tree, "/before"), ino(tree, "/after"));
    assert_eq!(back(&family, "/", "before"), Ok(None), "a copy is not made anew");
    // A file in the place of a directory, and the other way round.
    tree.remove_directory("/kind");
    tree.file("/kind", b"a file");
    assert!(back(&family, "/", "kind").unwrap().is_some());
    assert_eq!(tree.find("/kind").unwrap().kind, marram_vfs::Kind::Directory);
    tree.unlink("/f");
    tree.directory("/f");
    tree.file("/f/inside", b"goes");
    assert!(back(&family, "/", "f").unwrap().is_some());
    assert_eq!(tree.read("/f"), b"old");
}

#[test]
fn a_file_with_another_name_leaves_that_as_it_is() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.file("/d/f", b"old");
        tree.link("/d/f", "/d/other");
    });
    let tree = &family.parent;
    assert_eq!(back(&family, "/d", "f"), Ok(None));
    tree.file("/d/f", b"new content");
    let other = ino(tree, "/d/other");
    assert!(back(&family, "/d", "f").unwrap().is_some());
    assert_eq!(tree.read("/d/f"), b"old");
    assert_eq!(tree.read("/d/other"), b"new content");
    assert_eq!(ino(tree, "/d/other"), other);
    assert_eq!(back(&family, "/d", "f"), Ok(None));
}

#[test]
fn each_version_is_told_once_with_the_snapshots_that_have_it() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.file("/d/f", b"one");
    });
    let tree = &family.parent;
    tree.file("/d/beside", b"of no interest");
    snapshot(&family, "t");
    tree.file("/d/f", b"two!");
    snapshot(&family, "u");
    // Saved with what it had: no other version.
    tree.file("/d/f~", b"two!");
    tree.rename("/d/f~", "/d/f");
    snapshot(&family, "v");
    tree.mode("/d/f", 0o600);
    snapshot(&family, "w");
    tree.rename("/d/f", "/d/g");
    snapshot(&family, "x");
    tree.unlink("/d/g");
    assert_eq!(
        told(&family, "d/f"),
        [
            "now,x - Removed",
            "w /d/f Changed([Mode])",
            "v,u /d/f Changed([Content])",
            "t,s /d/f Oldest",
        ]
    );
    assert_eq!(
        told(&family, "d/g"),
        [
            "now - Removed",
            "x /d/g Changed([Path])",
            "w /d/f Changed([Mode])",
            "v,u /d/f Changed([Content])",
            "t,s /d/f Oldest",
        ]
    );
    assert_eq!(told(&family, "d/never"), Vec::<String>::new());
    assert_eq!(of(&family, "d/g")[1].change, VersionChange::Changed(vec![Aspect::Path]));
}

#[test]
fn a_directory_has_a_version_wherever_something_below_it_differs() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.directory("/d/sub");
        tree.file("/d/sub/f", b"one");
        tree.file("/o", b"outside");
    });
    let tree = &family.parent;
    tree.file("/o", b"changed outside");
    snapshot(&family, "t");
    tree.file("/d/sub/f", b"two");
    tree.file("/d/new", b"new");
    snapshot(&family, "u");
    tree.unlink("/d/new");
    tree.unlink("/d/sub/f");
    tree.remove_directory("/d/sub");
    tree.remove_directory("/d");
    assert_eq!(
        told(&family, "d"),
        [
            "now - Removed",
            "u /d Below(Counts { created: 1, removed: 0, changed: 1 })",
            "t,s /d Oldest",
        ]
    );
    let all = told(&family, "");
    assert_eq!(all.len(), 4, "{all:?}");
}
