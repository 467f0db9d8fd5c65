//! The contract of a block device: the seam at the bottom.
//!
//! What Marram assumes of media stands on the trait [`Device`]; `docs/faults.md` says what happens
//! when a device breaks it.

mod behind;
pub mod conformance;
mod direct;
mod error;
mod file;
mod lock;
mod memory;

use std::ops::Range;

pub use behind::file_of_loop_device;
pub use error::Error;
pub use file::FileDevice;
pub use lock::Lock;
pub use memory::{DISCARDED_BYTE, MemoryDevice};

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Grain of all addresses and lengths that Marram uses on a device, in bytes.
pub const GRAIN_BYTES: u64 = 4096;

/// A run of bytes that survives power loss as far as it has been flushed.
///
/// **Reads** see the latest write, flushed or not. **Writes** that have returned may be lost,
/// reordered or torn at 512-byte boundaries by a crash until a **flush** that began after they
/// returned has returned; then they are durable. Bytes outside of a written range never change.
/// After a failed flush nothing is known of the writes before it; callers must not try again and
/// believe the answer.
pub trait Device: Send + Sync {
    /// A name for messages: the path of the file or device.
    fn name(&self) -> String;

    /// Size in bytes, at this moment.
    fn size(&self) -> Result<u64>;

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// A failed read, or one that reaches past the end.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Says that a range will be read soon, so that the device may begin. A reader of several
    /// ranges names them all before it reads the first, and so need not wait for one after the
    /// other. May do nothing; [`Device::read`] reports a range that cannot be read.
    fn expect_read(&self, _offset: u64, _len: u64) {}

    /// Writes `buffer` at `offset`.
    ///
    /// # Errors
    /// A failed write, or one that reaches past the end; then the range holds old or new bytes.
    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()>;

    /// Writes `parts`, each where the one before it ends, as one write at `offset`.
    ///
    /// # Errors
    /// As for [`Device::write`].
    fn write_parts(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        match parts {
            [only] => self.write(offset, only),
            _ => self.write(offset, &parts.concat()),
        }
    }

    /// Makes all writes that have returned durable.
    fn flush(&self) -> Result<()>;

    /// Says that a range is not needed any more: it may read as anything afterwards. May do
    /// nothing.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
}

/// The range of `len` bytes at `offset` of a device of `size` bytes.
///
/// # Errors
/// [`Error::PastEnd`] in the name of `device` if it reaches past the end.
pub fn checked_range(device: &str, offset: u64, len: u64, size: u64) -> Result<Range<u64>> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(offset..end),
        _ => Err(Error::PastEnd { device: device.to_string(), offset, len, size }),
    }
}
