//! How many streams, comparisons and passes are under way. The daemon does not end before it has
//! let go of each: a stream that waits for its other side is given up then.

use parking_lot::{Condvar, Mutex};

/// How many there are.
#[derive(Default)]
pub(super) struct Streams {
    count: Mutex<usize>,
    changed: Condvar,
}

/// A stream, for as long as it is there.
pub(super) struct Held<'s>(&'s Streams);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.changed.notify_all();
    }
}

impl Streams {
    /// Counts one more.
    pub(super) fn begin(&self) -> Held<'_> {
        *self.count.lock() += 1;
        Held(self)
    }

    /// Returns when there is none any more. No new one comes, as the mounts are shut.
    pub(super) fn wait_until_none(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.changed.wait(&mut count);
        }
    }
}
