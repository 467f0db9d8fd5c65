//! Many images of one device that differ in few pages.
//!
//! A crash explorer mounts hundreds of images a second, all of them the same but for what a short
//! run wrote. So an image is a **base**, which all share, a [`Layer`] of the pages that are
//! durable, which the states around one flush share, and what this state alone has. Nothing
//! is copied but pages that are written.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use marram_device::{DISCARDED_BYTE, Device, Result, checked_range};
use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Page of a page, the unit that is copied.
const PAGE_BYTES: usize = 4096;

type Page = Arc<[u8; PAGE_BYTES]>;

/// Pages over a base that no longer change.
#[derive(Default)]
pub struct Layer {
    pages: HashMap<usize, (Page, u128)>,
    digest: u128,
}

/// A device that reads a base through a layer, and keeps what is written to itself.
pub struct OverlayDevice {
    base: Arc<[u8]>,
    lower: Arc<Layer>,
    upper: RwLock<HashMap<usize, Page>>,
    writes: AtomicU64,
}

impl OverlayDevice {
    /// A device that holds the base with the pages of `lower`.
    pub fn new(base: Arc<[u8]>, lower: Arc<Layer>) -> OverlayDevice {
        OverlayDevice { base, lower, upper: RwLock::default(), writes: AtomicU64::new(0) }
    }

    /// How many writes and discards there have been.
    pub fn write_count(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Puts bytes where they lie inside of the device.
    pub(crate) fn put(&self, start: usize, bytes: &[u8]) {
        let mut upper = self.upper.write();
        let mut done = 0;
        while done < bytes.len() {
            let at = start + done;
            let (index, within) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let len = (PAGE_BYTES - within).min(bytes.len() - done);
            let page = upper.entry(index).or_insert_with(|| self.lower_page(index));
            let page = Arc::make_mut(page);
            page[within..within + len].copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
    }

    /// A number that is the same for the same image over this base, and for no other one.
    pub fn digest(&self) -> u128 {
        let mut sum = self.lower.digest;
        for (index, page) in &*self.upper.read() {
            let below = self.lower.pages.get(index).map_or(0, |(_, digest)| *digest);
            sum = sum.wrapping_sub(below).wrapping_add(self.page_digest(*index, page));
        }
        sum
    }

    /// All pages that differ from the base by now, as a layer for other devices.
    pub fn freeze(&self) -> Layer {
        let mut pages: HashMap<usize, (Page, u128)> = self.lower.pages.clone();
        for (index, page) in &*self.upper.read() {
            pages.insert(*index, (page.clone(), self.page_digest(*index, page)));
        }
        let digest = pages.values().fold(0, |sum: u128, (_, page)| sum.wrapping_add(*page));
        Layer { pages, digest }
    }

    /// What a page adds to the digest: nothing if it is that of the base.
    fn page_digest(&self, index: usize, page: &Page) -> u128 {
        let base = self.base_page(index);
        if page[..base.len()] == *base {
            return 0;
        }
        xxh3_128_with_seed(&page[..], index as u64)
    }

    fn base_page(&self, index: usize) -> &[u8] {
        let start = (index * PAGE_BYTES).min(self.base.len());
        &self.base[start..(start + PAGE_BYTES).min(self.base.len())]
    }

    fn lower_page(&self, index: usize) -> Page {
        if let Some((page, _)) = self.lower.pages.get(&index) {
            return page.clone();
        }
        let base = self.base_page(index);
        let mut page = [0; PAGE_BYTES];
        page[..base.len()].copy_from_slice(base);
        Arc::new(page)
    }

    fn check(&self, offset: u64, len: usize) -> Result<usize> {
        let range = checked_range(&self.name(), offset, len as u64, self.base.len() as u64)?;
        Ok(usize::try_from(range.start).expect("the base is in memory"))
    }
}

impl Device for OverlayDevice {
    fn name(&self) -> String {
        "image".to_owned()
    }

    fn size(&self) -> Result<u64> {
        Ok(self.base.len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let start = self.check(offset, buffer.len())?;
        buffer.copy_from_slice(&self.base[start..start + buffer.len()]);
        let upper = self.upper.read();
        let end = start + buffer.len();
        for index in start / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
            let lower = || self.lower.pages.get(&index).map(|(page, _)| page);
            let Some(page) = upper.get(&index).or_else(lower) else { continue };
            let from = (index * PAGE_BYTES).max(start);
            let to = ((index + 1) * PAGE_BYTES).min(end);
            let within = from - index * PAGE_BYTES;
            buffer[from - start..to - start].copy_from_slice(&page[within..within + to - from]);
        }
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        let start = self.check(offset, buffer.len())?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.put(start, buffer);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let start = self.check(offset, len)?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.put(start, &vec![DISCARDED_BYTE; len]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Layer, OverlayDevice};
    use marram_device::{Device, conformance};
    use std::sync::Arc;

    fn device(lower: Layer) -> OverlayDevice {
        let base: Vec<u8> = (0..5 * 4096_usize).map(|at| (at % 251) as u8).collect();
        OverlayDevice::new(base.into(), Arc::new(lower))
    }

    #[test]
    fn it_keeps_the_contract() {
        let base = vec![0; conformance::SIZE_BYTES_MIN];
        conformance::check(&OverlayDevice::new(base.into(), Arc::default()));
    }

    #[test]
    fn the_digest_tells_images_apart_however_they_came_about() {
        let first = device(Layer::default());
        let base_digest = first.digest();
        first.write(4000, &[1; 5000]).unwrap();
        let lower = first.freeze();
        assert_ne!(first.digest(), base_digest);
        let second = device(lower);
        assert_eq!(second.digest(), first.digest());
        second.write(9000, &[7]).unwrap();
        assert_ne!(second.digest(), first.digest());
        let (mut wanted, mut found) = (vec![0; 5 * 4096], vec![0; 5 * 4096]);
        device(Layer::default()).read(0, &mut wanted).unwrap();
        second.read(0, &mut found).unwrap();
        assert_eq!(found[4000..9000], [1; 5000]);
        assert_eq!((found[9000], found[3999], found[9001]), (7, wanted[3999], wanted[9001]));
        second.write(0, &wanted).unwrap();
        assert_eq!(second.digest(), base_digest, "the base again");
    }
}
