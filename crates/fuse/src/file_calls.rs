//! Moving, sharing and finding ranges of files on a mount, and learning of one's quota, from the
//! side of the program that wants it: what the kernel has no way to pass on, or refuses before it
//! asks. Any program can do it with files that it has open; `marram range`, `marram reflink`,
//! `marram extents` and `marram quota` do.

use crate::protocol::flags::ioctl;
use crate::protocol::{Deed, FileCall, Prepared, decode_extents, decode_usage};
use crate::protocol::{EXTENTS_BYTES, PREPARE_BYTES, USAGE_BYTES, WITHDRAW_BYTES};
use marram_vfs::{Allocate, Extent, OwnerUsage, UsageOwner};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate, fstat, fstatfs, ftruncate};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use thiserror::Error;

/// Most bytes that one call shares, so that others get their turn.
const SHARED_BYTES_MAX: u64 = 1 << 30;

/// Why a range was not moved, shared or found.
#[derive(Debug, Error)]
pub enum FileCallError {
    /// The file is on something else, or on a Marram that is older than this.
    #[error("it is not on a mounted Marram file system that can do this")]
    NotOurs,
    /// The kernel passes on what is inside one mount only.
    #[error("they are on different mounts, and the kernel does not let those share blocks")]
    Apart,
    /// The kernel copied instead of asking the file system to share.
    #[error("the kernel copied {copied_bytes} bytes instead of sharing them")]
    Copied {
        /// How many bytes of the target have been written.
        copied_bytes: u64,
    },
    /// The file system, or the kernel, says no.
    #[error(transparent)]
    Refused(io::Error),
}

impl From<Errno> for FileCallError {
    fn from(errno: Errno) -> Self {
        FileCallError::Refused(errno.into())
    }
}

/// What `statfs` says of file systems that are served through FUSE.
const FUSE_MAGIC: u64 = 0x6573_5546;

/// Makes the control call with the number `COMMAND`, whose argument has `BYTES` bytes.
#[allow(unsafe_code, reason = "rustix has no safe wrapper for a driver's own ioctl")]
fn call<const COMMAND: u32, const BYTES: usize>(
    file: &File,
    call: FileCall,
) -> Result<[u8; BYTES], FileCallError> {
    if u64::try_from(fstatfs(file)?.f_type) != Ok(FUSE_MAGIC) {
        return Err(FileCallError::NotOurs);
    }
    let (command, bytes) = call.encode();
    assert_eq!(command, COMMAND, "a call goes under its own number");
    let mut argument: [u8; BYTES] = bytes.try_into().expect("a call has a fixed length");
    // SAFETY: the command's number says that the argument has `BYTES` bytes to be read and written,
    // and FUSE, to whose file this is, touches no others.
    let done = unsafe {
        let call = rustix::ioctl::Updater::<COMMAND, [u8; BYTES]>::new(&mut argument);
        rustix::ioctl::ioctl(file, call)
    };
    match done {
        Ok(()) => Ok(argument),
        Err(Errno::NOTTY | Errno::NOSYS) => Err(FileCallError::NotOurs),
        Err(errno) => Err(errno.into()),
    }
}

fn garbled() -> FileCallError {
    FileCallError::Refused(io::Error::other("the answer of the file system makes no sense"))
}

fn prepare(file: &File, deed: Deed, offset: u64, len: u64) -> Result<Prepared, FileCallError> {
    let wanted = FileCall::Prepare { deed, offset, len };
    let answer = call::<{ ioctl::PREPARE }, PREPARE_BYTES>(file, wanted)?;
    Prepared::decode(&answer).ok_or_else(garbled)
}

/// Collapses, inserts or unshares a range of a file that is open for writing, as
/// [`marram_vfs::Ranges::allocate`] does. What the kernel had cached of the file is written
/// before and dropped after.
///
/// # Errors
/// See [`FileCallError`]; then nothing has changed, unless the file has very many pieces.
pub fn change_range(
    file: &File,
    how: Allocate,
    offset: u64,
    len: u64,
) -> Result<(), FileCallError> {
    let size_before = size_of(file)?;
    let prepared = prepare(file, Deed::Allocate(how), offset, len)?;
    fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 0, prepared.len)?;
    // The kernel learns a new size when it asks for it, which it must before anyone appends.
    let reported = size_of(file)?;
    let size = match how {
        Allocate::Collapse => size_before.saturating_sub(len),
        Allocate::Insert => size_before.saturating_add(len),
        Allocate::Unshare => size_before.max(offset.saturating_add(len)),
        _ => size_before,
    };
    if prepared.kernel_owns_sizes && reported != size {
        ftruncate(file, size)?;
    }
    Ok(())
}

fn size_of(file: &File) -> Result<u64, FileCallError> {
    u64::try_from(fstat(file)?.st_size).map_err(|_| garbled())
}

/// Makes a range of `target`, which is open for writing, refer to the blocks of a range of
/// `source`, which is open for reading; copies nothing.
///
/// # Errors
/// See [`FileCallError`]; of a long range a part may have been shared then, from the front.
pub fn share_range(
    source: &File,
    source_offset: u64,
    target: &File,
    target_offset: u64,
    len: u64,
) -> Result<(), FileCallError> {
    if fstat(source)?.st_dev != fstat(target)?.st_dev {
        return Err(FileCallError::Apart);
    }
    // The kernel would shorten the range to what is there, and it would not be what was prepared.
    if source_offset.checked_add(len).is_none_or(|end| size_of(source).is_ok_and(|size| end > size))
    {
        return Err(Errno::INVAL.into());
    }
    let mut done = 0;
    while done < len {
        let (mut from, mut to) = (source_offset + done, target_offset + done);
        let wanted = (len - done).min(SHARED_BYTES_MAX);
        let offset = to;
        prepare(target, Deed::Share, offset, wanted)?;
        let bytes = usize::try_from(wanted).map_err(|_| garbled())?;
        let outcome = copy_file_range(source, Some(&mut from), target, Some(&mut to), bytes);
        let withdraw = FileCall::Withdraw { offset, len: wanted };
        let answer = call::<{ ioctl::WITHDRAW }, WITHDRAW_BYTES>(target, withdraw)?;
        let shared = outcome? as u64;
        if answer[0] != 0 && shared > 0 {
            return Err(FileCallError::Copied { copied_bytes: done + shared });
        }
        if shared == 0 {
            return Err(Errno::INVAL.into());
        }
        done += shared;
    }
    Ok(())
}

/// Where the content of an open file lies: the extents that end after `offset`, in order, as many
/// as one call returns. None means that there are no more.
///
/// # Errors
/// See [`FileCallError`].
pub fn extents(file: &File, offset: u64) -> Result<Vec<Extent>, FileCallError> {
    let wanted = FileCall::Extents { offset };
    match call::<{ ioctl::EXTENTS }, EXTENTS_BYTES>(file, wanted) {
        Ok(answer) => decode_extents(&answer).ok_or_else(garbled),
        Err(FileCallError::Refused(error)) if is_unsupported(&error) => Err(FileCallError::NotOurs),
        Err(error) => Err(error),
    }
}

/// What `owner` uses, and may use, of the file system that an open file or directory is in. The
/// caller may ask about its own user and groups and the file's project; an administrator about
/// every owner.
///
/// # Errors
/// See [`FileCallError`].
pub fn usage(file: &File, owner: UsageOwner) -> Result<OwnerUsage, FileCallError> {
    match call::<{ ioctl::USAGE }, USAGE_BYTES>(file, FileCall::Usage { owner }) {
        Ok(answer) => decode_usage(&answer).ok_or_else(garbled),
        Err(FileCallError::Refused(error)) if is_unsupported(&error) => Err(FileCallError::NotOurs),
        Err(error) => Err(error),
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error())
}
