//! Reading blocks, verified, through a cache; healing bad copies.
//!
//! **Every block is checked against the checksum in the pointer that led to it, on every read from
//! the device.** A block with several copies is read from the first good one.
//!
//! A bad copy is rewritten from a good one, but never on the spot: the reader may have come from a
//! root that a commit has replaced meanwhile, and the grains may hold something newer. So the
//! reader leaves a note with the number of the last commit that was durable when it began, and
//! the next commit, which nothing runs beside, heals it if no commit lies between.

mod batched_read;
mod streaming_read;

use crate::base::order::{self, Mutex};
use crate::base::pointers::decode_pointer;
use crate::tree::NodeSource;
use bytes::Bytes;
use marram_codec::{ChecksumKind, CodecError, checksum, decompress};
use marram_device::Device;
use marram_format::node::Node;
use marram_format::pointer::{Checksum, Extent, GRAIN_BYTES, Place, Pointer, grains_needed};
use marram_format::superblock::DATA_START_BYTES;
use marram_store::{BLOCK_BYTES_MAX, Damage, Error, Result};
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use streaming_read::Passed;

/// Most notes on bad copies that wait for the next commit.
const HEALS_MAX: usize = 1024;
/// How often something has been asked for, as far as the cache counts.
const ASKED_FOR_MAX: usize = 2;
/// Most places that are kept for the damage report.
const DAMAGE_MAX: usize = 1000;

#[derive(Clone)]
enum Cached {
    Node(Arc<Node>, usize),
    Data(Bytes),
}

#[derive(Clone)]
struct WeighBytes;

/// Birth and address: no two blocks ever share both.
pub(crate) type CacheKey = (u64, u64);

impl quick_cache::Weighter<CacheKey, Cached> for WeighBytes {
    fn weight(&self, _key: &CacheKey, cached: &Cached) -> u64 {
        let bytes = match cached {
            Cached::Node(_, bytes) => *bytes,
            Cached::Data(data) => data.len(),
        };
        bytes as u64 + 128
    }
}

struct Heal {
    epoch: u64,
    extents: Vec<Extent>,
    good: Vec<u8>,
}

/// What was asked of a device, and errors that it has answered with or that its data has shown.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) read_errors: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    pub(crate) checksum_errors: AtomicU64,
    pub(crate) healed_blocks: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
}

/// One place of damage that no copy could make good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    /// Device and byte offset.
    pub place: String,
    /// What was found there.
    pub reason: String,
}

/// The devices of a pool, read through a cache.
pub(crate) struct Media {
    devices: Vec<Arc<dyn Device>>,
    cache: Cache<CacheKey, Cached, WeighBytes>,
    passed: Passed,
    /// The number of the last durable commit.
    epoch: AtomicU64,
    heals: Mutex<Vec<Heal>>,
    damage: Mutex<Vec<DamageReport>>,
    /// A flush has succeeded since the pool was opened.
    has_flushed: AtomicBool,
    pub(crate) counters: Counters,
}

impl Media {
    pub(crate) fn new(devices: Vec<Arc<dyn Device>>, cache_bytes: usize) -> Media {
        let blocks = (cache_bytes / (64 << 10)).max(64);
        Media {
            devices,
            cache: Cache::with_weighter(blocks, cache_bytes as u64, WeighBytes),
            passed: Passed::new(cache_bytes),
            epoch: AtomicU64::new(0),
            heals: Mutex::new(order::HEALS, Vec::new()),
            damage: Mutex::new(order::DAMAGE, Vec::new()),
            has_flushed: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    pub(crate) fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }

    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cache.weight()
    }

    pub(crate) fn damage(&self) -> Vec<DamageReport> {
        self.damage.lock().clone()
    }

    /// The content that an encoded pointer leads to. `epoch` is that of the root it was found
    /// under.
    pub(crate) fn block(&self, pointer: &Bytes, epoch: u64) -> Result<Bytes> {
        if let Some(data) = self.cached(pointer) {
            return Ok(data);
        }
        let data = self.read(&decode_pointer(pointer)?, epoch)?;
        if let Some(key) = peek_key(pointer) {
            self.cache.insert(key, Cached::Data(data.clone()));
        }
        Ok(data)
    }

    /// The content that a pointer leads to, read from the device whatever the cache has.
    pub(crate) fn block_anew(&self, pointer: &Pointer, epoch: u64) -> Result<Bytes> {
        self.read(pointer, epoch)
    }

    /// The bytes of a block as they are stored, compressed, verified; not kept in the cache.
    pub(crate) fn stored(&self, pointer: &Pointer, epoch: u64) -> Result<Bytes> {
        match &pointer.place {
            Place::Embedded(data) => Ok(data.clone()),
            Place::Stored { checksum, copies } => {
                let mut stored = vec![0; grains_bytes(pointer)];
                self.read_stored(pointer, checksum, copies, epoch, &mut stored)?;
                stored.truncate(pointer.physical_len as usize);
                Ok(Bytes::from(stored))
            }
        }
    }

    /// The tree node that an encoded pointer leads to.
    pub(crate) fn node(&self, encoded: &Bytes, epoch: u64) -> Result<Arc<Node>> {
        let key = peek_key(encoded);
        if let Some(key) = key
            && let Some(Cached::Node(node, _)) = self.cache.get(&key)
        {
            return Ok(node);
        }
        let pointer = decode_pointer(encoded)?;
        let bytes = self.read(&pointer, epoch)?;
        let len = bytes.len();
        let node = Node::decode(bytes).map_err(|error| {
            self.report("a tree node", &pointer, format!("checksum right, but {error}"))
        })?;
        let node = Arc::new(node);
        if let Some(key) = key {
            self.cache.insert(key, Cached::Node(node.clone(), len));
        }
        Ok(node)
    }

    /// Keeps a node that has just been written: it will be wanted soon. It counts as asked for as
    /// often as the one that it takes the place of: a full cache has little room for what nobody
    /// has asked for, and a commit of a hundred nodes would push out its own.
    pub(crate) fn remember_node(&self, pointer: &Pointer, bytes: Bytes) {
        let len = bytes.len();
        if let Some(key) = cache_key(pointer)
            && let Ok(node) = Node::decode(bytes)
        {
            self.cache.insert(key, Cached::Node(Arc::new(node), len));
            for _ in 0..ASKED_FOR_MAX {
                let _counted = self.cache.get(&key);
            }
        }
    }

    /// Forgets a block that no root leads to any more.
    pub(crate) fn forget(&self, key: CacheKey) {
        self.cache.remove(&key);
    }

    /// Forgets everything: a commit has failed, and the next one has the same number, so birth and
    /// address of what was written may name other blocks soon.
    pub(crate) fn forget_all(&self) {
        self.cache.clear();
    }

    fn read(&self, pointer: &Pointer, epoch: u64) -> Result<Bytes> {
        let logical_len = pointer.logical_len as usize;
        if logical_len > BLOCK_BYTES_MAX {
            return Err(self.report("a block", pointer, format!("{logical_len} bytes long")));
        }
        let stored = self.stored(pointer, epoch)?;
        unpack(pointer, stored).map_err(|error| self.not_unpacked(pointer, &error))
    }

    /// Fills `grains`, as many as a copy has, from the first good copy.
    fn read_stored(
        &self,
        pointer: &Pointer,
        expected: &Checksum,
        copies: &[Vec<Extent>],
        epoch: u64,
        grains: &mut [u8],
    ) -> Result<()> {
        let len = pointer.physical_len as usize;
        let mut bad = Vec::new();
        let mut reason = String::new();
        for copy in copies {
            match self.read_copy(copy, len, expected, grains) {
                Ok(()) => {
                    self.note_heals(bad, &grains[..len], epoch);
                    return Ok(());
                }
                Err(why) => {
                    bad.push(copy.clone());
                    reason = why;
                }
            }
        }
        let what = if copies.len() > 1 { "a tree node" } else { "a data block" };
        Err(damage(what, pointer, &self.devices, reason))
    }

    fn read_copy(
        &self,
        copy: &[Extent],
        len: usize,
        expected: &Checksum,
        grains: &mut [u8],
    ) -> std::result::Result<(), String> {
        let mut at = 0;
        for extent in copy {
            let end = at + extent.grains as usize * GRAIN_BYTES as usize;
            let device = self
                .devices
                .get(usize::from(extent.device))
                .ok_or_else(|| format!("the pool has no device {}", extent.device))?;
            device.read(extent.start * GRAIN_BYTES, &mut grains[at..end]).map_err(|error| {
                self.counters.read_errors.fetch_add(1, Ordering::Relaxed);
                error.to_string()
            })?;
            at = end;
        }
        match verify(&grains[..len], expected)? {
            true => Ok(()),
            false => {
                self.counters.checksum_errors.fetch_add(1, Ordering::Relaxed);
                Err("checksum mismatch".to_owned())
            }
        }
    }

    fn note_heals(&self, bad: Vec<Vec<Extent>>, good: &[u8], epoch: u64) {
        let mut heals = self.heals.lock();
        for extents in bad {
            if heals.len() < HEALS_MAX && self.is_on_devices(&extents) {
                heals.push(Heal { epoch, extents, good: good.to_vec() });
            }
        }
    }

    /// Whether a copy lies where blocks can lie. What a damaged pointer names besides cannot be
    /// made good.
    fn is_on_devices(&self, copy: &[Extent]) -> bool {
        copy.iter().all(|extent| {
            let end = extent.start.saturating_add(u64::from(extent.grains));
            let device = self.devices.get(usize::from(extent.device));
            extent.start >= DATA_START_BYTES / GRAIN_BYTES
                && device.is_some_and(|device| {
                    device.size().is_ok_and(|bytes| end <= bytes / GRAIN_BYTES)
                })
        })
    }

    /// Rewrites bad copies that were found since the last commit. Only the committer calls it,
    /// before the commit begins.
    pub(crate) fn heal(&self) -> Result<()> {
        let epoch = self.epoch();
        let heals = std::mem::take(&mut *self.heals.lock());
        let mut healed = 0;
        for heal in heals.into_iter().filter(|heal| heal.epoch == epoch) {
            let mut rest = &heal.good[..];
            for extent in &heal.extents {
                let len = extent.grains as usize * GRAIN_BYTES as usize;
                let mut piece = rest[..rest.len().min(len)].to_vec();
                rest = &rest[piece.len()..];
                piece.resize(len, 0);
                self.write(extent.device, extent.start * GRAIN_BYTES, &piece)?;
            }
            healed += 1;
        }
        if healed > 0 {
            self.flush()?;
            self.counters.healed_blocks.fetch_add(healed, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads bytes that no pointer leads to, and that the caller verifies.
    pub(crate) fn read_at(&self, device: u16, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let Some(device) = self.devices.get(usize::from(device)) else {
            return Err(Error::Io(format!("the pool has no device {device}")));
        };
        device.read(offset, bytes).map_err(|error| {
            self.counters.read_errors.fetch_add(1, Ordering::Relaxed);
            Error::Io(error.to_string())
        })
    }

    pub(crate) fn write(&self, device: u16, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_parts(device, offset, &[bytes])
    }

    /// Writes parts that lie one behind the other.
    pub(crate) fn write_parts(&self, device: u16, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.counters.written_bytes.fetch_add(len, Ordering::Relaxed);
        self.devices[usize::from(device)].write_parts(offset, parts).map_err(|error| {
            self.counters.write_errors.fetch_add(1, Ordering::Relaxed);
            Error::Io(error.to_string())
        })
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.devices.iter().try_for_each(|device| {
            device.flush().map_err(|error| {
                self.counters.write_errors.fetch_add(1, Ordering::Relaxed);
                Error::Io(error.to_string())
            })
        })?;
        self.has_flushed.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes durable what was found when the pool was opened, once. **A daemon that was killed has
    /// written what its flush did not reach**: a superblock or a frame that is only in the cache of
    /// the host reads as any other, and a power cut would take it after it was said to be safe.
    pub(crate) fn settle(&self) -> Result<()> {
        if self.has_flushed.load(Ordering::Acquire) { Ok(()) } else { self.flush() }
    }

    fn report(&self, what: &'static str, pointer: &Pointer, reason: String) -> Error {
        damage(what, pointer, &self.devices, reason)
    }

    fn not_unpacked(&self, pointer: &Pointer, error: &CodecError) -> Error {
        self.report("a block", pointer, format!("checksum right, but {error}"))
    }

    /// Keeps damage for the report, once it is sure that the block was still in use.
    pub(crate) fn keep_damage(&self, damage: &Damage) {
        let report = DamageReport { place: damage.place.clone(), reason: damage.to_string() };
        let mut kept = self.damage.lock();
        if kept.len() < DAMAGE_MAX && !kept.contains(&report) {
            kept.push(report);
        }
    }
}

/// Whether stored bytes have the checksum that their pointer says.
fn verify(stored: &[u8], expected: &Checksum) -> std::result::Result<bool, String> {
    let kind = ChecksumKind::from_id(expected.kind)
        .ok_or_else(|| format!("unknown checksum kind {}", expected.kind))?;
    Ok(checksum(kind, stored) == expected.bytes)
}

/// Bytes that each copy of a stored block takes.
fn grains_bytes(pointer: &Pointer) -> usize {
    usize::try_from(grains_needed(pointer.physical_len) * GRAIN_BYTES).unwrap_or(usize::MAX)
}

/// The content of a block whose stored bytes have been verified.
fn unpack(pointer: &Pointer, stored: Bytes) -> std::result::Result<Bytes, CodecError> {
    let logical_len = pointer.logical_len as usize;
    if pointer.codec == marram_format::pointer::codec_id::OFF && stored.len() == logical_len {
        return Ok(stored);
    }
    decompress(pointer.codec, &stored, logical_len).map(Bytes::from)
}

/// Birth and address are never those of two blocks. A block that waits to be adopted has birth 0,
/// which another one at its place could have later: it is not kept.
fn peek_key(encoded: &[u8]) -> Option<CacheKey> {
    let identity = Pointer::peek_identity(encoded).filter(|(birth, _)| birth.0 != 0);
    identity.map(|(birth, address)| (birth.0, address))
}

/// The key of a block that has a place of its own.
pub(crate) fn cache_key(pointer: &Pointer) -> Option<CacheKey> {
    pointer.address().map(|address| (pointer.birth.0, address))
}

fn damage(
    what: &'static str,
    pointer: &Pointer,
    devices: &[Arc<dyn Device>],
    reason: String,
) -> Error {
    let place = match pointer.extents().next() {
        None => "a pointer".to_owned(),
        Some(extent) => {
            let name = devices.get(usize::from(extent.device)).map(|device| device.name());
            let name = name.unwrap_or_else(|| format!("device {}", extent.device));
            format!("{name} offset {}", extent.start * GRAIN_BYTES)
        }
    };
    Error::Damaged(Damage { what, place, reason })
}

/// The media as they were when a root was taken.
pub(crate) struct At<'a> {
    pub(crate) media: &'a Media,
    pub(crate) epoch: u64,
}

impl NodeSource for At<'_> {
    fn node(&self, pointer: &Bytes) -> Result<Arc<Node>> {
        self.media.node(pointer, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::{Extent, Media};
    use marram_device::MemoryDevice;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_copy_is_made_good_only_where_blocks_can_lie() {
        shuttle::check_random(make_good, 1);
    }

    fn make_good() {
        let memory = Arc::new(MemoryDevice::new(2 << 20));
        let media = Media::new(vec![memory.clone()], 0);
        let at = |device, start| vec![Extent { device, start, grains: 1 }];
        let bad = vec![at(9, 300), at(0, u64::MAX), at(0, 512), at(0, 1), at(0, 300)];
        media.note_heals(bad, b"good", media.epoch());
        media.heal().expect("what cannot be made good is left alone");
        assert_eq!(media.counters.healed_blocks.load(Ordering::Relaxed), 1);
        let bytes = memory.snapshot();
        assert_eq!(&bytes[300 * 4096..300 * 4096 + 4], b"good");
        assert!(bytes[..300 * 4096].iter().all(|byte| *byte == 0));
    }
}
