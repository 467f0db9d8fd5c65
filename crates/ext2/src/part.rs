//! A part of a device: an image that begins at a partition, and ends where its superblock says.
//!
//! Nothing outside of it is ever read or written, whatever an image claims.

use crate::error::ImageError;
use marram_device::{Device, Result, checked_range};
use std::sync::Arc;

/// What begins at a multiple of so many bytes: what the medium writes whole stays whole.
const ALIGNMENT: u64 = 512;

/// The part.
pub(crate) struct Part {
    inner: Arc<dyn Device>,
    at: u64,
    bytes: u64,
}

impl Part {
    /// What a device has from a place on.
    ///
    /// # Errors
    /// There is nothing, or no sector begins there.
    pub(crate) fn from(inner: Arc<dyn Device>, at: u64) -> std::result::Result<Part, ImageError> {
        let size = inner.size()?;
        if !at.is_multiple_of(ALIGNMENT) {
            let what = format!("offset {at} is not a multiple of {ALIGNMENT} bytes");
            return Err(ImageError::NoImage(what));
        }
        let bytes = size.checked_sub(at).ok_or_else(|| {
            ImageError::NoImage(format!("offset {at} lies behind the end at {size}"))
        })?;
        Ok(Part { inner, at, bytes })
    }

    /// Its first bytes only, as far as it has them.
    pub(crate) fn first(self, bytes: u64) -> Part {
        Part { bytes: self.bytes.min(bytes), ..self }
    }

    fn place(&self, offset: u64, len: u64) -> Result<u64> {
        Ok(self.at + checked_range(&self.name(), offset, len, self.bytes)?.start)
    }
}

impl Device for Part {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> Result<u64> {
        Ok(self.bytes)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read(self.place(offset, buffer.len() as u64)?, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.inner.write(self.place(offset, buffer.len() as u64)?, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(self.place(offset, len)?, len)
    }
}
