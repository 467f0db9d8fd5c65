//! Finding data and holes in whole pages.
//!
//! The file system knows holes to the byte. Programs take the finest grain that they have seen for
//! that of all places, and other file systems answer in whole blocks. So a page with any data in it
//! is reported as data. What is reported as a hole is one, and no data is hidden.
//!
//! Where the kernel holds written data back it does not hand that over before it asks, and would
//! find holes where programs have written. A program that copies a file by such an answer would
//! copy zeros. So there no holes are reported, and the kernel takes all of each file for data.

use super::{Adapter, Outcome};
use crate::errno::Errno;
use crate::protocol::Encoder;
use crate::protocol::flags::seek;
use marram_vfs::{Error, Ino, Result, SeekTarget};

/// Grain of the answers, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Most runs of data that are looked at for one hole. Beyond them all is reported as data to the
/// end, which is never wrong.
const RUNS_MAX: usize = 1 << 16;

impl Adapter {
    pub(super) fn seek(
        &self,
        ino: Ino,
        offset: u64,
        whence: u32,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        if self.agreement.writeback {
            return Err(Errno::NO_OPERATION.into());
        }
        let found = match whence {
            seek::DATA => self.seek_data(ino, offset)?,
            seek::HOLE => self.seek_hole(ino, offset)?,
            _ => return Err(Errno::INVALID.into()),
        };
        out.u64(found);
        Ok(())
    }

    fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64> {
        self.size_past(ino, offset)?;
        let data = self.file_system.seek(ino, page_of(offset), SeekTarget::Data)?;
        Ok(page_of(data).max(offset))
    }

    fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64> {
        let size = self.size_past(ino, offset)?;
        let mut page = page_of(offset);
        for _ in 0..RUNS_MAX {
            let data = match self.file_system.seek(ino, page, SeekTarget::Data) {
                Err(Error::NoSuchOffset) => return Ok(page.max(offset)),
                data => data?,
            };
            if page_of(data) > page {
                return Ok(page.max(offset));
            }
            let hole = self.file_system.seek(ino, data, SeekTarget::Hole)?;
            match hole.checked_next_multiple_of(PAGE_BYTES) {
                Some(next) if next < size => page = next,
                _ => break,
            }
        }
        Ok(size)
    }

    /// The size of a file, which must reach past a place.
    fn size_past(&self, ino: Ino, offset: u64) -> Result<u64> {
        let size = self.file_system.attributes(ino)?.size;
        if offset < size { Ok(size) } else { Err(Error::NoSuchOffset) }
    }
}

/// Where the page of a place begins.
fn page_of(offset: u64) -> u64 {
    offset - offset % PAGE_BYTES
}
