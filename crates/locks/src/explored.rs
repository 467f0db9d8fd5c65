//! The same locks on top of `shuttle`, for tests that run under many schedules.
//!
//! They work only inside of `shuttle::check_random` and its like. Ranks are accepted and not
//! checked: all threads of such a test are one thread of the system, and a circle of waiting
//! threads is found here by waiting.

use crate::Rank;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

pub use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

/// As [`crate::Mutex`].
#[derive(Debug)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// As [`crate::MutexGuard`], with its mutex; empty only while a [`Condvar`] waits.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>, &'a shuttle::sync::Mutex<T>);

/// As [`crate::RwLock`].
#[derive(Debug)]
pub struct RwLock<T>(shuttle::sync::RwLock<T>);

/// As [`crate::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl<T> Mutex<T> {
    /// As [`crate::Mutex::new`].
    pub fn new(_rank: Rank, value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    /// As [`crate::Mutex::numbered`].
    pub fn numbered(rank: Rank, _index: usize, value: T) -> Mutex<T> {
        Mutex::new(rank, value)
    }

    /// As [`crate::Mutex::lock`].
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)), &self.0)
    }
}

impl<T> RwLock<T> {
    /// As [`crate::RwLock::new`].
    pub fn new(_rank: Rank, value: T) -> RwLock<T> {
        RwLock(shuttle::sync::RwLock::new(value))
    }

    /// As [`crate::RwLock::numbered`].
    pub fn numbered(rank: Rank, _index: usize, value: T) -> RwLock<T> {
        RwLock::new(rank, value)
    }

    /// As [`crate::RwLock::read`].
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`crate::RwLock::write`].
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Condvar {
    /// As [`crate::Condvar::new`].
    pub fn new() -> Condvar {
        Condvar::default()
    }

    /// As [`crate::Condvar::wait`].
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("a guard is whole while nobody waits");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// As [`crate::Condvar::wait_for`]; the time runs out when others have had a turn, or before.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) -> bool {
        guard.0 = None;
        shuttle::thread::yield_now();
        guard.0 = Some(guard.1.lock().unwrap_or_else(PoisonError::into_inner));
        false
    }

    /// As [`crate::Condvar::notify_one`].
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// As [`crate::Condvar::notify_all`].
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("a guard is whole while nobody waits")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("a guard is whole while nobody waits")
    }
}
