//! The blocks of one request, read side by side.
//!
//! A file that grew by small pieces lies in many short blocks, mostly one behind the other. Read
//! one by one, each waits for the device. So neighbours are read in one go, and the device gets a
//! hint of all reads before the first.
//!
//! **A joined read is only a way to come by the bytes.** Each block is verified as ever. One that
//! does not come out well is left to [`Media::block`], which reads it alone, and does what belongs
//! to damage: other copies, a note to heal, the report.

use super::{Cached, Media, peek_key, unpack, verify};
use crate::base::pointers::decode_pointer;
use bytes::Bytes;
use marram_format::pointer::{Extent, GRAIN_BYTES, Place, Pointer};
use marram_store::BLOCK_BYTES_MAX;

/// A block that takes more on its device is read alone: most of the time goes into its bytes.
const SHORT_BYTES_MAX: u64 = 64 << 10;
/// Longest joined read, in bytes.
const JOINED_BYTES_MAX: u64 = 1 << 20;

/// A block that is to be read, which lies in one piece.
struct Wanted<'p> {
    /// Its place among those that were asked for.
    index: usize,
    encoded: &'p Bytes,
    pointer: Pointer,
    extent: Extent,
}

impl<'p> Wanted<'p> {
    /// `None` of a block that lies in no place or in several, or that makes no sense.
    fn of(index: usize, encoded: &'p Bytes) -> Option<Wanted<'p>> {
        let pointer = decode_pointer(encoded).ok()?;
        let extent = match &pointer.place {
            Place::Stored { copies, .. } => match copies.first()?.as_slice() {
                [extent] => *extent,
                _ => return None,
            },
            Place::Embedded(_) => return None,
        };
        let wanted = Wanted { index, encoded, pointer, extent };
        let is_block = wanted.pointer.logical_len as usize <= BLOCK_BYTES_MAX
            && wanted.bytes() <= BLOCK_BYTES_MAX as u64;
        is_block.then_some(wanted)
    }

    fn bytes(&self) -> u64 {
        u64::from(self.extent.grains) * GRAIN_BYTES
    }

    /// Whether it can go into the read that ends with `last`.
    fn follows(&self, last: &Wanted<'_>) -> bool {
        let (place, end) = (self.extent, last.extent.start + u64::from(last.extent.grains));
        let are_short = self.bytes().max(last.bytes()) <= SHORT_BYTES_MAX;
        are_short && place.device == last.extent.device && place.start == end
    }
}

/// Neighbours on one device, in their order.
struct Run<'p> {
    blocks: Vec<Wanted<'p>>,
    bytes: u64,
}

impl Run<'_> {
    fn start(&self) -> (u16, u64) {
        let extent = self.blocks[0].extent;
        (extent.device, extent.start * GRAIN_BYTES)
    }
}

impl Media {
    /// The contents of some blocks, in their order, as far as they are in the cache or could be
    /// read together with others; the rest is for [`Media::block`].
    pub(crate) fn joined(&self, encoded: &[Option<Bytes>]) -> Vec<Option<Bytes>> {
        let cached = |encoded: &Option<Bytes>| self.cached(encoded.as_ref()?);
        let mut contents: Vec<Option<Bytes>> = encoded.iter().map(cached).collect();
        let missing = encoded.iter().enumerate().filter(|(index, _)| contents[*index].is_none());
        let runs = runs_of(missing.filter_map(|(index, encoded)| {
            encoded.as_ref().and_then(|encoded| Wanted::of(index, encoded))
        }));
        if runs.len() > 1 {
            runs.iter().for_each(|run| self.expect(run));
        }
        for run in runs.iter().filter(|run| run.blocks.len() > 1) {
            self.read_run(run, &mut contents);
        }
        contents
    }

    /// The content of a block, if it is in the cache. Another pointer may have claimed the same
    /// place and another length: then what is there is not what this one leads to.
    pub(super) fn cached(&self, encoded: &Bytes) -> Option<Bytes> {
        let Cached::Data(data) = self.cache.get(&peek_key(encoded)?)? else { return None };
        let len = Pointer::peek_logical_len(encoded)?;
        (data.len() == len as usize).then_some(data)
    }

    fn expect(&self, run: &Run<'_>) {
        let (device, offset) = run.start();
        if let Some(device) = self.devices.get(usize::from(device)) {
            device.expect_read(offset, run.bytes);
        }
    }

    fn read_run(&self, run: &Run<'_>, contents: &mut [Option<Bytes>]) {
        let (device, offset) = run.start();
        let mut bytes = vec![0; usize::try_from(run.bytes).expect("a run fits memory")];
        let read = self.devices.get(usize::from(device)).map(|it| it.read(offset, &mut bytes));
        let Some(Ok(())) = read else { return };
        let mut rest = &bytes[..];
        for block in &run.blocks {
            let len = usize::try_from(block.bytes()).expect("a run fits memory");
            let (stored, after) = rest.split_at(len);
            rest = after;
            contents[block.index] = content_of(&block.pointer, stored);
            if let (Some(key), Some(data)) = (peek_key(block.encoded), &contents[block.index]) {
                self.cache.insert(key, Cached::Data(data.clone()));
            }
        }
    }
}

/// Puts neighbours together. A block that is wanted twice is in none of them the second time.
fn runs_of<'p>(wanted: impl Iterator<Item = Wanted<'p>>) -> Vec<Run<'p>> {
    let mut wanted: Vec<Wanted<'p>> = wanted.collect();
    wanted.sort_by_key(|wanted| (wanted.extent.device, wanted.extent.start));
    wanted.dedup_by_key(|wanted| (wanted.extent.device, wanted.extent.start));
    let mut runs: Vec<Run<'p>> = Vec::new();
    for block in wanted {
        let bytes = block.bytes();
        match runs.last_mut() {
            Some(run)
                if run.bytes + bytes <= JOINED_BYTES_MAX
                    && run.blocks.last().is_some_and(|last| block.follows(last)) =>
            {
                run.bytes += bytes;
                run.blocks.push(block);
            }
            _ => runs.push(Run { blocks: vec![block], bytes }),
        }
    }
    runs
}

/// What the grains of a block hold; nothing if they are not as they should be.
fn content_of(pointer: &Pointer, grains: &[u8]) -> Option<Bytes> {
    let Place::Stored { checksum, .. } = &pointer.place else { return None };
    let stored = grains.get(..pointer.physical_len as usize)?;
    if verify(stored, checksum) != Ok(true) {
        return None;
    }
    // Not a slice: it would keep the bytes of its neighbours in memory as long as itself.
    unpack(pointer, Bytes::copy_from_slice(stored)).ok()
}
