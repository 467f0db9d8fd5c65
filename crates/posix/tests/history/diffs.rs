//! What a diff tells.

use super::family::{Family, Tree, source};
use marram_store::{DatasetName, Store};
use marram_vfs::SetAttributes;

fn snapshot(family: &Family, name: &str) {
    family.store.snapshot(&DatasetName::root(), name).unwrap();
}

fn told(prepare: impl FnOnce(&Tree), change: impl FnOnce(&Tree)) -> Vec<String> {
    let family = Family::new(prepare);
    change(&family.parent);
    snapshot(&family, "after");
    family.diff("root@fork:fork", "root@after")
}

#[test]
fn every_kind_of_change_is_told_and_sorted_by_path() {
    let prepare = |tree: &Tree| {
        tree.directory("/d");
        tree.directory("/gone");
        for file in ["/a", "/d/b", "/gone/c", "/l", "/u", "/m"] {
            tree.file(file, &[1; 10_000]);
        }
        tree.link("/u", "/u2");
    };
    let lines = told(prepare, |tree| {
        tree.write("/a", 5000, &[2; 100]);
        tree.truncate("/m", 9000);
        tree.rename("/d/b", "/d/c");
        tree.rename("/d", "/e");
        tree.unlink("/gone/c");
        tree.remove_directory("/gone");
        tree.link("/l", "/l2");
        tree.unlink("/u2");
        tree.mode("/l", 0o600);
        tree.xattr("/u", "user.a", b"1");
        tree.directory("/new");
        tree.file("/new/x", b"x");
    });
    let wanted = [
        "content /a [5000..5100] 10000 10000",
        "renamed /d /e",
        "renamed /d/b /e/c",
        "removed /gone",
        "removed /gone/c",
        "linked /l2",
        "attributes /l2 [Permissions(420, 384)]",
        "content /m [9000..10000] 10000 9000",
        "created /new",
        "created /new/x",
        "xattrs /u [\"user.a\"]",
        "unlinked /u2",
    ];
    assert_eq!(lines, wanted);
}

#[test]
fn the_same_bytes_written_again_are_no_change_of_content() {
    let prepare = |tree: &Tree| {
        tree.file("/a", &[1; 200_000]);
        tree.truncate("/a", 400_000);
    };
    let lines = told(prepare, |tree| {
        tree.write("/a", 1000, &[1; 150_000]);
        tree.write("/a", 300_000, &[0; 5000]);
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("attributes /a [Modified("), "{lines:?}");
}

#[test]
fn ranges_are_exact() {
    let lines = told(
        |tree| _ = tree.file("/a", &[1; 1 << 20]),
        |tree| {
            for at in [0, 131_071, 500_000, (1 << 20) - 1] {
                tree.write("/a", at, &[2]);
            }
            tree.write("/a", (1 << 20) + 100, &[3; 10]);
        },
    );
    let wanted = "content /a [0..1, 131071..131072, 500000..500001, 1048575..1048686] \
                  1048576 1048686";
    assert_eq!(lines, [wanted]);
}

#[test]
fn what_is_outside_of_a_fork_is_not_told() {
    let store = marram_store::memory::MemoryStore::new();
    let family = Family::of(store, "/in", |tree| {
        tree.directory("/in");
        tree.file("/in/a", b"1");
        tree.file("/in/b", b"1");
        tree.file("/out", b"1");
    });
    family.parent.file("/out", b"2");
    family.parent.file("/in/a", b"2");
    family.parent.rename("/out", "/in/came");
    family.parent.rename("/in/b", "/went");
    snapshot(&family, "after");
    let lines = family.diff("root@fork:fork", "root@after");
    // What came has other content too, which is told of it by the name that it has now.
    let wanted =
        ["content /a [0..1] 1 1", "removed /b", "created /came", "content /came [0..1] 1 1"];
    assert_eq!(lines, wanted);
}

#[test]
fn a_file_that_lost_the_name_it_was_found_by_is_told_by_another() {
    let prepare = |tree: &Tree| {
        tree.directory("/d");
        tree.file("/d/a", b"1");
        tree.link("/d/a", "/b");
    };
    let lines = told(prepare, |tree| {
        tree.unlink("/b");
        tree.file("/d/a", b"2");
    });
    assert_eq!(lines, ["unlinked /b", "content /d/a [0..1] 1 1"]);
}

#[test]
fn live_states_can_be_compared_and_leave_nothing_behind() {
    let family = Family::new(|tree| _ = tree.file("/a", b"1"));
    family.fork.file("/a", b"2");
    family.parent.set("/a", SetAttributes { uid: Some(5), ..Default::default() });
    let before = family.store.list().unwrap().len();
    let lines = family.diff("root", "fork");
    assert_eq!(lines, ["content /a [0..1] 1 1", "attributes /a [User(5, 1000)]"]);
    assert_eq!(family.store.list().unwrap().len(), before);
}

#[test]
fn states_without_a_common_past_are_refused() {
    let family = Family::new(|_| ());
    family.store.create(&"other".parse().unwrap(), &Default::default()).unwrap();
    let clock = std::sync::Arc::clone(&family.clock);
    super::family::open(&family.store, "other", marram_vfs::Ino::ROOT, &clock);
    let (before, after) = (source("root"), source("other"));
    let mut visit = |_| true;
    let root = family.root;
    assert!(marram_posix::diff(&family.store, &before, &after, root, &mut visit).is_err());
}
