//! A device in memory: for tests, and as the medium under recording and faulty devices.

use std::ops::Range;

use parking_lot::RwLock;

use crate::{Device, Error, Result, checked_range};

/// What a discarded byte reads as afterwards. Not zero, so that a test finds code that relies on
/// it.
pub const DISCARDED_BYTE: u8 = 0xdc;

/// Bytes in memory behind the contract of a device. Nothing survives the process.
#[derive(Debug)]
pub struct MemoryDevice {
    name: String,
    bytes: RwLock<Vec<u8>>,
}

impl MemoryDevice {
    /// A device of `size_bytes` zeros.
    pub fn new(size_bytes: usize) -> MemoryDevice {
        MemoryDevice::from_bytes(vec![0; size_bytes])
    }

    /// A device that holds these bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> MemoryDevice {
        MemoryDevice { name: "memory".to_string(), bytes: RwLock::new(bytes) }
    }

    /// The same device under another name for messages.
    pub fn named(mut self, name: &str) -> MemoryDevice {
        self.name = name.to_string();
        self
    }

    /// All bytes as they are now.
    pub fn snapshot(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    /// Makes the device larger by zeros; never smaller.
    pub fn grow(&self, new_size_bytes: usize) {
        let mut bytes = self.bytes.write();
        if bytes.len() < new_size_bytes {
            bytes.resize(new_size_bytes, 0);
        }
    }

    /// The range as indices of a buffer of `size` bytes.
    fn indices(&self, offset: u64, len: u64, size: usize) -> Result<Range<usize>> {
        let size_bytes = u64::try_from(size).expect("memory is not larger than 64 bits tell");
        let range = checked_range(&self.name, offset, len, size_bytes)?;
        let index = |at: u64| usize::try_from(at).expect("it lies inside of a buffer in memory");
        Ok(index(range.start)..index(range.end))
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> Result<u64> {
        let len = self.bytes.read().len();
        u64::try_from(len).map_err(|error| Error::Unusable {
            device: self.name.clone(),
            reason: error.to_string(),
        })
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.bytes.read();
        let range = self.indices(offset, buffer.len() as u64, bytes.len())?;
        buffer.copy_from_slice(&bytes[range]);
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        let mut bytes = self.bytes.write();
        let range = self.indices(offset, buffer.len() as u64, bytes.len())?;
        bytes[range].copy_from_slice(buffer);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let mut bytes = self.bytes.write();
        let range = self.indices(offset, len, bytes.len())?;
        bytes[range].fill(DISCARDED_BYTE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryDevice;
    use crate::{Device, conformance};

    #[test]
    fn it_keeps_the_contract() {
        conformance::check(&MemoryDevice::new(conformance::SIZE_BYTES_MIN));
    }

    #[test]
    fn it_grows_by_zeros_and_hands_out_its_bytes() {
        let device = MemoryDevice::from_bytes(vec![7; 10]).named("disk 2");
        device.grow(12);
        device.grow(5);
        assert_eq!(device.size(), Ok(12));
        assert_eq!(device.snapshot(), [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
        let message = device.read(8, &mut [0; 5]).unwrap_err().to_string();
        assert_eq!(message, "disk 2: 5 bytes at offset 8 reach past its end at 12");
    }
}
