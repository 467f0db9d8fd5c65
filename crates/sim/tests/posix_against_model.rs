//! `posix` on stores in memory does what the model does.

use crate::homes::{busy_memory_home, memory_home, minimal_home, run_seeds};

/// Steps in a history.
const STEPS: usize = 1000;

#[test]
fn posix_does_what_the_model_does() {
    let sum = run_seeds(memory_home, 0..40, STEPS);
    assert_eq!(sum.without_space, 0, "the store has plenty of space");
    assert!(sum.done > 15_000 && sum.refused > 10_000, "{sum:?}");
}

#[test]
fn commits_in_the_middle_of_operations_change_nothing() {
    run_seeds(busy_memory_home, 100..120, STEPS);
}

#[test]
fn a_store_without_any_capability_is_enough() {
    let sum = run_seeds(minimal_home, 700..720, STEPS);
    assert!(sum.without_space * 1000 < sum.operations(), "only promises of space fail: {sum:?}");
    assert!(sum.lacking > 5 && sum.rollbacks == 0, "it says that it cannot go back: {sum:?}");
    assert!(sum.merges > 5 && sum.conflicts > 2 && sum.directories_back > 5, "{sum:?}");
    assert!(sum.snapshots > 30 && sum.clones > 5 && sum.diffs > 30, "{sum:?}");
}
