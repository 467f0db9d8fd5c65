//! A device that holds still in the middle of a commit, so that others go on meanwhile.
//!
//! A frame of the intent log that is written while a commit is under way is where the two could
//! disagree about who has what. Threads would race, and no seed would replay them; so the
//! commit stops before a certain write or flush, and goes on when it is told to.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use marram_device::{Device, Result};
use parking_lot::Mutex;

/// How long it holds still at most: whoever was to go on meanwhile may be waiting for the commit.
const PAUSE_MAX: Duration = Duration::from_millis(300);

/// Passes everything on, and stops where it was told to.
pub(super) struct PausingDevice {
    inner: Arc<dyn Device>,
    pause: Mutex<Option<Pause>>,
}

struct Pause {
    left: u64,
    arrived: Sender<()>,
    go_on: Receiver<()>,
}

/// The other end of a pause.
pub(super) struct Turn {
    arrived: Receiver<()>,
    go_on: Sender<()>,
}

impl Turn {
    /// Waits until the device has stopped, or will not any more.
    pub(super) fn wait(&self) {
        let _never_stopped = self.arrived.recv();
    }

    /// Lets the device go on.
    pub(super) fn end(self) {
        let _went_on_by_itself = self.go_on.send(());
    }
}

impl PausingDevice {
    pub(super) fn new(inner: Arc<dyn Device>) -> PausingDevice {
        PausingDevice { inner, pause: Mutex::new(None) }
    }

    /// Will stop before the write or flush that comes after `at` others.
    pub(super) fn pause_before(&self, at: u64) -> Turn {
        let (arrived, arrival) = channel();
        let (end, go_on) = channel();
        *self.pause.lock() = Some(Pause { left: at, arrived, go_on });
        Turn { arrived: arrival, go_on: end }
    }

    /// Will not stop any more.
    pub(super) fn cancel(&self) {
        *self.pause.lock() = None;
    }

    fn count(&self) {
        let mut pause = self.pause.lock();
        let Some(waiting) = pause.as_mut() else { return };
        if waiting.left > 0 {
            waiting.left -= 1;
            return;
        }
        let due = pause.take();
        drop(pause);
        if let Some(Pause { arrived, go_on, .. }) = due {
            let _nobody_waits = arrived.send(());
            let _too_long = go_on.recv_timeout(PAUSE_MAX);
        }
    }
}

impl Device for PausingDevice {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.count();
        self.inner.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.count();
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
}
