//! Space that has been promised by reserving and is not yet written.
//!
//! Who reserves is told that there is as much space at that moment. Were reserved bytes not
//! remembered, each call would promise the same space anew, and a program that reserves until
//! nothing is left would never end. So what has been reserved since the file system was opened is
//! not promised again. Writers are not bound by it: they find space as long as there is some.
//!
//! It is a sum in memory, kept with every change. What was reserved before is not in it, so when
//! that is written or removed the sum may be less than what is still promised, and never more.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are promised.
#[derive(Debug, Default)]
pub(crate) struct Promises(AtomicU64);

impl Promises {
    /// What is promised now, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Inodes that had so many bytes reserved have so many now.
    pub(crate) fn moved(&self, (before, after): (u64, u64)) {
        if before != after {
            let moved = |bytes: u64| bytes.saturating_add(after).saturating_sub(before);
            let _previous = self
                .0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| Some(moved(bytes)));
        }
    }

    /// The state is another one: nothing is known of what it has promised.
    pub(crate) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Promises;

    #[test]
    fn what_was_promised_earlier_takes_nothing_from_the_sum_of_others() {
        let promises = Promises::default();
        promises.moved((0, 100));
        promises.moved((500, 480));
        assert_eq!(promises.bytes(), 80);
        promises.moved((500, 0));
        assert_eq!(promises.bytes(), 0);
        promises.moved((0, 7));
        promises.forget();
        assert_eq!(promises.bytes(), 0);
    }
}
