//! Files and block devices of the system, through its page cache; long writes go past it.
//!
//! One open file serves reads, buffered writes and flushes for as long as the device is in use:
//! Linux reports a failed write-back only to files that were open when it happened.
//!
//! Invariant: a flush that fails is the last one. When Linux fails to write a page back it reports
//! that once and then marks the page clean, so the next `fdatasync` answers success for bytes that
//! never reached the medium. PostgreSQL lost data that way ("fsyncgate", 2018; Rebello et al., "Can
//! Applications Recover from fsync Failures?", USENIX ATC 2020). Here the first failure is kept,
//! and every later write and flush answers with it, until the device is opened anew and the pool
//! starts from what its last good commit left.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::Errno;

use crate::direct::{DirectWriter, write_buffered};
use crate::lock::Lock;
use crate::{Device, Error, GRAIN_BYTES, Result, checked_range};

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    path: PathBuf,
    file: File,
    direct: Option<DirectWriter>,
    kind: Kind,
    read_only: bool,
    /// Held while flushing: a second flush beside one that fails would be answered success,
    /// since the kernel reports a failure only once.
    flush_turn: Mutex<()>,
    flush_failure: OnceLock<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    RegularFile,
    BlockDevice,
}

impl FileDevice {
    /// Opens a regular file or a block device that exists.
    ///
    /// # Errors
    /// The path does not lead to one, or the system refuses.
    pub fn open(path: &Path, read_only: bool) -> Result<FileDevice> {
        let refused = |error: io::Error| unusable(path, format!("cannot be opened: {error}"));
        // Looked at first: opening a pipe would wait for its other end.
        let kind = kind_of(path, &std::fs::metadata(path).map_err(refused)?)?;
        let file = OpenOptions::new().read(true).write(!read_only).open(path).map_err(refused)?;
        if kind_of(path, &file.metadata().map_err(refused)?)? != kind {
            return Err(unusable(path, "was replaced while it was opened".into()));
        }
        Ok(FileDevice::of(path, file, kind, read_only))
    }

    /// Makes a file of zeros that only its owner may read, either sparse or with all its space
    /// set aside, and opens it.
    ///
    /// # Errors
    /// The path exists already, or the system refuses; then there is no file afterwards.
    pub fn create(path: &Path, size_bytes: u64, preallocate: bool) -> Result<FileDevice> {
        let refused = |error: io::Error| unusable(path, format!("cannot be created: {error}"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(refused)?;
        if let Err(error) = make_durable_file(path, &file, size_bytes, preallocate) {
            // The first error is the one to tell; a file that cannot be removed stays behind.
            let _ = std::fs::remove_file(path);
            return Err(refused(error));
        }
        Ok(FileDevice::of(path, file, Kind::RegularFile, false))
    }

    fn of(path: &Path, file: File, kind: Kind, read_only: bool) -> FileDevice {
        let direct = if read_only { None } else { DirectWriter::of(&file) };
        FileDevice {
            path: path.to_path_buf(),
            file,
            direct,
            kind,
            read_only,
            flush_turn: Mutex::new(()),
            flush_failure: OnceLock::new(),
        }
    }

    /// The path that the device was opened at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is a block device and not a regular file.
    pub fn is_block_device(&self) -> bool {
        self.kind == Kind::BlockDevice
    }

    /// Makes a file at least `new_size_bytes` large, durably; the new bytes are zeros.
    ///
    /// # Errors
    /// A block device that is smaller than that (it has to be grown by the means of its own kind),
    /// or the system refuses.
    pub fn grow(&self, new_size_bytes: u64) -> Result<()> {
        self.check_writable()?;
        let size = self.size()?;
        if size >= new_size_bytes {
            return Ok(());
        }
        if self.kind == Kind::BlockDevice {
            let reason = format!(
                "is a block device of {size} bytes, not {new_size_bytes}: grow it with the tool \
                 that made it first"
            );
            return Err(unusable(&self.path, reason));
        }
        let grown = self.file.set_len(new_size_bytes);
        grown
            .and_then(|()| self.file.sync_all())
            .map_err(|error| self.failed("grow", size, new_size_bytes - size, &error))
    }

    /// Takes the device for this process alone, until the [`Lock`] is dropped or the process ends.
    ///
    /// # Errors
    /// Somebody else has it; the message names the process where the system knows it.
    pub fn lock_exclusive(&self) -> Result<Lock> {
        let lock = Lock::take(&self.file, &self.path, self.is_block_device())?;
        if self.is_block_device() {
            self.forget_pages();
        }
        Ok(lock)
    }

    /// Has the kernel read a block device anew. Its cache lasts for as long as anybody has the
    /// device open, and knows nothing of what is written past it: to the file behind a loop device,
    /// or to the whole disk of a partition.
    fn forget_pages(&self) {
        let _stays_in_memory = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn check_writable(&self) -> Result<()> {
        if let Some(failure) = self.flush_failure.get() {
            return Err(failure.clone());
        }
        if self.read_only {
            return Err(unusable(&self.path, "is open for reading only".into()));
        }
        Ok(())
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        checked_range(&self.name(), offset, len, self.size()?).map(|_| ())
    }

    fn failed(&self, action: &'static str, offset: u64, len: u64, error: &io::Error) -> Error {
        Error::Failed { device: self.name(), action, offset, len, reason: error.to_string() }
    }

    fn system_size(&self) -> io::Result<u64> {
        match self.kind {
            Kind::RegularFile => Ok(self.file.metadata()?.len()),
            // Nobody uses the position, so moving it disturbs nobody.
            Kind::BlockDevice => (&self.file).seek(SeekFrom::End(0)),
        }
    }
}

impl Device for FileDevice {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn size(&self) -> Result<u64> {
        self.system_size().map_err(|error| self.failed("size", 0, 0, &error))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let len = buffer.len() as u64;
        self.check_range(offset, len)?;
        self.file
            .read_exact_at(buffer, offset)
            .map_err(|error| self.failed("read", offset, len, &error))
    }

    fn expect_read(&self, offset: u64, len: u64) {
        // A hint: a system that does not take it reads later.
        let _not_taken = fadvise(&self.file, offset, NonZeroU64::new(len), Advice::WillNeed);
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.write_parts(offset, &[buffer])
    }

    fn write_parts(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.check_writable()?;
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.check_range(offset, len)?;
        let written = match &self.direct {
            Some(direct) => direct.write(&self.file, offset, parts),
            None => write_buffered(&self.file, offset, parts),
        };
        written.map_err(|error| self.failed("write", offset, len, &error))
    }

    fn flush(&self) -> Result<()> {
        let _turn = self.flush_turn.lock();
        if let Some(failure) = self.flush_failure.get() {
            return Err(failure.clone());
        }
        // Also of one that is open to be read: what another process has left in the host's cache.
        self.file.sync_data().map_err(|error| {
            let failure = self.failed("flush", 0, 0, &error);
            self.flush_failure.get_or_init(|| failure).clone()
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        self.check_range(offset, len)?;
        let start = offset.next_multiple_of(GRAIN_BYTES);
        let end = (offset + len) / GRAIN_BYTES * GRAIN_BYTES;
        if start >= end {
            return Ok(());
        }
        // On a block device the kernel turns this into a discard or a write of zeros by the device.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, start, end - start) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            Err(errno) => Err(self.failed("discard", offset, len, &errno.into())),
        }
    }
}

fn unusable(path: &Path, reason: String) -> Error {
    Error::Unusable { device: path.display().to_string(), reason }
}

fn kind_of(path: &Path, metadata: &Metadata) -> Result<Kind> {
    let file_type = metadata.file_type();
    if file_type.is_file() {
        return Ok(Kind::RegularFile);
    }
    if file_type.is_block_device() {
        return Ok(Kind::BlockDevice);
    }
    let what = if file_type.is_dir() { "a directory" } else { "a special file" };
    let reason = format!("is {what}: a pool lives in a regular file or on a block device");
    Err(unusable(path, reason))
}

/// Sizes a new file and makes it and its name durable.
fn make_durable_file(path: &Path, file: &File, size: u64, preallocate: bool) -> io::Result<()> {
    if preallocate && size > 0 {
        fallocate(file, FallocateFlags::empty(), 0, size)?;
    } else {
        file.set_len(size)?;
    }
    file.sync_all()?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}
