//! `parking_lot`'s locks with a place.

use crate::place::{Held, Place, Rank};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A lock for one.
pub struct Mutex<T> {
    place: Place,
    inner: parking_lot::Mutex<T>,
}

/// What [`Mutex::lock`] gives.
pub struct MutexGuard<'a, T> {
    // Given back before its note is: fields are dropped in their order.
    inner: parking_lot::MutexGuard<'a, T>,
    _held: Held,
}

/// A lock for many readers or one writer.
pub struct RwLock<T> {
    place: Place,
    inner: parking_lot::RwLock<T>,
}

/// What [`RwLock::read`] gives.
pub struct RwLockReadGuard<'a, T> {
    inner: parking_lot::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// What [`RwLock::write`] gives.
pub struct RwLockWriteGuard<'a, T> {
    inner: parking_lot::RwLockWriteGuard<'a, T>,
    _held: Held,
}

/// Something to wait for with a [`Mutex`] given back meanwhile.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl<T> Mutex<T> {
    /// A lock over `value`.
    pub const fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex::numbered(rank, 0, value)
    }

    /// One of several locks that share a rank and are taken in the order of their numbers.
    pub const fn numbered(rank: Rank, index: usize, value: T) -> Mutex<T> {
        Mutex { place: Place::new(rank, index), inner: parking_lot::Mutex::new(value) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// In a debug build when the thread holds a lock that comes after this one.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.place.check();
        MutexGuard { inner: self.inner.lock(), _held: self.place.hold() }
    }
}

impl<T> RwLock<T> {
    /// A lock over `value`.
    pub const fn new(rank: Rank, value: T) -> RwLock<T> {
        RwLock::numbered(rank, 0, value)
    }

    /// One of several locks that share a rank and are taken in the order of their numbers.
    pub const fn numbered(rank: Rank, index: usize, value: T) -> RwLock<T> {
        RwLock { place: Place::new(rank, index), inner: parking_lot::RwLock::new(value) }
    }

    /// Waits until nobody writes.
    ///
    /// # Panics
    /// As [`Mutex::lock`].
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.place.check();
        RwLockReadGuard { inner: self.inner.read(), _held: self.place.hold() }
    }

    /// Waits until nobody reads or writes.
    ///
    /// # Panics
    /// As [`Mutex::lock`].
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.place.check();
        RwLockWriteGuard { inner: self.inner.write(), _held: self.place.hold() }
    }
}

impl Condvar {
    /// Something that nobody waits for yet.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Waits until it is notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// Waits until it is notified, at most for `timeout`; returns whether it was.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        !self.0.wait_for(&mut guard.inner, timeout).timed_out()
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}
