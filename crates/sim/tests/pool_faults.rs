//! A slice of the campaign of faults: see `tests/faults`, and `cargo xtask faults` for the rest.

use crate::faults::{Outcome, SETTINGS, all, clean_run, run};

/// Of how many runs the test makes one.
const RUNS_PER_TEST: usize = 307;

#[test]
fn the_same_run_touches_the_device_alike() {
    for setting in SETTINGS {
        assert_eq!(clean_run(setting).unwrap(), clean_run(setting).unwrap(), "{}", setting.name);
    }
}

#[test]
fn no_fault_leads_to_wrong_data_or_a_lost_promise() {
    let (mut told, mut damaged, mut healed) = (0, 0, 0);
    let mut violations = String::new();
    for setting in SETTINGS {
        for id in all(setting, 1).unwrap().iter().step_by(RUNS_PER_TEST) {
            match run(id) {
                Ok(Outcome::Reported) => told += 1,
                Ok(Outcome::Damaged(_)) => damaged += 1,
                Ok(Outcome::Healed) => healed += 1,
                Ok(Outcome::Correct | Outcome::BothCopies) => {}
                Err(violation) => violations += &format!("\n{id}: {violation}"),
            }
        }
    }
    assert!(violations.is_empty(), "{violations}");
    assert!(told > 0 && damaged > 0 && healed > 0, "{told} {damaged} {healed}");
}
