//! How an image is opened at once: its states are looked through while operations go on.

use crate::error::ImageError;
use crate::filesystem::{Pmem, PmemOptions};
use crate::memory::Memory;
use crate::state::{State, Work};
use marram_locks::{Mutex, Rank};
use marram_vfs::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Held while the states are looked through; none of the other locks is held before it.
const SCAN: Rank = Rank { order: 1, name: "scan" };

/// A look through all states of an image: which pages are in use, and whether all makes sense.
pub struct Scan {
    work: Mutex<Work>,
    /// It has looked.
    is_done: AtomicBool,
    /// What was found was taken in.
    is_learned: AtomicBool,
    stop: AtomicBool,
}

impl Scan {
    /// Looks, unless that has been done; waits if it is under way.
    pub fn run(&self) {
        self.work.lock().run(&self.stop);
        self.is_done.store(true, Ordering::Release);
    }

    /// Ends it early: nothing waits for it any more.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Calls `learn` with a state that takes in what was found, if that has not happened; looks
    /// before, or waits for it.
    pub(crate) fn learn(&self, state: impl FnOnce(Found) -> Result<()>) -> Result<bool> {
        if self.is_learned.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut work = self.work.lock();
        work.run(&self.stop);
        let Work::Done(found) = std::mem::replace(&mut *work, Work::Taken) else {
            return Ok(false);
        };
        state(found)?;
        self.is_learned.store(true, Ordering::Release);
        Ok(true)
    }
}

/// What was found, or what makes no sense.
type Found = Result<Box<crate::state::Found>>;

/// An image of which what a crash has left half done is finished.
pub struct Opening {
    state: State,
    scan: Arc<Scan>,
    options: PmemOptions,
}

impl Opening {
    /// Begins to open the image in `memory`. That takes as long whatever it holds.
    ///
    /// # Errors
    /// There is none, or its records and slots make no sense.
    pub fn begin(memory: Memory, options: PmemOptions) -> std::result::Result<Opening, ImageError> {
        let (state, frozen) = State::open(memory, options.writable)?;
        let [is_done, is_learned, stop] = [const { AtomicBool::new(false) }; 3];
        let work = Mutex::new(SCAN, Work::Todo(Box::new(frozen)));
        let scan = Arc::new(Scan { work, is_done, is_learned, stop });
        Ok(Opening { state, scan, options })
    }

    /// The look through it, to be run by another thread.
    pub fn scan(&self) -> Arc<Scan> {
        Arc::clone(&self.scan)
    }

    /// Opens it as its root dataset. If the scan has not ended, operations go on beside it.
    ///
    /// # Errors
    /// The image makes no sense, as far as that has been seen.
    pub fn finish(mut self) -> std::result::Result<Pmem, ImageError> {
        if self.scan.is_done.load(Ordering::Acquire) {
            let state = &mut self.state;
            self.scan.learn(|found| state.learn(*found?))?;
        }
        Pmem::begun(self.state, self.scan, self.options)
    }
}
