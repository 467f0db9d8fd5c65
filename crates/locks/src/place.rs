//! What a thread holds, and what it may take beside that. All of it is empty in a release build.

/// A lock's place in the order: a thread takes locks with ever greater numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Greater than that of every lock that may be held when this one is taken.
    pub order: u32,
    /// What a panic calls the lock.
    pub name: &'static str,
}

#[cfg(debug_assertions)]
mod checked {
    use super::Rank;
    use std::cell::RefCell;

    /// A rank, and for locks that share one, which of them it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Place {
        rank: Rank,
        index: usize,
    }

    thread_local! {
        /// The places that this thread holds, in the order of places: each came after those that
        /// were held, and giving one back leaves the others in order.
        static HELD: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
    }

    /// A lock that this thread holds, as long as this is there.
    #[derive(Debug)]
    pub(crate) struct Held(Place);

    impl Place {
        pub(crate) const fn new(rank: Rank, index: usize) -> Place {
            Place { rank, index }
        }

        /// Before the lock is waited for.
        ///
        /// # Panics
        /// When the thread holds a lock that comes after it, or this one.
        pub(crate) fn check(self) {
            let Some(highest) = HELD.with_borrow(|held| held.last().copied()) else { return };
            let follows = (highest.rank.order, highest.index) < (self.rank.order, self.index);
            assert!(
                follows,
                "order of locks: {} (rank {}, number {}) may not be taken while {} (rank {}, \
                 number {}) is held",
                self.rank.name,
                self.rank.order,
                self.index,
                highest.rank.name,
                highest.rank.order,
                highest.index,
            );
        }

        /// The lock has been taken.
        pub(crate) fn hold(self) -> Held {
            HELD.with_borrow_mut(|held| held.push(self));
            Held(self)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                let last = held.iter().rposition(|place| *place == self.0);
                held.remove(last.expect("what is given back was held by this thread"));
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod checked {
    use super::Rank;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Place;

    #[derive(Debug)]
    pub(crate) struct Held;

    impl Place {
        pub(crate) const fn new(_rank: Rank, _index: usize) -> Place {
            Place
        }

        #[inline(always)]
        pub(crate) fn check(self) {}

        #[inline(always)]
        pub(crate) fn hold(self) -> Held {
            Held
        }
    }
}

pub(crate) use checked::{Held, Place};
