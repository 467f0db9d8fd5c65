//! The header of an image, and the bound of its numbers.

use super::memory::number;
use super::{Check, NUMBER_MAX, PAGE, ROOT};
use crate::error::Error;
use crate::finding::{FindingKind as Kind, Place};
use crate::reporter::Reporter;
use marram_device::Device;
use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of an image.
const MAGIC: &[u8; 8] = b"MARRAMPM";
/// The version that is known.
const VERSION: u64 = 3;
/// Bytes that the checksum covers; it lies behind them.
const CHECKED: usize = 120;
/// Where the number is that bounds all that were given away.
const NUMBER_LIMIT: u64 = 520;
/// Least pages of an image.
const PAGES_MIN: u64 = 256;
/// Most pages of an image.
const PAGES_MAX: u64 = 1 << 31;

/// What is needed of a header.
pub(super) struct Header {
    pub(super) pages: u64,
    pub(super) id: [u8; 16],
    pub(super) label: String,
}

/// Whether a device begins as an image does.
pub(crate) fn is_image(device: &dyn Device) -> bool {
    let mut bytes = [0; PAGE as usize];
    device.read(0, &mut bytes).is_ok() && bytes.starts_with(MAGIC)
}

/// Reads the header; none if nothing behind it can be looked at.
///
/// # Errors
/// It cannot be read, or the image is of another version.
pub(super) fn read(
    device: &dyn Device,
    report: &mut Reporter<'_>,
) -> Result<Option<Header>, Error> {
    let mut bytes = [0; PAGE as usize];
    device.read(0, &mut bytes)?;
    let version = number(&bytes, 8, 4);
    if version != VERSION {
        let reason = format!("a pmem image of version {version}; this program reads {VERSION}");
        return Err(Error::TooNew { device: device.name(), reason });
    }
    let mut wrong = |kind, detail: String| report.report(kind, Place::device(0), detail);
    if xxh3_64(&bytes[..CHECKED]) != number(&bytes, CHECKED, 8) {
        wrong(Kind::ImageHeader, "the header does not match its checksum".to_owned());
        return Ok(None);
    }
    let (pages, size) = (number(&bytes, 16, 8), device.size()?);
    if !(PAGES_MIN..=PAGES_MAX).contains(&pages) {
        wrong(Kind::ImageHeader, format!("the header says {pages} pages"));
        return Ok(None);
    }
    if size < pages * PAGE {
        wrong(Kind::DeviceShort, format!("{size} bytes, and {} in the image", pages * PAGE));
        return Ok(None);
    }
    if size > pages * PAGE {
        wrong(Kind::ImageHeader, format!("the file has {size} bytes, the image {pages} pages"));
    }
    let label = &bytes[40..104];
    let len = label.iter().position(|byte| *byte == 0).unwrap_or(label.len());
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[24..40]);
    let label = String::from_utf8_lossy(&label[..len]).into_owned();
    Ok(Some(Header { pages, id, label }))
}

impl Check<'_, '_> {
    /// Reads the number that bounds those that were given away.
    pub(super) fn read_number_limit(&mut self) {
        match self.image.word(NUMBER_LIMIT) {
            Ok(limit) if (ROOT + 1..=NUMBER_MAX).contains(&limit) => self.number_limit = limit,
            Ok(limit) => {
                self.number_limit = NUMBER_MAX + 1;
                let detail = format!("the bound of numbers is {limit}");
                let place = Place::device(NUMBER_LIMIT);
                self.report.report(Kind::ImageHeader, place, detail);
            }
            Err(problem) => self.tell(problem),
        }
    }
}
