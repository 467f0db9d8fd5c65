//! Transactions over two pools that are not over and could not be ended, each as it stands
//! here, and why: it is said once.

use crate::control::protocol::{JointId, TwoPoolRow};
use crate::error::{Error, Kind};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub(super) struct Refusals(Mutex<BTreeMap<(JointId, String), Error>>);

impl Refusals {
    /// Whether it makes no sense to try it again: it is refused for what its record says.
    pub(super) fn is_final(&self, row: &TwoPoolRow) -> bool {
        let known = self.0.lock();
        known.get(&key_of(row)).is_some_and(|error| error.kind == Kind::Usage)
    }

    /// Takes note of one; whether that is new.
    pub(super) fn note(&self, row: &TwoPoolRow, error: &Error) -> bool {
        self.0.lock().insert(key_of(row), error.clone()).as_ref() != Some(error)
    }

    /// It has ended.
    pub(super) fn forget(&self, row: &TwoPoolRow) {
        self.0.lock().remove(&key_of(row));
    }
}

fn key_of(row: &TwoPoolRow) -> (JointId, String) {
    (row.joint_id(), row.state.clone())
}

#[cfg(test)]
mod tests {
    use super::Refusals;
    use crate::control::protocol::{PoolPlace, TwoPoolRow};
    use crate::error::Error;

    fn row(id: &str, other: &str, state: &str) -> TwoPoolRow {
        TwoPoolRow {
            id: id.to_owned(),
            state: state.to_owned(),
            is_in_doubt: true,
            datasets: Vec::new(),
            other: PoolPlace { id: other.to_owned(), path: "/other".into() },
        }
    }

    #[test]
    fn a_refusal_is_said_once_and_anew_when_it_is_another_one() {
        let (refusals, of) = (Refusals::default(), row("1", "a", TwoPoolRow::PREPARED));
        let (busy, damaged) = (Error::in_use("it is being mounted"), Error::usage("it is damaged"));
        assert!(refusals.note(&of, &busy) && !refusals.note(&of, &busy));
        assert!(!refusals.is_final(&of), "what is busy is tried again");
        assert!(refusals.note(&of, &damaged) && !refusals.note(&of, &damaged));
        assert!(refusals.is_final(&of), "what is damaged is not");
        // Of the same id with another pool, or at another stage, nothing was said.
        for other in [row("1", "b", TwoPoolRow::PREPARED), row("1", "a", TwoPoolRow::DECIDED)] {
            assert!(!refusals.is_final(&other));
            assert!(refusals.note(&other, &damaged));
        }
        refusals.forget(&of);
        assert!(!refusals.is_final(&of) && refusals.note(&of, &damaged));
    }
}
