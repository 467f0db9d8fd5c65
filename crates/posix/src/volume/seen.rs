//! The moment that an operation beside those of other clients has seen.

use marram_store::Moment;
use std::cell::Cell;

thread_local! {
    static SEEN: Cell<Option<Moment>> = const { Cell::new(None) };
}

/// What the batches of the operation under way on this thread depend on.
pub(crate) fn seen() -> Option<Moment> {
    SEEN.get()
}

/// Goes back to the moment before when an operation ends, however it ends.
pub(crate) struct Seeing {
    before: Option<Moment>,
}

impl Seeing {
    pub(crate) fn since(moment: Moment) -> Seeing {
        Seeing { before: SEEN.replace(Some(moment)) }
    }
}

impl Drop for Seeing {
    fn drop(&mut self) {
        SEEN.set(self.before);
    }
}
