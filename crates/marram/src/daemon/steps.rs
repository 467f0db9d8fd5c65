//! Work in the background on volumes that may be closed, and opened anew, meanwhile.
//!
//! **One volume at a time for a dataset.** Two that are open on the same one would not know of each
//! other's locks, and changes of both could be lost in each other. Work in the background keeps
//! hold of volumes while mounts come and go. So it goes in steps, asks before each whether the
//! volume that it has is still the one that is open, and each opening waits for the steps that are
//! going on.

use parking_lot::{RwLock, RwLockReadGuard};

/// The steps that are going on.
#[derive(Default)]
pub(super) struct Steps(RwLock<()>);

impl Steps {
    /// A step, until it is dropped.
    pub(super) fn begin(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read()
    }

    /// Returns when no step is going on that began before: one may have a volume that is no
    /// longer open otherwise.
    pub(super) fn wait(&self) {
        drop(self.0.write());
    }
}

#[cfg(test)]
mod tests {
    use super::Steps;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn an_opening_waits_for_the_step_that_is_going_on() {
        let steps = Steps::default();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let step = steps.begin();
            let opening = scope.spawn(|| {
                steps.wait();
                assert!(is_over.load(Ordering::Acquire), "opened in the middle of a step");
            });
            // Whichever comes first, the opening returns only after this.
            thread::yield_now();
            is_over.store(true, Ordering::Release);
            drop(step);
            opening.join().expect("it waits");
        });
    }
}
