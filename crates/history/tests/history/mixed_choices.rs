//! Conflicts that are decided one by one: no file that both sides have is left without a name.

use super::family::{Family, Tree};
use marram_history::{Choice, Conflict, MergeOptions};

type Change = fn(&Tree);

fn prepare(tree: &Tree) {
    tree.directory("/e");
    tree.file("/other", b"other");
}

/// Merges with the parent's side for the conflict at `ours`, and the fork's for all others. What
/// was `/other` must have one of these names then, unless the merge is refused.
#[track_caller]
fn holds(fork: Change, parent: Change, ours: &str, names: &[&str]) {
    let family = Family::new(prepare);
    fork(&family.fork);
    parent(&family.parent);
    let choose = |conflict: &Conflict| match conflict.path == ours.as_bytes() {
        true => Choice::Ours,
        false => Choice::Theirs,
    };
    let options = MergeOptions { choose: &choose, ..MergeOptions::default() };
    let report = family.merge_with(&options).unwrap();
    let left: Vec<String> = family.parent.content().into_keys().collect();
    let is_there = left.iter().any(|name| names.contains(&name.as_str()));
    assert!(!report.applied || is_there, "{left:?}, {:?}", report.decided);
}

#[test]
fn a_file_that_the_fork_changed_stays_where_its_new_place_does_not_come() {
    let fork = |fork: &Tree| {
        fork.write("/other", 0, b"OTHER");
        fork.rename("/other", "/c");
        fork.file("/b", b"y");
    };
    holds(fork, |parent| parent.rename("/other", "/b"), "/other", &["/c", "/other"]);
}

#[test]
fn a_file_that_was_only_moved_stays_where_the_fork_has_another_one() {
    let fork = |fork: &Tree| {
        fork.file("/b", b"y");
    };
    holds(fork, |parent| parent.rename("/other", "/b"), "", &["/other"]);
    let fork = |fork: &Tree| {
        fork.write("/other", 0, b"OTHER");
        fork.file("/b", b"y");
    };
    holds(fork, |parent| parent.rename("/other", "/b"), "", &["/other"]);
}

#[test]
fn a_file_that_moved_into_what_is_refused_stays() {
    let fork = |fork: &Tree| {
        fork.directory("/dir");
        fork.rename("/other", "/dir/x");
    };
    let parent = |parent: &Tree| {
        parent.file("/dir", b"file");
        parent.rename("/other", "/p");
    };
    holds(fork, parent, "/dir", &["/p", "/dir/x"]);
}

#[test]
fn a_file_that_moved_to_the_name_of_a_directory_that_stays_keeps_its_other_name() {
    let fork = |fork: &Tree| {
        fork.write("/other", 0, b"OTHER");
        fork.remove_directory("/e");
        fork.rename("/other", "/e");
    };
    let parent = |parent: &Tree| {
        parent.file("/e/z", b"z");
        parent.rename("/other", "/p");
    };
    holds(fork, parent, "/e/z", &["/p"]);
}
