//! An image as a replay of its journal would leave it, for mounts that write nothing.

use super::{Copied, MAGIC};
use marram_device::{Device, Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The image: what the journal has changed is read from there.
pub(crate) struct Replayed {
    inner: Arc<dyn Device>,
    block_bytes: u64,
    /// Where the newest copy of each changed block is.
    copies: BTreeMap<u64, Copied>,
}

impl Replayed {
    pub(super) fn new(
        inner: Arc<dyn Device>,
        block_bytes: u64,
        copies: BTreeMap<u64, Copied>,
    ) -> Replayed {
        Replayed { inner, block_bytes, copies }
    }

    /// Reads what lies in one block.
    fn read_part(&self, offset: u64, part: &mut [u8]) -> Result<()> {
        let (block, within) = (offset / self.block_bytes, offset % self.block_bytes);
        let Some(copied) = self.copies.get(&block) else {
            return self.inner.read(offset, part);
        };
        self.inner.read(copied.at * self.block_bytes + within, part)?;
        if copied.is_escaped {
            let magic = MAGIC.to_be_bytes();
            let lost = magic.iter().skip(within as usize);
            part.iter_mut().zip(lost).for_each(|(byte, magic)| *byte = *magic);
        }
        Ok(())
    }

    fn refused(&self) -> Error {
        let reason = "its journal is replayed in memory, so nothing is written".to_owned();
        Error::Unusable { device: self.name(), reason }
    }
}

impl Device for Replayed {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let touched = offset / self.block_bytes
            ..offset.saturating_add(buffer.len() as u64).div_ceil(self.block_bytes);
        if touched.is_empty() || self.copies.range(touched).next().is_none() {
            return self.inner.read(offset, buffer);
        }
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let left = (self.block_bytes - at % self.block_bytes) as usize;
            let (part, others) = rest.split_at_mut(left.min(rest.len()));
            self.read_part(at, part)?;
            (at, rest) = (at + part.len() as u64, others);
        }
        Ok(())
    }

    fn write(&self, _offset: u64, _buffer: &[u8]) -> Result<()> {
        Err(self.refused())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Err(self.refused())
    }
}
