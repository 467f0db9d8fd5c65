//! The host's error numbers as errors of the contract.

use marram_vfs::Error;
use rustix::io::Errno;

/// The error that has this number.
pub(crate) fn error(errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Error::NotFound,
        Errno::ACCESS => Error::AccessDenied,
        Errno::BUSY => Error::Busy,
        Errno::EXIST => Error::Exists,
        Errno::XDEV => Error::CrossDevice,
        Errno::NOTDIR => Error::NotDirectory,
        Errno::ISDIR => Error::IsDirectory,
        Errno::INVAL => Error::InvalidArgument("the host refuses it"),
        Errno::NFILE | Errno::MFILE => Error::TooManyOpen,
        Errno::FBIG => Error::FileTooLarge,
        Errno::NOSPC => Error::NoSpace,
        Errno::ROFS => Error::ReadOnly,
        Errno::MLINK => Error::TooManyLinks,
        Errno::RANGE => Error::BufferTooSmall,
        Errno::NAMETOOLONG => Error::NameTooLong,
        Errno::NOTEMPTY => Error::NotEmpty,
        Errno::NODATA => Error::NoAttribute,
        Errno::PERM => Error::NotPermitted,
        Errno::TOOBIG => Error::ValueTooLarge,
        Errno::NXIO => Error::NoSuchOffset,
        Errno::OPNOTSUPP => Error::NotSupported,
        Errno::STALE => Error::Stale,
        Errno::DQUOT => Error::QuotaExceeded,
        other => Error::Io(other.to_string()),
    }
}
