//! The crash explorer on a pool: a slice of what `cargo xtask crash` does, and its own tests.

use crate::homes::PoolTarget;
use marram_pool::planted::PlantedBug;
use marram_sim::crash::{Bounds, Campaign, Explorer, Outcome, Plan, Workload, states};

fn campaign(bug: Option<PlantedBug>, plan: Plan) -> Outcome {
    let target = PoolTarget { bug };
    let explorer = Explorer::new(&target).unwrap();
    Campaign::new(&explorer, plan).run(&|_| ())
}

#[test]
fn whatever_a_power_cut_leaves_is_the_state_at_one_moment() {
    let outcome = campaign(None, Plan { seed: 2, states: 400, threads: 1, interleaved: false });
    assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
    assert!(outcome.distinct >= 400 && outcome.continued > 0, "{outcome:?}");
}

#[test]
fn administrative_operations_and_frames_that_others_go_on_beside_are_there_or_not() {
    let plan = Plan { seed: 8, states: 500, threads: 1, interleaved: true };
    let outcome = campaign(None, plan);
    assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
    assert!(outcome.held > 0, "{outcome:?}");
}

#[test]
fn a_merge_and_a_rollback_are_there_whole_or_not_at_all() {
    let target = PoolTarget { bug: None };
    let explorer = Explorer::new(&target).unwrap();
    for text in [
        "small:append+fsync+merge-fork+destroy-fork+unlink+sync",
        "small:merge-and-drop+commit2/overwrite+go-back+destroy-before",
        "small:go-back+second-snapshot+overwrite+rollback",
        "small:drop-merged-fork+drop-merged-fork+sync",
        "small:rename+snapshot+merge-fork+rollback+append+merge",
        "small:append+fsync+directory-back+unlink+sync",
        "small:clone10/anonymous+fork+clone-rename+rollback-of-directory",
        "small:directory-back-made-anew+commit2/overwrite+rollback-of-directory+destroy-snapshot",
        "small:merge-fork+snapshot+rename-directory+rollback-of-directory+overwrite+sync",
        "random:11:120",
    ] {
        let workload: Workload = text.parse().unwrap();
        let bounds = Bounds { subset_writes_max: 3, seeds: 4, states_max: 150 };
        let violations = explorer.explore(&workload, &bounds, 1);
        assert!(violations.is_empty(), "{text}: {violations:#?}");
    }
    assert!(explorer.distinct() > 200, "{} images", explorer.distinct());
}

/// Transactions alone, beside plain changes and syncs, spilled, refused, aborted, and beside what
/// is under way.
const TRANSACTIONS: [&str; 8] = [
    "small:transaction+fsync+transaction-beside+unlink+sync",
    "small:transaction-spilled+commit2/overwrite+sync",
    "small:transaction-begin+fork+transaction-write+clone3/transaction-rename+transaction-commit",
    "small:commit-of-moments4/transaction-write+transaction-commit+append+sync",
    "small:transaction-aborted+commit-of-moments6/append-short+transaction-abort+sync",
    "small:transaction-begin+transaction-write+truncate+commit+transaction-commit+merge-fork+sync",
    "small:transaction-begin+commit3/transaction-write+sync1/rename+rollback+transaction+sync",
    "random:5:120",
];

#[test]
fn a_transaction_is_there_whole_or_not_at_all() {
    let target = PoolTarget { bug: None };
    let explorer = Explorer::new(&target).unwrap();
    for text in TRANSACTIONS {
        let workload: Workload = text.parse().unwrap();
        let bounds = Bounds { subset_writes_max: 3, seeds: 4, states_max: 150 };
        let violations = explorer.explore(&workload, &bounds, 1);
        assert!(violations.is_empty(), "{text}: {violations:#?}");
    }
    assert!(explorer.distinct() > 200, "{} images", explorer.distinct());
}

/// The same over two datasets: alone, beside changes of both, spilled, and beside what is under
/// way.
const ON_BOTH: [&str; 5] = [
    "small:transaction-on-both+fsync+transaction-on-both-beside+unlink+sync",
    "small:in-clone+transaction-on-both-spilled+commit2/overwrite+sync",
    "small:in-clone+transaction-on-both-beside+destroy-clone+transaction-on-both+sync",
    "small:in-clone+commit3/transaction-on-both-beside+transaction-on-both-spilled+sync",
    "random:8:160",
];

#[test]
fn a_transaction_over_two_datasets_is_in_both_or_in_none() {
    let target = PoolTarget { bug: None };
    let explorer = Explorer::new(&target).unwrap();
    for text in ON_BOTH {
        let workload: Workload = text.parse().unwrap();
        let bounds = Bounds { subset_writes_max: 3, seeds: 4, states_max: 150 };
        let violations = explorer.explore(&workload, &bounds, 1);
        assert!(violations.is_empty(), "{text}: {violations:#?}");
    }
    assert!(explorer.distinct() > 150, "{} images", explorer.distinct());
}

#[test]
fn a_dataset_of_a_transaction_in_an_earlier_commit_is_caught() {
    let target = PoolTarget { bug: Some(PlantedBug::TransactionInTwo) };
    let explorer = Explorer::new(&target).unwrap();
    let workload: Workload = ON_BOTH[0].parse().unwrap();
    let violations = explorer.explore(&workload, &Bounds::default(), 1);
    let first = violations.first().expect("one of both is there after some crash");
    assert!(explorer.replay(&first.id.parse().unwrap()).is_err(), "{} replays", first.id);
}

#[test]
fn a_part_of_a_transaction_in_an_earlier_commit_is_caught() {
    let target = PoolTarget { bug: Some(PlantedBug::TransactionInTwo) };
    let explorer = Explorer::new(&target).unwrap();
    let workload: Workload = TRANSACTIONS[0].parse().unwrap();
    let violations = explorer.explore(&workload, &Bounds::default(), 1);
    let first = violations.first().expect("a part of it is there after some crash");
    assert!(explorer.replay(&first.id.parse().unwrap()).is_err(), "{} replays", first.id);
}

#[test]
fn the_same_seed_gives_the_same_trace_and_the_same_states() {
    let target = PoolTarget { bug: None };
    let (first, second) = (Explorer::new(&target).unwrap(), Explorer::new(&target).unwrap());
    for text in [
        "small:rename-over+fsync+append+commit3/create+in-clone+sync",
        "small:xattr+sync+append+snapshot3/rename-over+destroy-snapshot4/create",
        "small:xattr+sync+append+sync1/rename-over+drop-kept-clone6/sync2/create",
        "small:transaction+commit-of-moments3/append+transaction-spilled+sync",
        "random:3:60",
        "idiom:mail-move:5:4",
    ] {
        let workload: Workload = text.parse().unwrap();
        let traces =
            [&first, &second].map(|explorer| explorer.record(&workload, false).unwrap().trace);
        assert!(traces[0] == traces[1], "{text} does not replay");
        let all = traces.map(|trace| states(&trace, &Bounds::default(), 9));
        assert_eq!(all[0], all[1]);
    }
}

#[test]
fn every_planted_bug_is_caught_and_its_state_replays() {
    for bug in PlantedBug::ALL {
        // So many that each of them is caught with other seeds too.
        let plan = Plan { seed: 3, states: 4_000, threads: 1, interleaved: false };
        let outcome = campaign(Some(bug), plan);
        let Some(violation) = outcome.violations.first() else {
            panic!("{bug:?} was not caught in {} states", outcome.distinct);
        };
        let target = PoolTarget { bug: Some(bug) };
        let replayed = Explorer::new(&target).unwrap().replay(&violation.id.parse().unwrap());
        assert!(replayed.is_err(), "{bug:?}: {} does not replay", violation.id);
    }
}
