//! The moment that an operation beside those of other clients has seen.

use marram_store::{Batch, Moment, Result, View};
use std::cell::Cell;

thread_local! {
    static SEEN: Cell<Option<Moment>> = const { Cell::new(None) };
    static HAS_APPLIED: Cell<bool> = const { Cell::new(false) };
}

/// What the batches of the operation under way on this thread depend on.
pub(crate) fn seen() -> Option<Moment> {
    SEEN.get()
}

/// Applies a batch of the operation under way on this thread: it is refused if others have changed
/// the dataset since the moment that the operation has seen.
pub(crate) fn apply(view: &dyn View, batch: Batch<'_>) -> Result<()> {
    view.apply(Batch { seen: seen(), ..batch })?;
    HAS_APPLIED.set(true);
    Ok(())
}

/// Goes back to the moment before when an operation ends, however it ends.
pub(crate) struct Seeing {
    before: Option<Moment>,
    had_applied: bool,
}

impl Seeing {
    pub(crate) fn since(moment: Moment) -> Seeing {
        Seeing { before: SEEN.replace(Some(moment)), had_applied: HAS_APPLIED.replace(false) }
    }

    /// Whether a batch was applied since.
    pub(crate) fn has_applied(&self) -> bool {
        HAS_APPLIED.get()
    }
}

impl Drop for Seeing {
    fn drop(&mut self) {
        SEEN.set(self.before);
        HAS_APPLIED.set(self.had_applied || HAS_APPLIED.get());
    }
}
