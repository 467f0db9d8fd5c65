//! Whether it is known which of two states a dataset has.
//!
//! A transaction that is prepared here and decided in another pool leaves its datasets in doubt
//! when the decision cannot be had. Nobody reads or changes them then. If it is decided that the
//! state before holds, all views go on: they have seen nothing else. If the other one holds, views
//! from before would mix both. They go on if all that is kept in memory above them is read anew
//! while everything on them waits. Where nobody does that, or a read fails, they are at their end:
//! that is a turn, and a view from before it refuses everything.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module.
#[derive(Default)]
pub(crate) struct Doubt {
    is_there: AtomicBool,
    /// How often views from before have come to their end.
    turns: AtomicU64,
}

impl Doubt {
    /// From now on it is not known.
    pub(crate) fn begin(&self) {
        self.is_there.store(true, Ordering::SeqCst);
    }

    /// It is known again; `turned` if views from before are at their end.
    pub(crate) fn end(&self, turned: bool) {
        if turned {
            self.turn();
        }
        self.is_there.store(false, Ordering::SeqCst);
    }

    /// Views from before are at their end.
    pub(crate) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether it is not known.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::SeqCst)
    }

    /// What a view that begins now keeps, to know later that its state holds.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }
}
