//! A file that is mapped twice: once to read, without the right to write, and once for stores.
//!
//! A store that does not go through [`Mapped`] hits the first mapping, and the process dies by a
//! signal before the image is hurt. The lock of the file ends with the process that holds it.
//!
//! A page that cannot be had does not end the process: `faults` puts zeros in its place, and what
//! was read or stored there is refused. From then on nothing is stored, and what is read is read
//! from the file, which says of each byte whether it can be had.
//!
//! Byte-addressable memory, a DAX device or a DAX file that takes `MAP_SYNC`, is written back line
//! by line, unless the caches survive a power cut. On tmpfs a store is as durable as the file is,
//! as soon as it is done: a killed process loses none, and a stopped machine loses all of it. A
//! file elsewhere is written back page by page in any order, and there checkpoints keep what this
//! format promises. `media` tells them apart.

#![allow(unsafe_code, reason = "memory that is mapped from a file has no safe access")]

mod devices;
mod faults;
mod lines;
mod media;

pub use media::{Durable, MediumKind};

use super::{Medium, Unordered, WriteBack};
use crate::error::ImageError;
use crate::layout::{HEADER_BYTES, PAGE, PAGES_MAX, PAGES_MIN};
use devices::{DaxDevice, SYS};
use faults::Watch;
use lines::Flush;
use marram_vfs::Error;
use rustix::fs::{
    AtFlags, FallocateFlags, OFlags, Statx, StatxFlags, fallocate, fstat, fstatvfs, statx,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::time::UNIX_EPOCH;
use xxhash_rust::xxh3::xxh3_64;

/// Where the kernel has a number of this run of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Bytes of a block that `stat` counts.
const STAT_BLOCK: u64 = 512;

/// A mapping of a file.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// There until the mapping goes.
    watch: Option<Watch>,
}

/// An image in a mapped file, locked for this process.
pub struct Mapped {
    /// Keeps the lock.
    file: Arc<File>,
    /// Keeps that of a device, through whatever node it was opened.
    _device: Option<File>,
    kind: MediumKind,
    durable: Durable,
    /// How lines are written back, where they have to be.
    flush: Option<Flush>,
    /// The run of the machine, where there are checkpoints.
    host: Option<u64>,
    loads: Arc<Mapping>,
    stores: Option<Mapping>,
}

// SAFETY: the mappings are the value's own, and are reached through it alone.
unsafe impl Send for Mapping {}
// SAFETY: what is shared is read alone. A page that is read by a second thread is one that the
// states at the mount hold: no store goes there until all its readers have ended.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.watch.take());
        // SAFETY: the range was mapped by `Mapping::new`, and nothing refers to it any more.
        let _stays_mapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl Mapping {
    fn new(
        file: &impl AsFd,
        len: usize,
        rights: ProtFlags,
        flags: MapFlags,
    ) -> Result<Mapping, rustix::io::Errno> {
        // SAFETY: the kernel chooses a free range, and no reference into it is ever made.
        let start = unsafe { mmap(std::ptr::null_mut(), len, rights, flags, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        let mut mapping = Mapping { start, len, watch: None };
        mapping.watch = Some(Watch::begin(start, len).ok_or(rustix::io::Errno::MFILE)?);
        Ok(mapping)
    }

    /// Where the first page was that could not be had.
    fn fault(&self) -> Option<u64> {
        self.watch.as_ref().and_then(Watch::fault)
    }

    /// Copies what is there.
    fn read(&self, at: u64, out: &mut [u8]) {
        let from = self.at(at, out.len());
        if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *out) {
            // SAFETY: as below; most reads are those of a word, and take no call.
            *word = unsafe { from.cast::<[u8; 8]>().read() };
            return;
        }
        // SAFETY: `at` has checked the range, and `out` is not in the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// The address of `len` bytes from `at` on.
    fn at(&self, at: u64, len: usize) -> *mut u8 {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "the address is inside");
        // SAFETY: the range lies inside of the mapping.
        unsafe { self.start.as_ptr().add(at) }
    }
}

/// Mappings of a DAX file whose places on the medium are durable before they are stored to.
const SYNCED: MapFlags = MapFlags::SHARED_VALIDATE.union(MapFlags::SYNC);

/// Whether a file can be mapped like that.
fn takes_sync(file: &impl AsFd) -> bool {
    Mapping::new(file, PAGE as usize, ProtFlags::READ, SYNCED).is_ok()
}

/// The DAX device that an open file is.
fn device_of(file: &File) -> Option<DaxDevice> {
    let status = fstat(file).ok()?;
    let is_device = file.metadata().ok()?.file_type().is_char_device();
    is_device.then(|| DaxDevice::of(Path::new(SYS), status.st_rdev)).flatten()
}

/// The first bytes of what could be an image, on a device too.
///
/// # Errors
/// It cannot be read, or is shorter.
pub fn first_bytes(path: &Path) -> std::io::Result<[u8; HEADER_BYTES]> {
    let (mut file, mut bytes) = (File::open(path)?, [0; HEADER_BYTES]);
    match device_of(&file) {
        None => file.read_exact(&mut bytes)?,
        Some(device) => {
            let len = usize::try_from(device.align).unwrap_or(usize::MAX);
            let mapping = Mapping::new(&file, len, ProtFlags::READ, MapFlags::SHARED)?;
            mapping.read(0, &mut bytes);
            if mapping.fault().is_some() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
    Ok(bytes)
}

/// Bytes of an image on the DAX device at a path; none if there is no such device.
pub fn device_bytes(path: &Path) -> Option<u64> {
    // What is no device shall not do anything when it is opened.
    let is_device = std::fs::metadata(path).ok()?.file_type().is_char_device();
    let file = is_device.then(|| File::open(path))?.ok()?;
    Some(device_of(&file)?.image_bytes())
}

/// Locks a device for this process, through whatever node it was opened.
fn lock_device(file: &File, path: &Path) -> Result<Option<File>, ImageError> {
    let Some(device) = device_of(file) else { return Ok(None) };
    let common = device.common_file().map_err(|error| unusable(path, error.to_string()))?;
    lock(&common, path)?;
    Ok(Some(common))
}

fn unusable(path: &Path, reason: impl Into<String>) -> ImageError {
    ImageError::Unusable { path: path.to_owned(), reason: reason.into() }
}

/// What a file lies on.
fn kind_of(file: &File, path: &Path) -> Result<MediumKind, ImageError> {
    MediumKind::of(file).map_err(|error| match error {
        Errno::OPNOTSUPP => unusable(
            path,
            "a pmem home cannot lie on hugetlbfs, nor on a DAX device that a power cut empties or \
             whose lines this processor cannot write back",
        ),
        other => unusable(path, other.to_string()),
    })
}

/// Bits of `statx` that ask for the number of a mount that no other mount has had since the
/// machine was started: Linux 6.8.
const MOUNT_NUMBER: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The number of the mount by which a file was opened, 0 if Linux does not tell. A file system that
/// was unmounted meanwhile kept nothing in memory, and its medium may have lost what was written.
fn mount_of(file: &File) -> u64 {
    let told = statx(file, "", AtFlags::EMPTY_PATH, MOUNT_NUMBER);
    let is_told = |told: &Statx| told.stx_mask & MOUNT_NUMBER.bits() != 0;
    told.ok().filter(is_told).map_or(0, |told| told.stx_mnt_id)
}

/// A number of this run of the machine, of the mount and of a file, which is neither 0 nor the
/// highest. A copy of the file has another.
///
/// # Errors
/// The system does not tell.
pub fn host_of(file: &File, path: &Path) -> Result<u64, ImageError> {
    let failed = |error: std::io::Error| unusable(path, error.to_string());
    let boot = std::fs::read(BOOT_ID).map_err(failed)?;
    let status = file.metadata().map_err(failed)?;
    // Numbers of inodes are used again; the moment at which a file was made is not.
    let made = status.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    let made = made.unwrap_or_default().as_nanos();
    let (device, inode) = (status.dev().to_le_bytes(), status.ino().to_le_bytes());
    let (made, mount) = (made.to_le_bytes(), mount_of(file).to_le_bytes());
    let number = xxh3_64(&[&boot[..], &device, &inode, &made, &mount].concat());
    Ok(number.clamp(1, u64::MAX - 1))
}

/// A file whose pages are written back.
struct Written(Arc<File>);

impl WriteBack for Written {
    fn write_back(&self) -> marram_vfs::Result<()> {
        self.0
            .sync_data()
            .map_err(|error| Error::Io(format!("the image cannot be written: {error}")))
    }
}

fn lock(file: &File, path: &Path) -> Result<(), ImageError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(ImageError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(unusable(path, format!("lock: {error}"))),
    }
}

impl Mapped {
    /// Makes a file of `bytes` at `path`, all of it allocated, and maps it. If `replace` says so, a
    /// file that is there is taken, whatever it holds; a DAX device always is.
    ///
    /// # Errors
    /// The file is there, or cannot be made, or its medium does not do. Then all is as it was.
    pub fn create(path: &Path, bytes: u64, replace: bool) -> Result<Mapped, ImageError> {
        if !bytes.is_multiple_of(PAGE) || !(PAGES_MIN..=PAGES_MAX).contains(&(bytes / PAGE)) {
            return Err(unusable(path, "a pmem home has 1 MiB to 8 TiB, in pages of 4 KiB"));
        }
        if let Some(whole) = device_bytes(path) {
            if bytes != whole {
                return Err(unusable(path, format!("a device is taken whole: {whole} bytes")));
            }
            let file = OpenOptions::new().read(true).write(true).open(path);
            let file = file.map_err(|error| unusable(path, error.to_string()))?;
            lock(&file, path)?;
            return Mapped::map(file, path, bytes, true, None);
        }
        let is_new = !(replace && std::fs::exists(path).unwrap_or(true));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(is_new).mode(0o600);
        // What is not a regular file shall not do anything when it is opened.
        options.custom_flags(OFlags::NONBLOCK.bits() as i32);
        let file = options.open(path).map_err(|error| unusable(path, error.to_string()))?;
        let made = Mapped::allocate(&file, path, bytes);
        if made.is_err() && is_new {
            let _is_gone = std::fs::remove_file(path);
        }
        made?;
        Mapped::map(file, path, bytes, true, None)
    }

    /// Gives a file all the space of an image. Only when it has that, its size is another.
    fn allocate(file: &File, path: &Path, bytes: u64) -> Result<(), ImageError> {
        let failed = |error: std::io::Error| unusable(path, error.to_string());
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(unusable(path, "it is no regular file"));
        }
        kind_of(file, path)?;
        lock(file, path)?;
        let too_full =
            |reason: String| unusable(path, format!("{bytes} bytes cannot be had: {reason}"));
        let space = fstatvfs(file).map_err(|error| unusable(path, error.to_string()))?;
        let has = space.f_bavail.saturating_mul(space.f_frsize);
        let has = has.saturating_add(found.blocks() * STAT_BLOCK);
        // A tmpfs without a limit says that it has no blocks.
        if space.f_blocks != 0 && has < bytes {
            return Err(too_full(format!("{has} are free")));
        }
        fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes)
            .map_err(|error| too_full(error.to_string()))?;
        file.set_len(bytes).map_err(failed)
    }

    /// What the file lies on.
    pub fn kind(&self) -> MediumKind {
        self.kind
    }

    /// When what has returned is durable.
    pub fn durable(&self) -> Durable {
        self.durable
    }

    /// Maps the file at `path`.
    ///
    /// # Errors
    /// There is none, another process uses it, or its medium does not keep what was asked for.
    pub fn open(
        path: &Path,
        read_only: bool,
        durable: Option<Durable>,
    ) -> Result<Mapped, ImageError> {
        let failed = |error: std::io::Error| unusable(path, error.to_string());
        let file = OpenOptions::new().read(true).write(!read_only).open(path).map_err(failed)?;
        lock(&file, path)?;
        let kind = kind_of(&file, path)?;
        durable.map_or(Ok(()), |asked| kind.check(asked)).map_err(|why| unusable(path, why))?;
        if let Some(device) = device_of(&file) {
            return Mapped::map(file, path, device.image_bytes(), !read_only, durable);
        }
        let found = file.metadata().map_err(failed)?;
        let bytes = found.len();
        if !found.is_file() || bytes < PAGES_MIN * PAGE || !bytes.is_multiple_of(PAGE) {
            return Err(ImageError::NoImage(format!("{} has {bytes} bytes", path.display())));
        }
        if found.blocks() * STAT_BLOCK < bytes {
            return Err(unusable(
                path,
                "the file is sparse, so a store could find no space: copy it with \
                 `cp --sparse=never`",
            ));
        }
        Mapped::map(file, path, bytes, !read_only, durable)
    }

    fn map(
        file: File,
        path: &Path,
        bytes: u64,
        writes: bool,
        durable: Option<Durable>,
    ) -> Result<Mapped, ImageError> {
        let len = usize::try_from(bytes).map_err(|_| unusable(path, "too large to be mapped"))?;
        let device = lock_device(&file, path)?;
        let kind = kind_of(&file, path)?;
        let is_synced = matches!(kind, MediumKind::Lines { is_device: false, .. });
        let flags = if is_synced { SYNCED } else { MapFlags::SHARED };
        let map = |rights| {
            Mapping::new(&file, len, rights, flags)
                .map_err(|error| unusable(path, format!("cannot be mapped: {error}")))
        };
        let loads = Arc::new(map(ProtFlags::READ)?);
        let stores = if writes { Some(map(ProtFlags::WRITE)?) } else { None };
        let durable = durable.unwrap_or(kind.durable());
        let host = match durable {
            Durable::Checkpoint => Some(host_of(&file, path)?),
            Durable::Each | Durable::Epoch => None,
        };
        let flush = match kind {
            MediumKind::Lines { caches_survive: false, .. } => Flush::of_processor(),
            _ => None,
        };
        let file = Arc::new(file);
        Ok(Mapped { file, _device: device, kind, durable, flush, host, loads, stores })
    }

    /// Where the first page was that could not be had.
    fn fault(&self) -> Option<u64> {
        self.loads.fault().or_else(|| self.stores.as_ref().and_then(Mapping::fault))
    }

    /// Refuses to go on after a fault.
    fn check(&self) -> marram_vfs::Result<()> {
        self.failure().map_or(Ok(()), |why| Err(Error::Io(why)))
    }

    /// Reads from the file, and not from the mapping.
    fn read_file(&self, at: u64, out: &mut [u8]) -> marram_vfs::Result<()> {
        self.file.read_exact_at(out, at).map_err(|error| {
            let why = match error.kind() {
                ErrorKind::UnexpectedEof => "the file has been cut before it".to_owned(),
                _ => error.to_string(),
            };
            Error::Io(format!("{} bytes at {at:#x} of the image: {why}", out.len()))
        })
    }

    fn place(&self, at: u64, len: usize) -> *mut u8 {
        let stores = self.stores.as_ref();
        stores.expect("an image that is open to be read is never stored to").at(at, len)
    }
}

/// The mapping that is read, without the lock of the file.
struct Reader(Arc<Mapping>);

impl Medium for Reader {
    fn bytes(&self) -> u64 {
        self.0.len as u64
    }

    fn reader(&self) -> Box<dyn Medium> {
        Box::new(Reader(Arc::clone(&self.0)))
    }

    fn read(&self, at: u64, out: &mut [u8]) -> marram_vfs::Result<()> {
        self.0.read(at, out);
        self.failure().map_or(Ok(()), |why| Err(Error::Io(why)))
    }

    fn store(&mut self, _at: u64, _bytes: &[u8]) -> marram_vfs::Result<()> {
        Err(Error::ReadOnly)
    }

    fn fill(&mut self, _at: u64, _bytes: &[u8]) -> marram_vfs::Result<()> {
        Err(Error::ReadOnly)
    }

    fn failure(&self) -> Option<String> {
        self.0.fault().map(|at| format!("the image cannot be had at {at:#x}"))
    }

    fn flush(&mut self, _at: u64, _bytes: u64) {}

    fn fence(&mut self) {}
}

impl Medium for Mapped {
    fn bytes(&self) -> u64 {
        self.loads.len as u64
    }

    fn reader(&self) -> Box<dyn Medium> {
        Box::new(Reader(Arc::clone(&self.loads)))
    }

    fn read(&self, at: u64, out: &mut [u8]) -> marram_vfs::Result<()> {
        self.loads.read(at, out);
        // After a fault there are zeros in the place of the mapping.
        if self.fault().is_some() { self.read_file(at, out) } else { Ok(()) }
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> marram_vfs::Result<()> {
        self.check()?;
        let to = self.place(at, bytes.len());
        assert!((to as usize).is_multiple_of(bytes.len()), "an atomic store lies inside a word");
        // SAFETY: the range lies inside of the mapping and is aligned, and all stores there are
        // made by this process, under the lock of the image.
        unsafe {
            match *bytes {
                [a] => AtomicU8::from_ptr(to).store(a, Ordering::Release),
                [a, b] => AtomicU16::from_ptr(to.cast())
                    .store(u16::from_le_bytes([a, b]).to_le(), Ordering::Release),
                [a, b, c, d] => AtomicU32::from_ptr(to.cast())
                    .store(u32::from_le_bytes([a, b, c, d]).to_le(), Ordering::Release),
                [a, b, c, d, e, f, g, h] => AtomicU64::from_ptr(to.cast())
                    .store(u64::from_le_bytes([a, b, c, d, e, f, g, h]).to_le(), Ordering::Release),
                _ => unreachable!("a store has one, two, four or eight bytes"),
            }
        }
        self.check()
    }

    fn fill(&mut self, at: u64, bytes: &[u8]) -> marram_vfs::Result<()> {
        self.check()?;
        let to = self.place(at, bytes.len());
        // SAFETY: `place` has checked the range, and `bytes` is not in the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
        self.check()
    }

    fn unordered(&self) -> Option<Unordered> {
        let write_back = Arc::new(Written(Arc::clone(&self.file)));
        self.host.map(|host| Unordered { host, write_back })
    }

    fn failure(&self) -> Option<String> {
        let at = self.fault()?;
        let bytes = self.bytes();
        let why = match self.file.metadata() {
            Ok(found) if found.len() < bytes => {
                format!("its file has {} bytes now, and had {bytes}", found.len())
            }
            _ => "its host is full, or the memory is broken".to_owned(),
        };
        Some(format!("the image cannot be had at {at:#x}: {why}"))
    }

    /// A killed process loses no store. Where lines are not written back, what a stopped machine
    /// loses is up to checkpoints, or to caches that survive.
    fn flush(&mut self, at: u64, bytes: u64) {
        if let Some(flush) = self.flush {
            let start = self.place(at, usize::try_from(bytes).unwrap_or(usize::MAX));
            // SAFETY: `place` has checked the range.
            unsafe { flush.lines(start, bytes) }
        }
    }

    fn fence(&mut self) {
        match self.flush {
            Some(flush) => flush.wait(),
            None => fence(Ordering::SeqCst),
        }
    }

    fn is_epoch(&self) -> bool {
        self.durable == Durable::Epoch
    }

    /// On tmpfs the first store to a page is a fault of the mapping. One call has them all.
    /// Elsewhere it would have pages written back that nothing was stored to.
    fn prepare(&mut self, at: u64, bytes: u64) {
        if self.kind != MediumKind::Memory {
            return;
        }
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let start = self.place(at, len);
        // Kernels before 5.14 do not know it, and a store does without.
        // SAFETY: `place` has checked the range, and no byte of it changes.
        let _unknown = unsafe { madvise(start.cast(), len, Advice::LinuxPopulateWrite) };
    }
}

impl std::fmt::Debug for Mapped {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Mapped").field("file", &self.file).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Durable, Mapped, MediumKind};
    use crate::memory::{Medium, Memory};
    use marram_vfs::Error;
    use rustix::fs::{CWD, FileType, Mode};
    use std::path::{Path, PathBuf};

    fn scratch() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("image");
        (folder, path)
    }

    #[test]
    fn stores_of_every_width_are_seen_and_stay() {
        let (_folder, path) = scratch();
        let mut memory = Memory::new(Box::new(Mapped::create(&path, 1 << 20, false).unwrap()));
        for (at, width, value) in [(8, 8, u64::MAX / 3), (16, 4, 7), (22, 2, 0x1234), (25, 1, 9)] {
            memory.store(at, width, value).unwrap();
        }
        memory.fill(100, b"bytes").unwrap();
        memory.persist();
        drop(memory);
        let mapped = Mapped::open(&path, true, None).unwrap();
        let mut out = [0; 26];
        mapped.read(0, &mut out).unwrap();
        assert_eq!(out[8..16], (u64::MAX / 3).to_le_bytes());
        assert_eq!(out[16..26], [7, 0, 0, 0, 0, 0, 0x34, 0x12, 0, 9]);
    }

    #[test]
    fn two_at_a_time_sparse_files_and_other_modes_are_refused() {
        let (folder, path) = scratch();
        let other = folder.path().join("other");
        drop(Mapped::create(&other, 1 << 20, false).unwrap());
        let _held = Mapped::create(&path, 1 << 20, false).unwrap();
        let said = |path: &Path| Mapped::open(path, false, None).unwrap_err().to_string();
        assert!(said(&path).contains("another process"));
        let sparse = folder.path().join("sparse");
        std::fs::File::create(&sparse).unwrap().set_len(1 << 20).unwrap();
        assert!(said(&sparse).contains("sparse"));
        let modes = [Durable::Epoch, Durable::Checkpoint].map(|mode| {
            let refused = Mapped::open(&other, false, Some(mode)).unwrap_err().to_string();
            refused.contains(&format!("durable={} cannot be kept", mode.name()))
        });
        assert_eq!(modes, [true; 2]);
        let again = Mapped::create(&path, 1 << 20, false).unwrap_err().to_string();
        assert!(again.contains("exists"), "{again}");
    }
    /// The temporary folder is on a disk where there is one.
    #[test]
    fn an_ordinary_file_has_checkpoints_and_a_number_of_this_run() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("image");
        let made = Mapped::create(&path, 1 << 20, false).unwrap();
        if made.kind() == MediumKind::Memory {
            return;
        }
        let host = made.unordered().unwrap().host;
        drop(made);
        let again = Mapped::open(&path, false, Some(Durable::Checkpoint)).unwrap();
        assert_eq!(again.unordered().unwrap().host, host);
        drop(again);
        let refused = Mapped::open(&path, false, Some(Durable::Each)).unwrap_err().to_string();
        assert!(refused.contains("in any order"), "{refused}");
        std::fs::copy(&path, folder.path().join("copy")).unwrap();
        let copy = Mapped::open(&folder.path().join("copy"), false, None);
        assert!(copy.is_err() || copy.unwrap().unordered().unwrap().host != host);
    }

    #[test]
    fn what_cannot_be_replaced_stays_as_it_was() {
        let (folder, path) = scratch();
        std::fs::write(&path, vec![7; 2 << 20]).unwrap();
        let too_large = Mapped::create(&path, 8 << 40, true).unwrap_err().to_string();
        assert!(too_large.contains("cannot be had"), "{too_large}");
        assert!(std::fs::read(&path).unwrap() == vec![7; 2 << 20]);
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for other in [fifo, folder.path().to_owned()] {
            let refused = Mapped::create(&other, 1 << 20, true).unwrap_err().to_string();
            assert!(refused.contains("regular file") || refused.contains("directory"), "{refused}");
            assert!(std::fs::symlink_metadata(&other).is_ok());
        }
        let new = folder.path().join("new");
        assert!(Mapped::create(&new, 8 << 40, true).is_err() && !new.exists());
    }

    #[test]
    fn a_cut_file_is_an_error_and_no_dead_process() {
        let (_folder, path) = scratch();
        let mut memory = Memory::new(Box::new(Mapped::create(&path, 1 << 20, false).unwrap()));
        memory.store(8192, 8, 7).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(4096 * 3).unwrap();
        assert_eq!(memory.word(8192), Ok(7));
        assert!(memory.failure().is_none());
        let Err(Error::Io(said)) = memory.word(4096 * 9 + 8) else { panic!("it was read") };
        assert!(said.contains("has been cut"), "{said}");
        let why = memory.failure().unwrap();
        assert!(why.contains("0x9008") && why.contains("12288 bytes now"), "{why}");
        // What is there is read still, and nothing is stored any more.
        assert_eq!(memory.word(8192), Ok(7));
        assert!(memory.store(8192, 8, 9).is_err() && memory.fill(8200, &[1]).is_err());
        assert_eq!(memory.word(8192), Ok(7));
        assert!(memory.word(4096 * 3).is_err());
    }

    #[test]
    fn a_store_behind_the_end_of_a_cut_file_is_an_error() {
        for bytes in [1, 2, 4, 8] {
            let (_folder, path) = scratch();
            let mut memory = Memory::new(Box::new(Mapped::create(&path, 1 << 20, false).unwrap()));
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
            assert!(memory.store(8192, bytes, 1).is_err());
            assert!(memory.failure().is_some() && memory.word(0).is_ok());
        }
    }

    #[test]
    fn a_file_that_is_replaced_has_the_size_that_was_asked_for() {
        let (_folder, path) = scratch();
        for (was, bytes) in [(3 << 20, 1 << 20), (100, 2 << 20)] {
            std::fs::write(&path, vec![7; was]).unwrap();
            let mapped = Mapped::create(&path, bytes, true).unwrap();
            assert_eq!(mapped.bytes(), bytes);
            drop(mapped);
            assert!(Mapped::open(&path, false, None).is_ok(), "it is not sparse");
        }
    }
}
