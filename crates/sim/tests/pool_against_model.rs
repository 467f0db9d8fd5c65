//! A pool with `posix` on it does what the model does, with remounts, crashes, snapshots, clones,
//! forks, merges, rollbacks and diffs in between, and the offline verifier never finds anything.

use crate::homes::{busy_pool_home, full_pool_home, pool_home, run_seeds};

/// Steps in a history.
const STEPS: usize = 1000;

#[test]
fn a_pool_does_what_the_model_does() {
    let sum = run_seeds(pool_home, 0..20, STEPS);
    assert!(sum.without_space * 1000 < sum.operations(), "only promises of space fail: {sum:?}");
    assert!(
        sum.crashes > 10 && sum.snapshots > 30 && sum.clones > 5 && sum.directories_back > 5,
        "{sum:?}"
    );
    assert!(sum.forks > 10 && sum.merges > 5 && sum.conflicts > 2, "{sum:?}");
    assert!(sum.rollbacks > 5 && sum.diffs > 30 && sum.differences > 300, "{sum:?}");
}

#[test]
fn commits_in_the_middle_of_operations_change_nothing() {
    run_seeds(busy_pool_home, 300..308, STEPS);
}

#[test]
fn a_full_pool_refuses_what_does_not_fit_and_nothing_else_changes() {
    let sum = run_seeds(full_pool_home, 500..508, STEPS);
    assert!(sum.without_space > 50 && sum.done > sum.without_space, "{sum:?}");
}
