//! A fork that is merged and updated again and again, beside the model: each brings only what is
//! new, both sides agree with the model's, and a crash leaves what was promised.

use crate::homes;
use crate::homes::{busy_memory_home, busy_pool_home, memory_home, pool_home, run_theme};
use marram_sim::{Report, Theme};

/// Steps in a history.
const STEPS: usize = 300;

fn run(make_home: homes::MakeSeeded, seeds: std::ops::Range<u64>) -> Report {
    run_theme(Theme::Branches, make_home, seeds, STEPS)
}

#[test]
fn a_fork_in_memory_is_a_branch() {
    let sum = run(memory_home, 0..30);
    assert!(sum.merges > 150 && sum.updates > 150 && sum.conflicts > 50, "{sum:?}");
    assert!(sum.decisions > 50 && sum.directories_back > 15 && sum.rollbacks > 5, "{sum:?}");
    run(busy_memory_home, 100..106);
}

#[test]
fn a_fork_in_a_pool_is_a_branch_through_crashes() {
    let sum = run(pool_home, 0..10);
    assert!(sum.merges > 50 && sum.updates > 50 && sum.crashes > 12, "{sum:?}");
    assert!(sum.decisions > 10, "{sum:?}");
    run(busy_pool_home, 300..302);
}
