//! The thread that shows watchers what was changed behind the kernel's back, and its steps.

use crate::protocol::Header;
use marram_vfs::Ino;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the thread is about to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Makes a name that is there already.
    Make { parent: Ino, name: Vec<u8> },
    /// Removes a name that is gone already.
    Remove { parent: Ino, name: Vec<u8>, is_directory: bool },
    /// Changes attributes that are as they are to be.
    Touch(Ino),
}

/// The thread that shows changes, and what it is at.
#[derive(Debug, Default)]
pub(crate) struct Reenacted {
    /// Its number as the kernel gives it in requests; 0 while there is none.
    thread: AtomicU32,
    step: Mutex<Option<Step>>,
    /// One thread at a time.
    turn: Mutex<()>,
}

/// While this lives, the requests of the thread that made it are answered by its steps.
pub(crate) struct Turn<'a> {
    of: &'a Reenacted,
    _alone: MutexGuard<'a, ()>,
}

impl Reenacted {
    /// Begins to answer the calling thread so.
    pub(crate) fn begin(&self) -> Turn<'_> {
        let alone = self.turn.lock();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread.unsigned_abs(), Ordering::Release);
        Turn { of: self, _alone: alone }
    }

    /// What the caller of a request is at, if it is that thread.
    pub(super) fn step_of(&self, header: &Header) -> Option<Option<Step>> {
        let is_acting = header.pid != 0 && header.pid == self.thread.load(Ordering::Acquire);
        is_acting.then(|| self.step.lock().clone())
    }
}

impl Turn<'_> {
    /// Does `call`, which is `step`.
    pub(crate) fn act<T>(&self, step: Step, call: impl FnOnce() -> T) -> T {
        *self.of.step.lock() = Some(step);
        let done = call();
        *self.of.step.lock() = None;
        done
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.thread.store(0, Ordering::Release);
    }
}
