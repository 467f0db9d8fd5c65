//! A device that remembers all that was done to it.

use std::sync::Arc;

use marram_device::{Device, MemoryDevice, Result};
use parking_lot::Mutex;

use super::trace::{Event, Trace};

/// Most bytes of writes that one trace keeps: a run that writes more wants a smaller device.
const TRACE_BYTES_MAX: usize = 2 << 30;

/// Passes everything on to another device and keeps each write, discard and flush that
/// succeeded, in order.
///
/// The other device must not fail, as a write that fails may have been done in part; put a
/// [`super::FaultyDevice`] around this one instead of into it.
pub struct RecordingDevice {
    inner: Arc<dyn Device>,
    recorded: Mutex<Recorded>,
}

struct Recorded {
    trace: Trace,
    written_bytes: usize,
}

impl RecordingDevice {
    /// Starts recording on `inner`, whose bytes are read once as the image to start from.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn new(inner: Arc<dyn Device>) -> Result<RecordingDevice> {
        let size = inner.size()?;
        let mut base = vec![0; usize::try_from(size).expect("a recorded device fits memory")];
        inner.read(0, &mut base)?;
        Ok(RecordingDevice::over(inner, base.into()))
    }

    /// A recorded device in memory that starts with these bytes.
    pub fn in_memory(bytes: Vec<u8>) -> RecordingDevice {
        let inner = Arc::new(MemoryDevice::from_bytes(bytes.clone()));
        RecordingDevice::over(inner, bytes.into())
    }

    /// Starts recording on `inner`, which holds the bytes `base` now.
    pub fn over(inner: Arc<dyn Device>, base: Arc<[u8]>) -> RecordingDevice {
        RecordingDevice {
            inner,
            recorded: Mutex::new(Recorded { trace: Trace::new(base), written_bytes: 0 }),
        }
    }

    /// Leaves a number in the trace: whatever it stands for was promised before all later events.
    pub fn mark(&self, mark: u64) {
        self.recorded.lock().trace.push(Event::Mark(mark));
    }

    /// How many events there are so far.
    pub fn event_count(&self) -> usize {
        self.recorded.lock().trace.events().len()
    }

    /// All that has happened so far.
    pub fn trace(&self) -> Trace {
        self.recorded.lock().trace.clone()
    }

    /// Does `operation` and keeps `event` if it succeeds, so that the order of events is the
    /// order in which they were done.
    fn record(&self, event: Event, operation: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut recorded = self.recorded.lock();
        operation()?;
        if let Event::Write { bytes, .. } = &event {
            recorded.written_bytes += bytes.len();
            assert!(
                recorded.written_bytes <= TRACE_BYTES_MAX,
                "the trace grew over {TRACE_BYTES_MAX} bytes"
            );
        }
        recorded.trace.push(event);
        Ok(())
    }
}

impl Device for RecordingDevice {
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
        let bytes = buffer.into();
        let event = Event::Write { offset, bytes };
        self.record(event, || self.inner.write(offset, buffer))
    }

    fn flush(&self) -> Result<()> {
        self.record(Event::Flush, || self.inner.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let event = Event::Discard { offset, len };
        self.record(event, || self.inner.discard(offset, len))
    }
}
