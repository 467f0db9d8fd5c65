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
