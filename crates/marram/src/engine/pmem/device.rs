//! A DAX device with an image, as a device is read: it has no other way than a mapping.

use super::failed;
use crate::error::Result;
use marram_device::{Device, Error, checked_range};
use marram_pmem::memory::Medium;
use marram_pmem::memory::mapped::{Mapped, device_bytes};
use std::path::Path;

/// An image on a DAX device, locked for this process and open to be read.
pub(crate) struct DaxImage {
    name: String,
    mapped: Mapped,
}

/// The image on the DAX device at a path; none if there is no such device.
///
/// # Errors
/// Another process uses it, or it cannot be mapped.
pub(crate) fn on_dax_device(path: &Path) -> Result<Option<DaxImage>> {
    if device_bytes(path).is_none() {
        return Ok(None);
    }
    let mapped = Mapped::open(path, true, None).map_err(|error| failed(path, error))?;
    Ok(Some(DaxImage { name: path.display().to_string(), mapped }))
}

impl DaxImage {
    fn refused(&self) -> marram_device::Result<()> {
        let (device, reason) = (self.name.clone(), "is open to be read".to_owned());
        Err(Error::Unusable { device, reason })
    }
}

impl Device for DaxImage {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> marram_device::Result<u64> {
        Ok(self.mapped.bytes())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> marram_device::Result<()> {
        let len = buffer.len() as u64;
        checked_range(&self.name, offset, len, self.mapped.bytes())?;
        self.mapped.read(offset, buffer).map_err(|error| Error::Failed {
            device: self.name.clone(),
            action: "read",
            offset,
            len,
            reason: error.to_string(),
        })
    }

    fn write(&self, _offset: u64, _buffer: &[u8]) -> marram_device::Result<()> {
        self.refused()
    }

    fn flush(&self) -> marram_device::Result<()> {
        self.refused()
    }

    fn discard(&self, _offset: u64, _len: u64) -> marram_device::Result<()> {
        self.refused()
    }
}
