//! What a diff reports.

use super::directories::{kept, roll_back};
use super::family::{Family, Tree, line, source};
use marram_history::Difference;
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

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
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
    // What came has other content too, which is reported by the name that it has now.
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

/// What a merge brings in gets another number, and its own may be one of the parent's by then.
#[test]
fn what_was_merged_is_the_same_in_the_fork_whoever_has_its_number() {
    let family = Family::new(|_| ());
    family.fork.file("/of the fork", b"f");
    family.parent.file("/own", b"p");
    let number = |tree: &Tree, path: &str| tree.find(path).unwrap().ino;
    assert_eq!(number(&family.fork, "/of the fork"), number(&family.parent, "/own"));
    family.merge();
    assert_eq!(family.diff("fork", "root"), ["created /own"]);
    assert_eq!(family.diff("root", "fork"), ["removed /own"]);
}

/// The time of a directory is reported where all its names lead to what they led to, whether or not
/// that has another number.
#[test]
fn a_directory_into_which_was_merged_has_another_time() {
    for takes_number in [false, true] {
        let family = Family::new(|tree| _ = tree.directory("/d"));
        family.fork.file("/d/of the fork", b"f");
        if takes_number {
            family.parent.file("/own", b"p");
        }
        family.merge();
        let told = family.diff("fork", "root");
        assert!(told[0].starts_with("attributes /d [Modified("), "{told:?}");
        assert_eq!(told[1..], ["created /own"][..usize::from(takes_number)]);
    }
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
    assert!(marram_history::diff(&family.store, &before, &after, root, &mut visit).is_err());
}

/// A snapshot `s` of `/d` with files and a directory, which has been moved since.
fn moved() -> Family {
    let family = kept(|tree| {
        for path in ["/d", "/d/sub"] {
            tree.directory(path);
        }
        tree.file("/d/a", &[1; 200_000]);
        tree.file("/d/sub/b", b"b");
        tree.xattr("/d/sub/b", "user.a", b"1");
        tree.file("/d/kept", b"kept");
    });
    family.parent.rename("/d", "/moved");
    family
}

/// What differs below `/d` between two states.
fn of_d(family: &Family, before: &str, after: &str) -> Vec<String> {
    let directory = family.parent.find("/d").unwrap().ino;
    family.diff_below(before, after, directory).iter().map(line).collect()
}

#[test]
fn a_directory_that_was_made_again_is_compared_with_the_one_of_its_path() {
    let family = moved();
    let tree = &family.parent;
    tree.directory("/d");
    tree.mode("/d", 0o700);
    tree.file("/d/a", b"another");
    tree.file("/d/new", b"new");
    tree.rename("/moved/kept", "/d/kept");
    let wanted = [
        "attributes / [Permissions(493, 448)]",
        "content /a [0..200000] 200000 7",
        "created /new",
        "removed /sub",
    ];
    assert_eq!(of_d(&family, "root@s", "root"), wanted);
    snapshot(&family, "t");
    assert_eq!(of_d(&family, "root@s", "root@t"), wanted);
    let back = of_d(&family, "root@t", "root@s");
    let wanted = ["content /a [0..200000] 7 200000", "removed /new", "created /sub"];
    assert_eq!(back[1..], wanted);
    tree.rename("/moved", "/d/inside");
    let inside = of_d(&family, "root@s", "root");
    let told = |text: &str| inside.iter().any(|line| line == text);
    assert!(told("created /inside") && told("renamed /sub /inside/sub"), "{inside:?}");
}

#[test]
fn a_directory_that_went_back_by_its_path_is_as_it_was() {
    let family = moved();
    let tree = &family.parent;
    tree.directory("/d");
    let directory = tree.find("/d").unwrap().ino;
    roll_back(&family, directory).unwrap().expect("something changes");
    assert_eq!(of_d(&family, "root@s", "root"), Vec::<String>::new());
    tree.write("/d/a", 5000, &[2; 100]);
    tree.xattr("/d/sub/b", "user.a", b"2");
    tree.rename("/d/kept", "/d/sub/kept");
    tree.file("/d/new", b"new");
    let wanted = [
        "content /a [5000..5100] 200000 200000",
        "removed /kept",
        "created /new",
        "xattrs /sub/b [\"user.a\"]",
        "created /sub/kept",
    ];
    assert_eq!(of_d(&family, "root@s", "root"), wanted);
    let numbers = |difference: &Difference| difference.old_ino != difference.ino;
    let all = family.diff_below("root@s", "root", tree.find("/d").unwrap().ino);
    assert_eq!(all.iter().filter(|it| numbers(it)).count(), 2, "copies have other numbers");
}

#[test]
fn a_directory_that_a_rollback_copied_into_another_is_as_it_was() {
    let family = moved();
    let tree = &family.parent;
    tree.rename("/moved", "/d");
    tree.rename("/d/sub", "/elsewhere");
    roll_back(&family, tree.find("/d").unwrap().ino).unwrap().expect("something changes");
    assert_eq!(of_d(&family, "root@s", "root"), Vec::<String>::new());
    // In all of the dataset it is one more.
    let all = family.diff("root@s", "root");
    let told = |text: &str| all.iter().any(|line| line == text);
    assert!(told("renamed /d/sub /elsewhere") && told("created /d/sub"), "{all:?}");
}

/// The name that the file's record leads to is that of the copy by then.
#[test]
fn a_hard_link_that_a_rollback_has_split_is_told() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.file("/outside", &[1; 10_000]);
        tree.link("/outside", "/d/a");
    });
    family.parent.write("/outside", 5000, &[2; 100]);
    roll_back(&family, family.parent.find("/d").unwrap().ino).unwrap().expect("it is copied");
    let wanted = ["created /d/a", "content /outside [5000..5100] 10000 10000", "unlinked /d/a"];
    assert_eq!(sorted(family.diff("root@s", "root")), sorted(wanted.map(str::to_owned).into()));
    let wanted = ["linked /d/a", "content /d/a [5000..5100] 10000 10000", "removed /d/a"];
    let back = family.diff("root", "root@s");
    assert_eq!(sorted(back), sorted(wanted.map(str::to_owned).into()));
    assert_eq!(of_d(&family, "root@s", "root"), Vec::<String>::new());
}

#[test]
fn what_takes_the_place_of_its_copy_has_moved_there() {
    let family = moved();
    let tree = &family.parent;
    tree.rename("/moved", "/d");
    tree.rename("/d/sub", "/elsewhere");
    roll_back(&family, tree.find("/d").unwrap().ino).unwrap().expect("something changes");
    snapshot(&family, "t");
    tree.unlink("/d/sub/b");
    tree.remove_directory("/d/sub");
    tree.file("/elsewhere/b", b"c");
    tree.rename("/elsewhere", "/d/sub");
    let wanted = [
        "content /d/sub/b [0..1] 1 1",
        "removed /d/sub",
        "removed /d/sub/b",
        "renamed /elsewhere /d/sub",
    ];
    assert_eq!(sorted(family.diff("root@t", "root")), wanted);
    // A look at the directory alone sees neither go nor come.
    let inside = of_d(&family, "root@t", "root");
    assert!(inside[0].starts_with("attributes / [Modified("), "{inside:?}");
    assert_eq!(inside[1..], ["content /sub/b [0..1] 1 1"]);
}

#[test]
fn states_that_both_lack_a_directory_are_asked_for_its_path() {
    let family = moved();
    let tree = &family.parent;
    tree.rename("/moved", "/d");
    tree.file("/d/new", b"new");
    snapshot(&family, "t");
    tree.rename("/d", "/moved");
    tree.directory("/d");
    assert_eq!(of_d(&family, "root@s", "root@t"), ["created /new"]);
    tree.directory("/unknown");
    let unknown = tree.find("/unknown").unwrap().ino;
    assert_eq!(family.diff_below("root@s", "root@t", unknown), []);
    tree.file("/unknown/f", b"f");
    let all = family.diff_below("root@s", "root", unknown);
    assert_eq!(all.iter().map(line).collect::<Vec<_>>(), ["created /f"]);
}

#[test]
fn a_file_whose_newest_name_is_elsewhere_is_told_by_one_below() {
    let family = kept(|tree| {
        tree.directory("/d");
        tree.directory("/d/sub");
        tree.file("/d/sub/a", &[1; 10_000]);
        tree.link("/d/sub/a", "/newest");
        tree.file("/outside", &[1; 10_000]);
        tree.link("/outside", "/outside too");
    });
    family.parent.write("/newest", 5000, &[2; 100]);
    family.parent.write("/outside", 5000, &[2; 100]);
    assert_eq!(of_d(&family, "root@s", "root"), ["content /sub/a [5000..5100] 10000 10000"]);
    family.parent.unlink("/d/sub/a");
    assert_eq!(of_d(&family, "root@s", "root"), ["unlinked /sub/a"]);
}
