//! What a refusal says fits what was asked, and names only what users can see.

use crate::workbench::{Outcome, Workbench, mounted};
use std::fs;

/// Refused, without any of these words.
fn without(outcome: &Outcome, words: &[&str]) {
    let told = format!("{}{}", outcome.out, outcome.err);
    for word in words {
        assert!(!told.contains(word), "{word:?} is told: {told}");
    }
}

#[test]
fn a_merge_that_has_tried_to_put_texts_together_does_not_say_to_try_that() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("mnt/src");
    fs::write(bench.path("mnt/src/a"), "one\n").unwrap();
    bench.run("fork mnt/src work").good();
    fs::write(bench.path("mnt/.marram/forks/work/a"), "fork\n").unwrap();
    fs::write(bench.path("mnt/src/a"), "parent\n").unwrap();
    let first = bench.run("merge mnt --fork work");
    assert_eq!(first.status, 4);
    assert!(first.out.contains("put them together with --text,\n--ranges"), "{first:?}");
    let second = bench.run("merge mnt --fork work --text");
    assert_eq!(second.status, 4);
    without(&second, &["with --text", "--ranges"]);
    for way in ["--ours", "--theirs", "--interactive"] {
        assert!(second.out.contains(way), "{second:?}");
    }
    // What was removed cannot be put together with anything.
    fs::remove_file(bench.path("mnt/src/a")).unwrap();
    let third = bench.run("merge mnt --fork work");
    assert_eq!(third.status, 4);
    without(&third, &["--text", "--ranges"]);
    bench.run("unmount mnt").good();
}

#[test]
fn an_undo_that_meets_later_changes_speaks_of_no_fork() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("mnt/src/b");
    for file in ["a", "b/c", "d"] {
        fs::write(bench.path("mnt/src").join(file), "one\n").unwrap();
    }
    bench.run("snapshot mnt@s").good();
    for file in ["a", "b/c", "d"] {
        fs::write(bench.path("mnt/src").join(file), "two\n").unwrap();
    }
    bench.run("rollback mnt/src@s").good();
    fs::write(bench.path("mnt/src/a"), "three\n").unwrap();
    fs::remove_file(bench.path("mnt/src/b/c")).unwrap();
    let refused = bench.run("undo mnt");
    without(&refused, &["fork", "parent"]);
    refused.refused(
        1,
        &["cannot be taken back", "/a: changed since", "/b/c: changed by the undo, removed since"],
    );
    bench.run("unmount mnt").good();
}

#[test]
fn what_has_the_name_of_a_fork_is_called_what_it_is() {
    let bench = Workbench::with_pool();
    bench.run("create work.pool --dataset d").good();
    bench.run("fork work.pool work").good();
    let refused = bench.run("fork work.pool work");
    without(&refused, &["dataset", "snapshot"]);
    refused.refused(1, &["a fork named work exists", "marram forks"]);
    bench.run("fork work.pool d").refused(1, &["a dataset named d exists", "marram list"]);
}

#[test]
fn what_a_fork_is_in_the_way_of_is_named_as_lists_show_it() {
    let bench = Workbench::with_pool();
    bench.run("create work.pool --dataset d").good();
    bench.run("fork work.pool x --dataset d").good();
    let refused = bench.run("destroy dataset work.pool --dataset d --yes");
    without(&refused, &["@fork"]);
    refused.refused(11, &["d is in use: x began as it"]);
}
