//! Merges of a part of what the fork has changed.

use super::family::{Family, content_of};
use super::random::{Both, Random, Step, apply};
use marram_history::{ConflictKind, MergeOptions, MergeReport};
use marram_model::Model;
use marram_vfs::SteppedClock;
use std::sync::Arc;

/// Random histories, each merged in two parts.
const RUNS: u64 = 300;

fn is_below(path: &[u8], above: &str) -> bool {
    path.strip_prefix(above.as_bytes()).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
}

/// Merges what is at or below one of these paths.
fn merge_only(family: &Family, paths: &[&str]) -> MergeReport {
    let select = |path: &[u8], _| Ok(paths.iter().any(|above| is_below(path, above)));
    family.merge_with(&MergeOptions { select: Some(&select), ..Default::default() }).unwrap()
}

fn merge_without(family: &Family, paths: &[&str]) -> MergeReport {
    let select = |path: &[u8], _| Ok(!paths.iter().any(|above| is_below(path, above)));
    family.merge_with(&MergeOptions { select: Some(&select), ..Default::default() }).unwrap()
}

fn changed() -> Family {
    let family = Family::new(|tree| {
        for directory in ["/src", "/gone", "/gone/in"] {
            tree.directory(directory);
        }
        for file in ["/src/a", "/src/b", "/other", "/gone/x", "/gone/in/y"] {
            tree.file(file, b"base");
        }
    });
    let fork = &family.fork;
    fork.file("/src/a", b"fork");
    fork.file("/other", b"fork");
    fork.directory("/new");
    fork.directory("/new/in");
    fork.file("/new/in/made", b"fork");
    fork.file("/new/made", b"fork");
    fork.rename("/src/b", "/moved");
    for file in ["/gone/x", "/gone/in/y"] {
        fork.unlink(file);
    }
    fork.remove_directory("/gone/in");
    fork.remove_directory("/gone");
    family
}

fn paths(family: &Family) -> Vec<String> {
    family.parent.content().into_keys().collect()
}

#[test]
fn only_what_is_named_is_merged_and_the_rest_comes_later() {
    let family = changed();
    let report = merge_only(&family, &["/src/a", "/new/in"]);
    assert!(report.applied);
    let told: Vec<String> = report.differences.iter().map(super::family::line).collect();
    let wanted = ["created /new", "created /new/in", "created /new/in/made"];
    assert_eq!(told, [&wanted[..], &["content /src/a [0..4] 4 4"]].concat());
    assert_eq!(report.not_selected, 7, "other, made, moved, and four of gone");
    assert_eq!(family.parent.read("/src/a"), b"fork");
    assert_eq!(family.parent.read("/other"), b"base");
    assert!(family.parent.find("/new/made").is_err());
    assert!(family.parent.find("/src/b").is_ok() && family.parent.find("/gone/in/y").is_ok());
    family.check_usage();
    family.merge();
    assert_eq!(family.parent.content(), family.fork.content());
    family.check_usage();
}

#[test]
fn what_was_moved_goes_whole_by_either_of_its_names() {
    for name in ["/src/b", "/moved"] {
        let family = changed();
        assert!(merge_only(&family, &[name]).applied);
        assert!(family.parent.find("/src/b").is_err(), "{name}");
        assert_eq!(family.parent.read("/moved"), b"base", "{name}");
        assert_eq!(family.parent.read("/src/a"), b"base", "{name}");
        family.check_usage();
    }
}

#[test]
fn a_directory_of_which_something_is_left_out_stays() {
    let family = changed();
    let report = merge_without(&family, &["/gone/in"]);
    assert!(report.applied, "{report:?}");
    let left: Vec<String> =
        paths(&family).into_iter().filter(|path| path.starts_with("/gone")).collect();
    assert_eq!(left, ["/gone", "/gone/in", "/gone/in/y"]);
    assert_eq!(family.parent.read("/other"), b"fork");
    family.check_usage();
    family.merge();
    assert_eq!(family.parent.content(), family.fork.content());
}

#[test]
fn what_is_not_meant_is_no_conflict() {
    let family = changed();
    family.parent.file("/other", b"parent");
    family.parent.file("/gone/x", b"parent");
    assert!(merge_only(&family, &["/src", "/new", "/moved"]).applied);
    assert_eq!(family.parent.read("/other"), b"parent");
    let conflicts = family.conflicts();
    let wanted = [(ConflictKind::Content, "/other"), (ConflictKind::Removed, "/gone/x")];
    for (kind, path) in wanted {
        assert!(conflicts.contains(&(kind, path.to_owned())), "{conflicts:?}");
    }
}

#[test]
fn a_failed_choice_changes_nothing() {
    let family = changed();
    let before = family.parent.content();
    let select = |_: &[u8], _| Err(marram_vfs::Error::Io("the ignore file".to_owned()));
    let options = MergeOptions { select: Some(&select), ..Default::default() };
    assert!(family.merge_with(&options).is_err());
    assert_eq!(family.parent.content(), before);
}

/// Merges a part of a random fork, and then the rest. Returns whether both could be done.
fn run(seed: u64) -> bool {
    let mut random = Random(seed);
    let model = Model::new(Arc::new(SteppedClock::default()));
    let family = Family::new(|tree| {
        for path in ["/d", "/e", "/d/f"] {
            apply(&*tree.0, &Step::Directory(path.to_owned())).unwrap();
            apply(&model, &Step::Directory(path.to_owned())).unwrap();
        }
        Both(&*tree.0, &model).change(&mut random, 30);
    });
    let steps = Both(&*family.fork.0, &model).change(&mut random, 20);
    let part = random.pick(&["/d", "/e", "/d/f", "/e/f", "/d/e"]);
    let report = match seed % 2 {
        0 => merge_only(&family, &[part]),
        _ => merge_without(&family, &[part]),
    };
    family.check_usage();
    if !report.applied {
        // Of two moves that only go together one may be meant.
        let loops = report.conflicts.iter().all(|conflict| conflict.kind == ConflictKind::Loop);
        assert!(loops, "seed {seed}, {part}: {:?}\n{steps:#?}", report.conflicts);
        return false;
    }
    let report = family.merge_with(&MergeOptions::default()).unwrap();
    assert_eq!(report.conflicts, [], "seed {seed}, {part}\n{steps:#?}");
    let fork = content_of(&*family.fork.0, family.root);
    assert_eq!(family.parent.content(), fork, "seed {seed}, {part}\n{steps:#?}");
    family.check_usage();
    true
}

#[test]
fn two_parts_come_to_the_whole() {
    let done = (0..RUNS).filter(|seed| run(*seed)).count();
    assert!(done > RUNS as usize * 9 / 10, "{done}");
}
