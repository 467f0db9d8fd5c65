//! `posix` on the in-memory store does what the model does.

mod homes;

use homes::{busy_memory_home, memory_home, run_seeds};

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
