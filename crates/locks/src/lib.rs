//! Locks that know their place in the order in which they may be taken.
//!
//! Two threads that take two locks in different orders wait for each other for ever, and only when
//! they meet: no test that does not meet that moment sees it. So each lock has a [`Rank`], and a
//! thread may take only locks whose rank is above all that it holds. In a build with debug
//! assertions a thread that breaks that panics at once, with the names of both locks, even if no
//! other thread is there. So every test that goes that way finds it. In a release build nothing of
//! this is left: the guards and locks are those of `parking_lot`, to the byte.
//!
//! A lock may wait for itself too: taking one that the thread holds already is refused as well, and
//! so is reading twice, which blocks when a writer comes in between.
//!
//! Whether the small pieces that hand over work from thread to thread do it right is another
//! question: module `explored` (feature `explore`) has the same locks on top of `shuttle`, which
//! runs a test under many schedules. `docs/decisions/0014-order-of-locks.md` has the reasons.

#[cfg(feature = "explore")]
pub mod explored;
mod place;
mod ranked;

pub use place::Rank;
pub use ranked::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
