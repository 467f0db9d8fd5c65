//! The thread that shows watchers what was changed behind the kernel's back, and its steps.

use crate::protocol::Header;
use marram_vfs::Ino;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// With this bit the numbers of stand-ins begin: no inode of a file system has it, as some programs
/// take numbers for signed. The lowest bit is set for a directory.
const STAND_INS: u64 = 1 << 63;

/// Whether a number is of a stand-in.
pub(super) fn is_stand_in(ino: Ino) -> bool {
    ino.0 & STAND_INS != 0
}

/// Whether that stands for a directory.
pub(super) fn is_directory(stand_in: Ino) -> bool {
    stand_in.0 & 1 != 0
}

/// What the thread is about to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Makes a name that is there already.
    Make { parent: Ino, name: Vec<u8> },
    /// Removes a name that is gone already, of what the kernel took for this inode.
    Remove { parent: Ino, name: Vec<u8>, was: Ino, is_directory: bool },
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
    /// How many stand-ins there were.
    stand_ins: AtomicU64,
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

    /// The number of a new stand-in for a directory or a file.
    pub(super) fn stand_in(&self, is_directory: bool) -> Ino {
        let count = self.stand_ins.fetch_add(1, Ordering::Relaxed);
        Ino(STAND_INS | count << 1 & !STAND_INS | u64::from(is_directory))
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
