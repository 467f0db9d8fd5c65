//! Whether it is known which of two states a dataset has.
//!
//! A transaction that is prepared here and decided in another pool leaves its datasets in doubt
//! when the decision cannot be had. Nobody reads or changes them then. If it is decided that the
//! state before holds, all views go on: they have seen nothing else. If the other one holds, views
//! from before would mix both, and are at their end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module.
#[derive(Default)]
pub(crate) struct Doubt {
    is_there: AtomicBool,
    /// How often a doubt has ended with another state than views had seen before.
    turns: AtomicU64,
}

impl Doubt {
    /// From now on it is not known.
    pub(crate) fn begin(&self) {
        self.is_there.store(true, Ordering::SeqCst);
    }

    /// It is known again; `turned` if views have seen another state before.
    pub(crate) fn end(&self, turned: bool) {
        self.turns.fetch_add(u64::from(turned), Ordering::SeqCst);
        self.is_there.store(false, Ordering::SeqCst);
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
