//! A fork that is merged and updated again and again, beside the model: each brings only what is
//! new, both sides agree with the model's, and a crash leaves what was promised.

use crate::homes;
use crate::homes::{busy_memory_home, busy_pool_home, memory_home, pool_home, run_theme};
use marram_sim::{Options, Report, Theme, run_history};

/// Steps in a history.
const STEPS: usize = 300;

fn run(make_home: homes::MakeSeeded, seeds: std::ops::Range<u64>) -> Report {
    run_theme(Theme::Branches, make_home, seeds, STEPS)
}

/// Runs some steps of a history of 400.
fn replay(seed: u64, kept: &str) -> Report {
    let kept = Some(kept.parse().unwrap());
    let options = Options { theme: Theme::Branches, kept, ..Options::new(seed, 400) };
    let report = run_history(&options, &|clock| pool_home(seed, clock));
    report.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn after_a_crash_a_file_that_keeps_a_name_has_lost_one_and_is_not_removed() {
    let report = replay(89, "36-37,64,66,184,196,198,201");
    assert_eq!((report.crashes, report.updates, report.diffs), (1, 1, 1), "{report:?}");
}

#[test]
fn what_a_rollback_brings_back_under_its_old_number_is_no_conflict() {
    let report = replay(210, "56,91,94,137,151,153-154,181,211,214,222,226,232,240");
    assert_eq!((report.rollbacks, report.updates), (4, 1), "{report:?}");
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
