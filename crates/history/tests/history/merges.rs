//! What goes into the parent without a conflict.

use super::family::{Family, Tree};
use marram_history::MergeOptions;
use marram_vfs::{FileSystem, Ino, Kind, NewNode, Ranges, SetAttributes, SetTime, Timestamp};

/// After the merge the parent is as the fork.
fn becomes_the_fork(prepare: impl FnOnce(&Tree), change: impl FnOnce(&Tree)) -> Family {
    let family = Family::new(prepare);
    change(&family.fork);
    let wanted = family.fork.content();
    family.merge();
    assert_eq!(family.parent.content(), wanted);
    family.check_usage();
    family
}

#[test]
fn all_kinds_of_changes_come_over() {
    let prepare = |tree: &Tree| {
        tree.directory("/d");
        tree.directory("/gone");
        tree.file("/d/changed", &[1; 300_000]);
        tree.file("/d/cut", &[2; 300_000]);
        tree.file("/gone/x", b"x");
        tree.file("/mode", b"m");
        tree.file("/linked", b"l");
        tree.file("/unlinked", b"u");
        tree.link("/unlinked", "/other");
        tree.xattr("/mode", "user.a", b"1");
        tree.xattr("/mode", "user.gone", &[7; 5000]);
    };
    let family = becomes_the_fork(prepare, |fork| {
        fork.write("/d/changed", 140_000, b"new bytes");
        fork.truncate("/d/cut", 1000);
        fork.unlink("/gone/x");
        fork.remove_directory("/gone");
        fork.mode("/mode", 0o600);
        fork.set("/mode", SetAttributes { uid: Some(7), gid: Some(8), ..Default::default() });
        fork.xattr("/mode", "user.a", b"2");
        fork.xattr("/mode", "user.b", &[3; 6000]);
        let mode = fork.find("/mode").unwrap().ino;
        fork.0.remove_xattr(mode, b"user.gone").unwrap();
        fork.link("/linked", "/d/second");
        fork.unlink("/unlinked");
        fork.rename("/d/changed", "/moved");
        fork.directory("/new");
        fork.directory("/new/deep");
        fork.file("/new/deep/file", &[4; 200_000]);
        fork.link("/new/deep/file", "/new/twin");
        fork.make("/new/link", NewNode::Symlink { target: b"to/there" });
        let device = NewNode::Node { kind: Kind::BlockDevice, permissions: 0o600, device: 0x801 };
        fork.make("/new/device", device);
        fork.rename("/d", "/new/d");
    });
    let (file, twin) = (family.parent.find("/new/deep/file"), family.parent.find("/new/twin"));
    assert_eq!(file.unwrap().ino, twin.unwrap().ino);
    family.parent.file("/new/deep/later", b"goes on");
    assert_eq!(family.parent.read("/new/deep/later"), b"goes on");
}

#[test]
fn both_sides_changes_stay() {
    let family = Family::new(|tree| {
        for name in ["/a", "/b", "/gone"] {
            tree.file(name, b"old");
        }
        tree.directory("/d");
        tree.directory("/e");
    });
    family.fork.file("/a", b"fork's");
    family.fork.rename("/d", "/e/d");
    family.fork.unlink("/gone");
    family.fork.file("/e/d/new", b"in the fork");
    family.parent.file("/b", b"parent's");
    family.parent.file("/d/inside", b"in the parent");
    family.parent.unlink("/gone");
    family.parent.directory("/own");
    let report = family.merge();
    let tree = &family.parent;
    assert_eq!(tree.read("/a"), b"fork's");
    assert_eq!(tree.read("/b"), b"parent's");
    assert_eq!(tree.read("/e/d/inside"), b"in the parent");
    assert_eq!(tree.read("/e/d/new"), b"in the fork");
    assert!(tree.find("/own").is_ok() && tree.find("/gone").is_err() && tree.find("/d").is_err());
    let names: Vec<_> = report.change_set.names.iter().map(|(_, name)| name.as_slice()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let a = tree.find("/a").unwrap().ino;
    assert!(report.change_set.has(a));
    assert!(!report.change_set.has(tree.find("/b").unwrap().ino));
    family.check_usage();
}

#[test]
fn the_same_change_on_both_sides_is_none() {
    let family = Family::new(|tree| {
        tree.file("/a", b"old");
        tree.file("/moved", b"old");
        tree.file("/gone", b"old");
    });
    for tree in [&family.fork, &family.parent] {
        tree.file("/a", b"new");
        tree.mode("/a", 0o600);
        tree.rename("/moved", "/there");
        tree.unlink("/gone");
        tree.file("/added", b"same");
        tree.directory("/d");
        tree.file("/d/added", b"same");
    }
    family.fork.file("/d/more", b"of the fork");
    let before = family.parent.content();
    family.merge();
    let mut after = family.parent.content();
    assert!(after.remove("/d/more").is_some());
    assert_eq!(after, before);
    family.check_usage();
}

#[test]
fn a_merge_can_be_done_again() {
    let family = Family::new(|tree| {
        tree.file("/a", b"old");
    });
    family.fork.file("/a", b"new");
    family.fork.file("/b", b"new");
    family.merge();
    family.fork.file("/c", b"newer");
    family.merge();
    assert_eq!(family.parent.content(), family.fork.content());
    let report = family.merge();
    assert!(report.differences.is_empty() && report.change_set.inodes.is_empty());
}

#[test]
fn what_a_program_holds_open_stays_with_it() {
    let family = Family::new(|tree| {
        tree.file("/open", b"held");
    });
    let held = family.parent.find("/open").unwrap().ino;
    family.parent.0.pin(held).unwrap();
    family.fork.unlink("/open");
    family.merge();
    let mut out = Vec::new();
    family.parent.0.read(held, 0, 10, &mut out).unwrap();
    assert_eq!(out, b"held");
    family.parent.0.forget(held, 1);
    while family.parent.0.reclaim_step(100).unwrap() {}
    assert!(family.parent.0.attributes(held).is_err());
    family.check_usage();
}

#[test]
fn files_without_a_name_are_left_where_they_are() {
    let family = Family::new(|_| ());
    let nameless = family.fork.0.create_anonymous(super::family::USER, Ino::ROOT, 0o600).unwrap();
    family.fork.file("/named", b"n");
    family.merge();
    assert_eq!(family.parent.content().len(), 1);
    family.fork.0.forget(nameless.ino, 1);
    family.check_usage();
}

#[test]
fn sparse_and_reserved_space_comes_over() {
    let family = Family::new(|tree| {
        tree.file("/sparse", b"begin");
    });
    let ino = family.fork.find("/sparse").unwrap().ino;
    family.fork.write("/sparse", 10 << 20, b"end");
    family.fork.0.allocate(ino, marram_vfs::Allocate::Reserve, 20 << 20, 1 << 20).unwrap();
    family.merge();
    let (fork, parent) = (family.fork.find("/sparse"), family.parent.find("/sparse"));
    assert_eq!(fork.unwrap().blocks_512, parent.unwrap().blocks_512);
    assert_eq!(family.parent.content(), family.fork.content());
    family.check_usage();
}

#[test]
fn a_fork_of_a_directory_goes_into_that_directory() {
    let store = marram_store::memory::MemoryStore::new();
    let family = Family::of(store, "/work/here", |tree| {
        tree.directory("/work");
        tree.directory("/work/here");
        tree.file("/work/here/a", b"old");
        tree.file("/outside", b"o");
    });
    assert_eq!(family.fork.0.parent(family.root).unwrap().ino, family.root);
    family.fork.file("/a", b"new");
    family.fork.file("/b", b"new");
    family.parent.rename("/work/here", "/elsewhere");
    family.parent.file("/outside", b"changed");
    family.merge();
    assert_eq!(family.parent.read("/elsewhere/a"), b"new");
    assert_eq!(family.parent.read("/elsewhere/b"), b"new");
    assert_eq!(family.parent.read("/outside"), b"changed");
}

#[test]
fn a_preview_says_all_and_changes_nothing() {
    let family = Family::new(|tree| {
        tree.file("/a", b"old");
    });
    family.fork.file("/a", b"new");
    family.fork.directory("/d");
    let before = family.parent.content();
    let report = family.merge_with(&MergeOptions { preview: true, ..Default::default() }).unwrap();
    assert!(!report.applied && report.conflicts.is_empty());
    let lines: Vec<_> = report.differences.iter().map(super::family::line).collect();
    assert_eq!(lines, ["content /a [0..3] 3 3", "created /d"]);
    assert_eq!(family.parent.content(), before);
}

#[test]
fn an_editors_way_to_save_is_a_change_of_the_file() {
    let family = Family::new(|tree| {
        tree.file("/a", b"old");
        tree.file("/b", b"old");
        tree.file("/c", b"old");
    });
    family.fork.save("/a", b"new");
    family.fork.save("/b", b"same");
    family.fork.save("/c", b"new");
    family.parent.save("/b", b"same");
    family.parent.mode("/c", 0o600);
    family.merge();
    assert_eq!(family.parent.read("/a"), b"new");
    assert_eq!(family.parent.read("/b"), b"same");
    assert_eq!(family.parent.read("/c"), b"new");
    assert_eq!(family.parent.find("/c").unwrap().permissions, 0o600);
    family.check_usage();
}

#[test]
fn different_ranges_of_one_file_go_together_on_request() {
    let family = Family::new(|tree| {
        tree.file("/a", &[1; 400_000]);
    });
    family.fork.write("/a", 10_000, &[2; 5000]);
    family.fork.write("/a", 399_000, &[3; 5000]);
    family.parent.write("/a", 200_000, &[4; 70_000]);
    assert_eq!(family.conflicts().len(), 1);
    let options = MergeOptions { ranges: true, ..Default::default() };
    assert!(family.merge_with(&options).unwrap().applied);
    let mut wanted = vec![1; 404_000];
    wanted[10_000..15_000].fill(2);
    wanted[399_000..].fill(3);
    wanted[200_000..270_000].fill(4);
    assert_eq!(family.parent.read("/a"), wanted);
    family.check_usage();
}

#[test]
fn different_lines_of_one_text_go_together_on_request() {
    let lines = |changed: &[(usize, &str)]| -> Vec<u8> {
        let mut lines: Vec<String> = (0..50).map(|line| format!("line {line}\n")).collect();
        for (line, text) in changed {
            lines[*line] = format!("{text}\n");
        }
        lines.concat().into_bytes()
    };
    let family = Family::new(|tree| {
        tree.file("/a", &lines(&[]));
        tree.file("/b", &lines(&[]));
    });
    family.fork.file("/a", &lines(&[(3, "of the fork")]));
    family.parent.save("/a", &lines(&[(40, "of the parent, and longer")]));
    family.fork.file("/b", &lines(&[(3, "of the fork")]));
    family.parent.file("/b", &lines(&[(3, "of the parent")]));
    assert_eq!(family.conflicts().len(), 2);
    let options = MergeOptions { text: true, ..Default::default() };
    let report = family.merge_with(&options).unwrap();
    assert_eq!(report.conflicts.len(), 1);
    family.parent.file("/b", &lines(&[]));
    assert!(family.merge_with(&options).unwrap().applied);
    let wanted = lines(&[(3, "of the fork"), (40, "of the parent, and longer")]);
    assert_eq!(family.parent.read("/a"), wanted);
    family.check_usage();
}

/// A directory that the fork has changed, and that in the parent has the name which the fork has
/// given to a new one, takes part in the merge twice.
#[test]
fn a_directory_that_becomes_one_with_a_new_one_keeps_the_later_time_of_both() {
    for (of_old, of_new) in [(2_000_000_000, 3_000_000_000), (3_000_000_000, 2_000_000_000)] {
        let family = Family::new(|tree| {
            tree.directory("/d");
        });
        family.parent.rename("/d", "/x");
        let changed_at = |path: &str, seconds| {
            let modified = Some(SetTime::At(Timestamp { seconds, nanoseconds: 0 }));
            family.fork.set(path, SetAttributes { modified, ..SetAttributes::default() });
        };
        family.fork.directory("/x");
        changed_at("/d", of_old);
        changed_at("/x", of_new);
        family.merge();
        assert_eq!(family.parent.find("/x").unwrap().modified.seconds, 3_000_000_000);
    }
}
