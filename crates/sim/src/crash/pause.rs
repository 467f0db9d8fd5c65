//! A device that holds still in the middle of a commit or a frame, so that others go on meanwhile.
//!
//! A frame of the intent log that is written while a commit is under way is where the two could
//! disagree about what each has. Threads would race, and no seed would replay them. So the thread
//! that was begun stops before a certain write or flush, and goes on when its stop is ended. The
//! next one that is begun has its own stop: earlier threads are not counted any more.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ThreadId};
use std::time::Duration;

use marram_device::{Device, Result};
use parking_lot::Mutex;

/// How long it holds still at most: the thread that was to go on meanwhile may be waiting for the
/// commit.
const PAUSE_MAX: Duration = Duration::from_millis(300);

/// Passes everything on, and stops where a [`Stop`] says.
pub(super) struct PausingDevice {
    inner: Arc<dyn Device>,
    pause: Mutex<Option<Pause>>,
}

/// Where one thread is to stop.
pub(super) struct Pause {
    thread: ThreadId,
    left: u64,
    has_written: bool,
    arrived: Sender<()>,
    go_on: Receiver<()>,
}

/// The other end of a pause.
pub(super) struct Stop {
    arrived: Receiver<()>,
    go_on: Sender<()>,
}

/// A stop before the write or flush of a thread that comes after `at` others: one end for the
/// thread, the other to end it. A flush before the first write does not count: it makes durable
/// what a pool was opened with, and what the thread does comes after all that others do until then.
pub(super) fn stop_before(at: u64) -> (Pause, Stop) {
    let (arrived, arrival) = channel();
    let (end, go_on) = channel();
    let thread = thread::current().id();
    let pause = Pause { thread, left: at, has_written: false, arrived, go_on };
    (pause, Stop { arrived: arrival, go_on: end })
}

impl Stop {
    /// Waits until the device has stopped, or will not any more; returns whether it has.
    pub(super) fn wait(&self) -> bool {
        self.arrived.recv().is_ok()
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

    /// Will stop this thread where it is to stop. Others may go on by themselves meanwhile, if they
    /// have stopped for too long: their writes do not count.
    pub(super) fn arm(&self, pause: Pause) {
        *self.pause.lock() = Some(Pause { thread: thread::current().id(), ..pause });
    }

    /// Will not stop this thread any more.
    pub(super) fn disarm(&self) {
        self.pause.lock().take_if(|pause| pause.thread == thread::current().id());
    }

    fn count(&self, is_write: bool) {
        let mut pause = self.pause.lock();
        let here = thread::current().id();
        let Some(waiting) = pause.as_mut().filter(|pause| pause.thread == here) else { return };
        waiting.has_written |= is_write;
        if !waiting.has_written {
            return;
        }
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
        self.count(true);
        self.inner.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.count(false);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
}
