//! A device in memory on which something else happens at a moment of its work.

use marram_device::{Device, MemoryDevice, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// Done before a write or flush, which fails if this does.
type Hook = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// The device. Nothing happens but what its hooks do.
pub(crate) struct HookedDevice {
    pub(crate) memory: MemoryDevice,
    hooks: Mutex<Hooks>,
}

#[derive(Default)]
struct Hooks {
    size_bytes: Option<u64>,
    write: Option<Hook>,
    flush: Option<Hook>,
    reads: u64,
    writes: u64,
    flushes: u64,
}

impl HookedDevice {
    pub(crate) fn new(memory: MemoryDevice) -> Arc<HookedDevice> {
        Arc::new(HookedDevice { memory, hooks: Mutex::default() })
    }

    /// Says that it has another size.
    pub(crate) fn set_size(&self, bytes: u64) {
        self.hooks.lock().size_bytes = Some(bytes);
    }

    /// How many reads there have been.
    pub(crate) fn reads(&self) -> u64 {
        self.hooks.lock().reads
    }

    /// How many writes and flushes there have been.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let hooks = self.hooks.lock();
        (hooks.writes, hooks.flushes)
    }

    /// Does something before the next write.
    pub(crate) fn before_a_write(&self, work: impl FnOnce() + Send + 'static) {
        let work = Mutex::new(Some(work));
        self.hooks.lock().write = Some(Arc::new(move || {
            let due = work.lock().take();
            due.map_or(Ok(()), |work| {
                work();
                Ok(())
            })
        }));
    }

    /// Does something before each flush, in place of what was done before.
    pub(crate) fn before_flushes(&self, work: impl Fn() -> Result<()> + Send + Sync + 'static) {
        self.hooks.lock().flush = Some(Arc::new(work));
    }

    /// Has all flushes fail, or none any more.
    pub(crate) fn fail_flushes(&self, fails: bool) {
        let name = self.name();
        self.before_flushes(move || {
            let (device, reason) = (name.clone(), "it fails".to_owned());
            if fails { Err(marram_device::Error::Unusable { device, reason }) } else { Ok(()) }
        });
    }
}

/// Runs a hook. It may wait for others that use the device, so no lock is held.
fn run(hook: Option<Hook>) -> Result<()> {
    hook.map_or(Ok(()), |hook| hook())
}

impl Device for HookedDevice {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn size(&self) -> Result<u64> {
        let told = self.hooks.lock().size_bytes;
        told.map_or_else(|| self.memory.size(), Ok)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.hooks.lock().reads += 1;
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        let hook = {
            let mut hooks = self.hooks.lock();
            hooks.writes += 1;
            hooks.write.clone()
        };
        run(hook)?;
        self.memory.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        let hook = {
            let mut hooks = self.hooks.lock();
            hooks.flushes += 1;
            hooks.flush.clone()
        };
        run(hook)?;
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.memory.discard(offset, len)
    }
}
